//! What an answer says about itself: warnings and infos, worded as Prometheus words them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use egret_metrics_model::TimeMs;

use super::number;
use super::syntax::Position;

/// Severity of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Warning,
    Info,
}

/// Warnings and infos of one query, each text once: of several places that say the same, the last
/// one evaluated stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Annotations {
    entries: BTreeMap<(Severity, String), AnnotationPlace>,
}

/// Position of an annotation, and details that are merged when its text occurs again.
#[derive(Clone, Copy, Debug)]
struct AnnotationPlace {
    position: Position,
    fixes: Option<MonotonicityFixes>,
}

/// What had to be done to classic histograms whose buckets did not ascend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MonotonicityFixes {
    /// The lowest and the highest bound of a bucket that was changed.
    pub bounds: (f64, f64),
    /// The largest difference that was made to a count.
    pub difference: f64,
    /// Number of histograms that were changed.
    pub histograms: u64,
    /// The first and the last time of them.
    pub times: (TimeMs, TimeMs),
}

impl MonotonicityFixes {
    fn merge(&mut self, other: Self) {
        self.bounds.0 = self.bounds.0.min(other.bounds.0);
        self.bounds.1 = self.bounds.1.max(other.bounds.1);
        self.difference = self.difference.max(other.difference);
        self.histograms += other.histograms;
        self.times.0 = self.times.0.min(other.times.0);
        self.times.1 = self.times.1.max(other.times.1);
    }
}

impl fmt::Display for MonotonicityFixes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [lowest, highest] = [self.bounds.0, self.bounds.1].map(number::short);
        let [first, last] = [self.times.0, self.times.1].map(format_seconds);
        let difference = number::format_two_digits(self.difference);
        write!(
            formatter,
            ", from buckets {lowest} to {highest}, with a max diff of {difference}, over {} samples from {first} to {last}",
            self.histograms
        )
    }
}

impl Annotations {
    pub(crate) fn warn(&mut self, position: Position, text: impl Into<String>) {
        let fixes = None;
        let location = AnnotationPlace { position, fixes };
        self.add(Severity::Warning, text.into(), location);
    }

    pub(crate) fn info(&mut self, position: Position, text: impl Into<String>) {
        let fixes = None;
        let location = AnnotationPlace { position, fixes };
        self.add(Severity::Info, text.into(), location);
    }

    /// An info that says what was mended, of all histograms together.
    pub(crate) fn info_with_fixes(
        &mut self,
        position: Position,
        text: String,
        mended: MonotonicityFixes,
    ) {
        let fixes = Some(mended);
        let location = AnnotationPlace { position, fixes };
        self.add(Severity::Info, text, location);
    }

    fn add(&mut self, severity: Severity, text: String, place: AnnotationPlace) {
        match self.entries.entry((severity, text)) {
            Entry::Vacant(entry) => {
                entry.insert(place);
            }
            Entry::Occupied(mut entry) => {
                let existing = entry.get_mut();
                existing.position = place.position;
                if let (Some(before), Some(fixes)) = (&mut existing.fixes, place.fixes) {
                    before.merge(fixes);
                }
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        for ((severity, text), place) in other.entries {
            self.add(severity, text, place);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The texts of one severity, with line and column in the query, by their positions.
    pub(crate) fn texts(&self, severity: Severity, query: &str) -> Vec<String> {
        let prefix = match severity {
            Severity::Warning => "PromQL warning",
            Severity::Info => "PromQL info",
        };
        let mut entries: Vec<_> = self
            .entries
            .iter()
            .filter(|((entry_severity, _), _)| *entry_severity == severity)
            .map(|((_, text), place)| (place, text))
            .collect();
        entries.sort_by_key(|(place, _)| place.position);
        let texts = entries.into_iter().map(|(place, text)| {
            let (line, column) = place.position.line_and_column(query);
            let fixes_text = place.fixes.map(|mended| mended.to_string()).unwrap_or_default();
            format!("{prefix}: {text}{fixes_text} ({line}:{column})")
        });
        texts.collect()
    }
}

/// A time as RFC 3339 writes it, without what is less than a second.
fn format_seconds(time_ms: TimeMs) -> String {
    match jiff::Timestamp::from_second(time_ms / 1000) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{}s", time_ms / 1000),
    }
}

/// ` for metric name "x"`, or nothing where the name is not known.
pub(crate) fn for_metric(text: &str, metric: &str) -> String {
    if metric.is_empty() { text.to_owned() } else { format!("{text} for metric name {metric:?}") }
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
    let got = number::short(quantile);
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
