//! The examples of both RFCs, and patches that exceed limits.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::core::json::tests::values;

/// RFC 7386, appendix A.
#[test]
fn merge_patches_of_the_rfc() {
    for (original, patch, result) in [
        (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
        (json!({"a": "b"}), json!({"a": null}), json!({})),
        (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
        (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
        (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
        (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
        (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
        (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
        (json!({"a": "b"}), json!(["c"]), json!(["c"])),
        (json!({"a": "foo"}), json!(null), json!(null)),
        (json!({"a": "foo"}), json!("bar"), json!("bar")),
        (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
        (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
        (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
    ] {
        let mut target = original.clone();
        apply_merge_patch(&mut target, patch.clone());
        assert_eq!(target, result, "{original} {patch}");
    }
}

fn patched(mut target: Value, patch: Value) -> Result<Value, Violation> {
    JsonPatch::parse(patch)?.apply(&mut target)?;
    Ok(target)
}

/// Bodies, each with a patch and its result.
fn all_become(cases: impl IntoIterator<Item = (Value, Value, Value)>) {
    for (original, patch, result) in cases {
        let shown = format!("{original} {patch}");
        assert_eq!(patched(original, patch), Ok(result), "{shown}");
    }
}

/// RFC 6902, appendix A.
#[test]
fn json_patches_of_the_rfc() {
    all_become([
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux"}]),
            json!({"baz": "qux", "foo": "bar"}),
        ),
        (
            json!({"foo": ["bar", "baz"]}),
            json!([{"op": "add", "path": "/foo/1", "value": "qux"}]),
            json!({"foo": ["bar", "qux", "baz"]}),
        ),
        (
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "remove", "path": "/baz"}]),
            json!({"foo": "bar"}),
        ),
        (
            json!({"foo": ["bar", "qux", "baz"]}),
            json!([{"op": "remove", "path": "/foo/1"}]),
            json!({"foo": ["bar", "baz"]}),
        ),
        (
            json!({"baz": "qux", "foo": "bar"}),
            json!([{"op": "replace", "path": "/baz", "value": "boo"}]),
            json!({"baz": "boo", "foo": "bar"}),
        ),
        (
            json!({"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}}),
            json!([{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}]),
            json!({"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}}),
        ),
        (
            json!({"foo": ["all", "grass", "cows", "eat"]}),
            json!([{"op": "move", "from": "/foo/1", "path": "/foo/3"}]),
            json!({"foo": ["all", "cows", "eat", "grass"]}),
        ),
        (
            json!({"baz": "qux", "foo": ["a", 2, "c"]}),
            json!([{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}]),
            json!({"baz": "qux", "foo": ["a", 2, "c"]}),
        ),
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/child", "value": {"grandchild": {}}}]),
            json!({"foo": "bar", "child": {"grandchild": {}}}),
        ),
        (
            json!({"foo": "bar"}),
            json!([{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}]),
            json!({"foo": "bar", "baz": "qux"}),
        ),
        (
            json!({"/": 9, "~1": 10}),
            json!([{"op": "test", "path": "/~01", "value": 10}]),
            json!({"/": 9, "~1": 10}),
        ),
        (
            json!({"foo": ["bar"]}),
            json!([{"op": "add", "path": "/foo/-", "value": ["abc", "def"]}]),
            json!({"foo": ["bar", ["abc", "def"]]}),
        ),
    ]);
}

#[test]
fn other_json_patches() {
    all_become([
        (
            json!({"a": {"b": [1, 2]}}),
            json!([{"op": "copy", "from": "/a/b", "path": "/a/c"}]),
            json!({"a": {"b": [1, 2], "c": [1, 2]}}),
        ),
        (json!({"a": 1}), json!([{"op": "add", "path": "", "value": {"b": 2}}]), json!({"b": 2})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": [1]}]), json!([1])),
        (json!({"a": 1}), json!([{"op": "remove", "path": ""}]), json!(null)),
        (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/a"}]), json!({"a": 1})),
        (json!({"a": 1.0}), json!([{"op": "test", "path": "/a", "value": 1}]), json!({"a": 1.0})),
        (json!({"a": 1}), json!([{"op": "add", "path": "/a", "value": null}]), json!({"a": null})),
        (json!({"a": 1}), json!([]), json!({"a": 1})),
    ]);
}

fn refused(target: Value, operations: Value, expected: Expect) {
    let operations = operations.as_array().unwrap();
    let lines: Vec<String> = operations
        .iter()
        .map(|operation| {
            patched(target.clone(), json!([operation])).expect_err("it is refused").to_string()
        })
        .collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn impossible_operations_are_reported() {
    refused(
        json!({"a": {"b": 1}, "l": [1, 2]}),
        json!([
            {"op": "add", "path": "/x/y", "value": 1},
            {"op": "add", "path": "/a/b/c", "value": 1},
            {"op": "add", "path": "/l/3", "value": 1},
            {"op": "add", "path": "/l/01", "value": 1},
            {"op": "add", "path": "/l/x", "value": 1},
            {"op": "add", "path": "/l/+1", "value": 1},
            {"op": "add", "path": "/l/99999999999999999999999", "value": 1},
            {"op": "remove", "path": "/x"},
            {"op": "remove", "path": "/l/2"},
            {"op": "remove", "path": "/l/-"},
            {"op": "replace", "path": "/x", "value": 1},
            {"op": "replace", "path": "/l/-", "value": 1},
            {"op": "move", "from": "/a", "path": "/a/c"},
            {"op": "move", "from": "/x", "path": "/x"},
            {"op": "move", "from": "/x", "path": "/y"},
            {"op": "copy", "from": "/x", "path": "/y"},
            {"op": "test", "path": "/a/b", "value": "1"},
            {"op": "test", "path": "/x", "value": null},
        ]),
        expect![[r#"
            /0: cannot add `/x/y`: its parent does not exist, or is not an object or array
            /0: cannot add `/a/b/c`: its parent does not exist, or is not an object or array
            /0: `/l/3` is not a position in an array of 2 elements
            /0: `/l/01` is not a position in an array of 2 elements
            /0: `/l/x` is not a position in an array of 2 elements
            /0: `/l/+1` is not a position in an array of 2 elements
            /0: `/l/99999999999999999999999` is not a position in an array of 2 elements
            /0: there is nothing at `/x`
            /0: there is nothing at `/l/2`
            /0: there is nothing at `/l/-`
            /0: there is nothing at `/x`
            /0: there is nothing at `/l/-`
            /0: `/a` cannot be moved into itself
            /0: there is nothing at `/x`
            /0: there is nothing at `/x`
            /0: there is nothing at `/x`
            /0: the test fails: `/a/b` has another value
            /0: there is nothing at `/x`"#]],
    );
}

#[test]
fn malformed_operations_are_reported() {
    refused(
        json!({}),
        json!([
            7,
            {},
            {"op": "merge", "path": "/a"},
            {"op": "add", "path": "/a"},
            {"op": "add", "value": 1},
            {"op": "move", "path": "/a"},
            {"op": "remove", "path": "a"},
            {"op": "remove", "path": "/a~3"},
            {"op": "remove", "path": 7},
        ]),
        expect![[r#"
            /0: invalid type: integer `7`, expected internally tagged enum Operation
            /0: missing field `op`
            /0: unknown variant `merge`, expected one of `add`, `remove`, `replace`, `move`, `copy`, `test`
            /0: missing field `value`
            /0: missing field `path`
            /0: missing field `from`
            /0: `a` is not a JSON pointer: it must be empty or begin with `/`
            /0: `/a~3` is not a JSON pointer: `~` must be followed by `0` (for `~`) or `1` (for `/`)
            /0: invalid type: integer `7`, expected a string"#]],
    );
    expect!["a JSON patch must be an array of operations, not an object"]
        .assert_eq(&JsonPatch::parse(json!({})).unwrap_err().to_string());
}

#[test]
fn the_first_operation_that_fails_is_named() {
    let patch = json!([{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"}, {"op": "remove", "path": "/c"}]);
    assert_eq!(patched(json!({}), patch).unwrap_err().pointer, "/1");
}

#[test]
fn a_patch_does_not_double_what_it_doubled() {
    let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
    let wider: Vec<Value> = (0..60)
        .map(|number| json!({"op": "copy", "from": "/l", "path": format!("/m{number}")}))
        .collect();
    let numbers: Vec<u32> = (0..50_000).collect();
    expect!["/19: the patch needs more than 2000000 steps (`patch_steps_max`): replace the whole document instead"].assert_eq(&patched(json!({"l": numbers}), json!(wider)).unwrap_err().to_string());
    let deeper = json!(vec![double; 70]);
    expect!["/19: the patch needs more than 2000000 steps (`patch_steps_max`): replace the whole document instead"].assert_eq(&patched(json!({"a": []}), deeper).unwrap_err().to_string());
    let text = json!({"s": "x".repeat(500_000)});
    let copies: Vec<Value> = (0..1_000)
        .map(|number| json!({"op": "copy", "from": "/s", "path": format!("/s{number}")}))
        .collect();
    assert!(patched(text, json!(copies)).is_err());
}

#[test]
fn a_patch_does_not_nest_too_deep() {
    let mut deep = json!(1);
    for _ in 0..40 {
        deep = json!({"a": deep});
    }
    let patch = json!([{"op": "add", "path": format!("{}/b", "/a".repeat(30)), "value": deep}]);
    expect!["/0: the document would be nested deeper than 64"]
        .assert_eq(&patched(deep.clone(), patch).unwrap_err().to_string());
    let patch = json!([{"op": "add", "path": format!("{}/b", "/a".repeat(23)), "value": deep}]);
    assert!(patched(deep, patch).is_ok());
}

#[test]
fn work_is_bounded() {
    let numbers: Vec<u32> = (0..100_000).collect();
    let patch = json!(vec![json!({"op": "remove", "path": "/l/0"}); 10_000]);
    assert!(patched(json!({"l": numbers}), patch).is_err());
}

/// The patch that turns one object into another (RFC 7386); neither contains null.
fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (from, to) else {
        return to.clone();
    };
    let gone =
        old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), Value::Null));
    let kept =
        new.iter().filter(|(name, value)| old.get(*name) != Some(*value)).map(|(name, value)| {
            match old.get(name) {
                Some(before) if before.is_object() => (name.clone(), merge_patch(before, value)),
                _ => (name.clone(), value.clone()),
            }
        });
    Value::Object(gone.chain(kept).collect())
}

/// A value without null, which a merge patch cannot write.
fn without_null(value: Value) -> Value {
    match value {
        Value::Null => json!(0),
        Value::Object(properties) => {
            properties.into_iter().map(|(name, value)| (name, without_null(value))).collect()
        }
        other => other,
    }
}

proptest! {
    #[test]
    fn a_merge_patch_makes_one_of_the_other(from in values(), to in values()) {
        let (from, to) = (without_null(from), without_null(to));
        for (from, to) in [(json!({"a": from, "b": from}), json!({"b": to, "c": from})), (from, to)] {
            let mut patched = from.clone();
            apply_merge_patch(&mut patched, merge_patch(&from, &to));
            prop_assert_eq!(patched, to);
        }
    }

    #[test]
    fn added_values_can_be_found_and_removed(document in values(), value in values()) {
        let before = json!({"d": document, "l": [1, 2]});
        for path in ["/x", "/l/0", "/l/1", "/l/2", "/a~1b"] {
            let added = patched(before.clone(), json!([{"op": "add", "path": path, "value": value}, {"op": "test", "path": path, "value": value}])).unwrap();
            prop_assert_eq!(added.pointer(path), Some(&value));
            let undone = patched(added, json!([{"op": "remove", "path": path}])).unwrap();
            prop_assert_eq!(&undone, &before);
            let moved = patched(before.clone(), json!([{"op": "copy", "from": "/d", "path": path}, {"op": "move", "from": path, "path": "/e"}, {"op": "move", "from": "/e", "path": "/d"}])).unwrap();
            prop_assert_eq!(&moved, &before);
        }
    }
}
