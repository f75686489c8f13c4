//! Differences between places that must be equal.

use expect_test::{Expect, expect};
use serde_json::json;

use super::*;

fn check(paths: &[&str], body: &Value, expected: Expect) {
    let paths: Vec<Path> = paths.iter().map(|path| path.parse().unwrap()).collect();
    let violations = EqualGroup::compile(&paths).violations(body);
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn both_places_and_values_are_named() {
    let body = json!({"school": 1, "session": {"school": 2}});
    check(
        &["/school", "/session/school"],
        &body,
        expect!["/session/school: it is 2, but must equal `/school`, which is 1"],
    );
    check(
        &["/school", "/session/school"],
        &json!({"school": 1, "session": {"school": 1.0}}),
        expect![""],
    );
    check(&["/school", "/session/school"], &json!({"school": 1, "session": null}), expect![""]);
    check(
        &["/school", "/session/school"],
        &json!({"school": null, "session": {"school": 2}}),
        expect![""],
    );
}

#[test]
fn every_element_equals_a_single_place() {
    let body = json!({"school": "a", "periods": [{"school": "a"}, {}, {"school": "b"}]});
    check(
        &["/periods/*/school", "/school"],
        &body,
        expect![[
            r#"/periods/2/school: it is "b", but must equal `/periods/0/school`, which is "a""#
        ]],
    );
}

#[test]
fn paths_through_one_array_are_compared_in_each_element() {
    let body = json!({"all": [{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 4}]});
    check(
        &["/all/*/a", "/all/*/b"],
        &body,
        expect!["/all/2/b: it is 4, but must equal `/all/2/a`, which is 3"],
    );
}
