//! Go's `text/template` as far as alert rules use it, with the functions that Prometheus adds.
//!
//! Values have no methods, and a template is defined in the text that uses it. Unlike Go, integers
//! can be compared with floating-point numbers. Output, steps, nesting and regular expressions are
//! bounded, so that a template cannot exhaust memory or time.
//!
//! Specifications: pkg.go.dev/text/template,
//! prometheus.io/docs/prometheus/latest/configuration/template_reference.

mod functions;
mod humanize;
mod lex;
mod parse;
mod print;
mod run;
mod tree;
mod value;

use std::cell::Cell;
use std::sync::Arc;

use egret_metrics_model::{Labels, TimeMs};

use self::functions::FunctionContext;
pub use self::humanize::table_link;
use self::tree::Tree;
use self::value::{TemplateRecord, TemplateValue};

/// Maximum size of a template's text, in bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum size of the output of an expansion, in bytes.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Maximum nesting of blocks, parentheses and pipelines.
const DEPTH_MAX: usize = 48;
/// Maximum steps of an expansion: a node, an element of a range or 64 bytes of text is a step.
const STEPS_MAX: usize = 100_000;
/// Steps that a regular expression costs.
const REGEX_STEPS: usize = 100;
/// Steps that a query costs.
const QUERY_STEPS: usize = 1_000;

/// Why a template cannot be parsed or expanded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("template line {line}: {message}")]
pub struct TemplateError {
    /// Line in the template, from 1.
    pub line: u32,
    /// Description of what is wrong.
    pub message: String,
}

type Outcome<T> = Result<T, TemplateError>;

fn fail_at<T>(line: u32, message: impl Into<String>) -> Outcome<T> {
    let message = message.into();
    Err(TemplateError { line, message })
}

/// A template that was parsed. It can be expanded any number of times.
#[derive(Debug)]
pub struct Template {
    tree: Tree,
}

/// The alert that a template is expanded for.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// `.Labels` and `$labels`: of the sample that the alert's expression yielded, its name among
    /// them.
    pub labels: Labels,
    /// Value of `.ExternalLabels` and `$externalLabels`.
    pub external_labels: Labels,
    /// `.ExternalURL`, `$externalURL` and `externalURL`.
    pub external_url: Arc<str>,
    /// Value of `.Value` and `$value`.
    pub value: f64,
}

/// Answers the function `query`: samples of an instant vector, or why there are none.
pub type Ask<'a> = &'a dyn Fn(&str) -> Result<Vec<(Labels, f64)>, String>;

/// Variables that every template can use, in the order of their values.
const PREDEFINED_VARIABLES: [&str; 5] =
    ["$", "$labels", "$externalLabels", "$externalURL", "$value"];

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// [`TemplateError`] when it is not well formed, names a function or a variable that is not
    /// there, or is too large.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.len() > TEXT_BYTES_MAX {
            let message = format!(
                "{} bytes are more than {TEXT_BYTES_MAX}, the maximum of a template",
                text.len()
            );
            return fail_at(1, message);
        }
        let tokens = lex::tokenize(text)?;
        let tree = parse::parse_tree(tokens, &PREDEFINED_VARIABLES)?;
        Ok(Self { tree })
    }

    /// Expands the template for a subject at a time. `run_query` answers its queries.
    ///
    /// # Errors
    /// [`TemplateError`] when a function refuses what it is given, or a limit is met.
    pub fn expand(
        &self,
        subject: &Subject,
        now: TimeMs,
        run_query: Ask<'_>,
    ) -> Result<String, TemplateError> {
        let record = TemplateRecord::Subject(subject.clone());
        let root = TemplateValue::Record(Arc::new(record));
        let values = [
            root.clone(),
            TemplateValue::Labels(subject.labels.clone()),
            TemplateValue::Labels(subject.external_labels.clone()),
            TemplateValue::Text(subject.external_url.clone()),
            TemplateValue::Float(subject.value),
        ];
        let variables = PREDEFINED_VARIABLES.into_iter().zip(values);
        let context = FunctionContext {
            now,
            run_query,
            external_url: &subject.external_url,
            steps: Cell::new(0),
        };
        run::execute(&self.tree, root, variables.collect(), &context)
    }
}

#[cfg(test)]
mod tests;
