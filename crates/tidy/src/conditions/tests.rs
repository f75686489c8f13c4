//! Names with and without a row.

use super::*;

fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

fn subjects(page: &str, source: &str) -> Vec<String> {
    let source = file("crates/a/src/lib.rs", source);
    let found = check(&file(PAGE, page), &[&source]);
    found
        .iter()
        .map(|finding| format!("{} {} {}", finding.line, finding.rule, finding.subject))
        .collect()
}

#[test]
fn names_and_rows_that_match_are_fine() {
    let page = "| condition | meaning |\n|---|---|\n| `disk_full` | x |\n| `clients_slow` | y |\n";
    let source = "fn a() {\n    Condition::new(\n        \"disk_full\", \"a\");\n    condition::occur(\"clients_slow\", \"b\", e, m);\n    SeccompCondition::new(argument);\n    Condition::new(\"test_it\", \"c\");\n}\n";
    assert!(subjects(page, source).is_empty(), "{:?}", subjects(page, source));
}

#[test]
fn what_is_missing_on_either_side_is_found() {
    let page = "| `gone` | x |\n";
    let source = "\nCondition::new(\"disk_full\", \"a\");\nConditionSet::new(name);\n";
    assert_eq!(
        subjects(page, source),
        [
            "3 condition-name not a literal",
            "2 unlisted-condition disk_full",
            "1 no-such-condition gone",
        ]
    );
}
