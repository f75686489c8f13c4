//! Messages for validation errors. They contain nothing of the document except names of properties:
//! values may be large or secret.

use std::fmt::Write;

use jsonschema::error::TypeKind;
use jsonschema::{JsonType, ValidationError, error::ValidationErrorKind as Found};
use serde_json::Value;

use crate::model::{Violation, truncate};

/// Bytes of one value or list of a schema in a message, at most.
const SHOWN_BYTES_MAX: usize = 200;

/// Names or alternatives listed in a message, at most.
const LISTED_MAX: usize = 5;

/// The violation of a document for a validation error.
pub(super) fn violation(error: &ValidationError<'_>) -> Violation {
    Violation::new(error.instance_path().as_str(), message(error))
}

/// The violation of a schema for a compilation error.
pub(super) fn schema_violation(error: &ValidationError<'_>) -> Violation {
    let message = match error.kind() {
        Found::Format { format } if format == "regex" => {
            "is not a pattern that can be matched in linear time: look-around and backreferences \
             are not supported, and the expanded size of repetitions is limited. Text without \
             white space around it is `^\\S(?:.*\\S)?$`, text that is not blank `\\S`"
                .to_owned()
        }
        Found::Referencing(error) => error.to_string(),
        _ => message(error),
    };
    Violation::new(error.instance_path().as_str(), message)
}

fn message(error: &ValidationError<'_>) -> String {
    match error.kind() {
        Found::AnyOf { context } => {
            alternatives_message("matches no alternative of `anyOf`", context, error)
        }
        Found::OneOfNotValid { context } => {
            alternatives_message("matches no alternative of `oneOf`", context, error)
        }
        Found::PropertyNames { error } => format!("the name of a property {}", message(error)),
        kind => kind_message(kind),
    }
}

fn kind_message(kind: &Found) -> String {
    match kind {
        Found::Type { kind } => format!("must be {}", type_names(kind)),
        Found::Required { property } => format!("lacks the property {}", shorten_value(property)),
        Found::AdditionalProperties { unexpected }
        | Found::UnevaluatedProperties { unexpected } => {
            format!("has properties that the schema does not allow: {}", list_names(unexpected))
        }
        Found::UnevaluatedItems { unexpected } => {
            format!("has {} elements that the schema does not allow", unexpected.len())
        }
        Found::AdditionalItems { limit } => format!("must have {limit} elements or less"),
        Found::Constant { expected_value } => format!("must be {}", shorten_value(expected_value)),
        Found::Enum { options } => format!("must be one of {}", shorten_value(options)),
        Found::Minimum { limit } => format!("must be {limit} or more"),
        Found::Maximum { limit } => format!("must be {limit} or less"),
        Found::ExclusiveMinimum { limit } => format!("must be more than {limit}"),
        Found::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Found::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Found::MinLength { limit } => format!("must have {limit} characters or more"),
        Found::MaxLength { limit } => format!("must have {limit} characters or less"),
        Found::MinItems { limit } => format!("must have {limit} elements or more"),
        Found::MaxItems { limit } => format!("must have {limit} elements or less"),
        Found::MinProperties { limit } => format!("must have {limit} properties or more"),
        Found::MaxProperties { limit } => format!("must have {limit} properties or less"),
        Found::Pattern { pattern } => {
            format!("must match the pattern `{}`", truncate(pattern, SHOWN_BYTES_MAX))
        }
        Found::Format { format } => {
            format!("must be of format `{}`", truncate(format, SHOWN_BYTES_MAX))
        }
        Found::Not { schema } => format!("must not match {}", shorten_value(schema)),
        Found::OneOfMultipleValid { .. } => {
            "matches more than one of `oneOf`, and must match exactly one".to_owned()
        }
        Found::Contains => "has no element, too few or too many that match `contains`".to_owned(),
        Found::UniqueItems => "has the same element twice".to_owned(),
        Found::FalseSchema => "is not allowed".to_owned(),
        other => format!("does not satisfy `{}`", other.keyword()),
    }
}

/// The alternatives of a schema, each with its first error.
fn alternatives_message(
    what: &str,
    branches: &[Vec<ValidationError<'static>>],
    error: &ValidationError<'_>,
) -> String {
    let mut text = what.to_owned();
    let base_path = error.instance_path().as_str();
    for (index, errors) in branches.iter().enumerate().take(LISTED_MAX) {
        let Some(first) = errors.first() else {
            continue;
        };
        let path = first.instance_path().as_str();
        let place = path.strip_prefix(base_path).unwrap_or(path);
        let place = truncate(place, SHOWN_BYTES_MAX);
        let separator = if index == 0 { ": " } else { "; " };
        // Errors within alternatives of an alternative are not expanded further.
        let reason = truncate(&kind_message(first.kind()), SHOWN_BYTES_MAX);
        let space = if place.is_empty() { "" } else { " " };
        let number = index + 1;
        write!(text, "{separator}{number}. {place}{space}{reason}")
            .expect("writing to a string cannot fail");
    }
    text
}

fn type_names(kind: &TypeKind) -> String {
    let kinds: Vec<JsonType> = match kind {
        TypeKind::Single(only) => vec![*only],
        TypeKind::Multiple(several) => several.iter().collect(),
    };
    let names: Vec<&str> = kinds.into_iter().map(type_name).collect();
    names.join(" or ")
}

fn type_name(json_type: JsonType) -> &'static str {
    match json_type {
        JsonType::Array => "an array",
        JsonType::Boolean => "a boolean",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

fn list_names(names: &[String]) -> String {
    let listed: Vec<String> = names
        .iter()
        .take(LISTED_MAX)
        .map(|name| format!("`{}`", truncate(name, SHOWN_BYTES_MAX)))
        .collect();
    match names.len().saturating_sub(LISTED_MAX) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

/// A value of the schema, shortened for a message.
fn shorten_value(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", truncate(text, SHOWN_BYTES_MAX)),
        Value::Array(several) => {
            let listed: Vec<String> = several.iter().take(LISTED_MAX).map(shorten_value).collect();
            match several.len().saturating_sub(LISTED_MAX) {
                0 => listed.join(", "),
                more => format!("{} and {more} more", listed.join(", ")),
            }
        }
        other => truncate(&other.to_string(), SHOWN_BYTES_MAX),
    }
}
