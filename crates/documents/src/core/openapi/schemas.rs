//! Schemas of documents, requests and responses.

use serde_json::{Map, Value, json};

use super::ConcreteCollections;
use crate::core::collection::Collection;
use crate::core::schema::{Schema, rebase};
use crate::model::{ChangeKind, CollectionName};

/// Receipt for a write.
pub(super) const WRITTEN: &str = "documents.Written";
pub(super) const PROBLEM: &str = "documents.Problem";
/// Requested paths of a document's body.
pub(super) const PART: &str = "documents.Part";
pub(super) const JSON_PATCH: &str = "documents.JsonPatch";
/// An earlier version of a document.
const VERSION: &str = "documents.Version";
/// A page of earlier versions.
pub(super) const VERSIONS: &str = "documents.Versions";
/// Result of an import.
pub(super) const IMPORTED: &str = "documents.Imported";
pub(super) const BATCH: &str = "documents.Batch";
/// A deletion in a batch.
const DELETE: &str = "documents.Delete";
/// Result of a batch.
pub(super) const BATCHED: &str = "documents.Batched";
/// A change of the feed.
const CHANGE: &str = "documents.Change";
/// A page of changes.
pub(super) const CHANGES: &str = "documents.Changes";

/// A reference to a schema of `components`.
pub(super) fn schema_ref(component: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{component}")})
}

/// Name of the schema of a collection's documents. Names of collections have no capitals and no
/// dots, so it cannot collide with the other names.
pub(super) fn document_schema_name(name: &CollectionName) -> String {
    format!("documents.{name}")
}

/// Name of the schema of a collection's document with its metadata.
pub(super) fn found_schema_name(name: &CollectionName) -> String {
    format!("documents.{name}.Found")
}

/// Name of the schema of a batch item that stores a document.
fn write_schema_name(name: &CollectionName) -> String {
    format!("documents.{name}.Write")
}

/// All schemas, for `components/schemas`.
pub(super) fn all_schemas(all: &ConcreteCollections<'_>) -> Map<String, Value> {
    let names: Vec<&CollectionName> =
        all.collections.iter().map(|(collection, _)| collection.name()).collect();
    let shared = [
        (WRITTEN, written_schema()),
        (PROBLEM, problem_schema()),
        (PART, part_schema()),
        (JSON_PATCH, json_patch_schema()),
        (VERSION, version_schema()),
        (VERSIONS, page(schema_ref(VERSION))),
        (IMPORTED, imported_schema()),
        (BATCH, batch_schema(&names, all.context.batch_max)),
        (DELETE, delete_schema(&names)),
        (BATCHED, batched_schema()),
        (CHANGE, change_schema()),
        (CHANGES, changes_schema()),
    ];
    let alike = shared.map(|(name, schema)| (name.to_owned(), schema));
    let mut schemas: Map<String, Value> = alike.into_iter().collect();
    for (collection, schema) in &all.collections {
        let name = collection.name();
        schemas.insert(document_schema_name(name), document_schema(name, schema));
        schemas.insert(found_schema_name(name), found_schema(all, collection));
        schemas.insert(write_schema_name(name), write_schema(name));
    }
    schemas
}

fn document_schema(name: &CollectionName, schema: &Schema) -> Value {
    rebase(schema, &format!("/components/schemas/{}", document_schema_name(name)))
}

fn found_schema(all: &ConcreteCollections<'_>, collection: &Collection) -> Value {
    let name = collection.name();
    let mut found =
        item(json!({"anyOf": [schema_ref(&document_schema_name(name)), schema_ref(PART)]}));
    let metadata = json!({
        "version": {"type": "integer", "format": "int32", "minimum": 1, "description": "The version number: how often the document was written. Present, like the properties below, only with `meta`."},
        "created_at": {"type": "string", "format": "date-time", "description": "When the document was created."},
        "created_by": {"type": "string", "description": "The id of the token that created it."},
        "modified_at": {"type": "string", "format": "date-time", "description": "When the document was last written."},
        "modified_by": {"type": "string", "description": "The id of the token that last wrote it."},
        "request_id": {"type": "string", "description": "The id of the request that last wrote it."},
    });
    let known = metadata.as_object().into_iter().flatten();
    for (property, schema) in known {
        found["properties"][property] = schema.clone();
    }
    if let Some(embedded) = embedded_schema(all, collection) {
        found["properties"]["embedded"] = embedded;
    }
    found
}

/// Schema of embedded targets, by name of the reference.
fn embedded_schema(all: &ConcreteCollections<'_>, collection: &Collection) -> Option<Value> {
    let mut references = Map::new();
    for (index, (reference, target, _)) in collection.references().enumerate() {
        let target = any_of(all.targets_of(target));
        let target = if collection.is_plural(index) {
            json!({"type": "array", "items": target})
        } else {
            target
        };
        references.insert(reference.to_string(), target);
    }
    (!references.is_empty()).then(|| {
        json!({
            "type": "object", "description": "The targets of the references that `embed` names.", "properties": references,
        })
    })
}

