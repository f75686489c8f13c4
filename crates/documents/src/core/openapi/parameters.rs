//! Parameters of operations.

use serde_json::{Map, Value, json};

use super::OpenApiContext;
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

/// A reference to one of [`all`].
pub(super) fn parameter_ref(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

/// Parameters shared by all collections, for `components/parameters`.
pub(super) fn all(context: &OpenApiContext<'_>) -> Map<String, Value> {
    let all = [
        (ID, id_parameter()),
        (
            DATABASE,
            query_parameter(
                "database",
                "The database. It may be omitted if no other database has collections.",
                json!({"type": "string", "enum": [context.database]}),
            ),
        ),
        (
            DURABILITY,
            query_parameter(
                "durability",
                "With `relaxed`, a crash of the server may lose the writes of the last second: \
                 for loads that can be repeated.",
                json!({"type": "string", "enum": ["full", "relaxed"], "default": "full"}),
            ),
        ),
        (
            IDEMPOTENCY_KEY,
            header_parameter(
                "Idempotency-Key",
                "The request is carried out once, even if it is sent several times with this \
                 key. The key is a string of RFC 8941, with or without its quotes.",
                // Such as `8e03978e` or `"8e03978e"`.
                json!({"type": "string", "pattern": "^(?:[!-~]{1,255}|\"[!-~]{1,255}\")$"}),
            ),
        ),
        (
            IF_MATCH,
            header_parameter(
                "If-Match",
                "The request is carried out only if the document has one of these versions; with \
                 `*`, only if it exists. The header cannot be combined with `If-None-Match`.",
                version_list_schema(),
            ),
        ),
        (
            IF_NONE_MATCH,
            header_parameter(
                "If-None-Match",
                "The request is carried out only if the document has none of these versions; \
                 with `*`, only if it does not exist. The header cannot be combined with \
                 `If-Match`.",
                version_list_schema(),
            ),
        ),
        (
            FIELDS,
            list_parameter(
                "fields",
                "The paths of the document to return. Without it, the whole document is returned.",
                json!({"type": "string", "pattern": "^(?:/(?:[^/~,]|~[01])*)+$"}),
            ),
        ),
        (
            META,
            query_parameter(
                "meta",
                "Whether to return the document's version, times of creation and last change, \
                 and the ids of the tokens that created and changed it.",
                json!({"type": "boolean", "default": false}),
            ),
        ),
        (
            COUNT,
            query_parameter(
                "count",
                "Whether to return the number of all matches: `exact` counts them, `planned` \
                 returns the planner's estimate.",
                json!({"type": "string", "enum": ["exact", "planned", "none"], "default": "none"}),
            ),
        ),
        (
            CURSOR,
            query_parameter(
                "cursor",
                "The `next` of the previous page.",
                json!({"type": "string"}),
            ),
        ),
        (LIMIT, limit_parameter(context)),
        (
            VERSION,
            query_parameter(
                "version",
                "The version to restore. Without it, a deleted document is restored in its last \
                 version.",
                json!({"type": "integer", "format": "int32", "minimum": 1}),
            ),
        ),
        (
            COLLECTION,
            query_parameter(
                "collection",
                "Return only changes of this collection.",
                json!({"type": "string"}),
            ),
        ),
        (
            AFTER,
            query_parameter(
                "after",
                "Return changes after this position. Without it, changes after the current end \
                 of the feed are returned.",
                json!({"type": "integer", "format": "int64", "minimum": 0}),
            ),
        ),
    ];
    let all = all.into_iter();
    all.map(|(name, parameter)| (name.to_owned(), parameter)).collect()
}

fn id_parameter() -> Value {
    json!({
        "name": "id", "in": "path", "required": true, "description": "The document's id, a UUID of version 7.",
        "schema": {"type": "string", "format": "uuid"},
    })
}

fn limit_parameter(context: &OpenApiContext<'_>) -> Value {
    query_parameter(
        "limit",
        "The maximum number of items in a page.",
        json!({"type": "integer", "format": "int32", "minimum": 1, "maximum": context.page_max, "default": context.page_default}),
    )
}

/// The identity of a document to look up.
pub(super) fn identity_parameter(parts: &[IdentityPart]) -> Value {
    let paths =
        parts.iter().map(|part| format!("`{}`", part.path)).collect::<Vec<String>>().join(", ");
    query_parameter(
        "identity",
        &format!(
            "The identity of the document to find, as a JSON object that has {paths} at the same \
             paths as the document. It cannot be combined with conditions, a sort or a cursor."
        ),
        json!({"type": "string", "contentMediaType": "application/json"}),
    )
}

/// Filters and order of queries on a collection.
pub(super) fn query_parameters(paths: &[QueryPath]) -> Vec<Value> {
    if paths.is_empty() {
        return Vec::new();
    }
    let paths: Vec<String> = paths.iter().map(|query_path| query_path.path.to_string()).collect();
    let escaped_paths: Vec<String> = paths.iter().map(|path| escape_pattern(path)).collect();
    let condition = format!(
        "^(?:{})(?: *(?:=|!=|<=?|>=?)| +(?:in|prefix|exists)(?: |$))",
        escaped_paths.join("|")
    );
    let sorts: Vec<String> =
        paths.iter().flat_map(|path| [path.clone(), format!("-{path}")]).collect();
    let filter = json!({
        "name": "filter", "in": "query", "required": false,
        "description": "A condition: a path, one of =, !=, <, <=, >, >=, in, prefix and exists, and a value, such as `/a = 1`. Several conditions are combined with AND.",
        "schema": {"type": "array", "maxItems": FILTERS_MAX, "items": {"type": "string", "pattern": condition}},
    });
    let sort = query_parameter(
        "sort",
        "The path to sort by, with `-` before it for descending order.",
        json!({"type": "string", "enum": sorts}),
    );
    vec![filter, sort]
}

/// References of a collection whose targets can be embedded.
pub(super) fn embed_parameter(collection: &Collection) -> Option<Value> {
    let names: Vec<&str> = collection.references().map(|(name, ..)| name.as_str()).collect();
    let embed = list_parameter(
        "embed",
        "The references whose targets are embedded in the response.",
        json!({"type": "string", "enum": names}),
    );
    (!names.is_empty()).then_some(embed)
}

fn query_parameter(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
}

/// A parameter with a comma-separated list.
fn list_parameter(name: &str, description: &str, item: Value) -> Value {
    let schema = json!({"type": "array", "minItems": 1, "items": item});
    let mut list = query_parameter(name, description, schema);
    list["style"] = json!("form");
    list["explode"] = json!(false);
    list
}

fn header_parameter(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "header", "required": false, "description": description, "schema": schema})
}

/// Versions in a precondition (RFC 9110, 13.1). Malformed ones match nothing.
fn version_list_schema() -> Value {
    json!({"type": "string", "examples": ["*", "\"1-0a2f6f6f\"", "\"1-0a2f6f6f\", W/\"2-0a2f6f6f\""]})
}

/// A text escaped for a pattern.
fn escape_pattern(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if "^$\\.*+?()[]{}|".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
