//! What OpenAPI 3.1 says of declared collections: a path for each, and the schema of its documents.
//!
//! The rest of the document is the server's: it has the schema `Problem` and the security scheme `token`, to which this refers.

use serde_json::{Map, Value, json};

use crate::core::collection::Collection;
use crate::core::schema::moved;
use crate::model::CollectionName;

/// What an answer to a write has.
const WRITTEN: &str = "documents.Written";

/// What is said of collections, to be added to an OpenAPI document.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Described {
    /// Path items by path.
    pub paths: Map<String, Value>,
    /// Schemas by name, for `components/schemas`. The names begin with `documents.`, as no other does.
    pub schemas: Map<String, Value>,
}

/// Describes collections. What is abstract has no documents of its own, and is left out.
pub fn describe<'a>(collections: impl IntoIterator<Item = &'a Collection>) -> Described {
    let mut described = Described::default();
    described.schemas.insert(WRITTEN.to_owned(), written());
    for collection in collections {
        let Some(schema) = collection.schema() else {
            continue;
        };
        let name = collection.name();
        let component = format!("documents.{name}");
        let place = format!("/components/schemas/{component}");
        described.schemas.insert(component, moved(schema, &place));
        let path = format!("/v1/documents/{name}");
        let document = json!({"$ref": format!("#{place}")});
        described
            .paths
            .insert(format!("{path}/{{id}}"), of_document(name, &document));
        described
            .paths
            .insert(path, of_collection(collection, &document));
    }
    described
}

/// `/v1/documents/{collection}`.
fn of_collection(collection: &Collection, document: &Value) -> Value {
    let name = collection.name();
    let identity = listed(
        collection
            .definition()
            .identity
            .iter()
            .map(|part| &part.path),
    );
    let query = listed(collection.definition().query.iter().map(|one| &one.path));
    let found_by = match query.is_empty() {
        true => "Documents are listed by id.".to_owned(),
        false => format!("Documents are found by {query}."),
    };
    json!({
        "post": {
            "operationId": format!("upsert_{name}"),
            "tags": ["documents"],
            "summary": format!("Write one of {name} by its identity"),
            "description": format!("The identity is {identity}. A document with the same identity is replaced; an unchanged one is not written."),
            "security": [{"token": ["documents:write"]}],
            "parameters": [if_match(), if_none_match(), database()],
            "requestBody": {"required": true, "content": {"application/json": {"schema": document}}},
            "responses": answers([
                ("200", of_written("It was there, and is as it was sent.")),
                ("201", of_written("It is new.")),
            ], &["400", "404", "409", "412", "413", "429", "503"]),
        },
        "get": {
            "operationId": format!("list_{name}"),
            "tags": ["documents"],
            "summary": format!("List or find {name}"),
            "description": found_by,
            "security": [{"token": ["documents:read"]}],
            "parameters": [
                parameter("filter", "A condition: a path, one of =, !=, <, <=, >, >=, in, prefix and exists, and a value. May be repeated."),
                parameter("sort", "A path; `-` before it: the largest first."),
                parameter("cursor", "The `next` of the page before."),
                {"name": "limit", "in": "query", "required": false, "description": "Documents of a page.", "schema": {"type": "integer", "minimum": 1}},
                {"name": "count", "in": "query", "required": false, "description": "Whether all are counted: one by one, or as the planner thinks.",
                    "schema": {"type": "string", "enum": ["exact", "planned", "none"]}},
                fields(), embed(), database(),
            ],
            "responses": answers([("200", page(document))], &["400", "404", "429", "503"]),
        },
    })
}

/// `/v1/documents/{collection}/{id}`.
fn of_document(name: &CollectionName, document: &Value) -> Value {
    let merge = json!({"type": "object"});
    let patch = json!({"type": "array", "items": {"type": "object", "required": ["op", "path"]}});
    let operation = |verb: &str, summary: &str, scope: &str| {
        json!({
            "operationId": format!("{verb}_{name}"),
            "tags": ["documents"],
            "summary": summary,
            "security": [{"token": [format!("documents:{scope}")]}],
        })
    };
    let done = |description: &str| {
        [(
            "204",
            json!({"description": description, "headers": etag()}),
        )]
    };
    let conditions = json!([if_match(), if_none_match(), database()]);
    let mut get = operation("get", &format!("Read one of {name}"), "read");
    get["parameters"] = json!([if_none_match(), fields(), embed(), database()]);
    get["responses"] = answers(
        [
            (
                "200",
                json!({"description": "The document.", "headers": etag(), "content": {"application/json": {"schema": document}}}),
            ),
            (
                "304",
                json!({"description": "It is as `If-None-Match` says it is known."}),
            ),
        ],
        &["400", "404", "429", "503"],
    );
    let mut put = operation("put", &format!("Replace one of {name}"), "write");
    put["parameters"] = conditions.clone();
    put["requestBody"] =
        json!({"required": true, "content": {"application/json": {"schema": document}}});
    put["responses"] = answers(done("It is as it was sent."), WRITE_PROBLEMS);
    let mut change = operation("patch", &format!("Change one of {name}"), "write");
    change["parameters"] = conditions.clone();
    change["requestBody"] = json!({"required": true, "content": {
        "application/merge-patch+json": {"schema": merge},
        "application/json-patch+json": {"schema": patch},
    }});
    change["responses"] = answers(done("It is changed."), WRITE_PROBLEMS);
    let mut delete = operation("delete", &format!("Delete one of {name}"), "write");
    delete["parameters"] = conditions;
    delete["responses"] = answers(
        done("It is not there any more."),
        &["400", "404", "409", "412", "429", "503"],
    );
    json!({
        "parameters": [{
            "name": "id", "in": "path", "required": true, "description": "The document's id, a UUID of version 7.",
            "schema": {"type": "string", "format": "uuid"},
        }],
        "get": get, "put": put, "patch": change, "delete": delete,
    })
}

