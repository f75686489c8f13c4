//! The JSON Schema of definitions of collections. The documents engine parses definitions itself,
//! as their fields depend on each other.

use egret_documents::core::definition::{
    CLAIMS_MAX, DAYS_MAX, EQUAL_GROUPS_MAX, EQUAL_PATHS_MAX, EXTENDS_MAX, HISTORY_VERSIONS_MAX,
    IDENTITY_PATHS_MAX, QUERY_PATHS_MAX, REFERENCES_MAX, UNIQUE_MAX, UNIQUE_PATHS_MAX,
};
use serde_json::{Map, Value, json};

use super::bodies::merge;
use super::object::{object_at, object_at_map};
use super::texts;

/// The name of the schema.
const DEFINITION: &str = "CollectionDefinition";

/// Where the body of the operation that declares collections has its schema.
const BODY: &str = "/paths/~1v1~1collections/post/requestBody/content/application~1json/schema";

/// Fields that an abstract collection must not have.
const FORBIDDEN_IN_ABSTRACT: [&str; 9] = [
    "identity_mutable",
    "references",
    "equal",
    "unique",
    "query",
    "history",
    "retention_days",
    "claims",
    "schema",
];

/// Adds the schema of definitions to the operation that declares collections.
pub(super) fn add_definition_schema(document: &mut Value) {
    let Some(body) = document.pointer_mut(BODY) else {
        return;
    };
    let definition_reference = json!({"$ref": format!("#/components/schemas/{DEFINITION}")});
    let definition_list = json!({
        "type": "object",
        "required": ["collections"],
        "properties": {"collections": {"type": "array", "items": definition_reference}},
        "additionalProperties": false,
    });
    *body = json!({"oneOf": [definition_reference, definition_list]});
    let components = object_at(document, "components");
    object_at_map(components, "schemas").insert(DEFINITION.to_owned(), definition());
}

/// The schema of one definition.
fn definition() -> Value {
    let mut identity = paths("The paths that identify a document of the collection.");
    merge(&mut identity, json!({"minItems": 1, "maxItems": IDENTITY_PATHS_MAX}));
    let mut query = paths("The paths by which documents can be queried and sorted.");
    let query_or_none = json!({"type": ["array", "null"], "maxItems": QUERY_PATHS_MAX});
    merge(&mut query, query_or_none);
    let absent: Map<String, Value> = FORBIDDEN_IN_ABSTRACT
        .iter()
        .map(|key| ((*key).to_owned(), json!({"type": "null"})))
        .collect();
    json!({
        "type": "object",
        "description": "The definition of a collection.",
        "required": ["collection", "identity"],
        "properties": {
            "collection": with_description(texts::collection_name(), "The collection's name."),
            "abstract": {
                "type": "boolean",
                "description": "Whether the collection has no documents of its own, but those of the collections that extend it.",
            },
            "identity": identity,
            "identity_mutable": {
                "type": ["boolean", "null"],
                "description": "Whether the identity of a document can be changed.",
            },
            "references": {
                "type": ["array", "null"],
                "maxItems": REFERENCES_MAX,
                "items": reference(),
                "description": "The references of its documents.",
            },
            "equal": equal(),
            "unique": unique(),
            "query": query,
            "extends": {
                "type": ["array", "null"],
                "maxItems": EXTENDS_MAX,
                "items": extension(),
                "description": "The abstract collections that it extends.",
            },
            "history": history(),
            "retention_days": days("How many days a document is kept after its creation; null: without limit."),
            "claims": {
                "type": ["object", "null"],
                "maxProperties": CLAIMS_MAX,
                "additionalProperties": string_schema(texts::single_document_path()),
                "description": "The claims that a token needs to read and write a document: the \
                    claim must have the value that the document has at the path, which must be \
                    one of `query`.",
            },
            "schema": {
                "type": ["object", "null"],
                "description": "The JSON Schema of its documents, draft 2020-12.",
            },
        },
        "additionalProperties": false,
        "if": {"required": ["abstract"], "properties": {"abstract": {"const": true}}},
        "then": {"properties": absent},
        "else": {"required": ["schema"], "properties": {"schema": {"type": "object"}}},
    })
}

