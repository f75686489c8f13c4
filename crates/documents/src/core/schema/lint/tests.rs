//! Keywords and formats without effect.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::core::schema::Schema;

fn check(schema: &Value, expected: Expect) {
    let warnings = Schema::compile(schema).unwrap().warnings();
    let lines: Vec<String> = warnings.iter().map(Violation::to_string).collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn misspelt_keywords_and_unknown_formats_are_reported() {
    check(
        &json!({
            "type": "object", "requierd": ["a"], "additionalproperties": false, "x-note": 1,
            "properties": {
                "required": {"type": "string", "maxLenght": 3, "format": "datetime"},
                "b": {"type": "integer", "format": "int64", "nullable": true},
                "c": {"items": {"enmu": [1]}},
            },
            "$defs": {"d": {"format": "date", "minimun": 1}},
        }),
        expect![[r#"
            /requierd: `requierd` is not a keyword and checks nothing: is `required` meant?
            /additionalproperties: `additionalproperties` is not a keyword and checks nothing: is `additionalProperties` meant?
            /properties/required/maxLenght: `maxLenght` is not a keyword and checks nothing: is `maxLength` meant?
            /properties/required/format: `datetime` is not a known format and checks nothing: is `date-time` meant?
            /properties/b/format: `int64` is not a known format and checks nothing: use `pattern`, `minimum` or `maximum` where it matters
            /properties/b/nullable: `nullable` is not a keyword and checks nothing: begin the names of annotations with `x-`
            /$defs/d/minimun: `minimun` is not a keyword and checks nothing: is `minimum` meant?
            /properties/c/items/enmu: `enmu` is not a keyword and checks nothing: begin the names of annotations with `x-`"#]],
    );
}

#[test]
fn every_keyword_of_the_dialect_is_known() {
    check(
        &json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.org/a", "$comment": "c",
            "title": "t", "description": "d", "default": {}, "examples": [], "deprecated": false, "readOnly": false, "writeOnly": false,
            "$defs": {"a": {"$anchor": "a", "not": {"const": 1}, "if": {}, "then": {}, "else": {}}},
            "properties": {"default": {"format": "uuid", "contentEncoding": "base64", "contentMediaType": "a/b", "contentSchema": {}}},
            "dependentRequired": {}, "dependentSchemas": {}, "unevaluatedProperties": true, "propertyNames": {"pattern": "a"},
            "allOf": [{"minItems": 1, "prefixItems": [true], "contains": {}, "minContains": 0, "unevaluatedItems": true}],
        }),
        expect![""],
    );
}
