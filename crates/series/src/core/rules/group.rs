//! A group of rules over time: what its rules have written, which alerts are active, how it went
//! the last time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use egret_base::Timestamp;
use egret_go_template::table_link;
use egret_metrics_model::number::{format_number, format_with_exponent};
use egret_metrics_model::{Labels, LabelsBuilder, Matcher, STALE_NAN_BITS, TimeMs, TimeSpan};

use super::NewSample;
use super::alert::OUTAGE_TOLERANCE_MS;
use super::alert::{Alert, AlertState, Alerts};
use super::notification::{AlertNotification, Fingerprint};
use super::rule::{GroupSpec, RuleKind, RuleResult, RuleSpec};
use super::status::{AlertStatus, GroupStatus, Health, RuleStatus};
use crate::core::schedule::Schedule;

/// State of a group at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupStart {
    /// Egret was started: what its alerts were before is in the series they wrote.
    Restore,
    /// It came with a reload: there was nothing before.
    Fresh,
}

/// A group of rules.
#[derive(Debug)]
pub struct RuleGroup {
    spec: GroupSpec,
    schedule: Schedule,
    rules: Vec<RuleState>,
    /// Series of removed rules, which need staleness markers.
    obsolete_series: BTreeSet<Labels>,
    evaluation_count: u64,
    missed_count: u64,
    evaluated_at: Option<TimeMs>,
    duration: Duration,
}

#[derive(Debug, Default)]
struct RuleState {
    alerts: Alerts,
    /// Series written by the last evaluation.
    written_series: BTreeSet<Labels>,
    /// Series that the present evaluation writes.
    series_being_written: BTreeSet<Labels>,
    health: Health,
    last_error: String,
    evaluated_at: Option<TimeMs>,
    duration: Duration,
}

/// Consequences of an evaluation: samples to write and notices to send.
#[derive(Debug, Default, PartialEq)]
pub struct GroupEvaluation {
    /// To be appended; then [`RuleGroup::record_appended`] is told how it went.
    pub samples: Vec<NewSample>,
    /// To be told; what was, goes to [`RuleGroup::record_notified`]. What was not is due again the
    /// next time.
    pub notices: Vec<AlertNotification>,
    /// For the log: what failed.
    pub problems: Vec<String>,
}

/// Settings for notices of alerts.
#[derive(Clone, Copy, Debug)]
pub struct NotifyOptions<'a> {
    /// Added to the labels of alerts that do not have them.
    pub external_labels: &'a Labels,
    /// Before the path of the page that shows an expression.
    pub external_url: &'a str,
    /// After how long an alert is told again, in milliseconds.
    pub resend_ms: i64,
}

fn stale_marker(labels: Labels, time_ms: TimeMs) -> NewSample {
    NewSample { labels, time_ms, value: f64::from_bits(STALE_NAN_BITS) }
}

impl RuleGroup {
    /// Begins with a group that was read.
    pub(crate) fn new(spec: GroupSpec, default_interval_ms: i64, start: GroupStart) -> Self {
        let interval_ms = spec.interval_ms.unwrap_or(default_interval_ms).max(1);
        let key = format!("{};{}", spec.file, spec.name);
        let rules = spec.rules.iter().map(|_| RuleState {
            alerts: Alerts::new(start == GroupStart::Fresh),
            ..RuleState::default()
        });
        Self {
            schedule: Schedule::new(&key, interval_ms),
            rules: rules.collect(),
            obsolete_series: BTreeSet::new(),
            evaluation_count: 0,
            missed_count: 0,
            evaluated_at: None,
            duration: Duration::ZERO,
            spec,
        }
    }

    /// The specification that it was made from.
    pub(crate) fn spec(&self) -> &GroupSpec {
        &self.spec
    }

    /// When the group is evaluated.
    pub(crate) fn schedule(&self) -> Schedule {
        self.schedule
    }

