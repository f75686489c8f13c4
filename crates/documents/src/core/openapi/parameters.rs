//! What operations take beside bodies.

use serde_json::{Map, Value, json};

use super::Served;
use crate::core::collection::Collection;
use crate::core::definition::{IdentityPart, QueryPath};
use crate::core::query::FILTERS_MAX;

pub(super) const ID: &str = "documents.id";
pub(super) const DATABASE: &str = "documents.database";
pub(super) const DURABILITY: &str = "documents.durability";
pub(super) const IDEMPOTENCY_KEY: &str = "documents.idempotency-key";
pub(super) const IF_MATCH: &str = "documents.if-match";
pub(super) const IF_NONE_MATCH: &str = "documents.if-none-match";
pub(super) const FIELDS: &str = "documents.fields";
pub(super) const META: &str = "documents.meta";
pub(super) const COUNT: &str = "documents.count";
pub(super) const CURSOR: &str = "documents.cursor";
pub(super) const LIMIT: &str = "documents.limit";
pub(super) const VERSION: &str = "documents.version";
pub(super) const COLLECTION: &str = "documents.collection";
pub(super) const AFTER: &str = "documents.after";

/// One of [`all`].
pub(super) fn shared(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

/// Those that are alike for all collections, for `components/parameters`.
pub(super) fn all(served: &Served<'_>) -> Map<String, Value> {
    let all = [
        (ID, id()),
        (
            DATABASE,
            query(
                "database",
                "The database; may be left out where no other has collections.",
                json!({"type": "string", "enum": [served.database]}),
            ),
        ),
        (
            DURABILITY,
            query(
                "durability",
                "`relaxed`: a crash of the server may take back the last second, for loads that can be repeated.",
                json!({"type": "string", "enum": ["full", "relaxed"], "default": "full"}),
            ),
        ),
        (
            IDEMPOTENCY_KEY,
            header(
                "Idempotency-Key",
                "The request is done once, however often it comes with this: a string of RFC 8941, or what is in it alone.",
                // Such as `8e03978e` or `"8e03978e"`.
                json!({"type": "string", "pattern": "^(?:[!-~]{1,255}|\"[!-~]{1,255}\")$"}),
            ),
        ),
        (
            IF_MATCH,
            header(
                "If-Match",
                "Only if the document has one of these versions; `*`: only if it is there. Not together with `If-None-Match`.",
                versions(),
            ),
        ),
        (
            IF_NONE_MATCH,
            header(
                "If-None-Match",
                "Only if the document has none of these versions; `*`: only if it is not there. Not together with `If-Match`.",
                versions(),
            ),
        ),
        (
            FIELDS,
            list(
                "fields",
                "These paths of the document alone.",
                json!({"type": "string", "pattern": "^(?:/(?:[^/~,]|~[01])*)+$"}),
            ),
        ),
        (
            META,
            query(
                "meta",
                "Whether it comes with its version, when it was made and changed, and by whom.",
                json!({"type": "boolean", "default": false}),
            ),
        ),
        (
            COUNT,
            query(
                "count",
                "Whether all are counted: one by one, or as the planner thinks.",
                json!({"type": "string", "enum": ["exact", "planned", "none"], "default": "none"}),
            ),
        ),
        (
            CURSOR,
            query(
                "cursor",
                "The `next` of the page before.",
                json!({"type": "string"}),
            ),
        ),
        (LIMIT, limit(served)),
        (
            VERSION,
            query(
                "version",
                "The document as it was at this version; without it, as it was when it was deleted.",
                json!({"type": "integer", "format": "int32", "minimum": 1}),
            ),
        ),
        (
            COLLECTION,
            query(
                "collection",
                "Of this collection alone.",
                json!({"type": "string"}),
            ),
        ),
        (
            AFTER,
            query(
                "after",
                "Those after this position; without it, those after the last that there is.",
                json!({"type": "integer", "format": "int64", "minimum": 0}),
            ),
        ),
    ];
    let all = all.into_iter();
    all.map(|(name, one)| (name.to_owned(), one)).collect()
}

fn id() -> Value {
    json!({
        "name": "id", "in": "path", "required": true, "description": "The document's id, a UUID of version 7.",
        "schema": {"type": "string", "format": "uuid"},
    })
}

fn limit(served: &Served<'_>) -> Value {
    query(
        "limit",
        "How many of them a page has.",
        json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": served.page_max, "default": served.page_usual}),
    )
}

/// The identity that one of a collection's documents has.
pub(super) fn identity(parts: &[IdentityPart]) -> Value {
    let paths: Vec<String> = parts
        .iter()
        .map(|part| format!("`{}`", part.path))
        .collect();
    let paths = paths.join(", ");
    query(
        "identity",
        &format!(
            "The identity of the one that is looked for, as JSON: an object that has {paths} where documents do. Nothing else is asked beside it."
        ),
        json!({"type": "string", "contentMediaType": "application/json"}),
    )
}

/// The conditions and the order that a collection's documents are found by.
pub(super) fn of_query(paths: &[QueryPath]) -> Vec<Value> {
    if paths.is_empty() {
        return Vec::new();
    }
    let paths: Vec<String> = paths.iter().map(|one| one.path.to_string()).collect();
    let each: Vec<String> = paths.iter().map(|path| escaped(path)).collect();
    let condition = format!(
        "^(?:{})(?: *(?:=|!=|<=?|>=?)| +(?:in|prefix|exists)(?: |$))",
        each.join("|")
    );
    let sorts = paths
        .iter()
        .flat_map(|path| [path.clone(), format!("-{path}")]);
    let sorts: Vec<String> = sorts.collect();
    let filter = json!({
        "name": "filter", "in": "query", "required": false,
        "description": "A condition: a path, one of =, !=, <, <=, >, >=, in, prefix and exists, and a value, such as `/a = 1`. Where there are several, all hold.",
        "schema": {"type": "array", "maxItems": FILTERS_MAX, "items": {"type": "string", "pattern": condition}},
    });
    let sort = query(
        "sort",
        "A path; `-` before it: the largest first.",
        json!({"type": "string", "enum": sorts}),
    );
    vec![filter, sort]
}

/// The references of a collection, what they are to being asked for as well.
pub(super) fn embed(collection: &Collection) -> Option<Value> {
    let names = collection.references().map(|(name, ..)| name.as_str());
    let names: Vec<&str> = names.collect();
    let embed = list(
        "embed",
        "What these references are to comes along.",
        json!({"type": "string", "enum": names}),
    );
    (!names.is_empty()).then_some(embed)
}

fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
}

/// Things with commas between them.
fn list(name: &str, description: &str, item: Value) -> Value {
    let schema = json!({"type": "array", "minItems": 1, "items": item});
    let mut list = query(name, description, schema);
    list["style"] = json!("form");
    list["explode"] = json!(false);
    list
}

fn header(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "header", "required": false, "description": description, "schema": schema})
}

/// Versions as a condition names them (RFC 9110, 13.1). What is none matches nothing.
fn versions() -> Value {
    json!({"type": "string", "examples": ["*", "\"1-0a2f6f6f\"", "\"1-0a2f6f6f\", W/\"2-0a2f6f6f\""]})
}

/// A text as a pattern has it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if "^$\\.*+?()[]{}|".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
