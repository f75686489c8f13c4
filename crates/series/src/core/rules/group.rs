//! A group of rules over time: what its rules have written, which alerts are active, how it went
//! the last time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use egret_base::Timestamp;
use egret_go_template::table_link;
use egret_metrics_model::number::format_number;
use egret_metrics_model::{Labels, LabelsBuilder, Matcher, STALE_NAN_BITS, TimeMs, TimeSpan};

use super::NewSample;
use super::alert::OUTAGE_TOLERANCE_MS;
use super::alert::{Alert, AlertState, Alerts};
use super::notice::{AlertNotification, Fingerprint};
use super::rule::{GroupSpec, RuleKind, RuleResult, RuleSpec};
use super::status::{AlertStatus, GroupStatus, Health, RuleStatus};
use crate::core::schedule::Schedule;

/// State of a group at its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupStart {
    /// Egret was started: what its alerts were before is in the series they wrote.
    AfterStart,
    /// It came with a reload: there was nothing before.
    Anew,
}

/// A group of rules.
#[derive(Debug)]
pub struct RuleGroup {
    spec: GroupSpec,
    schedule: Schedule,
    rules: Vec<RuleState>,
    /// Series of removed rules, which need staleness markers.
    leftover: BTreeSet<Labels>,
    passes: u64,
    missed: u64,
    evaluated_at: Option<TimeMs>,
    took: Duration,
}

#[derive(Debug, Default)]
struct RuleState {
    alerts: Alerts,
    /// Series written by the last evaluation.
    written: BTreeSet<Labels>,
    /// Series that the present evaluation writes.
    writing: BTreeSet<Labels>,
    health: Health,
    last_error: String,
    evaluated_at: Option<TimeMs>,
    took: Duration,
}

