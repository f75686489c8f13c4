//! The alerts of one rule: pending, firing, resolved.

use std::collections::{BTreeMap, BTreeSet};

use egret_metrics_model::{Labels, LabelsBuilder, METRIC_NAME, MatchOp, Matcher, TimeMs, is_stale};

use super::NewSample;
use super::rule::{ALERT_NAME, AlertSpec, Candidate};

/// For how long a resolved alert is remembered and told again, in milliseconds, so that no receiver
/// misses it.
pub const RESOLVED_RETENTION_MS: i64 = 15 * 60_000;
/// After a restart, what was active longer ago than this is not remembered, in milliseconds.
pub const OUTAGE_TOLERANCE_MS: i64 = 60 * 60_000;
/// After a restart, an alert that was pending waits at least so long until it fires, in
/// milliseconds, so that a short outage of what is scraped does not fire it.
pub const FOR_GRACE_MS: i64 = 10 * 60_000;
/// No alert is active since before this: far enough from the smallest time that differences fit.
const ACTIVE_AT_MIN: TimeMs = TimeMs::MIN / 4;

/// The series that say which alerts are active.
const ALERTS_METRIC: &str = "ALERTS";
/// The label of these series that says whether the alert is pending or firing.
const ALERT_STATE: &str = "alertstate";
/// The series that say since when.
pub(super) const ALERTS_FOR_STATE_METRIC: &str = "ALERTS_FOR_STATE";

/// State of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertState {
    /// Its condition does not hold, or no more.
    Inactive,
    /// Its condition holds, for less long than the rule wants.
    Pending,
    /// Its condition has held for as long as the rule wants.
    Firing,
}

impl AlertState {
    /// As the HTTP API and the label `alertstate` have it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Pending => "pending",
            Self::Firing => "firing",
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Alert {
    pub annotations: Labels,
    pub value: f64,
    pub state: AlertState,
    pub active_at: TimeMs,
    pub fired_at: Option<TimeMs>,
    pub resolved_at: Option<TimeMs>,
    /// Since when its condition does not hold while it fires on.
    pub kept_firing_since: Option<TimeMs>,
    pub notified_at: Option<TimeMs>,
}

/// The alerts of a rule, by their labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Alerts {
    by_labels: BTreeMap<Labels, Alert>,
    /// Whether the state from before a restart has been read. Until then no samples are written
    /// and no receiver is notified.
    pub is_restored: bool,
}

impl Alerts {
    /// No alerts yet. `is_restored` is `true` if nothing is to be restored first.
    pub(crate) fn new(is_restored: bool) -> Self {
        Self { by_labels: BTreeMap::new(), is_restored }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Labels, &Alert)> {
        self.by_labels.iter()
    }

    pub(crate) fn get_mut(&mut self, labels: &Labels) -> Option<&mut Alert> {
        self.by_labels.get_mut(labels)
    }

    /// The state of the rule: that of the alert that is farthest.
    pub(crate) fn state(&self) -> AlertState {
        let states = self.by_labels.values().map(|alert| alert.state);
        states.max().unwrap_or(AlertState::Inactive)
    }

    /// Updates all alerts by those whose condition holds at a time: they become pending, fire, are
    /// resolved, or are removed.
    ///
    /// # Errors
    /// When more are active than the limit allows; then none is.
    pub(crate) fn update(
        &mut self,
        spec: &AlertSpec,
        candidates: Vec<Candidate>,
        eval_time: TimeMs,
        limit: u64,
    ) -> Result<(), String> {
        let mut holding_labels = BTreeSet::new();
        for candidate in candidates {
            holding_labels.insert(candidate.labels.clone());
            let existing = self.by_labels.get_mut(&candidate.labels);
            match existing.filter(|alert| alert.state != AlertState::Inactive) {
                Some(alert) => {
                    alert.value = candidate.value;
                    alert.annotations = candidate.annotations;
                }
                None => {
                    let alert = Alert {
                        annotations: candidate.annotations,
                        value: candidate.value,
                        state: AlertState::Pending,
                        active_at: eval_time,
                        fired_at: None,
                        resolved_at: None,
                        kept_firing_since: None,
                        notified_at: None,
                    };
                    self.by_labels.insert(candidate.labels, alert);
                }
            }
        }
        self.by_labels.retain(|labels, alert| {
            if holding_labels.contains(labels) {
                alert.kept_firing_since = None;
                true
            } else {
                alert.update_without_condition(spec, eval_time)
            }
        });
        let mut active_count = 0;
        for alert in self.by_labels.values_mut() {
            active_count += u64::from(alert.state != AlertState::Inactive);
            if alert.state == AlertState::Pending && eval_time - alert.active_at >= spec.hold_ms {
                alert.state = AlertState::Firing;
                alert.fired_at = Some(eval_time);
            }
        }
        if limit > 0 && active_count > limit {
            self.by_labels.clear();
            return Err(format!("exceeded limit of {limit} with {active_count} alerts"));
        }
        Ok(())
    }

