//! Numbers fall and never rise.

use super::*;
use crate::Finding;

fn survey(counts: &[(&str, usize)]) -> Survey {
    let findings = counts
        .iter()
        .flat_map(|(path, count)| {
            (1..=*count).map(|line| Finding::new("odd-type", path, line, "Told"))
        })
        .collect();
    Survey { findings, ..Survey::default() }
}

fn list(text: &str) -> Allowances {
    Allowances::parse(text).unwrap()
}

fn lines(allowances: &Allowances) -> String {
    allowances.render().replace(HEADER, "")
}

#[test]
fn the_list_is_rule_path_and_count() {
    let text = format!("{HEADER}bool-match b.rs 1\nodd-type a.rs 2\n");
    assert_eq!(list(&text).render(), text);
    assert_eq!(list(&text).total("odd-type"), 2);
    for bad in ["odd-type a.rs", "odd-type a.rs two", "odd-type a.rs 2 3", ""] {
        let error = Allowances::parse(&format!("# Header\n{bad}\n")).unwrap_err();
        assert!(error.starts_with("crates/tidy/allowances.txt:2:"), "{error}");
    }
}

#[test]
fn of_two_lines_the_smaller_holds() {
    let merged = list("odd-type b.rs 1\nodd-type a.rs 2\nodd-type a.rs 1\nodd-type c.rs 0\n");
    assert_eq!(lines(&merged), "odd-type a.rs 1\nodd-type b.rs 1\n");
}

#[test]
fn more_and_fewer_findings_are_complaints() {
    let allowances = list("odd-type a.rs 2\nodd-type b.rs 2\nodd-type gone.rs 1\n");
    let found = survey(&[("a.rs", 2), ("b.rs", 1), ("c.rs", 1)]);
    let lower = "lower the number with `cargo run -p egret-tidy --example language -- lower`";
    assert_eq!(
        allowances.compare(&found),
        [
            "c.rs: odd-type: 1 found, 0 allowed:\n    c.rs:1: odd-type: Told".to_owned(),
            format!("b.rs: odd-type: 1 found, 2 allowed: {lower}"),
            format!("gone.rs: odd-type: 0 found, 1 allowed: {lower}"),
        ]
    );
    assert!(allowances.compare(&survey(&[("a.rs", 2), ("b.rs", 2), ("gone.rs", 1)])).is_empty());
}

#[test]
fn lowering_raises_nothing() {
    let mut allowances = list("odd-type a.rs 2\nodd-type b.rs 2\nodd-type gone.rs 1\n");
    allowances.lower(&survey(&[("a.rs", 3), ("b.rs", 1), ("c.rs", 1)]).counts());
    assert_eq!(lines(&allowances), "odd-type a.rs 2\nodd-type b.rs 1\n");
}

#[test]
fn a_moved_file_takes_its_allowance_along() {
    let mut allowances = list("odd-type a.rs 3\n");
    let found = survey(&[("a.rs", 1), ("new.rs", 4)]).counts();
    allowances.transfer("a.rs", "new.rs", &found);
    assert_eq!(lines(&allowances), "odd-type a.rs 1\nodd-type new.rs 2\n");
}

#[test]
fn a_moved_directory_takes_all_allowances_along() {
    let mut allowances = list("odd-type x/a.rs 1\nodd-type x/y/b.rs 2\nodd-type xz.rs 1\n");
    let found = survey(&[("n/a.rs", 1), ("n/y/b.rs", 1), ("xz.rs", 1)]).counts();
    allowances.transfer("x/", "n/", &found);
    assert_eq!(
        lines(&allowances),
        "odd-type n/a.rs 1\nodd-type n/y/b.rs 1\nodd-type x/y/b.rs 1\nodd-type xz.rs 1\n"
    );
}
