//! A compiled JSON Schema (draft 2020-12) that validates documents within bounds.
//!
//! Callers that declare collections or write documents can be hostile. So a schema must not refer
//! outside itself (`graph`), its patterns are matched in linear time without look-around, and a
//! check that would take too much work is aborted (`work_budget`). `shape` says which values a
//! schema allows at a path. `format` is asserted where it is known; `lint` reports where it is not.

use std::fmt;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

use crate::model::{Violation, truncate};

mod graph;
mod lint;
mod messages;
mod pattern;
mod shape;
mod work_budget;

use graph::SchemaGraph;
pub(crate) use shape::SchemaShape;
pub use shape::{Scalar, Types};
use work_budget::{BudgetedJson, BudgetedValue, WorkBudget};

/// Bytes of a schema, at most, without white space.
pub(crate) const SCHEMA_BYTES_MAX: usize = 256 * 1024;
/// Maximum nesting of a schema.
pub(crate) const SCHEMA_DEPTH_MAX: usize = 64;
/// Subschemas that may apply to one value, at most, with each `$ref` followed.
pub(crate) const SCHEMA_PLACES_MAX: u64 = 10_000;
/// Maximum nesting of checks, which bounds the stack they use.
pub(crate) const SCHEMA_NESTING_MAX: usize = 600;
/// Bytes of a compiled pattern, at most.
pub const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// Violations of one document that are reported, at most.
pub(crate) const VIOLATIONS_MAX: usize = 100;
/// Steps that the check of a document may take: about a second.
pub(crate) const VALIDATION_STEPS_MAX: u64 = 10_000_000;

/// Errors collected, at most, including those within alternatives.
const ERRORS_MAX: u64 = 300;

/// A compiled schema with its source.
pub struct Schema {
    source: Value,
    validator: Validator<BudgetedJson>,
    pattern_positions: u64,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// Violations, at most [`VIOLATIONS_MAX`]; pointers are into the schema.
    pub fn compile(source: &Value) -> Result<Self, Vec<Violation>> {
        let single = |violation| Err(vec![violation]);
        if let Some(deep) = find_too_deep(source, SCHEMA_DEPTH_MAX) {
            return single(deep);
        }
        let bytes = source.to_string().len();
        if bytes > SCHEMA_BYTES_MAX {
            let what = format!(
                "the schema has {bytes} bytes, more than the maximum of {SCHEMA_BYTES_MAX} \
                 (`schema_bytes_max`)"
            );
            return single(Violation::new("", what));
        }
        if !source.is_object() {
            return single(Violation::new("", "the schema must be an object"));
        }
        let mut violations = match SchemaGraph::build(source) {
            Ok(graph) => match graph.check_bounds() {
                Ok(()) => return Self::compile_graph(source, &graph),
                Err(violation) => vec![violation],
            },
            Err(violations) => violations,
        };
        violations.truncate(VIOLATIONS_MAX);
        Err(violations)
    }

    fn compile_graph(source: &Value, graph: &SchemaGraph<'_>) -> Result<Self, Vec<Violation>> {
        let options = jsonschema::options_for::<BudgetedJson>()
            .with_draft(Draft::Draft202012)
            .offline()
            .should_validate_formats(true)
            .with_pattern_options(
                PatternOptions::regex()
                    .size_limit(PATTERN_BYTES_MAX)
                    .dfa_size_limit(PATTERN_BYTES_MAX),
            );
        // The validator gets no `$id`: it would resolve references relative to it.
        let mut schema_without_id = source.clone();
        if let Some(object) = schema_without_id.as_object_mut() {
            object.remove("$id");
            object.remove("$schema");
        }
        graph::for_each_mut(&mut schema_without_id, &mut |object| {
            if let Some(Value::String(pattern)) = object.get_mut("pattern") {
                let equivalent = pattern::without_look_around(pattern);
                if equivalent != pattern {
                    *pattern = equivalent.to_owned();
                }
            }
        });
        let validator = options
            .build(&schema_without_id)
            .map_err(|error| vec![messages::schema_violation(&error)])?;
        let pattern_positions = graph.schemas().map(largest_pattern).max().unwrap_or(0);
        Ok(Self { source: source.clone(), validator, pattern_positions })
    }

