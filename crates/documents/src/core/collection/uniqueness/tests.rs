//! Elements that repeat others.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn check(paths: &[&str], body: &Value, expected: Expect) {
    let paths: Vec<Path> = paths.iter().map(|path| path.parse().unwrap()).collect();
    let violations = UniqueElements::compile(&paths).violations(body);
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn elements_differ_in_at_least_one_path() {
    let body = json!({"all": [{"a": 1, "b": {"c": "x"}}, {"a": 1, "b": {"c": "y"}}, {"a": 1.0, "b": {"c": "x"}}]});
    check(
        &["/all/*/a", "/all/*/b/c"],
        &body,
        expect![
            "/all/2/a: the element has the same values as an earlier one: `/all/2/a`, `/all/2/b/c` must differ from `/all/0/a`, `/all/0/b/c`"
        ],
    );
    check(
        &["/all/*"],
        &json!({"all": ["a", "b", "a"]}),
        expect![
            "/all/2: the element has the same values as an earlier one: `/all/2` must differ from `/all/0`"
        ],
    );
}

#[test]
fn elements_without_a_value_are_not_compared() {
    let body = json!({"all": [{"a": 1}, {"a": 1, "b": null}, {"a": 1}, {"a": 1, "b": 2}]});
    check(&["/all/*/a", "/all/*/b"], &body, expect![""]);
}

#[test]
fn elements_of_different_arrays_may_be_alike() {
    let body = json!({"all": [{"in": [{"a": 1}, {"a": 2}]}, {"in": [{"a": 1}, {"a": 1}]}]});
    check(
        &["/all/*/in/*/a"],
        &body,
        expect![
            "/all/1/in/1/a: the element has the same values as an earlier one: `/all/1/in/1/a` must differ from `/all/1/in/0/a`"
        ],
    );
}
