//! A JSON Schema (draft 2020-12) that is compiled once, and checks documents within bounds.
//!
//! Whoever may declare collections, and whoever may write documents, can be hostile. So a schema stays within itself (`graph`), its patterns are
//! matched in linear time without look-around, and a check that would take too much work says so (`gauged`). `shape` tells what a schema says of
//! places. `format` is asserted where it is known.

use std::fmt;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::model::{Violation, cut};

mod gauged;
mod graph;
mod pattern;
mod said;
mod shape;

use gauged::{Gauge, Gauged, GaugedValue};
use graph::Graph;
pub(crate) use shape::Shape;
pub use shape::{Scalar, Types};

/// Bytes of a schema, at most, without white space.
pub const SCHEMA_BYTES_MAX: usize = 256 * 1024;
/// How deep a schema may be nested.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// How many parts of a schema may look at one value, each `$ref` being followed.
pub const SCHEMA_PLACES_MAX: u64 = 10_000;
/// How deep checks may be nested in each other: what they take of the stack.
pub const SCHEMA_NESTING_MAX: usize = 600;
/// Bytes of a compiled pattern, at most.
pub const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// How many violations of one document are told.
pub const VIOLATIONS_MAX: usize = 100;
/// Looks at values that checking a document may take: a second, about.
pub const VALIDATION_STEPS_MAX: u64 = 10_000_000;

/// Errors that are collected at most, those within alternatives included.
const ERRORS_MAX: u64 = 300;

/// A compiled schema.
pub struct Schema {
    source: Value,
    validator: Validator<Gauged>,
    pattern_positions: u64,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// All that is wrong with it, at most [`VIOLATIONS_MAX`]; pointers are into the schema.
    pub fn compile(source: &Value) -> Result<Self, Vec<Violation>> {
        let one = |violation| Err(vec![violation]);
        if let Some(deep) = deeper_than(source, SCHEMA_DEPTH_MAX) {
            return one(deep);
        }
        let bytes = source.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            let what = format!(
                "the schema takes {bytes} bytes, and may take {SCHEMA_BYTES_MAX}, `schema_bytes_max`"
            );
            return one(Violation::new("", what));
        }
        if !source.is_object() {
            return one(Violation::new("", "the schema of documents is an object"));
        }
        let mut violations = match Graph::of(source) {
            Ok(graph) => match graph.bounded() {
                Ok(()) => return Self::of_graph(source, &graph),
                Err(violation) => vec![violation],
            },
            Err(violations) => violations,
        };
        violations.truncate(VIOLATIONS_MAX);
        Err(violations)
    }

    fn of_graph(source: &Value, graph: &Graph<'_>) -> Result<Self, Vec<Violation>> {
        let options = jsonschema::options_for::<Gauged>()
            .with_draft(Draft::Draft202012)
            .offline()
            .should_validate_formats(true)
            .with_pattern_options(
                PatternOptions::regex()
                    .size_limit(PATTERN_BYTES_MAX)
                    .dfa_size_limit(PATTERN_BYTES_MAX),
            );
        // Its name and dialect are known; under a name of its own, references would be looked for there.
        let mut nameless = source.clone();
        if let Some(object) = nameless.as_object_mut() {
            object.remove("$id");
            object.remove("$schema");
        }
        let validator = options
            .build(&nameless)
            .map_err(|error| vec![said::of_schema(&error)])?;
        let pattern_positions = graph.schemas().map(largest_pattern).max().unwrap_or(0);
        Ok(Self {
            source: source.clone(),
            validator,
            pattern_positions,
        })
    }

    /// As it was declared.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// What it says of places.
    pub(crate) fn shape(&self) -> Shape<'_> {
        let graph = Graph::of(&self.source).expect("it was made of this before it was compiled");
        Shape::of(&self.source, graph)
    }

    /// Checks a document.
    ///
    /// # Errors
    /// What is wrong with it, at most [`VIOLATIONS_MAX`].
    pub fn check(&self, document: &Value) -> Result<(), Vec<Violation>> {
        let gauge = self.gauge(u64::MAX);
        let is_valid = self.validator.is_valid(GaugedValue {
            value: document,
            gauge: &gauge,
        });
        if gauge.is_used_up() {
            let what = format!(
                "to check this document by its schema takes more than {VALIDATION_STEPS_MAX} steps, `validation_steps_max`: send less, or have the schema simplified"
            );
            return Err(vec![Violation::new("", what)]);
        }
        match is_valid {
            true => Ok(()),
            false => Err(self.violations(document)),
        }
    }

    /// What is wrong with a document that is not valid.
    fn violations(&self, document: &Value) -> Vec<Violation> {
        let gauge = self.gauge(ERRORS_MAX);
        let errors = self.validator.iter_errors(GaugedValue {
            value: document,
            gauge: &gauge,
        });
        let mut violations: Vec<Violation> = errors
            .take(VIOLATIONS_MAX)
            .map(|error| said::violation(&error))
            .collect();
        if violations.is_empty() {
            let what = "it does not match the schema; to say where takes too much work";
            violations.push(Violation::new("", what));
        }
        violations
    }

    fn gauge(&self, errors: u64) -> Gauge {
        Gauge::new(VALIDATION_STEPS_MAX, errors, self.pattern_positions)
    }
}

