//! Environment of a group in its tests: a clock, series in memory, receivers of alerts.

use std::collections::BTreeMap;

use egret_promql::{MemorySource, Query, QueryResult, SampleValue};

use super::super::super::{EvalEnvironment, Evaluate, NotificationLog, parse};
use super::*;

/// A group, the series that it reads and writes, and what its receivers have been told.
pub(super) struct GroupFixture {
    pub source: MemorySource,
    pub group: RuleGroup,
    pub text: String,
    pub now: TimeMs,
    /// What was told, by key.
    pub notified_keys: BTreeMap<String, u32>,
    pub notification_log: NotificationLog,
    /// What happens in the next pass.
    pub failures: InjectedFailures,
}

#[derive(Clone, Copy, Default)]
pub(super) struct InjectedFailures {
    pub append: bool,
    pub notify: bool,
}

pub(super) fn parse_group(text: &str) -> GroupSpec {
    let mut groups = parse("f.yml", text).unwrap_or_else(|errors| panic!("{errors:?}"));
    groups.remove(0)
}

pub(super) fn external_labels() -> Labels {
    Labels::new([("cluster", "eu")])
}

pub(super) fn notify_options(external_labels: &Labels) -> NotifyOptions<'_> {
    NotifyOptions { external_labels, external_url: "http://egret", resend_ms: MINUTE }
}

impl GroupFixture {
    pub fn new(text: &str) -> Self {
        Self {
            source: MemorySource::default(),
            group: RuleGroup::new(parse_group(text), MINUTE, GroupStart::Fresh),
            text: text.to_owned(),
            now: 0,
            notified_keys: BTreeMap::new(),
            notification_log: NotificationLog::new(None),
            failures: InjectedFailures::default(),
        }
    }

    pub fn set(&mut self, series: &[(&str, &str)], value: f64) {
        self.source.add(&Labels::new(series.iter().copied()), self.now, value);
    }

    /// Everything in memory is lost.
    pub fn restart(&mut self) {
        self.group = RuleGroup::new(parse_group(&self.text), MINUTE, GroupStart::Restore);
        self.notification_log = NotificationLog::new(None);
    }

    pub fn evaluate(&mut self) -> Vec<AlertNotification> {
        let (labels, url) = (external_labels(), "http://egret".into());
        let telling = notify_options(&labels);
        let mut all = Vec::new();
        for rule in 0..self.group.spec().rules.len() {
            let spec = self.group.spec();
            let environment = EvalEnvironment {
                evaluate: &self.source,
                external_labels: &labels,
                external_url: &url,
            };
            let result =
                spec.rules[rule].evaluate(self.now, spec.query_offset_ms, spec.limit, environment);
            let evaluation =
                self.group.apply_result(rule, self.now, result, Duration::from_millis(5), telling);
            if self.failures.append {
                self.group.record_appended(rule, Err("disk full".to_owned()))
            } else {
                self.write(&evaluation.samples);
                self.group.record_appended(rule, Ok(()));
            }
            if !self.failures.notify {
                for notice in &evaluation.notices {
                    if let Some(notification_key) = self.notification_log.due_key(notice) {
                        *self.notified_keys.entry(notification_key.key.clone()).or_default() += 1;
                        self.notification_log.record_delivered(notice, notification_key);
                    }
                }
                self.group.record_notified(rule, &evaluation.notices);
            }
            all.extend(evaluation.notices);
        }
        let stale_markers = self.group.finish_evaluation(self.now, Duration::from_millis(5), 0);
        self.write(&stale_markers);
        for (rule, matchers, range) in self.group.restore_queries(self.now) {
            let samples = self.source.last_samples(matchers, range).expect("memory is read");
            self.group.restore_alerts(rule, &samples, &[], self.now);
        }
        all
    }

    pub fn write(&mut self, samples: &[NewSample]) {
        for sample in samples {
            self.source.add(&sample.labels, sample.time_ms, sample.value);
        }
    }

    pub fn query(&self, text: &str) -> Vec<(String, f64)> {
        let query = Query::parse(text).expect("PromQL");
        let answer = Evaluate::instant(&self.source, &query, self.now).expect("an answer");
        let QueryResult::Vector(samples) = answer.result else {
            panic!("a vector is expected");
        };
        let shown = samples.into_iter().map(|sample| match sample.value {
            SampleValue::Float(value) => (sample.labels.to_string(), value),
            _ => panic!("a number is expected"),
        });
        shown.collect()
    }

    /// What can be seen after a pass: states, series, notices.
    pub fn show(&mut self) -> String {
        let notices = self.evaluate();
        let status = self.group.status();
        let states = status.rules.iter().map(|rule| match rule {
            RuleStatus::Alerting { state, alerts, .. } => {
                format!("{state}({})", alerts.as_ref().expect("they are wanted").len())
            }
            RuleStatus::Recording { health, .. } => format!("{health:?}"),
        });
        let mut out = format!("{}m {}", self.now / MINUTE, states.collect::<Vec<_>>().join(" "));
        for (labels, value) in self.query("{__name__=~\"ALERTS.*|job:.*\"}") {
            out += &format!(" | {labels} {value}");
        }
        for notice in &notices {
            let status = if notice.is_resolved { "resolved" } else { "firing" };
            out += &format!(
                " ! {status} {} {}..{}",
                notice.labels.get("i"),
                notice.starts_at / MINUTE,
                notice.ends_at / MINUTE
            );
        }
        out + "\n"
    }
}
