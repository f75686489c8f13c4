//! The house vocabulary over the whole checkout: no file has more findings than it is allowed, and
//! no allowance is larger than it must be.

use egret_tidy::language::allowances::{self, Allowances};
use egret_tidy::language::{RULES, Survey, glossary};

use crate::{FILES, assert_passes, file_text};

/// One test, as a survey parses every file of the checkout.
#[test]
fn findings_only_become_fewer_and_the_glossary_names_types() {
    let survey = Survey::new(&FILES);
    let allowances = Allowances::parse(file_text(allowances::PATH)).unwrap();
    let complaints = allowances.compare(&survey);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
    let page = FILES.iter().find(|file| file.path == glossary::PAGE);
    let findings = glossary::check(page.expect("the glossary is kept"), &survey);
    assert_passes(&["no-such-type"], &findings);
}

#[test]
fn allowances_are_sorted_and_name_rules() {
    let text = file_text(allowances::PATH);
    let allowances = Allowances::parse(text).unwrap();
    assert!(
        text == allowances.render(),
        "{} is not as it is written: run `cargo run -p egret-tidy --example language -- lower`",
        allowances::PATH
    );
    let rules = text.lines().filter(|line| !line.starts_with('#'));
    let unknown: Vec<&str> = rules
        .filter(|line| !RULES.iter().any(|rule| line.starts_with(&format!("{} ", rule.name))))
        .collect();
    assert!(unknown.is_empty(), "no such rule: {unknown:?}");
}
