//! Rules as they were loaded, and what their expressions yield at a time.

use std::collections::HashSet;
use std::sync::Arc;

use egret_metrics_model::{
    LabelMatcher, Labels, LabelsBuilder, METRIC_NAME, Matcher, TimeMs, TimeSpan,
};
use egret_promql::{
    Answer, EvalOptions, Hints, Query, QueryError, QueryResult, SampleColumns, SampleValue,
    Selection, Source,
};

use egret_go_template::{Subject, Template};

/// A group of rules, which are evaluated one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSpec {
    /// Path of the file.
    pub file: Arc<str>,
    /// Name of the group, unique in the file.
    pub name: Arc<str>,
    /// Between two evaluations, in milliseconds; `None`: as configured for all.
    pub interval_ms: Option<i64>,
    /// So much before the time of the evaluation is what is asked for, in milliseconds.
    pub query_offset_ms: i64,
    /// Series or alerts that one rule may yield; 0: any number.
    pub limit: u64,
    /// The rules, in their order.
    pub rules: Vec<RuleSpec>,
}

/// A recording or alerting rule.
#[derive(Clone, Debug)]
pub struct RuleSpec {
    /// The series that is recorded, or the alert.
    pub name: Arc<str>,
    /// Expression that is evaluated.
    pub query: Arc<Query>,
    /// Whether it records or alerts.
    pub kind: RuleKind,
}

/// Kind of a rule: recording or alerting.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleKind {
    /// The result is recorded as a series.
    Recording {
        /// Set on every series; empty values take a label away.
        labels: Vec<(String, String)>,
    },
    /// Each element is an alert.
    Alerting(AlertSpec),
}

/// What an alerting rule says besides its name and expression.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertSpec {
    /// Until it fires, in milliseconds.
    pub hold_ms: i64,
    /// For how long it fires after its condition ended, in milliseconds.
    pub keep_firing_for_ms: i64,
    /// Set on every alert.
    pub labels: Vec<(Box<str>, TemplateText)>,
    /// Said with every alert.
    pub annotations: Vec<(Box<str>, TemplateText)>,
}

/// A template with its text.
#[derive(Clone, Debug)]
pub struct TemplateText {
    /// Text as written in the file.
    pub source: Box<str>,
    /// Parsed form of the text.
    pub template: Arc<Template>,
}

impl PartialEq for TemplateText {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl RuleSpec {
    /// How many of the labels that the rule sets to a fixed value an alert has; `None` when the
    /// alert cannot be the rule's.
    pub(crate) fn likeness(&self, alert: &Labels) -> Option<usize> {
        let RuleKind::Alerting(spec) = &self.kind else {
            return None;
        };
        let mut fixed = spec.labels.iter().filter(|(_, text)| !text.source.contains("{{"));
        fixed.try_fold(0, |count, (name, text)| {
            (alert.get(name) == &*text.source).then_some(count + 1)
        })
    }
}

impl PartialEq for RuleSpec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.query.text() == other.query.text()
            && self.kind == other.kind
    }
}

/// Answers queries of rules.
pub trait Evaluate: Send + Sync {
    /// The answer to a query at a time.
    ///
    /// # Errors
    /// What evaluation says.
    fn instant(&self, query: &Query, at: TimeMs) -> Result<Answer, QueryError>;

    /// The last sample of each series that matches, of those within `range`; staleness markers
    /// among them.
    ///
    /// # Errors
    /// What the source says.
    fn last_samples(
        &self,
        matchers: Vec<Matcher>,
        range: TimeSpan,
    ) -> Result<Vec<(Labels, TimeMs, f64)>, QueryError>;
}

impl<S: Source + Send> Evaluate for S {
    fn instant(&self, query: &Query, at: TimeMs) -> Result<Answer, QueryError> {
        query.instant(self, at, &EvalOptions::default())
    }

    fn last_samples(
        &self,
        matchers: Vec<Matcher>,
        range: TimeSpan,
    ) -> Result<Vec<(Labels, TimeMs, f64)>, QueryError> {
        last_samples(self, matchers, range)
    }
}

/// [`Evaluate::last_samples`] of a source.
///
/// # Errors
/// Of the source.
pub fn last_samples(
    source: &dyn Source,
    matchers: Vec<Matcher>,
    range: TimeSpan,
) -> Result<Vec<(Labels, TimeMs, f64)>, QueryError> {
    let TimeSpan { start, end } = range;
    let matchers = matchers.into_iter().map(LabelMatcher::new);
    let selection = Selection {
        matchers: matchers.collect::<Result<_, _>>()?,
        start,
        end,
        hints: Hints::default(),
    };
    // A rule's own series: no user says how many there are.
    let series_set = source.select(&selection, &|_| Ok(()))?;
    let (mut samples, mut columns) = (Vec::new(), SampleColumns::default());
    for index in 0..series_set.len() {
        series_set.read(index, &mut columns)?;
        let end_index = columns.times.partition_point(|time| *time <= end);
        if let Some(at) = end_index.checked_sub(1).filter(|at| columns.times[*at] >= start) {
            samples.push((series_set.labels(index).clone(), columns.times[at], columns.values[at]));
        }
    }
    Ok(samples)
}

/// What the evaluation of rules needs: queries, labels and URL.
#[derive(Clone, Copy)]
pub struct EvalEnvironment<'a> {
    /// Answers the queries of rules.
    pub evaluate: &'a dyn Evaluate,
    /// Value of `$externalLabels` in templates.
    pub external_labels: &'a Labels,
    /// Value of `$externalURL` in templates.
    pub external_url: &'a Arc<str>,
}

