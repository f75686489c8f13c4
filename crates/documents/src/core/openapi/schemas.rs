//! Schemas: of documents, of what they come in, and of what is said of them.

use serde_json::{Map, Value, json};

use super::All;
use crate::core::collection::Collection;
use crate::core::schema::{Schema, moved};
use crate::model::{ChangeKind, CollectionName};

/// What an answer to a write has.
pub(super) const WRITTEN: &str = "documents.Written";
/// Why something is not done.
pub(super) const PROBLEM: &str = "documents.Problem";
/// Paths of a document that were asked for.
pub(super) const PART: &str = "documents.Part";
/// A JSON patch.
pub(super) const JSON_PATCH: &str = "documents.JsonPatch";
/// What a document was.
const VERSION: &str = "documents.Version";
/// A page of such.
pub(super) const VERSIONS: &str = "documents.Versions";
/// What became of lines.
pub(super) const IMPORTED: &str = "documents.Imported";
/// Several writes.
pub(super) const BATCH: &str = "documents.Batch";
/// One of them, which deletes.
const DELETE: &str = "documents.Delete";
/// What became of them.
pub(super) const BATCHED: &str = "documents.Batched";
/// What became of a document.
const CHANGE: &str = "documents.Change";
/// What became of documents.
pub(super) const CHANGES: &str = "documents.Changes";

/// A schema of `components`.
pub(super) fn to(component: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{component}")})
}

/// The documents of a collection. Names of collections have no capitals and no points: these names are none of theirs.
pub(super) fn document(name: &CollectionName) -> String {
    format!("documents.{name}")
}

/// One of them with what is known of it.
pub(super) fn found(name: &CollectionName) -> String {
    format!("documents.{name}.Found")
}

/// A write of a batch that puts one of them somewhere.
fn write(name: &CollectionName) -> String {
    format!("documents.{name}.Write")
}

/// All, for `components/schemas`.
pub(super) fn all(all: &All<'_>) -> Map<String, Value> {
    let names = all.each.iter().map(|(collection, _)| collection.name());
    let names: Vec<&CollectionName> = names.collect();
    let alike = [
        (WRITTEN, of_written()),
        (PROBLEM, of_problem()),
        (PART, of_part()),
        (JSON_PATCH, of_json_patch()),
        (VERSION, of_version()),
        (VERSIONS, page(to(VERSION))),
        (IMPORTED, of_imported()),
        (BATCH, of_batch(&names, all.served.batch_max)),
        (DELETE, of_delete(&names)),
        (BATCHED, of_batched()),
        (CHANGE, of_change()),
        (CHANGES, of_changes()),
    ];
    let alike = alike.map(|(name, schema)| (name.to_owned(), schema));
    let mut schemas: Map<String, Value> = alike.into_iter().collect();
    for (collection, schema) in &all.each {
        let name = collection.name();
        schemas.insert(document(name), of_document(name, schema));
        schemas.insert(found(name), of_found(all, collection));
        schemas.insert(write(name), of_write(name));
    }
    schemas
}

fn of_document(name: &CollectionName, schema: &Schema) -> Value {
    moved(schema, &format!("/components/schemas/{}", document(name)))
}

fn of_found(all: &All<'_>, collection: &Collection) -> Value {
    let name = collection.name();
    let mut found = item(json!({"anyOf": [to(&document(name)), to(PART)]}));
    let known = json!({
        "version": {"type": "integer", "format": "int32", "minimum": 1, "description": "How often it was written. This, like all below, where `meta` is asked for."},
        "created_at": {"type": "string", "format": "date-time", "description": "When it was made."},
        "created_by": {"type": "string", "description": "The id of the token that made it."},
        "modified_at": {"type": "string", "format": "date-time", "description": "When it was written last."},
        "modified_by": {"type": "string", "description": "The id of the token that wrote it last."},
        "request_id": {"type": "string", "description": "The id of the request that did."},
    });
    let known = known.as_object().into_iter().flatten();
    for (property, schema) in known {
        found["properties"][property] = schema.clone();
    }
    if let Some(embedded) = embedded(all, collection) {
        found["properties"]["embedded"] = embedded;
    }
    found
}

