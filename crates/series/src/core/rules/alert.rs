//! The alerts of one rule: pending, firing, resolved.

use std::collections::{BTreeMap, BTreeSet};

use egret_metrics_model::{Labels, LabelsBuilder, METRIC_NAME, MatchOp, Matcher, TimeMs, is_stale};

use super::NewSample;
use super::rule::{ALERT_NAME, AlertSpec, Candidate};

/// For how long a resolved alert is remembered and told again, in milliseconds, so that no receiver
/// misses it.
pub const RESOLVED_KEPT_MS: i64 = 15 * 60_000;
/// After a restart, what was active longer ago than this is not remembered, in milliseconds.
pub const OUTAGE_TOLERANCE_MS: i64 = 60 * 60_000;
/// After a restart, an alert that was pending waits at least so long until it fires, in
/// milliseconds, so that a short outage of what is scraped does not fire it.
pub const FOR_GRACE_MS: i64 = 10 * 60_000;
/// No alert is active since before this: far enough from the smallest time that differences fit.
const ACTIVE_AT_MIN: TimeMs = TimeMs::MIN / 4;

/// The series that say which alerts are active.
const ACTIVE: &str = "ALERTS";
/// The label of these series that says whether the alert is pending or firing.
const ALERT_STATE: &str = "alertstate";
/// The series that say since when.
pub(super) const ACTIVE_SINCE: &str = "ALERTS_FOR_STATE";

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
    pub kept_since: Option<TimeMs>,
    pub told_at: Option<TimeMs>,
}

/// The alerts of a rule, by their labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Alerts {
    active: BTreeMap<Labels, Alert>,
    /// Whether the state from before a restart has been read. Until then no samples are written
    /// and no receiver is notified.
    pub is_restored: bool,
}