    /// Applies the result of a rule: updates its alerts, and decides what to write and notify.
    pub(crate) fn apply_result(
        &mut self,
        rule: usize,
        eval_time: TimeMs,
        result: Result<RuleResult, String>,
        duration: Duration,
        notify_options: NotifyOptions<'_>,
    ) -> GroupEvaluation {
        let time_ms = eval_time - self.spec.query_offset_ms;
        let limit = self.spec.limit;
        let (spec, state) = (&self.spec.rules[rule], &mut self.rules[rule]);
        state.evaluated_at = Some(eval_time);
        state.duration = duration;
        let mut evaluation = GroupEvaluation::default();
        let new_samples = match (result, &spec.kind) {
            (Err(problem), _) => Err(problem),
            (Ok(RuleResult::Series(series)), _) => Ok(series
                .into_iter()
                .map(|(labels, value)| NewSample { labels, time_ms, value })
                .collect()),
            (Ok(RuleResult::Alerts { candidates, problems }), RuleKind::Alerting(alert)) => {
                evaluation.problems = problems;
                state
                    .alerts
                    .update(alert, candidates, eval_time, limit)
                    .map(|()| state.alerts.samples(time_ms))
            }
            (Ok(RuleResult::Alerts { .. }), RuleKind::Recording { .. }) => {
                unreachable!("a recording rule yields series")
            }
        };
        match new_samples {
            Ok(samples) => {
                state.health = Health::Ok;
                state.last_error.clear();
                evaluation.samples = state.add_stale_markers(samples, time_ms);
                evaluation.notices = self.due_notices(rule, eval_time, notify_options);
            }
            Err(problem) => {
                state.health = Health::Err;
                state.last_error.clone_from(&problem);
                evaluation.problems.push(problem);
            }
        }
        evaluation
    }

    /// Records whether the samples of a rule were appended.
    pub(crate) fn record_appended(&mut self, rule: usize, outcome: Result<(), String>) {
        let state = &mut self.rules[rule];
        match outcome {
            Ok(()) => state.written_series = std::mem::take(&mut state.series_being_written),
            Err(problem) => {
                state.health = Health::Err;
                state.last_error = problem;
            }
        }
    }

    /// Notes when alerts of a rule were last told to receivers.
    pub(crate) fn record_notified(&mut self, rule: usize, notices: &[AlertNotification]) {
        for notice in notices {
            if let Some(alert) = self.rules[rule].alerts.get_mut(&notice.own_labels) {
                alert.notified_at = Some(notice.made_at);
            }
        }
    }

    /// All rules have been evaluated. The markers that end series of rules which are no more.
    pub(crate) fn finish_evaluation(
        &mut self,
        eval_time: TimeMs,
        duration: Duration,
        missed: u64,
    ) -> Vec<NewSample> {
        self.evaluation_count += 1;
        self.missed_count += missed;
        self.evaluated_at = Some(eval_time);
        self.duration = duration;
        let time_ms = eval_time - self.spec.query_offset_ms;
        let obsolete_series = std::mem::take(&mut self.obsolete_series);
        obsolete_series.into_iter().map(|labels| stale_marker(labels, time_ms)).collect()
    }

    /// The rules whose alerts are to be restored now, each with the series to read and the time to
    /// read them from.
    ///
    /// That is after the second evaluation: at the first, what is scraped or recorded may not be
    /// there yet.
    pub(crate) fn restore_queries(
        &self,
        eval_time: TimeMs,
    ) -> Vec<(usize, Vec<Matcher>, TimeSpan)> {
        if self.evaluation_count < 2 {
            return Vec::new();
        }
        let rules = self.rules.iter().zip(&self.spec.rules).enumerate();
        let unrestored = rules.filter(|(_, (running, spec))| {
            matches!(spec.kind, RuleKind::Alerting(_)) && !running.alerts.is_restored
        });
        let queries = unrestored.map(|(index, (_, spec))| {
            let matchers = Alerts::restore_matchers(&spec.name);
            let range = TimeSpan { start: eval_time - OUTAGE_TOLERANCE_MS, end: eval_time };
            (index, matchers.to_vec(), range)
        });
        queries.collect()
    }