/// What the references of a collection are to.
fn embedded(all: &All<'_>, collection: &Collection) -> Option<Value> {
    let mut references = Map::new();
    for (place, (reference, target, _)) in collection.references().enumerate() {
        let target = any_of(all.named(target));
        let target = match collection.is_plural(place) {
            true => json!({"type": "array", "items": target}),
            false => target,
        };
        references.insert(reference.to_string(), target);
    }
    (!references.is_empty()).then(|| {
        json!({
            "type": "object", "description": "What the references that `embed` names are to.", "properties": references,
        })
    })
}

fn any_of<'a>(names: impl IntoIterator<Item = &'a CollectionName>) -> Value {
    let each = names.into_iter().map(|name| to(&document(name)));
    let mut each: Vec<Value> = each.collect();
    match each.len() {
        // Whoever asks does not see what it is.
        0 => json!({"type": "object"}),
        1 => each.remove(0),
        _ => json!({"anyOf": each}),
    }
}

/// A document that refers to another, of one of these collections.
pub(super) fn referring(names: &[&CollectionName]) -> Value {
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

/// A page of these.
pub(super) fn page(item: Value) -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": item},
            "next": {"type": "string", "description": "The cursor of the next page, where there is one."},
        },
    })
}

/// A page of what may be counted.
pub(super) fn counted(item: Value) -> Value {
    let mut page = page(item);
    page["properties"]["count"] = json!({
        "type": "integer", "format": "int64", "minimum": 0, "description": "How many there are in all, where that was asked for.",
    });
    page
}

fn id() -> Value {
    json!({"type": "string", "format": "uuid", "description": "The document's id."})
}

pub(super) fn etag() -> Value {
    json!({"type": "string", "pattern": "^\"[0-9]+-[0-9a-f]{8}\"$", "description": "The document's version."})
}

fn of_written() -> Value {
    json!({
        "type": "object",
        "description": "What became of a document that was sent.",
        "required": ["id"],
        "properties": {"id": id()},
    })
}

fn of_part() -> Value {
    json!({
        "type": "object",
        "description": "Of a document the paths that `fields` names, as far as they are there.",
    })
}

fn of_problem() -> Value {
    let violation = json!({
        "type": "object",
        "required": ["pointer", "message"],
        "properties": {
            "pointer": {"type": "string", "description": "The place, a JSON pointer."},
            "message": {"type": "string", "description": "What is wrong there."},
        },
    });
    let reference = json!({
        "type": "object",
        "required": ["reference", "to", "pointers", "identity"],
        "properties": {
            "reference": {"type": "string", "description": "The reference's name."},
            "to": {"type": "string", "description": "The collection that it is to."},
            "pointers": {"type": "array", "items": {"type": "string"}, "description": "Where the document has it."},
            "identity": {"type": "object", "description": "What it names: values by path."},
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
            "count": {"type": "integer", "minimum": 0, "description": "How many refer to the document, as far as they were counted."},
            "is_more": {"type": "boolean", "description": "Whether there are more."},
            "first": {"type": "array", "items": referrer},
        },
    });
    json!({"allOf": [
        to("Problem"),
        {
            "type": "object",
            "properties": {
                "violations": {"type": "array", "items": violation, "description": "What is wrong with a document or a patch."},
                "references": {"type": "array", "items": reference, "description": "What a document refers to that is not there."},
                "referrers": referrers,
                "etag": etag(),
                "operation": {"type": "integer", "minimum": 0, "description": "Of a batch: which operation, from 0."},
            },
        },
    ]})
}

