//! Guarantees of various schemas at paths.

use expect_test::{Expect, expect};
use serde_json::json;

use crate::core::path::Path;
use crate::core::schema::Schema;

fn check(source: serde_json::Value, paths: &[&str], expected: Expect) {
    let schema = Schema::compile(&source).unwrap();
    let shape = schema.shape();
    let lines: Vec<String> = paths
        .iter()
        .map(|text| {
            let path: Path = text.parse().unwrap();
            let required =
                shape.check_required(&path).map_or_else(|why| why, |()| "required".to_owned());
            format!("{text}: {}; {required}", shape.types(&path))
        })
        .collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn types_of_properties() {
    check(
        json!({
            "required": ["a", "b", "c"],
            "properties": {
                "a": {"type": "string"}, "b": {"type": ["integer", "null"]}, "c": {"enum": [1, 2.5, "x"]}, "d": {"const": true},
                "e": {}, "f": false, "g": {"type": "number", "enum": [1, 2]},
            },
            "additionalProperties": {"type": "boolean"},
        }),
        &["/a", "/b", "/c", "/d", "/e", "/f", "/g", "/h", "/a/b"],
        expect![[r#"
            /a: a string; required
            /b: an integer or null; required
            /c: a string or a number; required
            /d: a boolean; the schema does not require `/d`: list it in `required`
            /e: anything; the schema does not require `/e`: list it in `required`
            /f: never there; the schema does not require `/f`: list it in `required`
            /g: an integer; the schema does not require `/g`: list it in `required`
            /h: a boolean; the schema does not require `/h`: list it in `required`
            /a/b: anything; by the schema `/a` is a string: declare it as an object"#]],
    );
}

#[test]
fn combinations_are_followed() {
    check(
        json!({
            "allOf": [{"$ref": "#/$defs/base"}, {"required": ["b"], "properties": {"b": {"type": ["integer", "string"]}}}],
            "properties": {"b": {"type": ["string", "null"]}, "n": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "o": {"oneOf": [{"$ref": "#/$defs/address"}, {"type": "null"}]},
                "p": {"$ref": "#/$defs/address", "required": ["zip"]}},
            "required": ["p"],
            "oneOf": [{"required": ["x"], "properties": {"x": {"type": "string"}}}, {"required": ["x", "y"], "properties": {"x": {"type": "integer"}}}],
            "$defs": {
                "base": {"required": ["a"], "properties": {"a": {"type": "integer"}}},
                "address": {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}, "zip": {"type": "integer"}}},
            },
        }),
        &["/a", "/b", "/n", "/o/city", "/p/city", "/p/zip", "/x", "/y"],
        expect![[r#"
            /a: an integer; required
            /b: a string; required
            /n: a string or null; the schema does not require `/n`: list it in `required`
            /o/city: a string; the schema does not require `/o`: list it in `required`
            /p/city: a string; required
            /p/zip: an integer; required
            /x: a string or an integer; required
            /y: anything; the schema does not require `/y`: list it in `required`"#]],
    );
}

#[test]
fn elements() {
    check(
        json!({"properties": {
            "a": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}},
            "b": {"prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
            "c": {"prefixItems": [{"type": "string"}], "items": false},
            "d": {"prefixItems": [{"type": "string"}]},
        }}),
        &["/a/*", "/a/*/id", "/b/*", "/c/*", "/d/*"],
        expect![[r#"
            /a/*: an object; the schema does not require `/a`: list it in `required`
            /a/*/id: a string; the schema does not require `/a`: list it in `required`
            /b/*: a string or an integer; the schema does not require `/b`: list it in `required`
            /c/*: a string; the schema does not require `/c`: list it in `required`
            /d/*: anything; the schema does not require `/d`: list it in `required`"#]],
    );
}

#[test]
fn every_step_is_required_and_an_object() {
    check(
        json!({
            "required": ["a", "b"],
            "properties": {
                "a": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
                "b": {"required": ["id"], "properties": {"id": {"type": "string"}}},
                "c": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
            },
        }),
        &["/a/id", "/b/id", "/c/id", "/a/other"],
        expect![[r#"
            /a/id: a string; required
            /b/id: a string; by the schema `/b` is anything: declare it as an object
            /c/id: a string; the schema does not require `/c`: list it in `required`
            /a/other: anything; the schema does not require `/a/other`: list it in `required`"#]],
    );
}

/// Without a cache, each step would double the work.
#[test]
fn recursive_schemas_are_examined_once_for_each_step() {
    let one = json!({"required": ["a"], "properties": {"a": {"$ref": "#"}}});
    let source = json!({"type": "object", "allOf": [one, one], "anyOf": [one, one]});
    let path = "/a".repeat(60);
    let schema = Schema::compile(&source).unwrap();
    let path: Path = path.parse().unwrap();
    assert_eq!(schema.shape().types(&path).to_string(), "an object");
    assert_eq!(schema.shape().check_required(&path), Ok(()));
}