fn any_of<'a>(names: impl IntoIterator<Item = &'a CollectionName>) -> Value {
    let mut alternatives: Vec<Value> =
        names.into_iter().map(|name| schema_ref(&document_schema_name(name))).collect();
    match alternatives.len() {
        // The caller may not see the target's collection.
        0 => json!({"type": "object"}),
        1 => alternatives.remove(0),
        _ => json!({"anyOf": alternatives}),
    }
}

/// A document of one of these collections that refers to another one.
pub(super) fn referring_schema(names: &[&CollectionName]) -> Value {
    let mut referring = item(any_of(names.iter().copied()));
    referring["properties"]["collection"] = json!({"type": "string"});
    if !names.is_empty() {
        referring["properties"]["collection"]["enum"] = json!(names);
    }
    referring["required"] = json!(["id", "etag", "collection", "document"]);
    referring
}

fn item(document: Value) -> Value {
    json!({
        "type": "object",
        "required": ["id", "etag", "document"],
        "properties": {"id": id(), "etag": etag(), "document": document},
    })
}

/// A page of these items.
pub(super) fn page(item: Value) -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": item},
            "next": {"type": "string", "description": "The cursor of the next page, if there is one."},
        },
    })
}

/// A page with the optional total count.
pub(super) fn counted_page(item: Value) -> Value {
    let mut page = page(item);
    page["properties"]["count"] = json!({
        "type": "integer", "format": "int64", "minimum": 0, "description": "The number of all matches, if `count` asked for it.",
    });
    page
}

fn id() -> Value {
    json!({"type": "string", "format": "uuid", "description": "The document's id."})
}

pub(super) fn etag() -> Value {
    json!({"type": "string", "pattern": "^\"[0-9]+-[0-9a-f]{8}\"$", "description": "The document's version."})
}

fn written_schema() -> Value {
    json!({
        "type": "object",
        "description": "The document that was written.",
        "required": ["id"],
        "properties": {"id": id()},
    })
}

fn part_schema() -> Value {
    json!({
        "type": "object",
        "description": "The paths of a document that `fields` names, as far as they exist.",
    })
}

fn problem_schema() -> Value {
    let violation = json!({
        "type": "object",
        "required": ["pointer", "message"],
        "properties": {
            "pointer": {"type": "string", "description": "A JSON pointer to the violation."},
            "message": {"type": "string", "description": "The reason."},
        },
    });
    let reference = json!({
        "type": "object",
        "required": ["reference", "to", "pointers", "identity"],
        "properties": {
            "reference": {"type": "string", "description": "The reference's name."},
            "to": {"type": "string", "description": "The collection that it refers to."},
            "pointers": {"type": "array", "items": {"type": "string"}, "description": "JSON pointers to the reference in the document."},
            "identity": {"type": "object", "description": "The identity of the missing document: values by path."},
        },
    });
    let referrer = json!({
        "type": "object",
        "required": ["collection", "id"],
        "properties": {"collection": {"type": "string"}, "id": id()},
    });
    let referrers = json!({
        "type": "object",
        "required": ["count", "is_more", "first"],
        "properties": {
            "count": {"type": "integer", "minimum": 0, "description": "The number of documents that refer to the document, as far as they were counted."},
            "is_more": {"type": "boolean", "description": "Whether there are more than `count`."},
            "first": {"type": "array", "items": referrer},
        },
    });
    json!({"allOf": [
        schema_ref("Problem"),
        {
            "type": "object",
            "properties": {
                "violations": {"type": "array", "items": violation, "description": "The violations of a document or a patch."},
                "references": {"type": "array", "items": reference, "description": "The references of a document that have no target."},
                "referrers": referrers,
                "etag": etag(),
                "operation": {"type": "integer", "minimum": 0, "description": "The index of the operation in a batch, from 0."},
            },
        },
    ]})
}

fn json_patch_schema() -> Value {
    let pointer = json!({"type": "string", "pattern": "^(?:/(?:[^/~]|~[01])*)*$"});
    let operation = |operations: &[&str], more: &str, schema: Value| {
        json!({
            "type": "object",
            "required": ["op", "path", more],
            "properties": {"op": {"type": "string", "enum": operations}, "path": pointer, more: schema},
        })
    };
    let remove = json!({
        "type": "object",
        "required": ["op", "path"],
        "properties": {"op": {"type": "string", "enum": ["remove"]}, "path": pointer},
    });
    let alternatives = [
        operation(&["add", "replace", "test"], "value", json!({})),
        operation(&["move", "copy"], "from", pointer.clone()),
        remove,
    ];
    json!({"type": "array", "description": "The operations, applied in order (RFC 6902).", "items": {"oneOf": alternatives}})
}

