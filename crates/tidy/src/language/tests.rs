//! A survey of a small checkout: findings of all kinds, in order, and their measures.

use expect_test::expect;

use super::*;

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[test]
fn a_survey_has_the_findings_of_all_rules() {
    let survey = Survey::new(&[
        file(
            "crates/a/src/lib.rs",
            "//! A library.\n/// They.\npub struct Told;\nstruct Row;\n\nfn f(a: (u8, u8)) {}\n",
        ),
        file("crates/a/src/broken.rs", "fn f( {\n"),
        file("docs/a.md", "He waits.\n"),
    ]);
    let lines: Vec<String> = survey.findings.iter().map(Finding::to_string).collect();
    expect![[r#"
        crates/a/src/broken.rs:1: unreadable-source: cannot parse string into token stream
        crates/a/src/lib.rs:2: short-doc: /// They.
        crates/a/src/lib.rs:2: empty-phrase: /// They.
        crates/a/src/lib.rs:3: odd-type: Told
        crates/a/src/lib.rs:3: unused-pub: Told
        crates/a/src/lib.rs:6: tuple-parameter: f
        docs/a.md:1: person-page: He waits."#]]
    .assert_eq(&lines.join("\n"));
    assert_eq!(survey.line_count, 7);
    assert_eq!(survey.type_count, 2);
    assert_eq!(survey.doc_count, 1);
    let measured = |name: &str| {
        let rule = RULES.iter().find(|rule| rule.name == name).unwrap();
        survey.measure(rule)
    };
    assert_eq!(measured("odd-type"), 50.0);
    assert_eq!(measured("short-doc"), 100.0);
    assert_eq!(measured("tuple-parameter"), 1.0);
    assert_eq!(measured("bool-match"), 0.0);
}

#[test]
fn every_finding_has_a_rule_in_the_table() {
    let survey = Survey::new(&[
        file(
            "crates/a/src/lib.rs",
            "//! Nobody reads.\n// Who reads.\nstruct Measured;\nstruct Measured;\n",
        ),
        file("a.sql", "-- Nobody reads.\n"),
    ]);
    let known = |name: &str| RULES.iter().any(|rule| rule.name == name);
    let rules: Vec<&str> = survey.findings.iter().map(|finding| finding.rule).collect();
    assert!(rules.len() >= 7, "{rules:?}");
    assert!(rules.iter().all(|rule| known(rule)), "{rules:?}");
}
