//! Validation, rejected schemas, and limits for hostile ones.

use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::DEPTH_MAX;

fn schema(source: Value) -> Schema {
    Schema::compile(&source).unwrap_or_else(|wrong| panic!("{wrong:?}"))
}

fn lines(violations: &[Violation]) -> String {
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    lines.join("\n")
}

fn violations(schema: &Schema, document: &Value) -> String {
    schema.validate(document).map_or_else(|wrong| lines(&wrong), |()| String::new())
}

fn check(source: Value, document: Value, expected: Expect) {
    expected.assert_eq(&violations(&schema(source), &document));
}

fn refused(source: Value, expected: Expect) {
    let wrong = Schema::compile(&source).expect_err("it is refused");
    expected.assert_eq(&lines(&wrong));
}

#[test]
fn every_violation_is_told_with_its_place() {
    let source = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.org/flights",
        "type": "object",
        "required": ["origin", "hour"],
        "additionalProperties": false,
        "properties": {
            "origin": {"type": "string", "pattern": "^[A-Z]{3}$"},
            "hour": {"type": "integer", "minimum": 0, "maximum": 23},
            "delay": {"type": ["number", "null"]},
            "day": {"type": "string", "format": "date"},
            "kind": {"enum": ["a", "b", 3]},
            "stops": {"type": "array", "maxItems": 2, "uniqueItems": true, "items": {"$ref": "#/$defs/stop"}},
            "a/b": {"const": 1},
            "id": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
        },
        "$defs": {"stop": {"type": "object", "required": ["airport"], "properties": {"airport": {"type": "string", "minLength": 3}}}},
    });
    check(
        source.clone(),
        json!({"origin": "EWR", "hour": 5.0, "delay": null, "id": null}),
        expect![[""]],
    );
    check(
        source,
        json!({
            "origin": "ewr", "hour": 24, "delay": "x", "day": "2013-02-30", "kind": "c", "more": 1, "a/b": 2,
            "stops": [{"airport": "A"}, {}, 7, 7], "id": "long",
        }),
        expect![[r#"
            /origin: must match the pattern `^[A-Z]{3}$`
            /hour: must be 23 or less
            /delay: must be null or a number
            /day: must be of format `date`
            /kind: must be one of `a`, `b`, 3
            /a~1b: must be 1
            /stops: must have 2 elements or less
            /stops: has the same element twice
            /stops/0/airport: must have 3 characters or more
            /stops/1: lacks the property `airport`
            /stops/2: must be an object
            /stops/3: must be an object
            /id: matches no alternative of `anyOf`: 1. must have 3 characters or less; 2. must be null
            has properties that the schema does not allow: `more`"#]],
    );
}

#[test]
fn the_root_of_a_schema_is_an_object() {
    refused(json!(true), expect!["the schema must be an object"]);
    refused(json!([]), expect!["the schema must be an object"]);
}

#[test]
fn invalid_schemas_are_rejected() {
    refused(
        json!({"type": "text"}),
        expect![
            "/type: matches no alternative of `anyOf`: 1. must be one of `array`, `boolean`, \
             `integer`, `null`, `number` and 2 more; 2. must be an array"
        ],
    );
    refused(
        json!({"properties": {"a": {"minimum": "1"}}}),
        expect!["/properties/a/minimum: must be a number"],
    );
    refused(
        json!({"properties": {"a": 1}}),
        expect!["/properties/a: must be a boolean or an object"],
    );
    refused(json!({"required": "a"}), expect!["/required: must be an array"]);
    refused(
        json!({"properties": {"a": {"pattern": "("}}}),
        expect![
            "/properties/a/pattern: is not a pattern that can be matched in linear time: \
             look-around and backreferences are not supported, and the expanded size of \
             repetitions is limited. Text without white space around it is \
             `^\\S(?:.*\\S)?$`, text that is not blank `\\S`"
        ],
    );
}

#[test]
fn a_schema_stays_within_itself() {
    refused(
        json!({"properties": {
            "a": {"$ref": "https://example.org/other"},
            "b": {"$ref": "file:///etc/passwd"},
            "c": {"$ref": "other.json#/a"},
            "d": {"$ref": "#/$defs/missing"},
            "e": {"$ref": "#nowhere"},
            "f": {"$ref": 7},
            "g": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
            "h": {"$dynamicRef": "#x"},
            "i": {"$id": "https://example.org/inner"},
            "j": {"$ref": "#/properties"},
            "k": {"$ref": "#/x-more/schema"},
        }, "x-more": {"schema": {"type": "string"}}}),
        expect![[r#"
            /properties/h/$dynamicRef: `$dynamicRef` is not supported: use `$ref`
            /properties/i/$id: `$id` is allowed only at the root of the schema
            /properties/a/$ref: `https://example.org/other` leads out of the schema: a `$ref` must be `#`, `#/` with a JSON pointer, or `#` with an anchor of this schema
            /properties/b/$ref: `file:///etc/passwd` leads out of the schema: a `$ref` must be `#`, `#/` with a JSON pointer, or `#` with an anchor of this schema
            /properties/c/$ref: `other.json#/a` leads out of the schema: a `$ref` must be `#`, `#/` with a JSON pointer, or `#` with an anchor of this schema
            /properties/d/$ref: `#/$defs/missing` does not lead to a schema: define it under `$defs`
            /properties/e/$ref: `#nowhere` leads out of the schema: a `$ref` must be `#`, `#/` with a JSON pointer, or `#` with an anchor of this schema
            /properties/f/$ref: a `$ref` must be a string
            /properties/g/$ref: `https://json-schema.org/draft/2020-12/schema` leads out of the schema: a `$ref` must be `#`, `#/` with a JSON pointer, or `#` with an anchor of this schema
            /properties/j/$ref: `#/properties` does not lead to a schema: define it under `$defs`
            /properties/k/$ref: `#/x-more/schema` does not lead to a schema: define it under `$defs`"#]],
    );
    refused(
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}}),
        expect![[r#"
            /$schema: `$schema` is allowed only at the root, and must be https://json-schema.org/draft/2020-12/schema
            /properties/b/$anchor: this anchor occurs twice"#]],
    );
}

#[test]
fn references_within_a_schema_are_followed() {
    let source = json!({
        "$id": "https://example.org/tree",
        "properties": {
            "children": {"type": "array", "items": {"$ref": "#"}},
            "a": {"$ref": "#/$defs/some%20thing~1x"},
            "b": {"$ref": "#named"},
        },
        "additionalProperties": false,
        "$defs": {"some thing/x": {"type": "integer"}, "n": {"$anchor": "named", "type": "boolean"}},
    });
    check(
        source,
        json!({"children": [{"children": [{"a": 1, "b": true}, {"a": "1", "b": 1, "c": 0}]}]}),
        expect![[r#"
            /children/0/children/1/a: must be an integer
            /children/0/children/1/b: must be a boolean
            /children/0/children/1: has properties that the schema does not allow: `c`"#]],
    );
}

#[test]
fn a_circle_that_does_not_go_into_the_value_is_refused() {
    refused(
        json!({"$ref": "#"}),
        expect![
            "a `$ref` leads back to here without going into a property or an element: validation \
             would never end"
        ],
    );
    refused(
        json!({"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {
            "x": {"allOf": [{"$ref": "#/$defs/y"}]},
            "y": {"anyOf": [{"type": "string"}, {"not": {"$ref": "#/$defs/x"}}]},
        }}),
        expect![
            "/$defs/x: a `$ref` leads back to here without going into a property or an element: \
             validation would never end"
        ],
    );
}

/// 2^40 subschemas for one value, from a schema of a few lines.
#[test]
fn a_schema_that_grows_as_it_is_followed_is_refused() {
    let mut definitions = serde_json::Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/x{}", level + 1)});
        definitions.insert(format!("x{level}"), json!({"allOf": [next, next]}));
    }
    definitions.insert("x40".to_owned(), json!({"type": "string"}));
    refused(
        json!({"$ref": "#/$defs/x0", "$defs": definitions}),
        expect![
            "/$defs/x28: more than 10000 parts of the schema (`schema_places_max`) apply to the same value here, with each `$ref` followed"
        ],
    );
}

#[test]
fn a_schema_is_of_bounded_size() {
    let many: Vec<String> = (0..40_000).map(|number| number.to_string()).collect();
    refused(
        json!({"properties": {"a": {"enum": many}}}),
        expect![
            "the schema has 308921 bytes, more than the maximum of 262144 (`schema_bytes_max`)"
        ],
    );
    let mut deep = json!({"type": "string"});
    for _ in 0..33 {
        deep = json!({"properties": {"a": deep}});
    }
    refused(deep, expect!["the schema is nested deeper than 64 levels (`schema_depth_max`)"]);
    let mut definitions = serde_json::Map::new();
    for level in 0..1_000 {
        let next = json!({"$ref": format!("#/$defs/x{}", level + 1)});
        definitions.insert(format!("x{level}"), json!({"properties": {"a": next}}));
    }
    definitions.insert("x1000".to_owned(), json!({"type": "string"}));
    let chain = json!({"$ref": "#/$defs/x0", "$defs": definitions});
    // Documents are never nested that deep.
    schema(chain);
    let mut definitions = serde_json::Map::new();
    for level in 0..1_000 {
        let next = json!({"$ref": format!("#/$defs/x{}", level + 1)});
        definitions.insert(format!("x{level}"), next);
    }
    definitions.insert("x1000".to_owned(), json!({"type": "string"}));
    refused(
        json!({"$ref": "#/$defs/x0", "$defs": definitions}),
        expect![
            "validation can be nested more than 600 levels deep (`schema_nesting_max`): shorten chains of `$ref`, `allOf` and the like"
        ],
    );
}

#[test]
fn patterns_take_linear_time() {
    refused(
        json!({"properties": {"a": {"pattern": "(?=a)b"}}}),
        expect![
            "/properties/a/pattern: is not a pattern that can be matched in linear time: \
             look-around and backreferences are not supported, and the expanded size of \
             repetitions is limited. Text without white space around it is \
             `^\\S(?:.*\\S)?$`, text that is not blank `\\S`"
        ],
    );
    refused(
        json!({"properties": {"a": {"pattern": "(a)\\1"}}}),
        expect![
            "/properties/a/pattern: is not a pattern that can be matched in linear time: \
             look-around and backreferences are not supported, and the expanded size of \
             repetitions is limited. Text without white space around it is \
             `^\\S(?:.*\\S)?$`, text that is not blank `\\S`"
        ],
    );
    refused(
        json!({"patternProperties": {"((a{1000}){1000}){1000}": true}}),
        expect![
            "/patternProperties/((a{1000}){1000}){1000}: is not a pattern that can be matched in \
             linear time: look-around and backreferences are not supported, and the expanded size \
             of repetitions is limited. Text without white space around it is \
             `^\\S(?:.*\\S)?$`, text that is not blank `\\S`"
        ],
    );
    // Takes exponential time, and does not end, if alternatives are tried one after the other.
    let source = json!({"properties": {"a": {"pattern": "^(a+)+$"}, "b": {"pattern": "^(a|aa)+$"}, "c": {"pattern": "(x+x+)+y"}}});
    let schema = schema(source);
    let text = format!("{}!", "a".repeat(300_000));
    let document = json!({"a": text, "b": text, "c": "x".repeat(300_000)});
    expect![[r#"
        /a: must match the pattern `^(a+)+$`
        /b: must match the pattern `^(a|aa)+$`
        /c: must match the pattern `(x+x+)+y`"#]]
    .assert_eq(&violations(&schema, &document));
}

/// Ten thousand states at each of a million characters.
#[test]
fn a_pattern_that_is_too_much_work_for_a_document_says_so() {
    let schema = schema(json!({"properties": {"a": {"pattern": "^(?:[ab]{0,90}){0,90}c$"}}}));
    assert_eq!(violations(&schema, &json!({"a": "abababc"})), "");
    expect!["validating this document takes more than 10000000 steps (`validation_steps_max`): send a smaller document, or simplify the schema"].assert_eq(&violations(&schema, &json!({"a": "ab".repeat(200_000)})));
}

/// Every level of the document is checked twice by every check of the level above: unbounded, the
/// check would not end.
#[test]
fn a_check_that_grows_with_the_document_is_bounded() {
    let one = json!({"properties": {"a": {"$ref": "#"}}, "minProperties": 1});
    let schema = schema(json!({"allOf": [one, one], "type": ["object"]}));
    let mut document = json!({"b": 1});
    for _ in 0..20 {
        document = json!({"a": document});
    }
    assert_eq!(violations(&schema, &document), "");
    let mut wrong = json!({});
    for _ in 1..DEPTH_MAX {
        wrong = json!({"a": wrong});
    }
    let said = schema.validate(&wrong).unwrap_err();
    assert!(!said.is_empty() && said.len() <= VIOLATIONS_MAX);
}

#[test]
fn violations_are_bounded_in_number_and_size() {
    let schema = schema(json!({
        "properties": {"list": {"items": {"type": "string"}}, "any": {"items": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}},
        "propertyNames": {"maxLength": 4},
        "additionalProperties": {"enum": ["x".repeat(5_000)]},
    }));
    let numbers: Vec<u32> = (0..200_000).collect();
    let name = "n".repeat(1_000);
    let document = json!({"list": numbers, "any": numbers, name.as_str(): 1});
    let said = schema.validate(&document).unwrap_err();
    assert_eq!(said.len(), VIOLATIONS_MAX);
    assert!(said.iter().all(|one| one.message.len() < 1_100 && one.pointer.len() < 1_100));
    let said = schema.validate(&json!({name.as_str(): 1})).unwrap_err();
    expect![[r#"
        /nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn…: must be one of `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…`
        the name of a property must have 4 characters or less"#]].assert_eq(&lines(&said).replace(&name, "<name>"));
}

#[test]
fn unique_items_of_a_large_document_are_bounded() {
    let one = json!({"uniqueItems": true});
    let all: Vec<Value> = (0..100).map(|_| one.clone()).collect();
    let schema = schema(json!({"properties": {"a": {"allOf": all}}}));
    let numbers: Vec<u32> = (0..150_000).collect();
    expect!["validating this document takes more than 10000000 steps (`validation_steps_max`): send a smaller document, or simplify the schema"].assert_eq(&violations(&schema, &json!({"a": [numbers]})));
}

/// Makes one definition of the next one.
type Link = fn(Value) -> Value;

/// A schema that refers to itself below `a`, through a chain of definitions of one kind that is as
/// long as allowed.
fn longest_chain(link: Link) -> Schema {
    let chain = |length: usize| {
        let mut definitions = serde_json::Map::new();
        for level in 0..length {
            let next = json!({"$ref": format!("#/$defs/x{}", level + 1)});
            definitions.insert(format!("x{level}"), link(next));
        }
        let last = json!({"properties": {"a": {"$ref": "#"}}, "required": ["a"]});
        definitions.insert(format!("x{length}"), last);
        json!({"$ref": "#/$defs/x0", "$defs": definitions})
    };
    let longest = (0..50).rev().find_map(|length| Schema::compile(&chain(length)).ok());
    longest.expect("one of these is short enough")
}

/// Checks nested as deep as allowed fit into half of the stack of tokio's threads.
#[test]
fn the_deepest_checks_fit_on_the_stack() {
    let links: [(&str, Link); 9] = [
        ("$ref", |next| next),
        ("allOf", |next| json!({"allOf": [next, true]})),
        ("anyOf", |next| json!({"anyOf": [next, false]})),
        ("oneOf", |next| json!({"oneOf": [next, false]})),
        ("not", |next| json!({"not": {"not": next}})),
        ("then", |next| json!({"if": true, "then": next})),
        ("if", |next| json!({"if": next, "else": false})),
        ("dependentSchemas", |next| json!({"dependentSchemas": {"b": next}})),
        ("unevaluatedProperties", |next| json!({"allOf": [next], "unevaluatedProperties": false})),
    ];
    let mut document = json!({"b": 1});
    for _ in 1..DEPTH_MAX {
        document = json!({"a": document, "b": 1});
    }
    for (keyword, link) in links {
        let schema = longest_chain(link);
        let document = document.clone();
        let small = std::thread::Builder::new().stack_size(1024 * 1024);
        let name = format!("with {keyword}");
        let check = small.name(name).spawn(move || schema.validate(&document));
        check.unwrap().join().unwrap().unwrap_err();
    }
}

#[test]
fn annotations_are_no_difference() {
    let bare = json!({"type": "object", "properties": {"title": {"type": "string"}, "description": {"enum": [{"title": "x"}]}}});
    let told = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": "c", "title": "t", "type": "object",
        "properties": {"title": {"type": "string", "description": "d", "examples": ["e"]}, "description": {"enum": [{"title": "x"}], "default": {"title": "x"}}},
    });
    assert_eq!(strip_annotations(&told), bare);
    assert_eq!(strip_annotations(&bare), bare);
}

#[test]
fn a_schema_is_moved_with_what_it_refers_to() {
    let schema = schema(json!({
        "$id": "https://example.org/tree", "$schema": "https://json-schema.org/draft/2020-12/schema",
        "properties": {"$ref": {"const": "#/kept"}, "a": {"$ref": "#"}, "b": {"$ref": "#/$defs/x%20y"}, "c": {"items": {"$ref": "#z"}}},
        "$defs": {"x y": {"type": "string"}, "z": {"$anchor": "z", "allOf": [{"$ref": "#/$defs/x%20y"}]}},
    }));
    expect![[r##"{"$defs":{"x y":{"type":"string"},"z":{"allOf":[{"$ref":"#/components/schemas/t/$defs/x%20y"}]}},"properties":{"$ref":{"const":"#/kept"},"a":{"$ref":"#/components/schemas/t"},"b":{"$ref":"#/components/schemas/t/$defs/x%20y"},"c":{"items":{"$ref":"#/components/schemas/t/$defs/z"}}}}"##]].assert_eq(&rebase(&schema, "/components/schemas/t").to_string());
}

/// Schemas that access values in different ways.
fn schemas() -> Vec<Value> {
    let tree = json!({"anyOf": [{"type": ["null", "boolean", "number"]}, {"type": "string", "maxLength": 3},
        {"type": "array", "items": {"$ref": "#/$defs/tree"}, "uniqueItems": true}, {"type": "object", "additionalProperties": {"$ref": "#/$defs/tree"}}]});
    vec![
        json!({"$ref": "#/$defs/tree", "$defs": {"tree": tree}}),
        json!({"additionalProperties": {"type": ["integer", "string", "object"]}, "propertyNames": {"pattern": "^[a-z]*$"}, "maxProperties": 3}),
        json!({"additionalProperties": {"oneOf": [{"minimum": 0}, {"minLength": 1}, {"minItems": 1}, {"const": null}]}}),
        json!({"patternProperties": {"^.$": {"not": {"type": "array"}}}, "unevaluatedProperties": {"contains": {"type": "number"}}}),
        json!({"additionalProperties": {"if": {"type": "array"}, "then": {"prefixItems": [{"type": "number"}, true], "unevaluatedItems": {"enum": [1, "a", null, [], {}]}}, "else": {"multipleOf": 0.5}}}),
        json!({"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"minProperties": 2}}, "required": []}),
    ]
}

proptest! {
    /// Validation with and without a budget has the same result.
    #[test]
    fn a_budgeted_check_has_the_same_result(value in crate::core::json::tests::values()) {
        let document = json!({"a": value, "b": [value], "long name": {"a": value}});
        for source in schemas() {
            let plain = jsonschema::draft202012::options().should_validate_formats(true).build(&source).unwrap();
            let ours = schema(source.clone());
            for instance in [&document, &value] {
                let said = ours.validate(instance);
                prop_assert_eq!(said.is_ok(), plain.is_valid(instance), "{} {}", source, instance);
                let places: Vec<String> = plain.iter_errors(instance).map(|error| error.instance_path().to_string()).collect();
                let ours: Vec<String> = said.err().into_iter().flatten().map(|violation| violation.pointer).collect();
                let is_short = places.iter().all(|place| place.len() < 900);
                prop_assert!(!is_short || ours == places[..places.len().min(VIOLATIONS_MAX)], "{source} {instance}");
            }
        }
    }
}
