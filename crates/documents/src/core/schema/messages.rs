//! Messages for validation errors. They contain nothing of the document except names of properties:
//! values may be large or secret.

use std::fmt::Write;

use jsonschema::error::TypeKind;
use jsonschema::{JsonType, ValidationError, error::ValidationErrorKind as Found};
use serde_json::Value;

use crate::model::{Violation, cut};

/// Bytes of one value or list of a schema in a message, at most.
const SHOWN_BYTES_MAX: usize = 200;

/// Names or alternatives listed in a message, at most.
const LISTED_MAX: usize = 5;

/// The violation of a document for a validation error.
pub(super) fn violation(error: &ValidationError<'_>) -> Violation {
    Violation::new(error.instance_path().as_str(), message(error))
}

/// The violation of a schema for a compilation error.
pub(super) fn of_schema(error: &ValidationError<'_>) -> Violation {
    let message = match error.kind() {
        Found::Format { format } if format == "regex" => {
            "is not a pattern that can be matched in linear time: look-around and backreferences \
             are not supported, and the expanded size of repetitions is limited"
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
            alternatives("matches no alternative of `anyOf`", context, error)
        }
        Found::OneOfNotValid { context } => {
            alternatives("matches no alternative of `oneOf`", context, error)
        }
        Found::PropertyNames { error } => format!("the name of a property {}", message(error)),
        kind => of_kind(kind),
    }
}

fn of_kind(kind: &Found) -> String {
    match kind {
        Found::Type { kind } => format!("must be {}", types(kind)),
        Found::Required { property } => format!("lacks the property {}", shown(property)),
        Found::AdditionalProperties { unexpected }
        | Found::UnevaluatedProperties { unexpected } => {
            format!(
                "has properties that the schema does not allow: {}",
                names(unexpected)
            )
        }
        Found::UnevaluatedItems { unexpected } => format!(
            "has {} elements that the schema does not allow",
            unexpected.len()
        ),
        Found::AdditionalItems { limit } => format!("must have {limit} elements or less"),
        Found::Constant { expected_value } => format!("must be {}", shown(expected_value)),
        Found::Enum { options } => format!("must be one of {}", shown(options)),
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
            format!("must match the pattern `{}`", cut(pattern, SHOWN_BYTES_MAX))
        }
        Found::Format { format } => {
            format!("must be of format `{}`", cut(format, SHOWN_BYTES_MAX))
        }
        Found::Not { schema } => format!("must not match {}", shown(schema)),
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
fn alternatives(
    what: &str,
    branches: &[Vec<ValidationError<'static>>],
    error: &ValidationError<'_>,
) -> String {
    let mut said = what.to_owned();
    let here = error.instance_path().as_str();
    for (index, errors) in branches.iter().enumerate().take(LISTED_MAX) {
        let Some(first) = errors.first() else {
            continue;
        };
        let place = first.instance_path().as_str();
        let place = place.strip_prefix(here).unwrap_or(place);
        let place = cut(place, SHOWN_BYTES_MAX);
        let separator = if index == 0 { ": " } else { "; " };
        // Errors within alternatives of an alternative are not expanded further.
        let reason = cut(&of_kind(first.kind()), SHOWN_BYTES_MAX);
        let space = if place.is_empty() { "" } else { " " };
        let number = index + 1;
        write!(said, "{separator}{number}. {place}{space}{reason}")
            .expect("writing to a string cannot fail");
    }
    said
}

fn types(kind: &TypeKind) -> String {
    let all: Vec<JsonType> = match kind {
        TypeKind::Single(only) => vec![*only],
        TypeKind::Multiple(several) => several.iter().collect(),
    };
    let all: Vec<&str> = all.into_iter().map(in_words).collect();
    all.join(" or ")
}

fn in_words(one: JsonType) -> &'static str {
    match one {
        JsonType::Array => "an array",
        JsonType::Boolean => "a boolean",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

fn names(names: &[String]) -> String {
    let listed: Vec<String> = names
        .iter()
        .take(LISTED_MAX)
        .map(|name| format!("`{}`", cut(name, SHOWN_BYTES_MAX)))
        .collect();
    match names.len().saturating_sub(LISTED_MAX) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

/// A value of the schema, shortened for a message.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", cut(text, SHOWN_BYTES_MAX)),
        Value::Array(several) => {
            let listed: Vec<String> = several.iter().take(LISTED_MAX).map(shown).collect();
            match several.len().saturating_sub(LISTED_MAX) {
                0 => listed.join(", "),
                more => format!("{} and {more} more", listed.join(", ")),
            }
        }
        other => cut(&other.to_string(), SHOWN_BYTES_MAX),
    }
}
