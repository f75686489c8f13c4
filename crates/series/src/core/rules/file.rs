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
use crate::core::yaml::{self, DurationMs, position};

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
    pub position: (u64, u64),
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
        if self.position.0 > 0 {
            write!(formatter, "{}:{}: ", self.position.0, self.position.1)?;
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
    position: (u64, u64),
    group: Option<String>,
    rule: Option<(usize, String)>,
}

impl ErrorPlace {
    fn with_position<T>(&self, value: &Spanned<T>) -> Self {
        Self { position: position(value), ..self.clone() }
    }
}

/// The groups of a file.
///
/// # Errors
/// All that is wrong; of a text that is no YAML or has unknown keys, the first thing.
pub fn parse(file: &str, text: &str) -> Result<Vec<GroupSpec>, Vec<RuleFileError>> {
    let mut checker = Checker { file, errors: Vec::new() };
    let parsed: File = match yaml::parse(text) {
        Ok(read) => read,
        Err(error) => {
            let position = (error.line, error.column);
            let whole_file = ErrorPlace { position, ..ErrorPlace::default() };
            checker.add_error(&whole_file, error.problem);
            return Err(checker.errors);
        }
    };
    let mut names = BTreeSet::new();
    let mut groups = Vec::new();
    for group in parsed.groups.unwrap_or_default() {
        let group_place = ErrorPlace { position: position(&group.name), ..ErrorPlace::default() };
        let name = group.name.value.as_str();
        if name.is_empty() {
            checker.add_error(&group_place, "Groupname must not be empty");
        } else if !names.insert(name.to_owned()) {
            let problem = format!("groupname: {name:?} is repeated in the same file");
            checker.add_error(&group_place, problem);
        }
        groups.push(checker.check_group(&group));
    }
    if checker.errors.is_empty() { Ok(groups) } else { Err(checker.errors) }
}