    /// The schema as it was declared.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Types and required properties that the schema guarantees.
    pub(crate) fn shape(&self) -> SchemaShape<'_> {
        let graph = SchemaGraph::build(&self.source)
            .expect("the graph of this schema was built when it was compiled");
        SchemaShape::new(&self.source, graph)
    }

    /// What is probably not meant as it is written: keywords and formats without effect.
    pub(crate) fn warnings(&self) -> Vec<Violation> {
        let graph = SchemaGraph::build(&self.source)
            .expect("the graph of this schema was built when it was compiled");
        lint::warnings(&graph)
    }

    /// Validates a document.
    ///
    /// # Errors
    /// Violations, at most [`VIOLATIONS_MAX`].
    pub fn validate(&self, document: &Value) -> Result<(), Vec<Violation>> {
        let budget = self.new_budget(u64::MAX);
        let is_valid = self.validator.is_valid(BudgetedValue { value: document, budget: &budget });
        if budget.is_exhausted() {
            let what = format!(
                "validating this document takes more than {VALIDATION_STEPS_MAX} steps \
                 (`validation_steps_max`): send a smaller document, or simplify the schema"
            );
            return Err(vec![Violation::new("", what)]);
        }
        if is_valid { Ok(()) } else { Err(self.violations(document)) }
    }

    /// Violations of a document that is not valid.
    fn violations(&self, document: &Value) -> Vec<Violation> {
        let budget = self.new_budget(ERRORS_MAX);
        let errors = self.validator.iter_errors(BudgetedValue { value: document, budget: &budget });
        let mut violations: Vec<Violation> =
            errors.take(VIOLATIONS_MAX).map(|error| messages::violation(&error)).collect();
        if violations.is_empty() {
            let what = "it does not match the schema; finding the violations takes too much work";
            violations.push(Violation::new("", what));
        }
        violations
    }

    fn new_budget(&self, errors: u64) -> WorkBudget {
        WorkBudget::new(VALIDATION_STEPS_MAX, errors, self.pattern_positions)
    }
}

/// Schemas declared alike are equal.
impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", truncate(&self.source.to_string(), 200))
    }
}

/// The schema without annotations, which no check depends on: titles, descriptions and the like.
pub(crate) fn strip_annotations(schema: &Value) -> Value {
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
    let mut stripped = schema.clone();
    graph::for_each_mut(&mut stripped, &mut |object| {
        object.retain(|keyword, _| !ANNOTATIONS.contains(&keyword.as_str()));
    });
    stripped
}

/// The schema embedded at a pointer of a larger document, with its references adjusted.
pub(crate) fn rebase(schema: &Schema, pointer: &str) -> Value {
    let graph = SchemaGraph::build(&schema.source)
        .expect("the graph of this schema was built when it was compiled");
    let mut rebased = schema.source.clone();
    graph::for_each_mut(&mut rebased, &mut |object| {
        for keyword in ["$id", "$schema", "$anchor"] {
            object.remove(keyword);
        }
        if let Some(Value::String(reference)) = object.get_mut("$ref") {
            // A pointer keeps its percent-encoding; an anchor becomes the pointer to its schema.
            *reference = match reference.strip_prefix('#') {
                Some(fragment) if fragment.is_empty() || fragment.starts_with('/') => {
                    format!("#{pointer}{fragment}")
                }
                _ => format!("#{pointer}{}", graph.resolve_pointer(reference).unwrap_or_default()),
            };
        }
    });
    rebased
}

/// Positions of the largest pattern directly in one schema.
fn largest_pattern(schema: &Value) -> u64 {
    let own_pattern = schema.get("pattern").and_then(Value::as_str);
    let own_pattern = own_pattern.map(pattern::without_look_around);
    let name_patterns = schema
        .get("patternProperties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|all| all.keys())
        .map(String::as_str);
    own_pattern.into_iter().chain(name_patterns).map(pattern::positions).max().unwrap_or(0)
}

/// The violation of a value that is nested too deep.
fn find_too_deep(value: &Value, depth_max: usize) -> Option<Violation> {
    let is_container = matches!(value, Value::Array(_) | Value::Object(_));
    if depth_max == 0 && is_container {
        let what = format!(
            "the schema is nested deeper than {SCHEMA_DEPTH_MAX} levels (`schema_depth_max`)"
        );
        return Some(Violation::new("", what));
    }
    match value {
        Value::Array(elements) => {
            elements.iter().find_map(|inner| find_too_deep(inner, depth_max - 1))
        }
        Value::Object(properties) => {
            properties.values().find_map(|inner| find_too_deep(inner, depth_max - 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