impl Alerts {
    /// No alerts yet. `is_restored` is `true` if nothing is to be restored first.
    pub(crate) fn new(is_restored: bool) -> Self {
        Self {
            active: BTreeMap::new(),
            is_restored,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Labels, &Alert)> {
        self.active.iter()
    }

    pub(crate) fn get_mut(&mut self, labels: &Labels) -> Option<&mut Alert> {
        self.active.get_mut(labels)
    }

    /// The state of the rule: that of the alert that is farthest.
    pub(crate) fn state(&self) -> AlertState {
        let states = self.active.values().map(|alert| alert.state);
        states.max().unwrap_or(AlertState::Inactive)
    }

    /// Updates all alerts by those whose condition holds at a time: they become pending, fire, are
    /// resolved, or are removed.
    ///
    /// # Errors
    /// When more are active than the limit allows; then none is.
    pub(crate) fn step(
        &mut self,
        spec: &AlertSpec,
        candidates: Vec<Candidate>,
        at: TimeMs,
        limit: u64,
    ) -> Result<(), String> {
        let mut holding = BTreeSet::new();
        for candidate in candidates {
            holding.insert(candidate.labels.clone());
            let known = self.active.get_mut(&candidate.labels);
            match known.filter(|alert| alert.state != AlertState::Inactive) {
                Some(alert) => {
                    alert.value = candidate.value;
                    alert.annotations = candidate.annotations;
                }
                None => {
                    let alert = Alert {
                        annotations: candidate.annotations,
                        value: candidate.value,
                        state: AlertState::Pending,
                        active_at: at,
                        fired_at: None,
                        resolved_at: None,
                        kept_since: None,
                        told_at: None,
                    };
                    self.active.insert(candidate.labels, alert);
                }
            }
        }
        self.active.retain(|labels, alert| {
            if holding.contains(labels) {
                alert.kept_since = None;
                true
            } else {
                alert.ends(spec, at)
            }
        });
        let mut active = 0;
        for alert in self.active.values_mut() {
            active += u64::from(alert.state != AlertState::Inactive);
            if alert.state == AlertState::Pending && at - alert.active_at >= spec.hold_ms {
                alert.state = AlertState::Firing;
                alert.fired_at = Some(at);
            }
        }
        if limit > 0 && active > limit {
            self.active.clear();
            return Err(format!("exceeded limit of {limit} with {active} alerts"));
        }
        Ok(())
    }

    /// Ends all alerts, as their rule was removed: firing ones are resolved, pending ones dropped.
    pub(crate) fn end(&mut self, at: TimeMs) {
        self.active
            .retain(|_, alert| alert.state != AlertState::Pending);
        for alert in self.active.values_mut() {
            alert.state = AlertState::Inactive;
            alert.resolved_at.get_or_insert(at);
        }
    }

    /// The series of the alerts that are active.
    pub(crate) fn samples(&self, time_ms: TimeMs) -> Vec<NewSample> {
        if !self.is_restored {
            return Vec::new();
        }
        let active = self
            .active
            .iter()
            .filter(|(_, alert)| alert.state != AlertState::Inactive);
        let both = active.flat_map(|(labels, alert)| {
            let mut series = LabelsBuilder::from_labels(labels);
            series.set(METRIC_NAME, ACTIVE_SINCE);
            let since = NewSample {
                labels: series.build(),
                time_ms,
                value: alert.active_at.div_euclid(1_000) as f64,
            };
            series.set(METRIC_NAME, ACTIVE);
            series.set(ALERT_STATE, alert.state.as_str());
            let active = NewSample {
                labels: series.build(),
                time_ms,
                value: 1.0,
            };
            [active, since]
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
        written: &[(Labels, TimeMs, f64)],
        query_offset_ms: i64,
        at: TimeMs,
        is_owned: &dyn Fn(&Labels) -> bool,
    ) -> Vec<Labels> {
        self.is_restored = true;
        let valid = written
            .iter()
            .filter(|(_, _, value)| !is_stale(*value) && value.is_finite());
        let written: Vec<WrittenAlert<'_>> = valid
            .map(|(series, time_ms, value)| WrittenAlert {
                labels: alert_labels(series),
                series,
                down_at: time_ms + query_offset_ms,
                value: *value,
            })
            .collect();
        let firing: BTreeSet<&Labels> = written
            .iter()
            .filter(|alert| alert.is_firing())
            .map(|alert| &alert.labels)
            .collect();
        for alert in written.iter().filter(|alert| alert.says_since()) {
            let has_fired = firing.contains(&alert.labels) && is_owned(&alert.labels);
            self.restore_alert(spec, alert, has_fired, at);
        }
        let active = written
            .iter()
            .filter(|alert| self.active.contains_key(&alert.labels));
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
            let alert = self.active.entry(written.labels.clone());
            let alert = alert.or_insert_with(|| Alert::without_condition(active_at));
            alert.state = AlertState::Firing;
            alert.active_at = active_at;
            alert.fired_at = Some(fired_at);
            alert.resolved_at = None;
            return;
        }
        let Some(alert) = self.active.get_mut(&written.labels) else {
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
    pub(crate) fn written_as(name: &str) -> [Matcher; 2] {
        let matcher = |label: &str, op, value: &str| Matcher {
            name: label.into(),
            op,
            value: value.into(),
        };
        let series = format!("{ACTIVE}|{ACTIVE_SINCE}");
        [
            matcher(METRIC_NAME, MatchOp::Matches, &series),
            matcher(ALERT_NAME, MatchOp::Equal, name),
        ]
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
        self.series.metric() == ACTIVE
            && self.series.get(ALERT_STATE) == AlertState::Firing.as_str()
    }

    fn says_since(&self) -> bool {
        self.series.metric() == ACTIVE_SINCE
    }
}

/// The labels of the alert that a series was written for.
fn alert_labels(series: &Labels) -> Labels {
    let mut labels = LabelsBuilder::from_labels(series);
    labels.remove(METRIC_NAME);
    if series.metric() == ACTIVE {
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
            kept_since: None,
            told_at: None,
        }
    }

    /// Updates an alert whose condition does not hold. Returns whether it is still kept.
    fn ends(&mut self, spec: &AlertSpec, at: TimeMs) -> bool {
        match self.state {
            AlertState::Pending => false,
            AlertState::Inactive => self
                .resolved_at
                .is_some_and(|resolved| at - resolved <= RESOLVED_KEPT_MS),
            AlertState::Firing => {
                let since = *self.kept_since.get_or_insert(at);
                if at - since >= spec.keep_firing_for_ms {
                    self.state = AlertState::Inactive;
                    self.resolved_at = Some(at);
                }
                true
            }
        }
    }

    /// Whether receivers are to be notified, for the first time or again.
    pub(crate) fn is_due(&self, at: TimeMs, resend_ms: i64) -> bool {
        if self.state == AlertState::Pending {
            return false;
        }
        match (self.told_at, self.resolved_at) {
            (None, _) => true,
            (Some(told), Some(resolved)) if resolved > told => true,
            (Some(told), _) => told + resend_ms < at,
        }
    }
}
