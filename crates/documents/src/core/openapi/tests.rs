//! Consistency of the OpenAPI description.

use expect_test::expect;
use serde_json::json;

use super::*;
use crate::core::collection::tests::collection;
use crate::core::definition::tests::definitions;

const SERVED: OpenApiContext<'static> =
    OpenApiContext { database: "shop", page_max: 1_000, page_default: 100, batch_max: 500 };

/// The collections of a file, compiled.
fn declared(file: &Value) -> Vec<Collection> {
    let all = definitions(file);
    let each = all.iter().map(|one| Collection::compile(&all, one).unwrap());
    each.collect()
}

/// The collections of the flights, compiled.
fn flights() -> [Collection; 4] {
    ["airports", "flights", "journeys", "planes"].map(collection)
}

/// The document as the server completes it.
fn document(described: &OpenApiFragment) -> Value {
    let mut document =
        json!({"openapi": "3.1.0", "paths": described.paths, "components": described.components});
    document["components"]["schemas"]["Problem"] = json!({"type": "object"});
    document
}

/// Every `$ref` in a value.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(properties) => {
            if let Some(Value::String(reference)) = properties.get("$ref") {
                found.push(reference.clone());
            }
            properties.values().for_each(|inner| references(inner, found));
        }
        Value::Array(elements) => elements.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

/// Each operation with its own statuses, without those of all operations.
fn operations(described: &OpenApiFragment) -> Vec<String> {
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
                .filter(|status| {
                    !["401", "403", "429", "431", "500", "503", "504"].contains(status)
                })
                .collect();
            operations.push(format!(
                "{method} {path} {} {}",
                operation["operationId"],
                statuses.join(" ")
            ));
        }
    }
    operations
}