/// Consequences of an evaluation: samples to write and notices to send.
#[derive(Debug, Default, PartialEq)]
pub struct GroupEvaluation {
    /// To be appended; then [`RuleGroup::appended`] is told how it went.
    pub samples: Vec<NewSample>,
    /// To be told; what was, goes to [`RuleGroup::told`]. What was not is due again the next time.
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

fn marker(labels: Labels, time_ms: TimeMs) -> NewSample {
    NewSample {
        labels,
        time_ms,
        value: f64::from_bits(STALE_NAN_BITS),
    }
}

impl RuleGroup {
    /// Begins with a group that was read.
    pub(crate) fn new(spec: GroupSpec, default_interval_ms: i64, begin: GroupStart) -> Self {
        let interval_ms = spec.interval_ms.unwrap_or(default_interval_ms).max(1);
        let key = format!("{};{}", spec.file, spec.name);
        let rules = spec.rules.iter().map(|_| RuleState {
            alerts: Alerts::new(begin == GroupStart::Anew),
            ..RuleState::default()
        });
        Self {
            schedule: Schedule::new(&key, interval_ms),
            rules: rules.collect(),
            leftover: BTreeSet::new(),
            passes: 0,
            missed: 0,
            evaluated_at: None,
            took: Duration::ZERO,
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
    pub(crate) fn settle(
        &mut self,
        rule: usize,
        at: TimeMs,
        found: Result<RuleResult, String>,
        took: Duration,
        telling: NotifyOptions<'_>,
    ) -> GroupEvaluation {
        let time_ms = at - self.spec.query_offset_ms;
        let limit = self.spec.limit;
        let (spec, running) = (&self.spec.rules[rule], &mut self.rules[rule]);
        running.evaluated_at = Some(at);
        running.took = took;
        let mut settled = GroupEvaluation::default();
        let fresh = match (found, &spec.kind) {
            (Err(problem), _) => Err(problem),
            (Ok(RuleResult::Series(series)), _) => Ok(series
                .into_iter()
                .map(|(labels, value)| NewSample {
                    labels,
                    time_ms,
                    value,
                })
                .collect()),
            (
                Ok(RuleResult::Alerts {
                    candidates,
                    problems,
                }),
                RuleKind::Alerting(alert),
            ) => {
                settled.problems = problems;
                running
                    .alerts
                    .step(alert, candidates, at, limit)
                    .map(|()| running.alerts.samples(time_ms))
            }
            (Ok(RuleResult::Alerts { .. }), RuleKind::Recording { .. }) => {
                unreachable!("a recording rule yields series")
            }
        };
        match fresh {
            Ok(samples) => {
                running.health = Health::Ok;
                running.last_error.clear();
                settled.samples = running.with_markers(samples, time_ms);
                settled.notices = self.due(rule, at, telling);
            }
            Err(problem) => {
                running.health = Health::Err;
                running.last_error.clone_from(&problem);
                settled.problems.push(problem);
            }
        }
        settled
    }

    /// Records whether the samples of a rule were appended.
    pub(crate) fn appended(&mut self, rule: usize, outcome: Result<(), String>) {
        let running = &mut self.rules[rule];
        match outcome {
            Ok(()) => running.written = std::mem::take(&mut running.writing),
            Err(problem) => {
                running.health = Health::Err;
                running.last_error = problem;
            }
        }
    }

    /// Notes when alerts of a rule were last told to receivers.
    pub(crate) fn told(&mut self, rule: usize, notices: &[AlertNotification]) {
        for notice in notices {
            if let Some(alert) = self.rules[rule].alerts.get_mut(&notice.own_labels) {
                alert.told_at = Some(notice.at);
            }
        }
    }

    /// All rules have been evaluated. The markers that end series of rules which are no more.
    pub(crate) fn finish(&mut self, at: TimeMs, took: Duration, missed: u64) -> Vec<NewSample> {
        self.passes += 1;
        self.missed += missed;
        self.evaluated_at = Some(at);
        self.took = took;
        let time_ms = at - self.spec.query_offset_ms;
        let leftover = std::mem::take(&mut self.leftover);
        leftover
            .into_iter()
            .map(|labels| marker(labels, time_ms))
            .collect()
    }

    /// The rules whose alerts are to be restored now, each with the series to read and the time to
    /// read them from.
    ///
    /// That is after the second evaluation: at the first, what is scraped or recorded may not be
    /// there yet.
    pub(crate) fn to_restore(&self, at: TimeMs) -> Vec<(usize, Vec<Matcher>, TimeSpan)> {
        if self.passes < 2 {
            return Vec::new();
        }
        let rules = self.rules.iter().zip(&self.spec.rules).enumerate();
        let waiting = rules.filter(|(_, (running, spec))| {
            matches!(spec.kind, RuleKind::Alerting(_)) && !running.alerts.is_restored
        });
        let wanted = waiting.map(|(index, (_, spec))| {
            let matchers = Alerts::written_as(&spec.name);
            let range = TimeSpan {
                start: at - OUTAGE_TOLERANCE_MS,
                end: at,
            };
            (index, matchers.to_vec(), range)
        });
        wanted.collect()
    }

    /// Takes the last samples of the series that [`RuleGroup::to_restore`] asked for. Where they
    /// could not be read, there are none: nothing would be better later. `others` are the rules of
    /// other groups: an alert that is not active is this rule's if its labels are like those of no
    /// other rule of the name.
    pub(crate) fn restore(
        &mut self,
        rule: usize,
        written: &[(Labels, TimeMs, f64)],
        others: &[RuleSpec],
        at: TimeMs,
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
        let active = running
            .alerts
            .restore(spec, written, offset_ms, at, &is_owned);
        running.written.extend(active);
    }

    /// Takes over the state of the group that this one replaces. Returns the notices of alerts
    /// whose rules were removed.
    pub(crate) fn adopt(
        &mut self,
        mut old: RuleGroup,
        at: TimeMs,
        telling: NotifyOptions<'_>,
    ) -> Vec<AlertNotification> {
        self.evaluated_at = old.evaluated_at;
        self.passes = old.passes;
        self.missed = old.missed;
        self.leftover.append(&mut old.leftover);
        let mut before: Vec<usize> = (0..old.rules.len()).collect();
        for (spec, running) in self.spec.rules.iter().zip(&mut self.rules) {
            let same = |rule: &usize| spec.has_identity_of(&old.spec.rules[*rule]);
            if let Some(place) = before.iter().position(same) {
                *running = std::mem::take(&mut old.rules[before.remove(place)]);
            }
        }
        let mut notices = Vec::new();
        for rule in before {
            notices.extend(old.end(rule, at, telling));
            self.leftover.append(&mut old.rules[rule].written);
        }
        notices
    }

    /// Ends the group, as it was removed: notices of its ended alerts, and staleness markers for
    /// all its series.
    pub(crate) fn retire(mut self, at: TimeMs, telling: NotifyOptions<'_>) -> GroupEvaluation {
        let rules = 0..self.rules.len();
        let notices = rules.flat_map(|rule| self.end(rule, at, telling)).collect();
        let time_ms = at - self.spec.query_offset_ms;
        let written = self.rules.into_iter().flat_map(|running| running.written);
        let all = written.chain(self.leftover);
        GroupEvaluation {
            samples: all.map(|labels| marker(labels, time_ms)).collect(),
            notices,
            problems: Vec::new(),
        }
    }

    /// Ends the alerts of a rule that is no more.
    fn end(
        &mut self,
        rule: usize,
        at: TimeMs,
        telling: NotifyOptions<'_>,
    ) -> Vec<AlertNotification> {
        self.rules[rule].alerts.end(at);
        self.due(rule, at, telling)
    }

    fn due(&self, rule: usize, at: TimeMs, telling: NotifyOptions<'_>) -> Vec<AlertNotification> {
        let running = &self.rules[rule];
        if !running.alerts.is_restored {
            return Vec::new();
        }
        let link = table_link(self.spec.rules[rule].query.text());
        let url: Arc<str> = format!("{}{link}", telling.external_url).into();
        // Two evaluations or attempts may fail before a receiver takes it for resolved.
        let valid_ms = 4 * telling.resend_ms.max(self.schedule.interval_ms());
        let due = running
            .alerts
            .iter()
            .filter(|(_, alert)| alert.is_due(at, telling.resend_ms));
        let notices = due.map(|(own, alert)| {
            let mut labels = LabelsBuilder::from_labels(own);
            for (name, value) in telling.external_labels.iter() {
                if labels.get(name).is_empty() {
                    labels.set(name, value);
                }
            }
            let labels = labels.build();
            AlertNotification {
                fingerprint: Fingerprint::of(&labels),
                own_labels: own.clone(),
                labels,
                annotations: alert.annotations.clone(),
                active_at: alert.active_at,
                starts_at: alert.fired_at.unwrap_or(alert.active_at),
                ends_at: alert.resolved_at.unwrap_or(at + valid_ms),
                is_resolved: alert.state == AlertState::Inactive,
                at,
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
            evaluation_time: self.took.as_secs_f64(),
            last_evaluation: self.evaluated_at.map(moment),
            missed_evaluations: self.missed,
        }
    }
}

fn moment(time: TimeMs) -> Timestamp {
    Timestamp::from_micros(time.saturating_mul(1_000))
}

impl RuleSpec {
    /// Whether it is the other one, changed or not: of the same kind, name and labels.
    fn has_identity_of(&self, other: &Self) -> bool {
        let same_labels = match (&self.kind, &other.kind) {
            (RuleKind::Recording { labels: a }, RuleKind::Recording { labels: b }) => a == b,
            (RuleKind::Alerting(a), RuleKind::Alerting(b)) => a.labels == b.labels,
            _ => false,
        };
        self.name == other.name && same_labels
    }
}

impl RuleState {
    /// Adds the markers that end series which are not there any more.
    fn with_markers(&mut self, mut samples: Vec<NewSample>, time_ms: TimeMs) -> Vec<NewSample> {
        self.writing = samples.iter().map(|sample| sample.labels.clone()).collect();
        let gone = self.written.difference(&self.writing);
        samples.extend(gone.map(|labels| marker(labels.clone(), time_ms)));
        samples
    }

    fn status(&self, spec: &RuleSpec) -> RuleStatus {
        let (health, last_error) = (self.health, self.last_error.clone());
        let (name, query) = (spec.name.to_string(), spec.query.text().to_owned());
        let evaluation_time = self.took.as_secs_f64();
        let last_evaluation = self.evaluated_at.map(moment);
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
                let written = |texts: &[(Box<str>, super::TemplateText)]| {
                    Labels::new(texts.iter().map(|(name, text)| (&**name, &*text.source)))
                };
                let active = self
                    .alerts
                    .iter()
                    .filter(|(_, it)| it.state != AlertState::Inactive);
                RuleStatus::Alerting {
                    state: self.alerts.state().as_str(),
                    name,
                    query,
                    duration: alert.hold_ms as f64 / 1e3,
                    keep_firing_for: alert.keep_firing_for_ms as f64 / 1e3,
                    labels: written(&alert.labels),
                    annotations: written(&alert.annotations),
                    alerts: Some(active.map(|(labels, alert)| alert.status(labels)).collect()),
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
            active_at: moment(self.active_at),
            keep_firing_since: self.kept_since.map(moment),
            value: exponential(self.value),
        }
    }
}

/// As few digits as tell a number from its neighbours, with an exponent of at least two digits:
/// `1.5e+00`.
fn exponential(value: f64) -> String {
    if !value.is_finite() {
        return format_number(value);
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').expect("`e` is what `:e` writes");
    let exponent: i32 = exponent.parse().expect("an exponent is a whole number");
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests;
