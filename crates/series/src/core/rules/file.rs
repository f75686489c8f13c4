//! Reads a file of rules: everything that is wrong with it, each with its place, or its groups.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use egret_go_template::Template;
use egret_metrics_model::METRIC_NAME;
use egret_promql::Query;
use serde::Deserialize;
use serde_saphyr::Spanned;

use super::rule::{AlertSpec, GroupSpec, RuleKind, RuleSpec, TemplateText};
use crate::core::yaml::{self, DurationMs, place};

type Pairs = BTreeMap<String, Option<String>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Option<Vec<GroupText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupText {
    name: Spanned<String>,
    interval: Option<DurationMs>,
    query_offset: Option<DurationMs>,
    limit: Option<i64>,
    labels: Option<Pairs>,
    rules: Option<Vec<Spanned<RuleText>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    record: Option<Spanned<String>>,
    alert: Option<Spanned<String>>,
    expr: Option<Spanned<String>>,
    #[serde(rename = "for")]
    hold: Option<DurationMs>,
    keep_firing_for: Option<DurationMs>,
    labels: Option<Spanned<Pairs>>,
    annotations: Option<Spanned<Pairs>>,
}

/// What is wrong with a file of rules, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFileError {
    /// Path of the file.
    pub file: String,
    /// Line and column, from 1; zeros when it concerns all of the file.
    pub place: (u64, u64),
    /// Name of the group, if one is concerned.
    pub group: Option<String>,
    /// Number of the rule in its group, from 1, and its name.
    pub rule: Option<(usize, String)>,
    /// Description of what is wrong.
    pub problem: String,
}

impl fmt::Display for RuleFileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.file)?;
        if self.place.0 > 0 {
            write!(formatter, "{}:{}: ", self.place.0, self.place.1)?;
        }
        if let Some(group) = &self.group {
            write!(formatter, "group {group:?}, ")?;
        }
        if let Some((number, name)) = &self.rule {
            write!(formatter, "rule {number}, {name:?}: ")?;
        }
        formatter.write_str(&self.problem)
    }
}

impl std::error::Error for RuleFileError {}

struct Checker<'a> {
    file: &'a str,
    errors: Vec<RuleFileError>,
}

/// Place of an error in a file.
#[derive(Clone, Default)]
struct ErrorPlace {
    place: (u64, u64),
    group: Option<String>,
    rule: Option<(usize, String)>,
}

impl ErrorPlace {
    fn at<T>(&self, value: &Spanned<T>) -> Self {
        Self {
            place: place(value),
            ..self.clone()
        }
    }
}

/// The groups of a file.
///
/// # Errors
/// All that is wrong; of a text that is no YAML or has unknown keys, the first thing.
pub fn parse(file: &str, text: &str) -> Result<Vec<GroupSpec>, Vec<RuleFileError>> {
    let mut checker = Checker {
        file,
        errors: Vec::new(),
    };
    let read: File = match yaml::read(text) {
        Ok(read) => read,
        Err(error) => {
            let place = (error.line, error.column);
            let all = ErrorPlace {
                place,
                ..ErrorPlace::default()
            };
            checker.refuse(&all, error.problem);
            return Err(checker.errors);
        }
    };
    let mut names = BTreeSet::new();
    let mut groups = Vec::new();
    for group in read.groups.unwrap_or_default() {
        let at = ErrorPlace {
            place: place(&group.name),
            ..ErrorPlace::default()
        };
        let name = group.name.value.as_str();
        if name.is_empty() {
            checker.refuse(&at, "Groupname must not be empty");
        } else if !names.insert(name.to_owned()) {
            let problem = format!("groupname: {name:?} is repeated in the same file");
            checker.refuse(&at, problem);
        }
        groups.push(checker.group(&group));
    }
    if checker.errors.is_empty() {
        Ok(groups)
    } else {
        Err(checker.errors)
    }
}

