//! What operations answer.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::schemas;
use crate::model::CollectionName;

pub(super) const JSON: &str = "application/json";
/// A line for each document.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// What any request may be answered by: it stands before whoever answers it.
const ALWAYS: &[&str] = &["401", "403", "429", "431", "500", "503", "504"];

/// Why something is not done, by status.
const PROBLEMS: [(&str, &str); 14] = [
    (
        "400",
        "`validation_failed`: the document is not what its collection allows, or a patch cannot be applied; `violations` has a JSON pointer and a message for each reason. `identity_immutable`: a document does not get another identity here. `query_invalid`, `parameter_invalid`, `json_malformed`, `json_invalid`: what is asked for cannot be read. `embedded_too_large`: what is to be embedded takes more than it may. `invalid_request`: there is no such database.",
    ),
    ("401", "There is no token, or it is not valid."),
    (
        "403",
        "`scope_missing`: the token has the scope neither for documents nor for those of one collection, such as `documents/flights:read`. `access_denied`: it has none for this collection, or lacks a claim.",
    ),
    (
        "404",
        "`not_found`: there is no such document. `collection_not_found`: the collection is not declared any more.",
    ),
    (
        "409",
        "`unresolved_reference`: `references` has what is not there. `still_referenced`: `referrers` has how many refer to it, and the first of them. `identity_conflict`: another document has this identity. `not_deleted`: it is there, and no version was named. `idempotency_key_reused`: the key is of another request.",
    ),
    (
        "410",
        "`changes_gone`: what came after this position is forgotten already, or the database has not reached it: it was restored to an earlier state.",
    ),
    (
        "412",
        "`version_mismatch`: the document is not as `If-Match` or `If-None-Match` wants it; `etag` has its version, if there is one.",
    ),
    (
        "413",
        "`payload_too_large`, `body_too_large`: the body is larger than it may be, or has too many lines or operations.",
    ),
    (
        "415",
        "`content_type_unsupported`: the body is not of a type that is read here.",
    ),
    (
        "429",
        "`limit_exceeded`: the tenant has its share of what may wait or run, or more would follow from this write than may.",
    ),
    (
        "431",
        "`head_too_large`: there are too many headers, or they and the path are too long.",
    ),
    ("500", "The server failed at this request."),
    (
        "503",
        "The server, or its database, cannot answer at the moment. `overloaded`: as much waits or runs as may. `query_timeout`: the query takes longer than it may.",
    ),
    ("504", "`request_timed_out`: the answer took too long."),
];

/// The problems, for `components/responses`.
pub(super) fn problems() -> Map<String, Value> {
    let each = PROBLEMS.into_iter().map(|(status, description)| {
        let schema = schemas::to(schemas::PROBLEM);
        let mut problem = json!({
            "description": description,
            "content": {"application/problem+json": {"schema": schema}},
        });
        match status {
            "401" => {
                problem["headers"] = json!({"WWW-Authenticate": {
                    "description": "How to say who asks.", "required": true, "schema": {"type": "string"},
                }});
            }
            "429" | "503" => {
                problem["headers"] = json!({"Retry-After": {
                    "description": "Seconds after which trying again can help, where it can.", "schema": {"type": "integer", "minimum": 0},
                }});
            }
            _ => {}
        }
        (component(status), problem)
    });
    each.collect()
}

fn component(status: &str) -> String {
    format!("documents.{status}")
}

/// The answers of an operation: the good ones, and with which statuses it may be refused beside those that hold for all.
pub(super) fn answers<const N: usize>(good: [(&str, Value); N], problems: &[&str]) -> Value {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    all.extend(good.map(|(status, answer)| (status.to_owned(), answer)));
    let problems = problems.iter().chain(ALWAYS);
    all.extend(problems.map(|status| {
        let reference = format!("#/components/responses/{}", component(status));
        ((*status).to_owned(), json!({"$ref": reference}))
    }));
    Value::Object(all.into_iter().collect())
}

/// A JSON body.
pub(super) fn json_of(description: &str, schema: Value) -> Value {
    json!({"description": description, "content": {JSON: {"schema": schema}}})
}

/// No body, and a document's version.
pub(super) fn done(description: &str) -> Value {
    json!({"description": description, "headers": etag()})
}

/// A document that was written, and what may be asked of it next.
pub(super) fn written(name: &CollectionName, description: &str) -> Value {
    let mut answer = json_of(description, schemas::to(schemas::WRITTEN));
    answer["headers"] = etag();
    let links = ["get", "put", "patch", "delete"].map(|verb| {
        let link = json!({"operationId": format!("{verb}_{name}"), "parameters": {"id": "$response.body#/id"}});
        (verb.to_owned(), link)
    });
    answer["links"] = Value::Object(links.into_iter().collect());
    answer
}

pub(super) fn etag() -> Value {
    json!({"ETag": {"description": "The document's version.", "required": true, "schema": schemas::etag()}})
}

pub(super) fn location() -> Value {
    json!({"description": "The document.", "required": true, "schema": {"type": "string", "format": "uri-reference"}})
}