const WRITE_PROBLEMS: &[&str] = &["400", "404", "409", "412", "413", "429", "503"];

fn answers<const N: usize>(good: [(&str, Value); N], problems: &[&str]) -> Value {
    let good = good
        .into_iter()
        .map(|(status, answer)| (status.to_owned(), answer));
    let bad = problems
        .iter()
        .map(|status| ((*status).to_owned(), problem(status)));
    Value::Object(good.chain(bad).collect())
}

fn problem(status: &str) -> Value {
    let description = match status {
        "400" => {
            "`validation_failed`: the body or a parameter is not valid; `violations` has a JSON pointer and a message for each reason."
        }
        "404" => "`not_found`: there is no such collection or document.",
        "409" => {
            "`unresolved_reference`, `still_referenced` or `identity_conflict`: other documents do not allow it."
        }
        "412" => {
            "`version_mismatch`: the document is not as `If-Match` or `If-None-Match` wants it."
        }
        "413" => "`payload_too_large`: the body is larger than `documents.document_bytes_max`.",
        "429" => "`overloaded`: this caller has to wait; `Retry-After` says how long.",
        _ => {
            "`overloaded`, or the database is not there at the moment: try again after `Retry-After`."
        }
    };
    json!({
        "description": description,
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    })
}

fn written() -> Value {
    json!({
        "type": "object",
        "description": "What became of a document that was sent.",
        "required": ["id"],
        "properties": {"id": {"type": "string", "format": "uuid", "description": "The document's id."}},
    })
}

fn of_written(description: &str) -> Value {
    let schema = json!({"$ref": format!("#/components/schemas/{WRITTEN}")});
    let mut headers = etag();
    headers["Location"] = json!({"description": "The document.", "schema": {"type": "string"}});
    json!({"description": description, "headers": headers, "content": {"application/json": {"schema": schema}}})
}

fn page(document: &Value) -> Value {
    let item = json!({
        "type": "object",
        "required": ["id", "etag", "document"],
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "etag": {"type": "string"},
            "document": document,
            "embedded": {"type": "object", "description": "What references are to, by their names."},
        },
    });
    let schema = json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "items": {"type": "array", "items": item},
            "count": {"type": "integer", "description": "How many there are in all, where that was asked for."},
            "next": {"type": "string", "description": "The cursor of the next page, where there is one."},
        },
    });
    json!({"description": "A page of documents.", "content": {"application/json": {"schema": schema}}})
}

fn etag() -> Value {
    json!({"ETag": {"description": "The document's version.", "schema": {"type": "string"}}})
}

fn header(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "header", "required": false, "description": description, "schema": schema})
}

fn if_match() -> Value {
    header(
        "If-Match",
        "Only if the document has this version.",
        json!({"type": "string"}),
    )
}

fn if_none_match() -> Value {
    header(
        "If-None-Match",
        "Only if the document does not have this version; `*`: only if it is not there.",
        json!({"type": "string"}),
    )
}

fn parameter(name: &str, description: &str) -> Value {
    json!({"name": name, "in": "query", "required": false, "description": description, "schema": {"type": "string"}})
}

fn database() -> Value {
    parameter(
        "database",
        "The database; without it the only one that has collections.",
    )
}

fn fields() -> Value {
    parameter(
        "fields",
        "These paths of the document alone, with commas between them.",
    )
}

fn embed() -> Value {
    parameter(
        "embed",
        "What these references are to comes along, with commas between their names.",
    )
}

fn listed<'a>(paths: impl Iterator<Item = &'a crate::core::path::Path>) -> String {
    let all: Vec<String> = paths.map(|path| format!("`{path}`")).collect();
    all.join(", ")
}

#[cfg(test)]
mod tests;
