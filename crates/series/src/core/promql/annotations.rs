//! What an answer says about itself: warnings and infos, worded as Prometheus words them.

use std::collections::BTreeSet;

use super::syntax::Position;

/// How grave it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Gravity {
    Warning,
    Info,
}

/// Warnings and infos of one query, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    notes: BTreeSet<(Gravity, Position, String)>,
}

impl Notes {
    pub(crate) fn warn(&mut self, position: Position, text: impl Into<String>) {
        self.notes.insert((Gravity::Warning, position, text.into()));
    }

    pub(crate) fn info(&mut self, position: Position, text: impl Into<String>) {
        self.notes.insert((Gravity::Info, position, text.into()));
    }

    pub(crate) fn merge(&mut self, mut other: Self) {
        self.notes.append(&mut other.notes);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// The texts of one gravity, with line and column in the query.
    pub(crate) fn texts(&self, gravity: Gravity, query: &str) -> Vec<String> {
        let prefix = match gravity {
            Gravity::Warning => "PromQL warning",
            Gravity::Info => "PromQL info",
        };
        let texts = self.notes.iter().filter(|(of, ..)| *of == gravity);
        texts
            .map(|(_, position, text)| {
                let (line, column) = position.line_and_column(query);
                format!("{prefix}: {text} ({line}:{column})")
            })
            .collect()
    }
}

/// ` for metric name "x"`, or nothing where the name is not known.
pub(crate) fn for_metric(text: &str, metric: &str) -> String {
    match metric.is_empty() {
        true => text.to_owned(),
        false => format!("{text} for metric name {metric:?}"),
    }
}

pub(crate) fn mixed_floats_histograms(metric: &str) -> String {
    format!("encountered a mix of histograms and floats for metric name {metric:?}")
}

pub(crate) fn histograms_ignored_in_mixed_range(metric: &str) -> String {
    format!(
        "ignored histograms in a range containing both floats and histograms for metric name {metric:?}"
    )
}

pub(crate) fn possible_non_counter(metric: &str) -> String {
    format!(
        "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {metric:?}"
    )
}

pub(crate) fn not_a_counter(metric: &str) -> String {
    format!("this native histogram metric is not a counter: {metric:?}")
}

pub(crate) fn not_a_gauge(metric: &str) -> String {
    format!("this native histogram metric is not a gauge: {metric:?}")
}

pub(crate) fn mixed_schemas(metric: &str) -> String {
    format!(
        "vector contains a mix of histograms with exponential and custom buckets schemas for metric name {metric:?}"
    )
}

pub(crate) fn invalid_quantile(quantile: f64) -> String {
    let got = super::number::short(quantile);
    format!("quantile value should be between 0 and 1, got {got}")
}

pub(crate) fn histogram_ignored_in_aggregation(aggregation: &str) -> String {
    format!("ignored histogram in {aggregation} aggregation")
}

pub(crate) fn mixed_in_aggregation() -> &'static str {
    "encountered a mix of histograms and floats for aggregation"
}

pub(crate) fn bounds_reconciled(operation: &str) -> String {
    format!("mismatched custom buckets were reconciled during {operation}")
}

pub(crate) fn reset_collision(operation: &str) -> String {
    format!("conflicting counter resets during histogram {operation}")
}

pub(crate) fn incompatible_types(operator: &str, lhs: &str, rhs: &str) -> String {
    format!(
        "incompatible sample types encountered for binary operator {operator:?}: {lhs} {operator} {rhs}"
    )
}

pub(crate) fn start_overlaps(metric: &str) -> String {
    format!(
        "sample has start time that overlaps with previous sample timestamp for metric {metric:?}"
    )
}

pub(crate) fn sort_in_range() -> &'static str {
    "sort is ineffective for range queries since results are always ordered by labels"
}