fn version_schema() -> Value {
    json!({
        "type": "object",
        "description": "An earlier version of a document.",
        "required": ["id", "version", "modified_at", "replaced_at", "is_deleted", "document"],
        "properties": {
            "id": id(),
            "version": {"type": "integer", "format": "int32", "minimum": 1, "description": "The version number."},
            "modified_at": {"type": "string", "format": "date-time", "description": "When this version was written."},
            "modified_by": {"type": "string", "description": "The id of the token that wrote it."},
            "request_id": {"type": "string", "description": "The id of the request that wrote it."},
            "replaced_at": {"type": "string", "format": "date-time", "description": "When this version was replaced or deleted."},
            "replaced_by": {"type": "string", "description": "The id of the token that replaced or deleted it."},
            "is_deleted": {"type": "boolean", "description": "Whether the document was deleted."},
            "document": {"type": "object", "description": "The content of this version, valid under the definition of that time."},
        },
    })
}

fn imported_schema() -> Value {
    let count = |what: &str| json!({"type": "integer", "minimum": 0, "description": what});
    let refused = json!({
        "type": "object",
        "required": ["line", "problem"],
        "properties": {
            "line": {"type": "integer", "minimum": 1, "description": "The number of the line, from 1."},
            "problem": schema_ref(PROBLEM),
        },
    });
    json!({
        "type": "object",
        "required": ["created", "changed", "unchanged", "refused", "epoch"],
        "properties": {
            "created": count("The number of documents that were created."),
            "changed": count("The number of documents whose content changed."),
            "unchanged": count("The number of documents that already had this content."),
            "refused": {"type": "array", "items": refused, "description": "The lines that were rejected."},
            "epoch": count("A number that grows each time an Egret starts to write in this database. If it differs from the previous response, relaxed lines may have been lost."),
        },
    })
}

/// A batch item; `properties` are those specific to its operation.
fn operation_schema(op: &str, collection: Value, own: &[(&str, Value)]) -> Value {
    let condition = json!({"type": ["string", "null"], "description": "The precondition, as in the header of the same name."});
    let mut operation = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "op": {"type": "string", "const": op}, "collection": collection, "if_match": condition, "if_none_match": condition,
        },
    });
    let mut required = vec!["op", "collection"];
    for (property, schema) in own {
        required.push(*property);
        operation["properties"][*property] = schema.clone();
    }
    operation["required"] = json!(required);
    operation
}

fn write_schema(name: &CollectionName) -> Value {
    let collection = json!({"type": "string", "const": name});
    let document = ("document", schema_ref(&document_schema_name(name)));
    let upsert = operation_schema("upsert", collection.clone(), std::slice::from_ref(&document));
    let put = operation_schema("put", collection, &[("id", id()), document]);
    json!({"oneOf": [upsert, put]})
}

fn delete_schema(names: &[&CollectionName]) -> Value {
    let collection = json!({"type": "string", "enum": names});
    operation_schema("delete", collection, &[("id", id())])
}

fn batch_schema(names: &[&CollectionName], batch_max: u32) -> Value {
    let each: Vec<Value> = names
        .iter()
        .map(|name| schema_ref(&write_schema_name(name)))
        .chain([schema_ref(DELETE)])
        .collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["operations"],
        "properties": {
            "atomic": {"type": "boolean", "default": false, "description": "Whether all operations are done or none. Otherwise each is done separately."},
            "operations": {"type": "array", "maxItems": batch_max, "items": {"anyOf": each}},
        },
    })
}

fn batched_schema() -> Value {
    let item = json!({
        "type": "object",
        "required": ["status"],
        "properties": {
            "status": {"type": "integer", "description": "The status that a separate request would have returned."},
            "id": id(),
            "etag": etag(),
            "problem": schema_ref(PROBLEM),
        },
    });
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {"items": {"type": "array", "items": item, "description": "One result for each operation, in the same order."}},
    })
}

fn change_schema() -> Value {
    let kinds = [ChangeKind::Create, ChangeKind::Update, ChangeKind::Delete, ChangeKind::Identity];
    let kinds = kinds.map(ChangeKind::as_str);
    json!({
        "type": "object",
        "required": ["position", "at", "kind", "collection", "id", "version"],
        "properties": {
            "position": {"type": "integer", "format": "int64", "description": "The position of the change in the order of commits."},
            "at": {"type": "string", "format": "date-time", "description": "When the change was written."},
            "kind": {"type": "string", "enum": kinds},
            "collection": {"type": "string"},
            "id": id(),
            "version": {"type": "integer", "format": "int32", "description": "The document's version after the change."},
        },
    })
}

fn changes_schema() -> Value {
    json!({
        "type": "object",
        "required": ["items", "position"],
        "properties": {
            "items": {"type": "array", "items": schema_ref(CHANGE)},
            "position": {
                "type": "integer", "format": "int64",
                "description": "The position up to which changes were read: continue with it in `after`. There may be more changes even if `items` is empty.",
            },
        },
    })
}
