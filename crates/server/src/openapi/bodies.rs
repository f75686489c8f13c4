//! Adds the server's checks of request bodies to their published schemas.

use std::collections::BTreeSet;

use egret_branches::core::preset::CHOOSABLE;
use egret_branches::core::request::TEXT_BYTES_MAX;
use egret_queue::limits;
use egret_queue::model::TaskState;
use serde_json::{Map, Value, json};

use super::texts;
use crate::queue::{TASKS_MAX, WAIT_MS_MAX};
use crate::tokens::{CLAIM_VALUES_MAX, CLAIMS_MAX, SCOPES_MAX, TTL_MS_MAX, Tokens};

/// Constraints by the JSON pointer of the part of a schema that they apply to.
type Checks = Vec<(&'static str, Value)>;

/// Adds the server's checks to the schemas of all request bodies.
pub(super) fn publish_checks(document: &mut Value, tokens: &Tokens) {
    for name in body_schema_names(document) {
        let Some(schema) = document.pointer_mut(&format!("/components/schemas/{name}")) else {
            continue;
        };
        bound_integers(schema);
        for (pointer, checks) in schema_checks(&name, tokens) {
            if let Some(part) = schema.pointer_mut(pointer) {
                merge(part, checks);
            }
        }
    }
}

/// The names of the schemas that bodies have, directly or within others.
fn body_schema_names(document: &Value) -> BTreeSet<String> {
    let items = document["paths"].as_object().into_iter().flatten();
    let operations = items.flat_map(|(_, item)| item.as_object().into_iter().flatten());
    let mut pending = Vec::new();
    for (_, operation) in operations {
        collect_references(&operation["requestBody"], &mut pending);
    }
    let mut names = BTreeSet::new();
    while let Some(reference) = pending.pop() {
        let name = reference.rsplit('/').next().unwrap_or_default().to_owned();
        let schema = reference.strip_prefix('#');
        if let Some(schema) = schema.and_then(|pointer| document.pointer(pointer))
            && names.insert(name)
        {
            collect_references(schema, &mut pending);
        }
    }
    names
}

fn collect_references<'a>(value: &'a Value, pointers: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            pointers.extend(object.get("$ref").and_then(Value::as_str));
            object.values().for_each(|inner| collect_references(inner, pointers));
        }
        Value::Array(array) => array.iter().for_each(|inner| collect_references(inner, pointers)),
        _ => {}
    }
}

/// Merges `from` into a schema; `from` wins where both have a value.
pub(super) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Bounds integers by the type that the server parses them as: larger numbers are refused.
pub(super) fn bound_integers(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if is_integer(object) {
                bound_integer(object);
            }
            object.values_mut().for_each(bound_integers);
        }
        Value::Array(array) => array.iter_mut().for_each(bound_integers),
        _ => {}
    }
}

fn is_integer(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "integer",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "integer"),
        _ => false,
    }
}

fn bound_integer(schema: &mut Map<String, Value>) {
    let least = schema.get("minimum").and_then(Value::as_f64);
    let is_unsigned = least.is_some_and(|least| least >= 0.0);
    let is_short = schema.get("format").is_some_and(|format| format == "int32");
    let (least, most) = match (is_short, is_unsigned) {
        (true, true) => (json!(0), json!(u32::MAX)),
        (true, false) => (json!(i32::MIN), json!(i32::MAX)),
        (false, true) => (json!(0), json!(u64::MAX)),
        (false, false) => (json!(i64::MIN), json!(i64::MAX)),
    };
    schema.entry("minimum").or_insert(least);
    schema.entry("maximum").or_insert(most);
}

fn schema_checks(schema: &str, tokens: &Tokens) -> Checks {
    match schema {
        "TokenRequest" => token_checks(tokens),
        "OutboxRequest" => vec![
            ("/properties/database", texts::sql_text()),
            ("/properties/grant", json!({"items": texts::sql_text()})),
        ],
        _ => branch_checks(schema)
            .or_else(|| queue_checks(schema))
            .or_else(|| worker_report_checks(schema))
            .or_else(|| view_checks(schema))
            .or_else(|| document_checks(schema))
            .unwrap_or_default(),
    }
}

