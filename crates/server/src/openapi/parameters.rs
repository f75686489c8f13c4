//! Adds the server's checks of names and ids in paths to their published parameters.

use egret_branches::model::{BranchState, Preset};
use egret_queue::model::TaskState;
use egret_series::ImportFormat;
use serde_json::{Value, json};

use super::bodies::{bound_integers, merge};
use super::texts;

/// The constraints on a parameter of a path.
fn path_checks(path: &str, parameter: &str) -> Option<Value> {
    let area = path.strip_prefix("/v1/")?.split('/').next()?;
    match (area, parameter) {
        ("branches", "name") => Some(texts::branch_name()),
        ("queues", "queue") | ("schedules", "schedule") => Some(texts::queue_name()),
        ("tasks" | "documents", "id") => Some(texts::id()),
        ("tasks", "name") => Some(texts::attachment_name()),
        ("tokens", "id") => Some(texts::token_id()),
        ("views", "name") => Some(texts::view_name()),
        ("collections" | "document-subscriptions", "name") | ("documents", "collection") => {
            Some(texts::collection_name())
        }
        ("pools", "preset") => {
            // Branches with the source's own settings are not pooled.
            let pooled = Preset::ALL.iter().filter(|one| **one != Preset::Twin);
            let texts: Vec<&str> = pooled.map(|one| one.as_str()).collect();
            Some(json!({"enum": texts}))
        }
        _ => None,
    }
}

/// The constraints on a parameter of the query.
fn query_checks(path: &str, parameter: &str) -> Option<Value> {
    Some(match (path, parameter) {
        ("/v1/branches", "state") => json!({"enum": BranchState::TEXTS}),
        ("/v1/branches", "label") => json!({"items": {"pattern": "="}}),
        ("/v1/queues/{queue}/tasks" | "/v1/callbacks", "state") => {
            json!({"enum": TaskState::TEXTS})
        }
        ("/v1/tasks/events", "state") => json!({"items": {"enum": TaskState::TEXTS}}),
        ("/v1/documents/{collection}", "count") => json!({"enum": ["exact", "planned", "none"]}),
        ("/v1/document-changes" | "/v1/document-changes/events", "collection") => {
            texts::collection_name()
        }
        ("/v1/series/import", "format") => {
            json!({"enum": ImportFormat::NAMES.map(|(name, _)| name)})
        }
        ("/v1/audit", "since") => json!({"format": "date-time"}),
        (_, "database") => texts::sql_text(),
        _ => return None,
    })
}

/// Adds the server's checks to the parameters of an operation.
pub(super) fn publish_checks(path: &str, operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap_or_default();
        let checks = match parameter["in"].as_str() {
            Some("path") => path_checks(path, name),
            Some("query") => query_checks(path, name),
            _ => None,
        };
        let Some(schema) = parameter.get_mut("schema") else {
            continue;
        };
        bound_integers(schema);
        if let Some(checks) = checks {
            merge(schema, checks);
        }
    }
}