/// Result of a rule at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum RuleResult {
    /// Samples to be recorded.
    Series(Vec<(Labels, f64)>),
    /// Alerts whose condition holds.
    Alerts {
        /// Each of labels of its own.
        candidates: Vec<Candidate>,
        /// Templates that could not be expanded, which the alerts say too.
        problems: Vec<String>,
    },
}

/// An alert whose condition holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Labels of the alert.
    pub labels: Labels,
    /// Annotations of the alert.
    pub annotations: Labels,
    /// The value of its expression.
    pub value: f64,
}

/// One rule may raise so many alerts at a time; each has templates to expand.
const RULE_ALERTS_MAX: usize = 50_000;

/// The name of the label that names an alert.
pub(super) const ALERT_NAME: &str = "alertname";

impl RuleSpec {
    /// What its expression yields at a time, less the query's offset. Changes nothing.
    ///
    /// # Errors
    /// Why it has no result, for people.
    pub fn evaluate(
        &self,
        eval_time: TimeMs,
        query_offset_ms: i64,
        limit: u64,
        environment: EvalEnvironment<'_>,
    ) -> Result<RuleResult, String> {
        let answer = environment.evaluate.instant(&self.query, eval_time - query_offset_ms);
        let vector = to_numbers(answer.map_err(|error| error.to_string())?)?;
        match &self.kind {
            RuleKind::Recording { labels } => self.record(vector, labels, limit),
            RuleKind::Alerting(spec) => self.raise(vector, spec, eval_time, environment),
        }
    }

    fn record(
        &self,
        vector: Vec<(Labels, f64)>,
        labels: &[(String, String)],
        limit: u64,
    ) -> Result<RuleResult, String> {
        let mut seen = HashSet::with_capacity(vector.len());
        let mut series = Vec::with_capacity(vector.len());
        for (series_labels, value) in vector {
            let mut builder = LabelsBuilder::from_labels(&series_labels);
            builder.set(METRIC_NAME, &self.name);
            for (name, value) in labels {
                builder.set(name, value);
            }
            let labels = builder.build();
            if !seen.insert(labels.clone()) {
                return Err(
                    "vector contains metrics with the same labelset after applying rule labels"
                        .to_owned(),
                );
            }
            series.push((labels, value));
        }
        let count = series.len() as u64;
        if limit > 0 && count > limit {
            Err(format!("exceeded limit of {limit} with {count} series"))
        } else {
            Ok(RuleResult::Series(series))
        }
    }

    fn raise(
        &self,
        vector: Vec<(Labels, f64)>,
        spec: &AlertSpec,
        eval_time: TimeMs,
        environment: EvalEnvironment<'_>,
    ) -> Result<RuleResult, String> {
        let count = vector.len();
        if count > RULE_ALERTS_MAX {
            return Err(format!(
                "{count} alerts are more than {RULE_ALERTS_MAX}, the maximum of one rule: aggregate \
                 them"
            ));
        }
        let mut seen = HashSet::with_capacity(count);
        let (mut candidates, mut problems) = (Vec::with_capacity(count), Vec::new());
        let run_query = |text: &str| {
            let query = Query::parse(text).map_err(|error| error.to_string())?;
            let answer = environment.evaluate.instant(&query, eval_time);
            to_numbers(answer.map_err(|error| error.to_string())?)
        };
        for (series_labels, value) in vector {
            let subject = Subject {
                labels: series_labels.clone(),
                external_labels: environment.external_labels.clone(),
                external_url: environment.external_url.clone(),
                value,
            };
            let mut expand = |name: &str, text: &TemplateText| match text
                .template
                .expand(&subject, eval_time, &run_query)
            {
                Ok(text) => text,
                Err(error) => {
                    problems.push(format!("{name}: {error}"));
                    format!("<error expanding template: {error}>")
                }
            };
            let mut labels = LabelsBuilder::from_labels(&series_labels);
            labels.remove(METRIC_NAME);
            for (name, text) in &spec.labels {
                labels.set(name, &expand(name, text));
            }
            labels.set(ALERT_NAME, &self.name);
            let mut annotations = LabelsBuilder::default();
            for (name, text) in &spec.annotations {
                annotations.set(name, &expand(name, text));
            }
            let labels = labels.build();
            if !seen.insert(labels.clone()) {
                return Err(
                    "vector contains metrics with the same labelset after applying alert labels"
                        .to_owned(),
                );
            }
            candidates.push(Candidate { labels, annotations: annotations.build(), value });
        }
        Ok(RuleResult::Alerts { candidates, problems })
    }
}

/// The numbers of an answer, each with its labels.
fn to_numbers(answer: Answer) -> Result<Vec<(Labels, f64)>, String> {
    match answer.result {
        QueryResult::Scalar(_, value) => Ok(vec![(Labels::default(), value)]),
        QueryResult::Vector(samples) => samples
            .into_iter()
            .map(|sample| match sample.value {
                SampleValue::Float(value) => Ok((sample.labels, value)),
                SampleValue::Histogram(_) => Err(format!(
                    "{} is a native histogram, which rules do not support: use \
                     histogram_quantile or another function of it",
                    sample.labels
                )),
            })
            .collect(),
        _ => Err("rule result is not a vector or scalar".to_owned()),
    }
}