fn token_checks(tokens: &Tokens) -> Checks {
    let scope = json!({"pattern": tokens.scope_pattern()});
    let values = json!({"maxItems": CLAIM_VALUES_MAX, "items": texts::claim()});
    let claims = json!({
        "maxProperties": CLAIMS_MAX,
        "propertyNames": texts::claim(),
        "additionalProperties": values,
    });
    vec![
        ("/properties/name", texts::token_name()),
        ("/properties/scopes", json!({"minItems": 1, "maxItems": SCOPES_MAX, "items": scope})),
        ("/properties/claims", claims),
        ("/properties/tenant", texts::tenant()),
        ("/properties/ttl_ms", json!({"minimum": 1, "maximum": TTL_MS_MAX})),
    ]
}

fn branch_checks(schema: &str) -> Option<Checks> {
    let labels = json!({
        "propertyNames": {"minLength": 1, "maxLength": TEXT_BYTES_MAX},
        "additionalProperties": {"maxLength": TEXT_BYTES_MAX},
    });
    let database = ("/properties/database", texts::sql_text());
    Some(match schema {
        "BranchRequest" => {
            let value = json!({
                "pattern": "^[A-Za-z0-9._ -]+$", "minLength": 1, "maxLength": TEXT_BYTES_MAX,
            });
            let settings =
                json!({"propertyNames": {"enum": CHOOSABLE}, "additionalProperties": value});
            let twin_with_settings = json!({
                "required": ["preset", "settings"],
                "properties": {"preset": {"const": "twin"}, "settings": {"minProperties": 1}},
            });
            vec![
                ("", json!({"not": twin_with_settings})),
                ("/properties/name", texts::branch_name()),
                ("/properties/from", texts::branch_origin()),
                ("/properties/settings", settings),
                ("/properties/labels", labels),
            ]
        }
        "BranchChange" => vec![("/properties/labels", labels)],
        "ResetRequest" => vec![("/properties/to", texts::template_origin())],
        "QueryRequest" => vec![
            ("/properties/sql", texts::sql_text()),
            ("/properties/params", json!({"items": texts::sql_text()})),
            database,
        ],
        "VerifyRequest" => vec![database],
        _ => return None,
    })
}

/// A duration in milliseconds.
fn duration_bound() -> Value {
    json!({"maximum": limits::DURATION_MAX_MS})
}

fn queue_checks(schema: &str) -> Option<Checks> {
    let attempts = json!({"minimum": 1, "maximum": limits::ATTEMPTS_MAX});
    let (shortest, longest) = limits::LEASE_MS.into_inner();
    let lease = json!({"minimum": shortest, "maximum": longest});
    Some(match schema {
        "RetryRequest" => vec![
            ("/properties/base_ms", duration_bound()),
            ("/properties/max_ms", duration_bound()),
        ],
        "QueueRequest" => {
            let (least, most) = limits::RATE_PER_SECOND.into_inner();
            let rate = json!({"anyOf": [{"const": 0}, {"minimum": least, "maximum": most}]});
            vec![
                ("/properties/max_attempts", attempts),
                ("/properties/lease_ms", lease),
                ("/properties/rate_per_second", rate),
            ]
        }
        "ClaimRequest" => vec![
            ("/properties/max", json!({"minimum": 1, "maximum": TASKS_MAX})),
            ("/properties/lease_ms", lease),
            ("/properties/wait_ms", json!({"maximum": WAIT_MS_MAX})),
        ],
        "PurgeRequest" => {
            vec![("/properties/states", json!({"items": {"enum": TaskState::TEXTS}}))]
        }
        "EnqueueRequest" => vec![("/oneOf/1", json!({"maxItems": limits::BATCH_MAX}))],
        "TaskRequest" => task_checks(attempts),
        "ScheduleRequest" => vec![
            ("/properties/cron", texts::cron()),
            ("/properties/time_zone", texts::time_zone()),
            ("/properties/queue", texts::queue_name()),
            ("/properties/task", schedule_task_checks()),
        ],
        _ => return None,
    })
}

