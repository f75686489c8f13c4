//! What is said of collections holds together.

use expect_test::expect;
use serde_json::json;

use super::*;
use crate::core::collection::tests::collection;
use crate::core::definition::tests::definitions;

/// Every `$ref` of a value.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(properties) => {
            if let Some(Value::String(reference)) = properties.get("$ref") {
                found.push(reference.clone());
            }
            properties
                .values()
                .for_each(|inner| references(inner, found));
        }
        Value::Array(elements) => elements.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

#[test]
fn collections_have_paths_and_schemas() {
    let all = [
        collection("flights"),
        collection("journeys"),
        collection("planes"),
    ];
    let described = describe(&all);
    let paths: Vec<&String> = described.paths.keys().collect();
    expect![[r#"
        [
            "/v1/documents/flights/{id}",
            "/v1/documents/flights",
            "/v1/documents/planes/{id}",
            "/v1/documents/planes",
        ]"#]]
    .assert_eq(&format!("{paths:#?}"));
    let schemas: Vec<&String> = described.schemas.keys().collect();
    expect![[r#"["documents.Written", "documents.flights", "documents.planes"]"#]]
        .assert_eq(&format!("{schemas:?}"));
    let mut operations = Vec::new();
    for (path, item) in &described.paths {
        for (method, operation) in item.as_object().unwrap() {
            let Some(responses) = operation.get("responses") else {
                continue;
            };
            let statuses: Vec<&str> = responses
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            operations.push(format!(
                "{method} {path} {} {}",
                operation["operationId"],
                statuses.join(" ")
            ));
        }
    }
    expect![[r#"
        get /v1/documents/flights/{id} "get_flights" 200 304 400 404 429 503
        put /v1/documents/flights/{id} "put_flights" 204 400 404 409 412 413 429 503
        patch /v1/documents/flights/{id} "patch_flights" 204 400 404 409 412 413 429 503
        delete /v1/documents/flights/{id} "delete_flights" 204 400 404 409 412 429 503
        post /v1/documents/flights "upsert_flights" 200 201 400 404 409 412 413 429 503
        get /v1/documents/flights "list_flights" 200 400 404 429 503
        get /v1/documents/planes/{id} "get_planes" 200 304 400 404 429 503
        put /v1/documents/planes/{id} "put_planes" 204 400 404 409 412 413 429 503
        patch /v1/documents/planes/{id} "patch_planes" 204 400 404 409 412 413 429 503
        delete /v1/documents/planes/{id} "delete_planes" 204 400 404 409 412 429 503
        post /v1/documents/planes "upsert_planes" 200 201 400 404 409 412 413 429 503
        get /v1/documents/planes "list_planes" 200 400 404 429 503"#]]
    .assert_eq(&operations.join("\n"));
}

#[test]
fn every_reference_leads_somewhere() {
    let file = json!({
        "collection": "trees", "identity": ["/id"],
        "schema": {
            "$id": "https://example.org/tree", "required": ["id"],
            "properties": {"id": {"$ref": "#/$defs/id%20text"}, "children": {"items": {"$ref": "#"}}, "x": {"$ref": "#named"}},
            "$defs": {"id text": {"type": "string"}, "n": {"$anchor": "named", "type": "integer"}},
        },
    });
    let all = definitions(&file);
    let trees = Collection::of(&all, all.iter().next().unwrap()).unwrap();
    let described = describe([&trees]);
    let document = json!({
        "openapi": "3.1.0", "paths": described.paths,
        "components": {"schemas": described.schemas},
    });
    let mut found = Vec::new();
    references(&document, &mut found);
    found.sort();
    found.dedup();
    expect![[r#"
        #/components/schemas/Problem
        #/components/schemas/documents.Written
        #/components/schemas/documents.trees
        #/components/schemas/documents.trees/$defs/id%20text
        #/components/schemas/documents.trees/$defs/n"#]]
    .assert_eq(&found.join("\n"));
    for reference in found.iter().filter(|one| !one.ends_with("/Problem")) {
        let pointer = reference.strip_prefix('#').unwrap().replace("%20", " ");
        assert!(document.pointer(&pointer).is_some(), "{reference}");
    }
    // The schema means the same where it stands now.
    let moved = json!({"$ref": "#/components/schemas/documents.trees", "components": document["components"]});
    let validator = jsonschema::validator_for(&moved).unwrap();
    let schema = trees.schema().unwrap();
    for body in [
        json!({"id": "a", "children": [{"id": "b", "x": 1}]}),
        json!({"id": "a", "children": [{"x": 1}]}),
        json!({"id": 1}),
        json!({"id": "a", "x": "1"}),
    ] {
        assert_eq!(
            validator.is_valid(&body),
            schema.check(&body).is_ok(),
            "{body}"
        );
    }
}