impl Checker<'_> {
    fn refuse(&mut self, at: &ErrorPlace, problem: impl Into<String>) {
        self.errors.push(RuleFileError {
            file: self.file.to_owned(),
            place: at.place,
            group: at.group.clone(),
            rule: at.rule.clone(),
            problem: problem.into(),
        });
    }

    fn group(&mut self, group: &GroupText) -> GroupSpec {
        let name = group.name.value.as_str();
        let at = ErrorPlace {
            place: place(&group.name),
            group: Some(name.to_owned()),
            rule: None,
        };
        if group.limit.is_some_and(|limit| limit < 0) {
            self.refuse(&at, "limit is negative: 0 means none");
        }
        let shared = group.labels.clone().unwrap_or_default();
        self.names(&at, "label", &shared);
        let rules = group
            .rules
            .iter()
            .flatten()
            .enumerate()
            .filter_map(|(index, rule)| self.rule(&at, index, rule, &shared))
            .collect();
        GroupSpec {
            file: self.file.into(),
            name: name.into(),
            // As in Prometheus, 0 is what is configured for all.
            interval_ms: group.interval.map(|it| it.0).filter(|ms| *ms > 0),
            query_offset_ms: group.query_offset.map_or(0, |offset| offset.0),
            limit: u64::try_from(group.limit.unwrap_or(0)).unwrap_or(0),
            rules,
        }
    }

    /// The rule; nothing when something about it is wrong, which was noted.
    fn rule(
        &mut self,
        group: &ErrorPlace,
        index: usize,
        rule: &Spanned<RuleText>,
        shared: &Pairs,
    ) -> Option<RuleSpec> {
        let text = &rule.value;
        let before = self.errors.len();
        let given = |name: &Option<Spanned<String>>| name.clone().filter(|it| !it.value.is_empty());
        let (record, alert) = (given(&text.record), given(&text.alert));
        let name = record.as_ref().or(alert.as_ref());
        let at = ErrorPlace {
            place: place(rule),
            group: group.group.clone(),
            rule: Some((index + 1, name.map_or("", |name| &name.value).to_owned())),
        };
        match (&record, &alert) {
            (Some(record), Some(_)) => self.refuse(
                &at.at(record),
                "only one of 'record' and 'alert' must be set",
            ),
            (None, None) => self.refuse(&at, "one of 'record' or 'alert' must be set"),
            _ => {}
        }
        let mut pairs = shared.clone();
        if let Some(labels) = &text.labels {
            self.names(&at.at(labels), "label", &labels.value);
            pairs.extend(labels.value.clone());
        }
        let query = self.query(&at, text.expr.as_ref());
        let kind = match &record {
            Some(record) => {
                self.recording(&at, text, record);
                let labels = pairs
                    .into_iter()
                    .map(|(name, value)| (name, value.unwrap_or_default()));
                RuleKind::Recording {
                    labels: labels.collect(),
                }
            }
            None => RuleKind::Alerting(AlertSpec {
                hold_ms: text.hold.unwrap_or_default().0,
                keep_firing_for_ms: text.keep_firing_for.unwrap_or_default().0,
                labels: self.texts(&at, "label", &pairs),
                annotations: match &text.annotations {
                    Some(annotations) => {
                        let at = at.at(annotations);
                        if annotations.value.contains_key("") {
                            self.refuse(&at, "invalid annotation name: \"\"");
                        }
                        self.texts(&at, "annotation", &annotations.value)
                    }
                    None => Vec::new(),
                },
            }),
        };
        let name: Arc<str> = name.map_or("", |name| &name.value).into();
        let query = query.filter(|_| self.errors.len() == before)?;
        Some(RuleSpec { name, query, kind })
    }

    fn query(&mut self, at: &ErrorPlace, expr: Option<&Spanned<String>>) -> Option<Arc<Query>> {
        let Some(expr) = expr.filter(|expr| !expr.value.trim().is_empty()) else {
            self.refuse(at, "field 'expr' must be set in rule");
            return None;
        };
        match Query::parse(&expr.value) {
            Ok(query) => Some(Arc::new(query)),
            Err(error) => {
                self.refuse(&at.at(expr), format!("could not parse expression: {error}"));
                None
            }
        }
    }

    fn recording(&mut self, at: &ErrorPlace, text: &RuleText, record: &Spanned<String>) {
        let refused = [
            ("annotations", text.annotations.is_some()),
            ("for", text.hold.is_some_and(|hold| hold.0 > 0)),
            (
                "keep_firing_for",
                text.keep_firing_for.is_some_and(|keep| keep.0 > 0),
            ),
        ];
        for (field, _) in refused.into_iter().filter(|(_, is_set)| *is_set) {
            self.refuse(at, format!("invalid field '{field}' in recording rule"));
        }
        if record.value.contains(['{', '}']) {
            let name = &record.value;
            let problem =
                format!("braces present in the recording rule name; should it be in expr?: {name}");
            self.refuse(&at.at(record), problem);
        }
    }

    fn names(&mut self, at: &ErrorPlace, what: &str, pairs: &Pairs) {
        for name in pairs.keys() {
            if name.is_empty() || name == METRIC_NAME {
                self.refuse(at, format!("invalid {what} name: {name:?}"));
            }
        }
    }

    fn texts(
        &mut self,
        at: &ErrorPlace,
        what: &str,
        pairs: &Pairs,
    ) -> Vec<(Box<str>, TemplateText)> {
        let mut texts = Vec::new();
        for (name, value) in pairs {
            let source = value.as_deref().unwrap_or("");
            match Template::parse(source) {
                Ok(template) => texts.push((
                    name.as_str().into(),
                    TemplateText {
                        source: source.into(),
                        template: Arc::new(template),
                    },
                )),
                Err(error) => self.refuse(at, format!("{what} {name:?}: {error}")),
            }
        }
        texts
    }
}

#[cfg(test)]
mod tests;