    /// Takes the last samples of the series that [`RuleGroup::restore_queries`] asked for. Where
    /// they could not be read, there are none: nothing would be better later. `others` are the
    /// rules of other groups: an alert that is not active is this rule's if its labels are like
    /// those of no other rule of the name.
    pub(crate) fn restore_alerts(
        &mut self,
        rule: usize,
        samples: &[(Labels, TimeMs, f64)],
        others: &[RuleSpec],
        eval_time: TimeMs,
    ) {
        let own = &self.spec.rules[rule];
        let RuleKind::Alerting(spec) = &own.kind else {
            return;
        };
        let (before, after) = (&self.spec.rules[..rule], &self.spec.rules[rule + 1..]);
        let is_owned = |labels: &Labels| {
            let likeness = own.likeness(labels);
            let mut others = before.iter().chain(after).chain(others);
            likeness.is_some()
                && others.all(|other| other.name != own.name || other.likeness(labels) < likeness)
        };
        let running = &mut self.rules[rule];
        let offset_ms = self.spec.query_offset_ms;
        let active = running.alerts.restore(spec, samples, offset_ms, eval_time, &is_owned);
        running.written_series.extend(active);
    }

    /// Takes over the state of the group that this one replaces. Returns the notices of alerts
    /// whose rules were removed.
    pub(crate) fn adopt(
        &mut self,
        mut old: RuleGroup,
        eval_time: TimeMs,
        notify_options: NotifyOptions<'_>,
    ) -> Vec<AlertNotification> {
        self.evaluated_at = old.evaluated_at;
        self.evaluation_count = old.evaluation_count;
        self.missed_count = old.missed_count;
        self.obsolete_series.append(&mut old.obsolete_series);
        let mut removed_rules: Vec<usize> = (0..old.rules.len()).collect();
        for (spec, state) in self.spec.rules.iter().zip(&mut self.rules) {
            let is_same = |rule: &usize| spec.is_same_rule(&old.spec.rules[*rule]);
            if let Some(position) = removed_rules.iter().position(is_same) {
                *state = std::mem::take(&mut old.rules[removed_rules.remove(position)]);
            }
        }
        let mut notices = Vec::new();
        for rule in removed_rules {
            notices.extend(old.end_rule(rule, eval_time, notify_options));
            self.obsolete_series.append(&mut old.rules[rule].written_series);
        }
        notices
    }

    /// Ends the group, as it was removed: notices of its ended alerts, and staleness markers for
    /// all its series.
    pub(crate) fn retire(
        mut self,
        eval_time: TimeMs,
        notify_options: NotifyOptions<'_>,
    ) -> GroupEvaluation {
        let rules = 0..self.rules.len();
        let notices =
            rules.flat_map(|rule| self.end_rule(rule, eval_time, notify_options)).collect();
        let time_ms = eval_time - self.spec.query_offset_ms;
        let written = self.rules.into_iter().flat_map(|running| running.written_series);
        let ended_series = written.chain(self.obsolete_series);
        GroupEvaluation {
            samples: ended_series.map(|labels| stale_marker(labels, time_ms)).collect(),
            notices,
            problems: Vec::new(),
        }
    }

    /// Ends the alerts of a rule that is no more.
    fn end_rule(
        &mut self,
        rule: usize,
        eval_time: TimeMs,
        notify_options: NotifyOptions<'_>,
    ) -> Vec<AlertNotification> {
        self.rules[rule].alerts.end_all(eval_time);
        self.due_notices(rule, eval_time, notify_options)
    }

    fn due_notices(
        &self,
        rule: usize,
        eval_time: TimeMs,
        notify_options: NotifyOptions<'_>,
    ) -> Vec<AlertNotification> {
        let state = &self.rules[rule];
        if !state.alerts.is_restored {
            return Vec::new();
        }
        let link = table_link(self.spec.rules[rule].query.text());
        let url: Arc<str> = format!("{}{link}", notify_options.external_url).into();
        // Two evaluations or attempts may fail before a receiver takes it for resolved.
        let valid_ms = 4 * notify_options.resend_ms.max(self.schedule.interval_ms());
        let due_alerts = state
            .alerts
            .iter()
            .filter(|(_, alert)| alert.is_due(eval_time, notify_options.resend_ms));
        let notices = due_alerts.map(|(own_labels, alert)| {
            let mut labels = LabelsBuilder::from_labels(own_labels);
            for (name, value) in notify_options.external_labels.iter() {
                if labels.get(name).is_empty() {
                    labels.set(name, value);
                }
            }
            let labels = labels.build();
            AlertNotification {
                fingerprint: Fingerprint::from_labels(&labels),
                own_labels: own_labels.clone(),
                labels,
                annotations: alert.annotations.clone(),
                active_at: alert.active_at,
                starts_at: alert.fired_at.unwrap_or(alert.active_at),
                ends_at: alert.resolved_at.unwrap_or(eval_time + valid_ms),
                is_resolved: alert.state == AlertState::Inactive,
                made_at: eval_time,
                generator_url: url.clone(),
            }
        });
        notices.collect()
    }