impl Checker<'_> {
    fn add_error(&mut self, error_place: &ErrorPlace, problem: impl Into<String>) {
        self.errors.push(RuleFileError {
            file: self.file.to_owned(),
            position: error_place.position,
            group: error_place.group.clone(),
            rule: error_place.rule.clone(),
            problem: problem.into(),
        });
    }

    fn check_group(&mut self, group: &GroupText) -> GroupSpec {
        let name = group.name.value.as_str();
        let group_place = ErrorPlace {
            position: position(&group.name),
            group: Some(name.to_owned()),
            rule: None,
        };
        if group.limit.is_some_and(|limit| limit < 0) {
            self.add_error(&group_place, "limit is negative: 0 means none");
        }
        let group_labels = group.labels.clone().unwrap_or_default();
        self.check_names(&group_place, "label", &group_labels);
        let rules = group
            .rules
            .iter()
            .flatten()
            .enumerate()
            .filter_map(|(index, rule)| self.check_rule(&group_place, index, rule, &group_labels))
            .collect();
        GroupSpec {
            file: self.file.into(),
            name: name.into(),
            // As in Prometheus, 0 is what is configured for all.
            interval_ms: group.interval.map(|interval| interval.0).filter(|ms| *ms > 0),
            query_offset_ms: group.query_offset.map_or(0, |offset| offset.0),
            limit: u64::try_from(group.limit.unwrap_or(0)).unwrap_or(0),
            rules,
        }
    }

    /// The rule; nothing when something about it is wrong, which was noted.
    fn check_rule(
        &mut self,
        group_place: &ErrorPlace,
        index: usize,
        rule: &Spanned<RuleText>,
        group_labels: &Pairs,
    ) -> Option<RuleSpec> {
        let text = &rule.value;
        let errors_before = self.errors.len();
        let non_empty =
            |name: &Option<Spanned<String>>| name.clone().filter(|it| !it.value.is_empty());
        let (record, alert) = (non_empty(&text.record), non_empty(&text.alert));
        let name = record.as_ref().or(alert.as_ref());
        let rule_place = ErrorPlace {
            position: position(rule),
            group: group_place.group.clone(),
            rule: Some((index + 1, name.map_or("", |name| &name.value).to_owned())),
        };
        match (&record, &alert) {
            (Some(record), Some(_)) => self.add_error(
                &rule_place.with_position(record),
                "only one of 'record' and 'alert' must be set",
            ),
            (None, None) => self.add_error(&rule_place, "one of 'record' or 'alert' must be set"),
            _ => {}
        }
        let mut pairs = group_labels.clone();
        if let Some(labels) = &text.labels {
            self.check_names(&rule_place.with_position(labels), "label", &labels.value);
            pairs.extend(labels.value.clone());
        }
        let query = self.parse_query(&rule_place, text.expr.as_ref());
        let kind = match &record {
            Some(record) => {
                self.check_recording(&rule_place, text, record);
                let labels =
                    pairs.into_iter().map(|(name, value)| (name, value.unwrap_or_default()));
                RuleKind::Recording { labels: labels.collect() }
            }
            None => RuleKind::Alerting(AlertSpec {
                hold_ms: text.hold.unwrap_or_default().0,
                keep_firing_for_ms: text.keep_firing_for.unwrap_or_default().0,
                labels: self.parse_templates(&rule_place, "label", &pairs),
                annotations: match &text.annotations {
                    Some(annotations) => {
                        let annotations_place = rule_place.with_position(annotations);
                        if annotations.value.contains_key("") {
                            self.add_error(&annotations_place, "invalid annotation name: \"\"");
                        }
                        self.parse_templates(&annotations_place, "annotation", &annotations.value)
                    }
                    None => Vec::new(),
                },
            }),
        };
        let name: Arc<str> = name.map_or("", |name| &name.value).into();
        let query = query.filter(|_| self.errors.len() == errors_before)?;
        Some(RuleSpec { name, query, kind })
    }

    fn parse_query(
        &mut self,
        rule_place: &ErrorPlace,
        expr: Option<&Spanned<String>>,
    ) -> Option<Arc<Query>> {
        let Some(expr) = expr.filter(|expr| !expr.value.trim().is_empty()) else {
            self.add_error(rule_place, "field 'expr' must be set in rule");
            return None;
        };
        match Query::parse(&expr.value) {
            Ok(query) => Some(Arc::new(query)),
            Err(error) => {
                self.add_error(
                    &rule_place.with_position(expr),
                    format!("could not parse expression: {error}"),
                );
                None
            }
        }
    }

    fn check_recording(
        &mut self,
        rule_place: &ErrorPlace,
        text: &RuleText,
        record: &Spanned<String>,
    ) {
        let forbidden_fields = [
            ("annotations", text.annotations.is_some()),
            ("for", text.hold.is_some_and(|hold| hold.0 > 0)),
            ("keep_firing_for", text.keep_firing_for.is_some_and(|keep| keep.0 > 0)),
        ];
        for (field, _) in forbidden_fields.into_iter().filter(|(_, is_set)| *is_set) {
            self.add_error(rule_place, format!("invalid field '{field}' in recording rule"));
        }
        if record.value.contains(['{', '}']) {
            let name = &record.value;
            let problem =
                format!("braces present in the recording rule name; should it be in expr?: {name}");
            self.add_error(&rule_place.with_position(record), problem);
        }
    }

    fn check_names(&mut self, error_place: &ErrorPlace, kind: &str, pairs: &Pairs) {
        for name in pairs.keys() {
            if name.is_empty() || name == METRIC_NAME {
                self.add_error(error_place, format!("invalid {kind} name: {name:?}"));
            }
        }
    }

    fn parse_templates(
        &mut self,
        error_place: &ErrorPlace,
        kind: &str,
        pairs: &Pairs,
    ) -> Vec<(Box<str>, TemplateText)> {
        let mut texts = Vec::new();
        for (name, value) in pairs {
            let source = value.as_deref().unwrap_or("");
            match Template::parse(source) {
                Ok(template) => texts.push((
                    name.as_str().into(),
                    TemplateText { source: source.into(), template: Arc::new(template) },
                )),
                Err(error) => self.add_error(error_place, format!("{kind} {name:?}: {error}")),
            }
        }
        texts
    }
}

#[cfg(test)]
mod tests;