    /// Ends all alerts, as their rule was removed: firing ones are resolved, pending ones dropped.
    pub(crate) fn end_all(&mut self, eval_time: TimeMs) {
        self.by_labels.retain(|_, alert| alert.state != AlertState::Pending);
        for alert in self.by_labels.values_mut() {
            alert.state = AlertState::Inactive;
            alert.resolved_at.get_or_insert(eval_time);
        }
    }

    /// The series of the alerts that are active.
    pub(crate) fn samples(&self, time_ms: TimeMs) -> Vec<NewSample> {
        if !self.is_restored {
            return Vec::new();
        }
        let active_alerts =
            self.by_labels.iter().filter(|(_, alert)| alert.state != AlertState::Inactive);
        let both = active_alerts.flat_map(|(labels, alert)| {
            let mut series = LabelsBuilder::from_labels(labels);
            series.set(METRIC_NAME, ALERTS_FOR_STATE_METRIC);
            let since_sample = NewSample {
                labels: series.build(),
                time_ms,
                value: alert.active_at.div_euclid(1_000) as f64,
            };
            series.set(METRIC_NAME, ALERTS_METRIC);
            series.set(ALERT_STATE, alert.state.as_str());
            let active_sample = NewSample { labels: series.build(), time_ms, value: 1.0 };
            [active_sample, since_sample]
        });
        both.collect()
    }

    /// Restores the alerts from what was written before a restart: the last sample of each series
    /// that says which alerts are active, or since when. Returns the series of the alerts that are
    /// active now. As in Prometheus; but an alert that fired fires on, however short the rule's
    /// `for`, also when its condition has ended meanwhile: its receivers are notified of the end.
    /// `is_owned` tells whether an alert that is not active is the rule's. The samples of an
    /// evaluation are `query_offset_ms` older than it.
    pub(crate) fn restore(
        &mut self,
        spec: &AlertSpec,
        samples: &[(Labels, TimeMs, f64)],
        query_offset_ms: i64,
        eval_time: TimeMs,
        is_owned: &dyn Fn(&Labels) -> bool,
    ) -> Vec<Labels> {
        self.is_restored = true;
        let valid = samples.iter().filter(|(_, _, value)| !is_stale(*value) && value.is_finite());
        let written: Vec<WrittenAlert<'_>> = valid
            .map(|(series, time_ms, value)| WrittenAlert {
                labels: alert_labels(series),
                series,
                down_at: time_ms + query_offset_ms,
                value: *value,
            })
            .collect();
        let firing: BTreeSet<&Labels> =
            written.iter().filter(|alert| alert.is_firing()).map(|alert| &alert.labels).collect();
        for alert in written.iter().filter(|alert| alert.says_since()) {
            let has_fired = firing.contains(&alert.labels) && is_owned(&alert.labels);
            self.restore_alert(spec, alert, has_fired, eval_time);
        }
        let active = written.iter().filter(|alert| self.by_labels.contains_key(&alert.labels));
        active.map(|alert| alert.series.clone()).collect()
    }

