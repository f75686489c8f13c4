//! Pronouns are whole words, in prose only.

use super::*;

fn lines_of(path: &str, text: &str) -> Vec<(&'static str, usize)> {
    let file = File { path: path.to_owned(), text: text.to_owned() };
    let findings = check_page(&file);
    findings.iter().map(|finding| (finding.rule, finding.line)).collect()
}

#[test]
fn comments_break_the_narrower_rule_first() {
    assert_eq!(rule_for_comment("what he, who asks"), Some("person"));
    assert_eq!(rule_for_comment("Nobody's"), Some("person"));
    assert_eq!(rule_for_comment("anyone who asks"), Some("person-who"));
    assert_eq!(rule_for_comment("the header, this, HE, is_his, whose"), None);
}

#[test]
fn literals_are_prose_from_two_words_on() {
    assert!(lines_of_literal("\"nobody\"").is_empty());
    assert_eq!(lines_of_literal("\"nobody waits\""), [0]);
    assert_eq!(lines_of_literal("\"a line\nfor whoever\nwaits\""), [1]);
}

#[test]
fn pages_are_read_outside_of_code() {
    let page = "# Page\nwho asks\n```\nwho asks\n```\nthe column `who`, his\n`who`\n";
    assert_eq!(lines_of("a.md", page), [("person-page", 2), ("person-page", 6)]);
    assert_eq!(lines_of("a.sql", "-- Whoever\nSELECT who;\n"), [("person-script", 1)]);
    assert_eq!(lines_of("a.csv", "he\n"), []);
}