#[test]
fn collections_have_operations() {
    let all = ["journeys", "planes"].map(collection);
    let described = describe(&SERVED, &all);
    expect![[r#"
        post /v1/documents/planes "upsert_planes" 200 201 400 404 409 412 413 415
        get /v1/documents/planes "list_planes" 200 400 404
        get /v1/documents/planes/{id} "get_planes" 200 304 400 404
        put /v1/documents/planes/{id} "put_planes" 204 400 404 409 412 413 415
        patch /v1/documents/planes/{id} "patch_planes" 204 400 404 409 412 413 415
        delete /v1/documents/planes/{id} "delete_planes" 204 400 404 409 412
        get /v1/documents/planes/{id}/referrers "referrers_planes" 200 400 404
        post /v1/collections/planes/import "import_planes" 200 400 404 413 415
        get /v1/collections/planes/export "export_planes" 200 400 404
        post /v1/batch "batch" 200 400 404 409 412 413 415
        get /v1/document-changes "changes" 200 400 404 410"#]]
    .assert_eq(&operations(&described).join("\n"));
    assert_eq!(describe(&SERVED, &[collection("journeys")]), OpenApiFragment::default());
}

#[test]
fn history_operations_exist_where_versions_are_kept() {
    let file = json!({"collections": [
        {"collection": "kept", "identity": ["/id"], "history": {"versions": 3, "deleted": true},
            "schema": {"required": ["id"], "properties": {"id": {"type": "string"}}}},
        {"collection": "seen", "identity": ["/id"], "history": {"versions": 3},
            "schema": {"required": ["id"], "properties": {"id": {"type": "string"}}}},
    ]});
    let described = describe(&SERVED, &declared(&file));
    let operations = operations(&described);
    let of_history: Vec<String> = operations
        .iter()
        .filter(|one| ["/versions", "/restore", "/deleted"].iter().any(|path| one.contains(path)))
        .cloned()
        .collect();
    expect![[r#"
        get /v1/documents/kept/{id}/versions "versions_kept" 200 400 404
        post /v1/documents/kept/{id}/restore "restore_kept" 200 201 400 404 409 412 413
        get /v1/collections/kept/deleted "deleted_kept" 200 400 404
        get /v1/documents/seen/{id}/versions "versions_seen" 200 400 404
        post /v1/documents/seen/{id}/restore "restore_seen" 200 201 400 404 409 412 413"#]]
    .assert_eq(&of_history.join("\n"));
    let link = |name: &str| {
        let path = format!("/v1/documents/{name}/{{id}}");
        described.paths[&path]["delete"]["responses"]["204"].get("links").is_some()
    };
    assert!(link("kept") && !link("seen"));
}

#[test]
fn every_reference_leads_somewhere() {
    let file = json!({
        "collection": "trees", "identity": ["/id"], "query": ["/id"],
        "references": [{"name": "parent", "to": "trees", "paths": {"/parent": "/id"}}],
        "schema": {
            "$id": "https://example.org/tree", "required": ["id"],
            "properties": {
                "id": {"$ref": "#/$defs/id%20text"}, "parent": {"type": "string"}, "children": {"items": {"$ref": "#"}}, "x": {"$ref": "#named"},
            },
            "$defs": {"id text": {"type": "string"}, "n": {"$anchor": "named", "type": "integer"}},
        },
    });
    let trees = declared(&file);
    let document = document(&describe(&SERVED, &trees));
    let mut found = Vec::new();
    references(&document, &mut found);
    found.sort();
    found.dedup();
    for reference in &found {
        let pointer = reference.strip_prefix('#').unwrap().replace("%20", " ");
        assert!(document.pointer(&pointer).is_some(), "{reference}");
    }
    let of_trees: Vec<&str> =
        found.iter().map(String::as_str).filter(|one| one.contains("documents.trees")).collect();
    expect![[r#"
        #/components/schemas/documents.trees
        #/components/schemas/documents.trees.Found
        #/components/schemas/documents.trees.Write
        #/components/schemas/documents.trees/$defs/id%20text
        #/components/schemas/documents.trees/$defs/n"#]]
    .assert_eq(&of_trees.join("\n"));
    // The schema means the same at its new place.
    let moved = json!({"$ref": "#/components/schemas/documents.trees", "components": document["components"]});
    let validator = jsonschema::validator_for(&moved).unwrap();
    let schema = trees[0].schema().unwrap();
    for body in [
        json!({"id": "a", "children": [{"id": "b", "x": 1}]}),
        json!({"id": "a", "children": [{"x": 1}]}),
        json!({"id": 1}),
        json!({"id": "a", "x": "1"}),
    ] {
        assert_eq!(validator.is_valid(&body), schema.validate(&body).is_ok(), "{body}");
    }
}

#[test]
fn every_component_is_of_use() {
    let all = flights();
    let described = describe(&SERVED, &all);
    let document = document(&described);
    let mut found = Vec::new();
    references(&document, &mut found);
    for (kind, components) in &described.components {
        for name in components.as_object().unwrap().keys() {
            let reference = format!("#/components/{kind}/{name}");
            // None of these collections has a history.
            let is_of_history = ["Version", "Versions", "version"]
                .iter()
                .any(|of_history| *name == format!("documents.{of_history}"));
            assert!(is_of_history || found.contains(&reference), "{reference}");
        }
    }
}

#[test]
fn what_is_embedded_has_the_schemas_of_what_is_referred_to() {
    let all = flights();
    let described = describe(&SERVED, &all);
    let embedded =
        &described.components["schemas"]["documents.flights.Found"]["properties"]["embedded"];
    expect![[r##"{"origin":{"$ref":"#/components/schemas/documents.airports"},"plane":{"$ref":"#/components/schemas/documents.planes"},"stops":{"type":"array","items":{"$ref":"#/components/schemas/documents.airports"}}}"##]]
        .assert_eq(&embedded["properties"].to_string());
    let referring = |path: &str| {
        let answer = &described.paths[path]["get"]["responses"]["200"];
        let page = &answer["content"]["application/json"]["schema"];
        page["properties"]["items"]["items"]["properties"]["collection"].to_string()
    };
    assert_eq!(
        referring("/v1/documents/planes/{id}/referrers"),
        r#"{"type":"string","enum":["flights"]}"#
    );
    assert_eq!(referring("/v1/documents/flights/{id}/referrers"), r#"{"type":"string"}"#);
}

#[test]
fn conditions_are_told_by_a_pattern() {
    let all = flights();
    let described = describe(&SERVED, &all);
    let parameters = &described.paths["/v1/documents/flights"]["get"]["parameters"];
    let schema = |name: &str| {
        let mut all = parameters.as_array().unwrap().iter();
        all.find(|one| one["name"] == name).unwrap()["schema"].clone()
    };
    assert_eq!(schema("sort")["enum"], json!(["/origin", "-/origin", "/delay", "-/delay"]));
    assert_eq!(schema("embed")["items"]["enum"], json!(["origin", "plane", "stops"]));
    let filter = jsonschema::validator_for(&schema("filter")).unwrap();
    for (text, is_one) in [
        ("/origin = JFK", true),
        ("/delay>=60", true),
        ("/origin in [\"JFK\"]", true),
        ("/delay exists", true),
        ("/delay exists false", true),
        ("/carrier = B6", false),
        ("/originprefix J", false),
        ("/origin", false),
    ] {
        assert_eq!(filter.is_valid(&json!([text])), is_one, "{text}");
    }
    let planes = describe(&SERVED, &[collection("planes")]);
    let names = &planes.paths["/v1/documents/planes"]["get"]["parameters"];
    let own: Vec<&Value> =
        names.as_array().unwrap().iter().filter(|one| one.get("$ref").is_none()).collect();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0]["name"], "identity");
}