    fn restore_alert(
        &mut self,
        spec: &AlertSpec,
        written: &WrittenAlert<'_>,
        has_fired: bool,
        at: TimeMs,
    ) {
        let active_at = (written.value as i64).saturating_mul(1_000);
        // No evaluation writes a time after its own: another client has written this one, or the
        // clock was set back. The alert would be held back.
        if !(ACTIVE_AT_MIN..=written.down_at).contains(&active_at) {
            return;
        }
        if has_fired {
            let fired_at = active_at.saturating_add(spec.hold_ms).min(written.down_at);
            let alert = self.by_labels.entry(written.labels.clone());
            let alert = alert.or_insert_with(|| Alert::without_condition(active_at));
            alert.state = AlertState::Firing;
            alert.active_at = active_at;
            alert.fired_at = Some(fired_at);
            alert.resolved_at = None;
            return;
        }
        let Some(alert) = self.by_labels.get_mut(&written.labels) else {
            return;
        };
        let down_at = written.down_at.div_euclid(1_000) * 1_000;
        let remaining = spec.hold_ms - (down_at - active_at);
        if remaining <= 0 {
            alert.active_at = active_at;
        } else if spec.hold_ms < FOR_GRACE_MS {
            // It waits its `for` again, which is shorter than the grace would be.
        } else if remaining < FOR_GRACE_MS {
            alert.active_at = at + FOR_GRACE_MS - spec.hold_ms;
        } else {
            alert.active_at = active_at + (at - down_at);
        }
    }

    /// Matchers of the series to read for [`Alerts::restore`].
    pub(crate) fn restore_matchers(name: &str) -> [Matcher; 2] {
        let matcher =
            |label: &str, op, value: &str| Matcher { name: label.into(), op, value: value.into() };
        let series = format!("{ALERTS_METRIC}|{ALERTS_FOR_STATE_METRIC}");
        [matcher(METRIC_NAME, MatchOp::Matches, &series), matcher(ALERT_NAME, MatchOp::Equal, name)]
    }
}

/// A series of an alert from before a restart, with its last sample.
struct WrittenAlert<'a> {
    labels: Labels,
    series: &'a Labels,
    /// Time of the last evaluation that wrote it.
    down_at: TimeMs,
    value: f64,
}

impl WrittenAlert<'_> {
    fn is_firing(&self) -> bool {
        self.series.metric() == ALERTS_METRIC
            && self.series.get(ALERT_STATE) == AlertState::Firing.as_str()
    }

    fn says_since(&self) -> bool {
        self.series.metric() == ALERTS_FOR_STATE_METRIC
    }
}

/// The labels of the alert that a series was written for.
fn alert_labels(series: &Labels) -> Labels {
    let mut labels = LabelsBuilder::from_labels(series);
    labels.remove(METRIC_NAME);
    if series.metric() == ALERTS_METRIC {
        labels.remove(ALERT_STATE);
    }
    labels.build()
}

impl Alert {
    /// An alert that fired before a restart and whose condition has not held since. Its value and
    /// annotations are not known.
    fn without_condition(active_at: TimeMs) -> Self {
        Self {
            annotations: Labels::default(),
            value: f64::NAN,
            state: AlertState::Firing,
            active_at,
            fired_at: None,
            resolved_at: None,
            kept_firing_since: None,
            notified_at: None,
        }
    }

    /// Updates an alert whose condition does not hold. Returns whether it is still kept.
    fn update_without_condition(&mut self, spec: &AlertSpec, eval_time: TimeMs) -> bool {
        match self.state {
            AlertState::Pending => false,
            AlertState::Inactive => self
                .resolved_at
                .is_some_and(|resolved| eval_time - resolved <= RESOLVED_RETENTION_MS),
            AlertState::Firing => {
                let since = *self.kept_firing_since.get_or_insert(eval_time);
                if eval_time - since >= spec.keep_firing_for_ms {
                    self.state = AlertState::Inactive;
                    self.resolved_at = Some(eval_time);
                }
                true
            }
        }
    }

    /// Whether receivers are to be notified, for the first time or again.
    pub(crate) fn is_due(&self, eval_time: TimeMs, resend_ms: i64) -> bool {
        if self.state == AlertState::Pending {
            return false;
        }
        match (self.notified_at, self.resolved_at) {
            (None, _) => true,
            (Some(told), Some(resolved)) if resolved > told => true,
            (Some(told), _) => told + resend_ms < eval_time,
        }
    }
}