fn task_checks(attempts: Value) -> Checks {
    let array_of = |texts: Value| json!({"maxItems": limits::LIST_LEN_MAX, "items": texts});
    let metadata = json!({
        "maxProperties": limits::LIST_LEN_MAX,
        "propertyNames": texts::task_text(),
        "additionalProperties": texts::task_text(),
    });
    let both_payloads = both_fields("payload", "payload_base64");
    let both_times = json!({
        "required": ["run_at", "delay_ms"],
        "properties": {"run_at": {"type": "string"}, "delay_ms": {"minimum": 1}},
    });
    vec![
        ("", json!({"not": {"anyOf": [both_payloads, both_times]}})),
        ("/properties/payload_base64", texts::base64()),
        ("/properties/priority", json!({"maximum": limits::PRIORITY_COUNT - 1})),
        ("/properties/ordering_key", texts::task_text()),
        ("/properties/delay_ms", duration_bound()),
        ("/properties/max_attempts", attempts),
        ("/properties/timeout_ms", duration_bound()),
        ("/properties/unique_key", texts::task_text()),
        ("/properties/unique_window_ms", duration_bound()),
        ("/properties/tags", array_of(texts::task_text())),
        ("/properties/metadata", metadata),
        ("/properties/traceparent", texts::task_text()),
        ("/properties/tracestate", texts::task_text()),
        ("/properties/callback_url", texts::callback_url()),
        ("/properties/after", array_of(texts::task_reference())),
        ("/properties/queue", texts::other_queue_name()),
    ]
}

/// Matches objects that have both fields, which the server refuses.
fn both_fields(one: &str, base64: &str) -> Value {
    json!({"required": [one, base64], "properties": {base64: {"type": "string"}}})
}

/// A task of a schedule: it has no time and no queue of its own, no unique key, and no tasks to
/// wait for.
fn schedule_task_checks() -> Value {
    let requires_field = |field: &str, value: Value| json!({"type": "object", "required": [field], "properties": {field: value}});
    json!({"not": {"anyOf": [
        requires_field("run_at", json!({"type": "string"})),
        requires_field("delay_ms", json!({"minimum": 1})),
        requires_field("unique_key", json!({"minLength": 1})),
        requires_field("after", json!({"minItems": 1})),
        requires_field("queue", json!({"minLength": 1})),
    ]}})
}

fn worker_report_checks(schema: &str) -> Option<Checks> {
    let lease = ("/properties/lease", texts::lease());
    let (shortest, longest) = limits::LEASE_MS.into_inner();
    Some(match schema {
        "Completion" => vec![
            ("", json!({"not": both_fields("result", "result_base64")})),
            lease,
            ("/properties/result_base64", texts::base64()),
            ("/properties/attachments", json!({"items": texts::attachment_name()})),
        ],
        "Failure" | "Release" => vec![lease],
        "Nack" | "Snooze" => vec![lease, ("/properties/delay_ms", duration_bound())],
        "Heartbeat" => {
            vec![lease, ("/properties/lease_ms", json!({"minimum": shortest, "maximum": longest}))]
        }
        _ => return None,
    })
}

fn view_checks(schema: &str) -> Option<Checks> {
    let database = ("/properties/database", texts::sql_text());
    Some(match schema {
        "ViewRequest" => {
            let columns = json!({"items": {"items": texts::sql_text()}});
            // Its rows are written within the transactions of others: it is never refreshed, and
            // it has no change sets.
            let requires_field = |field: &str| json!({"required": [field], "properties": {field: {"type": "string"}}});
            let immediate_options = json!({
                "required": ["mode"],
                "properties": {"mode": {"const": "immediate"}},
                "anyOf": [requires_field("schedule"), requires_field("keep_changes"), requires_field("on_change_enqueue")],
            });
            vec![
                ("", json!({"not": immediate_options})),
                ("/properties/name", texts::view_name()),
                ("/properties/query", texts::sql_text()),
                database,
                ("/properties/schedule", texts::view_schedule()),
                ("/properties/indexes", columns),
                ("/properties/keep_changes", texts::duration()),
                ("/properties/on_change_enqueue", texts::queue_name()),
                ("/properties/owner", texts::sql_text()),
            ]
        }
        "ViewChange" => vec![
            ("/properties/schedule", texts::view_schedule()),
            ("/properties/keep_changes", texts::duration()),
            ("/properties/on_change_enqueue", texts::queue_name()),
        ],
        "Validation" => vec![("/properties/query", texts::sql_text()), database],
        "ViewGrantRequest" => vec![
            ("/properties/roles", json!({"minItems": 1, "items": texts::sql_text()})),
            database,
        ],
        _ => return None,
    })
}

