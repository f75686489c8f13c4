//! Definitions of constraints between values of one document.

use expect_test::expect;
use serde_json::json;

use crate::core::definition::tests::refused;

#[test]
fn equal_paths_can_be_equal() {
    refused(
        json!({"collection": "a", "identity": ["/id"], "equal": [["/id"], ["/id", "/n", "/id"], ["/list/*", "/more", "/id"]],
            "schema": {"required": ["id"], "properties": {"id": {"type": "string"}, "n": {"type": "integer"}, "list": {"type": "array", "items": {"type": ["string", "null"]}}}}}),
        expect![[r#"
            /equal/0: a group of equal paths needs at least two
            /equal/1/1: by the schema `/n` is an integer, and can never equal `/id`
            /equal/1/2: `/id` occurs twice
            /equal/2/1: by the schema `/more` is anything: an equal path must be a string, number or boolean"#]],
    );
}

#[test]
fn unique_paths_concern_one_element() {
    refused(
        json!({"collection": "a", "identity": ["/id"], "unique": [[], ["/id"], ["/list/*/x", "/list/*/x"], ["/list/*/x", "/more/*/x"], ["/list/*"]],
            "schema": {"required": ["id"], "properties": {"id": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
                "more": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}}}}}),
        expect![[r#"
            /unique/0: a group of unique paths needs at least one
            /unique/1/0: `/id` leads into no array: it needs a `*`
            /unique/2/1: `/list/*/x` occurs twice
            /unique/3/1: `/more/*/x` must be the same as `/list/*/x` up to the last `*`, so that both concern the same element
            /unique/4/0: by the schema `/list/*` is an object: a unique path must be a string, number or boolean"#]],
    );
}
