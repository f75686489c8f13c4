//! The published schema of definitions accepts the same definitions as the engine.

use egret_documents::core::definition::parse;
use egret_documents::core::schema::Schema;

use super::*;

/// Compares the schema with what reads definitions: `base` with each value at `key`; none: without
/// the key.
fn check(base: &Value, key: &str, values: &[Option<Value>]) {
    let schema = Schema::compile(&definition()).unwrap();
    for value in values {
        let mut changed = base.clone();
        let object = changed.as_object_mut().unwrap();
        match value {
            Some(value) => object.insert(key.to_owned(), value.clone()),
            None => object.remove(key),
        };
        let is_read = parse(changed.to_string().as_bytes()).is_ok();
        assert_eq!(schema.validate(&changed).is_ok(), is_read, "{changed}");
    }
}

fn document_schema() -> Value {
    json!({
        "type": "object",
        "required": ["id", "of"],
        "properties": {
            "id": {"type": "string"},
            "of": {"type": "string"},
            "all": {"type": "array", "items": {"type": "string"}},
        },
    })
}

fn concrete_definition() -> Value {
    json!({
        "collection": "orders",
        "identity": ["/id"],
        "query": ["/of"],
        "references": [{"name": "of", "to": "customers", "paths": {"/of": "/id"}}],
        "extends": [{"collection": "papers", "identity": {"/id": "/id"}}],
        "history": {"versions": 3, "deleted": true, "days": 30},
        "retention_days": 365,
        "claims": {"customer": "/of"},
        "schema": document_schema(),
    })
}

fn abstract_definition() -> Value {
    json!({"collection": "papers", "abstract": true, "identity": ["/id"]})
}

#[test]
fn whole_definitions_are_allowed() {
    let schema = Schema::compile(&definition()).unwrap();
    for whole in [concrete_definition(), abstract_definition()] {
        parse(whole.to_string().as_bytes()).unwrap();
        schema.validate(&whole).unwrap();
    }
}

#[test]
fn names_and_kinds() {
    let names =
        [Some(json!("Orders")), Some(json!("a".repeat(63))), Some(json!("a".repeat(64))), None];
    check(&concrete_definition(), "collection", &names);
    check(&concrete_definition(), "other", &[Some(json!(1))]);
    let kinds = [Some(json!(false)), Some(json!(true)), Some(Value::Null)];
    check(&concrete_definition(), "abstract", &kinds);
    let schemas = [None, Some(Value::Null), Some(json!("text")), Some(document_schema())];
    check(&concrete_definition(), "schema", &schemas);
    check(&abstract_definition(), "schema", &schemas);
    check(&abstract_definition(), "query", &[Some(json!([])), Some(Value::Null)]);
    check(&abstract_definition(), "extends", &[Some(json!([]))]);
}

#[test]
fn identities() {
    let many = |count: usize| -> Value { (0..count).map(|at| format!("/p{at}")).collect() };
    let paths = [
        Some(json!([])),
        Some(json!(["/id", "/id"])),
        Some(json!(["id"])),
        Some(json!(["/all/*"])),
        None,
    ];
    check(&concrete_definition(), "identity", &paths);
    let paths = [
        Some(json!(["/*"])),
        Some(json!(["/**", "/a*/*b"])),
        Some(many(IDENTITY_PATHS_MAX)),
        Some(many(IDENTITY_PATHS_MAX + 1)),
    ];
    check(&abstract_definition(), "identity", &paths);
    let mutable = [Some(json!(true)), Some(Value::Null), Some(json!("yes"))];
    check(&concrete_definition(), "identity_mutable", &mutable);
}

#[test]
fn references_and_extensions() {
    let references = [
        Some(Value::Null),
        Some(json!([{"name": "of", "to": "a"}])),
        Some(json!([{"name": "of", "to": "a", "paths": {}}])),
        Some(json!([{"name": "Of", "to": "a", "paths": {"/of": "/id"}}])),
        Some(json!([{"name": "all", "to": "a", "paths": {"/all/*": "/id"}}])),
        Some(json!([{"name": "of", "to": "a", "paths": []}])),
        Some(json!([{"name": "of", "to": "a", "paths": [["/of", "/id"], ["/of", "/code"]]}])),
        Some(json!([{"name": "of", "to": "a", "paths": [["/of", "/id"], ["/of", "/id"]]}])),
        Some(json!([{"name": "of", "to": "a", "paths": [["/of"]]}])),
        Some(json!([{"name": "of", "to": "a", "paths": [["/of", "/id", "/more"]]}])),
        Some(json!([{"name": "of", "to": "a", "paths": {"/of": "/id"}, "match": "simple"}])),
        Some(json!([{"name": "of", "to": "a", "paths": {"/of": "/id"}, "match": null}])),
        Some(json!([{"name": "of", "to": "a", "paths": {"/of": "/id"}, "match": "partial"}])),
    ];
    check(&concrete_definition(), "references", &references);
    let extensions = [
        Some(Value::Null),
        Some(json!([{"collection": "a", "identity": {"/of": "/id"}}])),
        Some(json!([{"collection": "a", "identity": {"/all/*": "/id"}}])),
        Some(json!([{"collection": "a", "identity": {"/of": "/id"}, "more": 1}])),
    ];
    check(&concrete_definition(), "extends", &extensions);
}

#[test]
fn equal_paths() {
    let groups = [
        Some(Value::Null),
        Some(json!([])),
        Some(json!([["/id", "/of"], ["/of", "/all/*"]])),
        Some(json!([["/id"]])),
        Some(json!([["/id", "/id"]])),
        Some(json!([["/id", "of"]])),
    ];
    check(&concrete_definition(), "equal", &groups);
    let groups = [
        Some(Value::Null),
        Some(json!([["/all/*"]])),
        Some(json!([[]])),
        Some(json!([["/all/*", "/all/*"]])),
        Some(json!([["all"]])),
    ];
    check(&concrete_definition(), "unique", &groups);
}

#[test]
fn histories_and_claims() {
    let histories = [
        Some(json!({})),
        Some(Value::Null),
        Some(json!({"versions": 0})),
        Some(json!({"versions": 1})),
        Some(json!({"versions": null, "deleted": true})),
        Some(json!({"deleted": false, "versions": 1})),
        Some(json!({"deleted": true, "days": 0})),
        Some(json!({"versions": HISTORY_VERSIONS_MAX})),
        Some(json!({"versions": HISTORY_VERSIONS_MAX + 1})),
    ];
    check(&concrete_definition(), "history", &histories);
    let days = [0, 1, DAYS_MAX, DAYS_MAX + 1].map(|days| Some(json!(days)));
    check(&concrete_definition(), "retention_days", &days);
    check(&concrete_definition(), "claims", &[Some(json!({"a": 1})), Some(json!({}))]);
}