fn document_checks(schema: &str) -> Option<Checks> {
    let absent = json!({"type": "null"});
    Some(match schema {
        "SubscriptionRequest" => {
            let (text, none) = (json!({"type": "string"}), absent);
            let webhook =
                json!({"required": ["webhook"], "properties": {"webhook": text, "queue": none}});
            let queue =
                json!({"required": ["queue"], "properties": {"queue": text, "webhook": none}});
            vec![
                ("", json!({"oneOf": [webhook, queue]})),
                ("/properties/collection", texts::collection_name()),
                ("/properties/webhook", json!({"pattern": "^https?://[^/?#]+"})),
                ("/properties/queue", texts::queue_name()),
            ]
        }
        "BatchOperation" => {
            let operation_shape = |op: &str, required: &[&str], none: &str| {
                let mut properties = json!({"op": {"const": op}});
                for field in required {
                    let kind = if *field == "id" { "string" } else { "object" };
                    properties[*field] = json!({"type": kind});
                }
                if !none.is_empty() {
                    properties[none] = absent.clone();
                }
                json!({"required": required, "properties": properties})
            };
            let kinds = [
                operation_shape("upsert", &["document"], "id"),
                operation_shape("put", &["id", "document"], ""),
                operation_shape("delete", &["id"], "document"),
            ];
            let conditions = json!({
                "required": ["if_match", "if_none_match"],
                "properties": {"if_match": {"type": "string"}, "if_none_match": {"type": "string"}},
            });
            vec![
                ("", json!({"oneOf": kinds, "not": conditions})),
                ("/properties/collection", texts::collection_name()),
                ("/properties/id", texts::id()),
            ]
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_bounded_by_the_type_they_are_parsed_as() {
        let mut schema = json!({"properties": {
            "short": {"type": "integer", "format": "int32", "minimum": 0},
            "long": {"type": ["integer", "null"], "format": "int64", "minimum": 1},
            "signed": {"type": "integer", "format": "int64"},
            "bounded": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9},
            "text": {"type": "string"},
        }});
        bound_integers(&mut schema);
        let bounds_of = |field: &str| {
            let part = &schema["properties"][field];
            (part["minimum"].clone(), part["maximum"].clone())
        };
        assert_eq!(bounds_of("short"), (json!(0), json!(u32::MAX)));
        assert_eq!(bounds_of("long"), (json!(1), json!(u64::MAX)));
        assert_eq!(bounds_of("signed"), (json!(i64::MIN), json!(i64::MAX)));
        assert_eq!(bounds_of("bounded"), (json!(1), json!(9)));
        assert_eq!(bounds_of("text"), (Value::Null, Value::Null));
    }

    #[test]
    fn merged_checks_keep_the_rest_of_a_schema() {
        let mut schema = json!({"type": "array", "items": {"type": "string"}, "maxItems": 1});
        merge(&mut schema, json!({"items": {"pattern": "a"}, "maxItems": 2}));
        let expected = json!({
            "type": "array", "items": {"type": "string", "pattern": "a"}, "maxItems": 2,
        });
        assert_eq!(schema, expected);
    }

    #[test]
    fn body_schemas_include_nested_ones() {
        let document = json!({
            "paths": {"/a": {"post": {"requestBody": {"$ref": "#/components/schemas/Outer"}}}},
            "components": {"schemas": {
                "Outer": {"items": {"$ref": "#/components/schemas/Inner"}},
                "Inner": {"items": {"$ref": "#/components/schemas/Outer"}},
                "Answer": {},
            }},
        });
        let names: Vec<String> = body_schema_names(&document).into_iter().collect();
        assert_eq!(names, ["Inner", "Outer"]);
    }
}