fn of_json_patch() -> Value {
    let pointer = json!({"type": "string", "pattern": "^(?:/(?:[^/~]|~[01])*)*$"});
    let of = |operations: &[&str], more: &str, schema: Value| {
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
    let each = [
        of(&["add", "replace", "test"], "value", json!({})),
        of(&["move", "copy"], "from", pointer.clone()),
        remove,
    ];
    json!({"type": "array", "description": "Operations, one after the other (RFC 6902).", "items": {"oneOf": each}})
}

fn of_version() -> Value {
    json!({
        "type": "object",
        "description": "What a document was.",
        "required": ["id", "version", "modified_at", "replaced_at", "is_deleted", "document"],
        "properties": {
            "id": id(),
            "version": {"type": "integer", "format": "int32", "minimum": 1, "description": "At which version."},
            "modified_at": {"type": "string", "format": "date-time", "description": "When that was written."},
            "modified_by": {"type": "string", "description": "The id of the token that wrote it."},
            "request_id": {"type": "string", "description": "The id of the request that did."},
            "replaced_at": {"type": "string", "format": "date-time", "description": "Until when the document was so."},
            "replaced_by": {"type": "string", "description": "The id of the token that changed or deleted it."},
            "is_deleted": {"type": "boolean", "description": "Whether it was deleted."},
            "document": {"type": "object", "description": "What it was, by the definition of that time."},
        },
    })
}

fn of_imported() -> Value {
    let count = |what: &str| json!({"type": "integer", "minimum": 0, "description": what});
    let refused = json!({
        "type": "object",
        "required": ["line", "problem"],
        "properties": {
            "line": {"type": "integer", "minimum": 1, "description": "Which, from 1."},
            "problem": to(PROBLEM),
        },
    });
    json!({
        "type": "object",
        "required": ["created", "changed", "unchanged", "refused", "epoch"],
        "properties": {
            "created": count("Documents that are new."),
            "changed": count("Documents with another body."),
            "unchanged": count("Documents that were so already."),
            "refused": {"type": "array", "items": refused, "description": "Lines that were refused."},
            "epoch": count("Which time this is that an Egret has begun to write here. Where it is another than before, relaxed lines may have been lost."),
        },
    })
}

/// A write of a batch; `own`: what is not alike for all.
fn of_operation(op: &str, collection: Value, own: &[(&str, Value)]) -> Value {
    let condition = json!({"type": ["string", "null"], "description": "As the header has it."});
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

fn of_write(name: &CollectionName) -> Value {
    let collection = json!({"type": "string", "const": name});
    let document = ("document", to(&document(name)));
    let upsert = of_operation(
        "upsert",
        collection.clone(),
        std::slice::from_ref(&document),
    );
    let put = of_operation("put", collection, &[("id", id()), document]);
    json!({"oneOf": [upsert, put]})
}

fn of_delete(names: &[&CollectionName]) -> Value {
    let collection = json!({"type": "string", "enum": names});
    of_operation("delete", collection, &[("id", id())])
}

fn of_batch(names: &[&CollectionName], batch_max: u32) -> Value {
    let each = names.iter().map(|name| to(&write(name)));
    let each: Vec<Value> = each.chain([to(DELETE)]).collect();
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["operations"],
        "properties": {
            "atomic": {"type": "boolean", "default": false, "description": "Whether all are done or none; else each for itself."},
            "operations": {"type": "array", "maxItems": batch_max, "items": {"anyOf": each}},
        },
    })
}

fn of_batched() -> Value {
    let item = json!({
        "type": "object",
        "required": ["status"],
        "properties": {
            "status": {"type": "integer", "description": "What a request of its own would have been answered by."},
            "id": id(),
            "etag": etag(),
            "problem": to(PROBLEM),
        },
    });
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {"items": {"type": "array", "items": item, "description": "One for each operation, in their order."}},
    })
}

fn of_change() -> Value {
    let kinds = [
        ChangeKind::Create,
        ChangeKind::Update,
        ChangeKind::Delete,
        ChangeKind::Identity,
    ];
    let kinds = kinds.map(ChangeKind::as_str);
    json!({
        "type": "object",
        "required": ["position", "at", "kind", "collection", "id", "version"],
        "properties": {
            "position": {"type": "integer", "format": "int64", "description": "Its place in the order of commits."},
            "at": {"type": "string", "format": "date-time", "description": "When it was written."},
            "kind": {"type": "string", "enum": kinds},
            "collection": {"type": "string"},
            "id": id(),
            "version": {"type": "integer", "format": "int32", "description": "The document's version then."},
        },
    })
}

fn of_changes() -> Value {
    json!({
        "type": "object",
        "required": ["items", "position"],
        "properties": {
            "items": {"type": "array", "items": to(CHANGE)},
            "position": {
                "type": "integer", "format": "int64",
                "description": "Up to here all have been looked at: go on `after` this. There may be more though there are no items.",
            },
        },
    })
}