/// Groups of equal paths.
fn equal() -> Value {
    json!({
        "type": ["array", "null"],
        "maxItems": EQUAL_GROUPS_MAX,
        "items": {
            "type": "array",
            "minItems": 2,
            "maxItems": EQUAL_PATHS_MAX,
            "uniqueItems": true,
            "items": string_schema(texts::document_path()),
        },
        "description": "Groups of paths whose values must be equal within a document. Absent values and null are not compared.",
    })
}

/// Groups of paths at which elements of an array differ.
fn unique() -> Value {
    json!({
        "type": ["array", "null"],
        "maxItems": UNIQUE_MAX,
        "items": {
            "type": "array",
            "minItems": 1,
            "maxItems": UNIQUE_PATHS_MAX,
            "uniqueItems": true,
            "items": string_schema(texts::document_path()),
        },
        "description": "Groups of paths that are the same up to their last `*`. No two elements of an array may have the same values at all paths of a group. An element without a value at one of them is not compared.",
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
                "description": "The maximum number of earlier versions of a document.",
            },
            "deleted": {
                "type": "boolean",
                "description": "Whether deleted documents can be restored.",
            },
            "days": days("How many days the history is kept; null: without limit."),
        },
        "additionalProperties": false,
        "anyOf": [
            {"type": "null"},
            {"required": ["versions"], "properties": {"versions": {"minimum": 1}}},
            {"required": ["deleted"], "properties": {"deleted": {"const": true}}},
        ],
        "description": "The history of documents that is kept.",
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

/// An array of paths without wildcards.
fn paths(description: &str) -> Value {
    json!({
        "type": "array",
        "uniqueItems": true,
        "items": string_schema(texts::single_document_path()),
        "description": description,
    })
}

fn reference() -> Value {
    json!({
        "type": "object",
        "required": ["name", "to", "paths"],
        "properties": {
            "name": with_description(texts::collection_name(), "The reference's name, unique within the collection."),
            "to": with_description(texts::collection_name(), "The collection of the target."),
            "paths": {
                "oneOf": [path_pairs(texts::document_path()), listed_pairs()],
                "description": "Pairs of a path in documents of this collection and a path of the target's identity; in a list, one path may name several parts of it.",
            },
            "match": {
                "type": ["string", "null"],
                "enum": ["simple", "full", null],
                "description": "Whether a document with some of the paths only refers to nothing (`simple`) or is rejected (`full`). By default it is `simple` if the identity or another reference has one of the paths as well, else `full`.",
            },
        },
        "additionalProperties": false,
    })
}

fn extension() -> Value {
    json!({
        "type": "object",
        "required": ["collection", "identity"],
        "properties": {
            "collection": with_description(texts::collection_name(), "The abstract collection."),
            "identity": path_pairs(texts::single_document_path()),
        },
        "additionalProperties": false,
    })
}

/// Paths in documents, with those of the other collection's identity.
fn path_pairs(own_path: Value) -> Value {
    json!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": IDENTITY_PATHS_MAX,
        "propertyNames": own_path,
        "additionalProperties": string_schema(texts::single_document_path()),
        "description": "Pairs of a path in documents of this collection and a path of the other collection's identity.",
    })
}

/// The same pairs as a list.
fn listed_pairs() -> Value {
    let pair = json!([
        string_schema(texts::document_path()),
        string_schema(texts::single_document_path()),
    ]);
    json!({
        "type": "array",
        "minItems": 1,
        "maxItems": IDENTITY_PATHS_MAX,
        "uniqueItems": true,
        "items": {"type": "array", "prefixItems": pair, "minItems": 2, "maxItems": 2},
    })
}

fn string_schema(mut text: Value) -> Value {
    merge(&mut text, json!({"type": "string"}));
    text
}

fn with_description(mut text: Value, description: &str) -> Value {
    merge(&mut text, json!({"type": "string", "description": description}));
    text
}

#[cfg(test)]
mod tests;