    /// Status of the group, for the HTTP API.
    pub(crate) fn status(&self) -> GroupStatus {
        let rules = self.spec.rules.iter().zip(&self.rules);
        GroupStatus {
            name: self.spec.name.to_string(),
            file: self.spec.file.to_string(),
            rules: rules.map(|(spec, running)| running.status(spec)).collect(),
            interval: self.schedule.interval_ms() as f64 / 1e3,
            limit: self.spec.limit,
            evaluation_time: self.duration.as_secs_f64(),
            last_evaluation: self.evaluated_at.map(to_timestamp),
            missed_evaluations: self.missed_count,
        }
    }
}

fn to_timestamp(time: TimeMs) -> Timestamp {
    Timestamp::from_micros(time.saturating_mul(1_000))
}

impl RuleSpec {
    /// Whether it is the other one, changed or not: of the same kind, name and labels.
    fn is_same_rule(&self, other: &Self) -> bool {
        let has_same_labels = match (&self.kind, &other.kind) {
            (RuleKind::Recording { labels: a }, RuleKind::Recording { labels: b }) => a == b,
            (RuleKind::Alerting(a), RuleKind::Alerting(b)) => a.labels == b.labels,
            _ => false,
        };
        self.name == other.name && has_same_labels
    }
}

impl RuleState {
    /// Adds the markers that end series which are not there any more.
    fn add_stale_markers(
        &mut self,
        mut samples: Vec<NewSample>,
        time_ms: TimeMs,
    ) -> Vec<NewSample> {
        self.series_being_written = samples.iter().map(|sample| sample.labels.clone()).collect();
        let ended_series = self.written_series.difference(&self.series_being_written);
        samples.extend(ended_series.map(|labels| stale_marker(labels.clone(), time_ms)));
        samples
    }

    fn status(&self, spec: &RuleSpec) -> RuleStatus {
        let (health, last_error) = (self.health, self.last_error.clone());
        let (name, query) = (spec.name.to_string(), spec.query.text().to_owned());
        let evaluation_time = self.duration.as_secs_f64();
        let last_evaluation = self.evaluated_at.map(to_timestamp);
        match &spec.kind {
            RuleKind::Recording { labels } => RuleStatus::Recording {
                name,
                query,
                labels: Labels::new(labels.iter().map(|(name, value)| (&**name, &**value))),
                health,
                last_error,
                evaluation_time,
                last_evaluation,
            },
            RuleKind::Alerting(alert) => {
                let template_sources = |texts: &[(Box<str>, super::TemplateText)]| {
                    Labels::new(texts.iter().map(|(name, text)| (&**name, &*text.source)))
                };
                let active_alerts =
                    self.alerts.iter().filter(|(_, it)| it.state != AlertState::Inactive);
                RuleStatus::Alerting {
                    state: self.alerts.state().as_str(),
                    name,
                    query,
                    duration: alert.hold_ms as f64 / 1e3,
                    keep_firing_for: alert.keep_firing_for_ms as f64 / 1e3,
                    labels: template_sources(&alert.labels),
                    annotations: template_sources(&alert.annotations),
                    alerts: Some(
                        active_alerts.map(|(labels, alert)| alert.status(labels)).collect(),
                    ),
                    health,
                    last_error,
                    evaluation_time,
                    last_evaluation,
                }
            }
        }
    }
}

impl Alert {
    fn status(&self, labels: &Labels) -> AlertStatus {
        AlertStatus {
            labels: labels.clone(),
            annotations: self.annotations.clone(),
            state: self.state.as_str(),
            active_at: to_timestamp(self.active_at),
            keep_firing_since: self.kept_firing_since.map(to_timestamp),
            value: format_exponential(self.value),
        }
    }
}

/// As few digits as tell a number from its neighbours, with an exponent of at least two digits:
/// `1.5e+00`.
fn format_exponential(value: f64) -> String {
    if !value.is_finite() {
        return format_number(value);
    }
    format_with_exponent(value)
}

#[cfg(test)]
mod tests;
