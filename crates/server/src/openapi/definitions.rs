//! How collections are declared, as JSON Schema. The engine of documents reads definitions by itself, since what they say depends on each other.

use egret_documents::core::definition::{
    CLAIMS_MAX, DAYS_MAX, EXTENDS_MAX, HISTORY_VERSIONS_MAX, IDENTITY_PATHS_MAX, QUERY_PATHS_MAX,
    REFERENCES_MAX,
};
use serde_json::{Map, Value, json};

use super::bodies::merge;
use super::{object_at, object_at_map, texts};

/// The name of the schema.
const DEFINITION: &str = "CollectionDefinition";

/// Where the body of the operation that declares collections has its schema.
const BODY: &str = "/paths/~1v1~1collections/post/requestBody/content/application~1json/schema";

/// What an abstract collection does not have.
const NOT_ABSTRACT: [&str; 7] = [
    "identity_mutable",
    "references",
    "query",
    "history",
    "retention_days",
    "claims",
    "schema",
];

/// Publishes how collections are declared, where they are.
pub(super) fn publish(document: &mut Value) {
    let Some(body) = document.pointer_mut(BODY) else {
        return;
    };
    let one = json!({"$ref": format!("#/components/schemas/{DEFINITION}")});
    let several = json!({
        "type": "object",
        "required": ["collections"],
        "properties": {"collections": {"type": "array", "items": one}},
        "additionalProperties": false,
    });
    *body = json!({"oneOf": [one, several]});
    let components = object_at(document, "components");
    object_at_map(components, "schemas").insert(DEFINITION.to_owned(), definition());
}

/// The schema of one definition.
fn definition() -> Value {
    let mut identity = paths("What tells its documents apart.");
    merge(
        &mut identity,
        json!({"minItems": 1, "maxItems": IDENTITY_PATHS_MAX}),
    );
    let mut query = paths("By what its documents are found.");
    let query_or_none = json!({"type": ["array", "null"], "maxItems": QUERY_PATHS_MAX});
    merge(&mut query, query_or_none);
    let absent: Map<String, Value> = NOT_ABSTRACT
        .iter()
        .map(|key| ((*key).to_owned(), json!({"type": "null"})))
        .collect();
    json!({
        "type": "object",
        "description": "A collection as it is declared.",
        "required": ["collection", "identity"],
        "properties": {
            "collection": with(texts::collection_name(), "Its name."),
            "abstract": {
                "type": "boolean",
                "description": "Whether it has no documents of its own, but those of the collections that extend it.",
            },
            "identity": identity,
            "identity_mutable": {
                "type": ["boolean", "null"],
                "description": "Whether a document may get another identity.",
            },
            "references": {
                "type": ["array", "null"],
                "maxItems": REFERENCES_MAX,
                "items": reference(),
                "description": "What its documents refer to.",
            },
            "query": query,
            "extends": {
                "type": ["array", "null"],
                "maxItems": EXTENDS_MAX,
                "items": extension(),
                "description": "The abstract collections that it belongs to.",
            },
            "history": history(),
            "retention_days": days("For how many days a document is kept after it was made; null: for good."),
            "claims": {
                "type": ["object", "null"],
                "maxProperties": CLAIMS_MAX,
                "additionalProperties": path(texts::single_document_path()),
                "description": "Who may see and write a document: those whose claim has the value that the document has at the path, \
                    which is one of `query`.",
            },
            "schema": {
                "type": ["object", "null"],
                "description": "What its documents may be, in JSON Schema, draft 2020-12.",
            },
        },
        "additionalProperties": false,
        "if": {"required": ["abstract"], "properties": {"abstract": {"const": true}}},
        "then": {"properties": absent},
        "else": {"required": ["schema"], "properties": {"schema": {"type": "object"}}},
    })
}

fn history() -> Value {
    json!({
        "type": ["object", "null"],
        "properties": {
            "versions": {
                "type": "integer",
                "minimum": 0,
                "maximum": HISTORY_VERSIONS_MAX,
                "description": "Earlier versions of a document, at most.",
            },
            "deleted": {
                "type": "boolean",
                "description": "Whether a document that was deleted can be restored.",
            },
            "days": days("For how many days that is kept; null: for good."),
        },
        "additionalProperties": false,
        "anyOf": [
            {"type": "null"},
            {"required": ["versions"], "properties": {"versions": {"minimum": 1}}},
            {"required": ["deleted"], "properties": {"deleted": {"const": true}}},
        ],
        "description": "What is kept of what its documents were.",
    })
}

fn days(description: &str) -> Value {
    json!({
        "type": ["integer", "null"],
        "minimum": 1,
        "maximum": DAYS_MAX,
        "description": description,
    })
}

/// Paths, none of which leads to several places.
fn paths(description: &str) -> Value {
    json!({
        "type": "array",
        "uniqueItems": true,
        "items": path(texts::single_document_path()),
        "description": description,
    })
}

fn reference() -> Value {
    json!({
        "type": "object",
        "required": ["name", "to", "paths"],
        "properties": {
            "name": with(texts::collection_name(), "Its name, among those of the collection."),
            "to": with(texts::collection_name(), "The collection of what is referred to."),
            "paths": pairs(texts::document_path()),
        },
        "additionalProperties": false,
    })
}

fn extension() -> Value {
    json!({
        "type": "object",
        "required": ["collection", "identity"],
        "properties": {
            "collection": with(texts::collection_name(), "The abstract collection."),
            "identity": pairs(texts::single_document_path()),
        },
        "additionalProperties": false,
    })
}

/// Paths in documents, with those of the other collection's identity.
fn pairs(own: Value) -> Value {
    json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": IDENTITY_PATHS_MAX,
        "propertyNames": own,
        "additionalProperties": path(texts::single_document_path()),
        "description": "For each path of this collection's documents the path of the other's identity.",
    })
}

fn path(mut text: Value) -> Value {
    merge(&mut text, json!({"type": "string"}));
    text
}

fn with(mut text: Value, description: &str) -> Value {
    merge(
        &mut text,
        json!({"type": "string", "description": description}),
    );
    text
}

#[cfg(test)]
mod tests;