/// Two that were declared alike are equal.
impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", cut(&self.source.to_string(), 200))
    }
}

/// The schema without what no check depends on: titles, descriptions and the like.
pub(crate) fn assertions(schema: &Value) -> Value {
    const ANNOTATIONS: [&str; 10] = [
        "$comment",
        "$id",
        "$schema",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
    ];
    let mut bare = schema.clone();
    graph::for_each_mut(&mut bare, &mut |object| {
        object.retain(|keyword, _| !ANNOTATIONS.contains(&keyword.as_str()));
    });
    bare
}

/// The schema as a part of a larger text, where it stands at a pointer: what it refers to is found from there.
pub(crate) fn moved(schema: &Schema, pointer: &str) -> Value {
    let graph = Graph::of(&schema.source).expect("it was made of this before it was compiled");
    let mut moved = schema.source.clone();
    graph::for_each_mut(&mut moved, &mut |object| {
        for keyword in ["$id", "$schema", "$anchor"] {
            object.remove(keyword);
        }
        if let Some(Value::String(reference)) = object.get_mut("$ref") {
            // A pointer keeps its percent-encoding; an anchor becomes the pointer to where it was.
            *reference = match reference.strip_prefix('#') {
                Some(fragment) if fragment.is_empty() || fragment.starts_with('/') => {
                    format!("#{pointer}{fragment}")
                }
                _ => format!(
                    "#{pointer}{}",
                    graph.pointer_of(reference).unwrap_or_default()
                ),
            };
        }
    });
    moved
}

/// Positions of the largest pattern of one schema.
fn largest_pattern(schema: &Value) -> u64 {
    let one = schema.get("pattern").and_then(Value::as_str);
    let named = schema.get("patternProperties").and_then(Value::as_object);
    let named = named
        .into_iter()
        .flat_map(|all| all.keys())
        .map(String::as_str);
    one.into_iter()
        .chain(named)
        .map(pattern::positions)
        .max()
        .unwrap_or(0)
}

/// That a value is nested too deep.
fn deeper_than(value: &Value, depth_max: usize) -> Option<Violation> {
    let is_container = matches!(value, Value::Array(_) | Value::Object(_));
    if depth_max == 0 && is_container {
        let what =
            format!("the schema is nested deeper than {SCHEMA_DEPTH_MAX}, `schema_depth_max`");
        return Some(Violation::new("", what));
    }
    match value {
        Value::Array(elements) => elements
            .iter()
            .find_map(|inner| deeper_than(inner, depth_max - 1)),
        Value::Object(properties) => properties
            .values()
            .find_map(|inner| deeper_than(inner, depth_max - 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
