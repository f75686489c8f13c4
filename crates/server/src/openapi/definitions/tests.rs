//! The published schema of definitions accepts the same definitions as the engine.

use egret_documents::core::definition::read;
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
        let is_read = read(changed.to_string().as_bytes()).is_ok();
        assert_eq!(schema.check(&changed).is_ok(), is_read, "{changed}");
    }
}

fn schema_of_documents() -> Value {
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

fn concrete() -> Value {
    json!({
        "collection": "orders",
        "identity": ["/id"],
        "query": ["/of"],
        "references": [{"name": "of", "to": "customers", "paths": {"/of": "/id"}}],
        "extends": [{"collection": "papers", "identity": {"/id": "/id"}}],
        "history": {"versions": 3, "deleted": true, "days": 30},
        "retention_days": 365,
        "claims": {"customer": "/of"},
        "schema": schema_of_documents(),
    })
}

fn without_documents() -> Value {
    json!({"collection": "papers", "abstract": true, "identity": ["/id"]})
}

#[test]
fn whole_definitions_are_allowed() {
    let schema = Schema::compile(&definition()).unwrap();
    for whole in [concrete(), without_documents()] {
        read(whole.to_string().as_bytes()).unwrap();
        schema.check(&whole).unwrap();
    }
}

#[test]
fn names_and_kinds() {
    let names = [
        Some(json!("Orders")),
        Some(json!("a".repeat(63))),
        Some(json!("a".repeat(64))),
        None,
    ];
    check(&concrete(), "collection", &names);
    check(&concrete(), "other", &[Some(json!(1))]);
    let kinds = [Some(json!(false)), Some(json!(true)), Some(Value::Null)];
    check(&concrete(), "abstract", &kinds);
    let schemas = [
        None,
        Some(Value::Null),
        Some(json!("text")),
        Some(schema_of_documents()),
    ];
    check(&concrete(), "schema", &schemas);
    check(&without_documents(), "schema", &schemas);
    check(
        &without_documents(),
        "query",
        &[Some(json!([])), Some(Value::Null)],
    );
    check(&without_documents(), "extends", &[Some(json!([]))]);
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
    check(&concrete(), "identity", &paths);
    let paths = [
        Some(json!(["/*"])),
        Some(json!(["/**", "/a*/*b"])),
        Some(many(IDENTITY_PATHS_MAX)),
        Some(many(IDENTITY_PATHS_MAX + 1)),
    ];
    check(&without_documents(), "identity", &paths);
    let mutable = [Some(json!(true)), Some(Value::Null), Some(json!("yes"))];
    check(&concrete(), "identity_mutable", &mutable);
}

#[test]
fn references_and_extensions() {
    let references = [
        Some(Value::Null),
        Some(json!([{"name": "of", "to": "a"}])),
        Some(json!([{"name": "of", "to": "a", "paths": {}}])),
        Some(json!([{"name": "Of", "to": "a", "paths": {"/of": "/id"}}])),
        Some(json!([{"name": "all", "to": "a", "paths": {"/all/*": "/id"}}])),
    ];
    check(&concrete(), "references", &references);
    let extensions = [
        Some(Value::Null),
        Some(json!([{"collection": "a", "identity": {"/of": "/id"}}])),
        Some(json!([{"collection": "a", "identity": {"/all/*": "/id"}}])),
        Some(json!([{"collection": "a", "identity": {"/of": "/id"}, "more": 1}])),
    ];
    check(&concrete(), "extends", &extensions);
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
    check(&concrete(), "history", &histories);
    let days = [0, 1, DAYS_MAX, DAYS_MAX + 1].map(|days| Some(json!(days)));
    check(&concrete(), "retention_days", &days);
    check(
        &concrete(),
        "claims",
        &[Some(json!({"a": 1})), Some(json!({}))],
    );
}
