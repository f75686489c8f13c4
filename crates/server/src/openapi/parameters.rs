//! What the server checks of the names and ids in paths, published with their parameters.

use serde_json::{Value, json};

/// The first segments of a path, the parameter, and what holds for it.
fn checks(path: &str, parameter: &str) -> Option<Value> {
    let area = path.strip_prefix("/v1/")?.split('/').next()?;
    match (area, parameter) {
        ("branches", "name") => Some(json!({
            "pattern": "^[a-z0-9][a-z0-9_-]*$",
            "minLength": 1,
            "maxLength": egret_branches::model::NAME_CHARS_MAX,
        })),
        ("queues", "queue") | ("schedules", "schedule") => Some(json!({
            "pattern": "^[A-Za-z0-9_.:][A-Za-z0-9_.:-]*$",
            "minLength": 1,
            "maxLength": 128,
        })),
        ("tasks", "id") => Some(json!({"format": "uuid"})),
        ("tasks", "name") => Some(json!({
            "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$",
            "minLength": 1,
            "maxLength": 128,
        })),
        ("tokens", "id") => Some(json!({
            "pattern": "^[0-9a-hjkmnp-tv-z]{12}$",
            "minLength": 12,
            "maxLength": 12,
        })),
        _ => None,
    }
}

/// Adds to the parameters of an operation's path what the server checks of them.
pub(super) fn publish_checks(path: &str, operation: &mut Value) {
    let parameters = operation.get_mut("parameters");
    let parameters = parameters.and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        if parameter["in"] != "path" {
            continue;
        }
        let name = parameter["name"].as_str().unwrap_or_default();
        let Some(Value::Object(checks)) = checks(path, name) else {
            continue;
        };
        if let Some(schema) = parameter["schema"].as_object_mut() {
            schema.extend(checks);
        }
    }
}
