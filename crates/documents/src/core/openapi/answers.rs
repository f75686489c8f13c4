//! Responses of operations.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::schemas;
use crate::model::CollectionName;

pub(super) const JSON: &str = "application/json";
/// Media type of one JSON document a line.
pub(super) const NDJSON: &str = "application/x-ndjson";

/// Error statuses of any request, from layers before its handler.
const COMMON_PROBLEMS: &[&str] = &["401", "403", "429", "431", "500", "503", "504"];

/// Descriptions of error responses by status.
const PROBLEMS: [(&str, &str); 14] = [
    (
        "400",
        "`validation_failed`: the document does not match its collection's definition, or a \
         patch cannot be applied; `violations` has a JSON pointer and a message for each reason. \
         `identity_immutable`: the identity of documents of this collection cannot be changed. \
         `query_invalid`, `parameter_invalid`, `json_malformed`, `json_invalid`: the request \
         cannot be parsed. `embedded_too_large`: the embedded documents exceed their size limit. \
         `invalid_request`: the database does not exist.",
    ),
    ("401", "The token is missing or not valid."),
    (
        "403",
        "`scope_missing`: the token has the scope neither for documents nor for those of one \
         collection, such as `documents/flights:read`. `access_denied`: the token has no scope for \
         this collection, or lacks a claim.",
    ),
    (
        "404",
        "`not_found`: the document does not exist. `collection_not_found`: the collection is no \
         longer declared.",
    ),
    (
        "409",
        "`unresolved_reference`: `references` lists the references without a target. \
         `still_referenced`: `referrers` has the number of documents that refer to the document, \
         and the first of them. `identity_conflict`: another document has this identity. \
         `not_deleted`: the document exists, and no version to restore is given. \
         `idempotency_key_reused`: the key was used for another request.",
    ),
    (
        "410",
        "`changes_gone`: the changes after this position are no longer kept, or the database has \
         not reached the position because it was restored to an earlier state.",
    ),
    (
        "412",
        "`version_mismatch`: the document's version does not satisfy `If-Match` or \
         `If-None-Match`; `etag` has its version if the document exists.",
    ),
    (
        "413",
        "`payload_too_large`, `body_too_large`: the body exceeds its size limit, or has too many \
         lines or operations.",
    ),
    (
        "415",
        "`content_type_unsupported`: the operation does not accept the content type of the body.",
    ),
    (
        "429",
        "`limit_exceeded`: the tenant uses its share of the requests that may wait or run, or \
         the write affects too many documents.",
    ),
    (
        "431",
        "`head_too_large`: the request has too many headers, or its headers and path are too \
         long.",
    ),
    ("500", "The server failed to process the request."),
    (
        "503",
        "The server or its database cannot answer at the moment. `overloaded`: the maximum \
         number of requests is waiting or running. `query_timeout`: the query exceeded its \
         timeout.",
    ),
    ("504", "`request_timed_out`: the response took too long."),
];

/// The error responses, for `components/responses`.
pub(super) fn problem_responses() -> Map<String, Value> {
    let responses = PROBLEMS.into_iter().map(|(status, description)| {
        let schema = schemas::schema_ref(schemas::PROBLEM);
        let mut problem = json!({
            "description": description,
            "content": {"application/problem+json": {"schema": schema}},
        });
        match status {
            "401" => {
                problem["headers"] = json!({"WWW-Authenticate": {
                    "description": "The authentication scheme to use.", "required": true, "schema": {"type": "string"},
                }});
            }
            "429" | "503" => {
                problem["headers"] = json!({"Retry-After": {
                    "description": "Seconds to wait before a retry, if a retry can help.", "schema": {"type": "integer", "minimum": 0},
                }});
            }
            _ => {}
        }
        (component_name(status), problem)
    });
    responses.collect()
}

fn component_name(status: &str) -> String {
    format!("documents.{status}")
}

/// Responses of an operation: the successful ones, its own error statuses, and those of all
/// operations.
pub(super) fn responses<const N: usize>(successes: [(&str, Value); N], problems: &[&str]) -> Value {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    all.extend(successes.map(|(status, answer)| (status.to_owned(), answer)));
    let problems = problems.iter().chain(COMMON_PROBLEMS);
    all.extend(problems.map(|status| {
        let reference = format!("#/components/responses/{}", component_name(status));
        ((*status).to_owned(), json!({"$ref": reference}))
    }));
    Value::Object(all.into_iter().collect())
}

/// A response with a JSON body.
pub(super) fn json_response(description: &str, schema: Value) -> Value {
    json!({"description": description, "content": {JSON: {"schema": schema}}})
}

/// A response without a body, with the document's version as `ETag`.
pub(super) fn empty_response(description: &str) -> Value {
    json!({"description": description, "headers": etag()})
}

/// The response to a write, with links to operations on the document.
pub(super) fn write_response(name: &CollectionName, description: &str) -> Value {
    let mut answer = json_response(description, schemas::schema_ref(schemas::WRITTEN));
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
