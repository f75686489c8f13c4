//! The options of a task as a request of the API. Payloads that are JSON go through untouched.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use crate::cli;
use crate::failure::Failure;

/// Fields of a task by name; a value that is JSON text already keeps its digits.
pub(super) type TaskFields = BTreeMap<String, Box<RawValue>>;

/// A value as the text it has in a body.
pub(super) fn to_raw_value(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("the values of options are plain JSON")
}

/// Payload or result: JSON as it is, else bytes.
#[derive(Debug, Default)]
pub(super) enum Content {
    #[default]
    Empty,
    /// JSON, as its author wrote it.
    Text(Box<RawValue>),
    Bytes(Vec<u8>),
}

impl Content {
    /// The content that an answer has in one of two members: as JSON or as base64.
    pub(super) fn from_members(
        text: Option<Box<RawValue>>,
        base64: Option<&str>,
    ) -> Result<Self, base64::DecodeError> {
        match (text, base64) {
            (Some(text), _) => Ok(Content::Text(text)),
            (None, Some(base64)) => STANDARD.decode(base64).map(Content::Bytes),
            (None, None) => Ok(Content::Empty),
        }
    }

    /// What a command has printed: JSON where it is that.
    pub(super) fn from_output(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            return Content::Empty;
        }
        match serde_json::from_slice::<Box<RawValue>>(&bytes) {
            Ok(text) => Content::Text(text),
            Err(_) => Content::Bytes(bytes),
        }
    }

    /// The bytes that it stands for.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Content::Empty => &[],
            Content::Text(text) => text.get().as_bytes(),
            Content::Bytes(bytes) => bytes,
        }
    }

    /// Puts it among the members of a body: `what`, or `what_base64`.
    pub(super) fn insert_into(self, name: &str, members: &mut TaskFields) {
        match self {
            Content::Empty => {}
            Content::Text(text) => {
                members.insert(name.to_owned(), text);
            }
            Content::Bytes(bytes) => {
                members.insert(format!("{name}_base64"), to_raw_value(&STANDARD.encode(bytes)));
            }
        }
    }
}

/// Reads a payload as a user names it.
pub(super) fn read_payload(argument: &str, is_bytes: bool) -> Result<Content, Failure> {
    let bytes = match argument.strip_prefix('@') {
        Some(path) => read_file(Path::new(path))?,
        None if argument == "-" => read_standard_input()?,
        None => argument.as_bytes().to_vec(),
    };
    if is_bytes {
        return Ok(Content::Bytes(bytes));
    }
    match serde_json::from_slice(&bytes) {
        Ok(text) => Ok(Content::Text(text)),
        Err(error) => Err(Failure::usage(format!("the payload is not JSON: {error}"))
            .with_hint("--bytes sends it unchanged")),
    }
}

/// A file's content; `-` is standard input.
pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("-") {
        return read_standard_input();
    }
    std::fs::read(path).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

fn read_standard_input() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut bytes);
    read.map_err(|error| Failure::usage(format!("standard input: {error}")))?;
    Ok(bytes)
}

/// What the options of a task say.
pub(super) fn task_fields(task: &cli::TaskArgs) -> Result<TaskFields, Failure> {
    let mut members = TaskFields::new();
    if let Some(argument) = &task.payload {
        read_payload(argument, task.bytes)?.insert_into("payload", &mut members);
    }
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            members.insert(name.to_owned(), to_raw_value(&value));
        }
    };
    set("priority", task.priority.map(|it| json!(it)));
    set("ordering_key", task.ordering_key.as_ref().map(|it| json!(it)));
    set("max_attempts", task.max_attempts.map(|it| json!(it)));
    set("retry", retry_object(&task.retry, None));
    set("timeout_ms", task.timeout.map(|timeout| json!(timeout.0)));
    set("callback_url", task.callback_url.as_ref().map(|it| json!(it)));
    if !task.tags.is_empty() {
        set("tags", Some(json!(task.tags)));
    }
    if !task.metadata.is_empty() {
        let pairs: BTreeMap<_, _> = task.metadata.iter().cloned().collect();
        set("metadata", Some(json!(pairs)));
    }
    Ok(members)
}

/// A retry policy where anything is said of it; the rest is as `previous`, or as Egret's default.
pub(super) fn retry_object(retry: &cli::RetryArgs, previous: Option<&Json>) -> Option<Json> {
    let backoff = retry.backoff.map(|it| match it {
        cli::BackoffKind::Fixed => json!("fixed"),
        cli::BackoffKind::Linear => json!("linear"),
        cli::BackoffKind::Exponential => json!("exponential"),
    });
    let jitter = retry.jitter.map(|it| match it {
        cli::Jitter::None => json!("none"),
        cli::Jitter::Full => json!("full"),
        cli::Jitter::Equal => json!("equal"),
    });
    let fields = [
        ("backoff", backoff),
        ("base_ms", retry.base.map(|span| json!(span.0))),
        ("max_ms", retry.max.map(|it| json!(it.0))),
        ("jitter", jitter),
    ];
    if fields.iter().all(|(_, value)| value.is_none()) {
        return None;
    }
    let mut policy = previous.cloned().unwrap_or_else(|| json!({}));
    for (name, value) in fields {
        if let Some(value) = value {
            policy[name] = value;
        }
    }
    Some(policy)
}

/// Fields of a response that are kept as they came.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawFields {
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    result: Option<Box<RawValue>>,
    result_base64: Option<String>,
}

impl RawFields {
    /// Parses an answer about one task.
    pub(super) fn parse(answer: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(answer).map_err(|error| unexpected(&error))
    }

    pub(super) fn payload(self) -> Result<Content, Failure> {
        let content = Content::from_members(self.payload, self.payload_base64.as_deref());
        content.map_err(|error| unexpected(&error))
    }

    pub(super) fn result(self) -> Result<Content, Failure> {
        let content = Content::from_members(self.result, self.result_base64.as_deref());
        content.map_err(|error| unexpected(&error))
    }
}

/// Failure for a response that cannot be parsed.
pub(in crate::commands) fn unexpected(error: &dyn std::fmt::Display) -> Failure {
    Failure::failed("unexpected_answer", format!("unexpected response of the server: {error}"))
        .with_hint("use the same version of Egret for client and server")
}
