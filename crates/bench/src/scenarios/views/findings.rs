//! Results of a measurement of views, and the metrics computed from them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio_postgres::Client;

use super::schema::ScenarioSchema;
use crate::record::{Recorder, Recording, millis, scalar};
use crate::result::{Better, Cycle, Metric};
use crate::scenario::Measurement;
use crate::window::WindowObservation;

/// Outcomes of the refreshes of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    full: u64,
    total: u64,
}

pub(super) struct Findings {
    /// From where offsets count.
    origin: Instant,
    recorder: Recorder,
    cycles: Vec<Cycle>,
    metrics: BTreeMap<String, Metric>,
    outcomes: BTreeMap<String, Outcomes>,
    ratios: Vec<Ratio>,
    worst_ratios: Vec<&'static str>,
    faster_counts: Vec<RatioCount>,
    wrong_rows: u64,
    compared_count: u64,
    warnings: Vec<String>,
}

/// A metric that is the median of one latency by that of another.
struct Ratio {
    name: String,
    numerator: String,
    denominator: String,
    better: Better,
}

/// A metric that says how many of those ratios are over 1 whose names end alike.
struct RatioCount {
    name: &'static str,
    ending: &'static str,
    total: u64,
}

impl Findings {
    pub(super) fn new(origin: Instant) -> Self {
        Self {
            origin,
            recorder: Recorder::default(),
            cycles: Vec::new(),
            metrics: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            ratios: Vec::new(),
            worst_ratios: Vec::new(),
            faster_counts: Vec::new(),
            wrong_rows: 0,
            compared_count: 0,
            warnings: Vec::new(),
        }
    }

    /// How long ago they began.
    pub(super) fn offset(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.origin)
    }

    /// An operation took some time.
    pub(super) fn record(&mut self, operation: &str, begun: Instant, took: Duration) {
        let started = self.offset(begun);
        self.recorder.record_success(operation, started, started, started + took);
    }

    pub(super) fn record_failure(&mut self, cause: &str, at: Duration) {
        self.recorder.record_failure(cause, at, at, at);
    }

    /// A cycle by itself, by its number; of those that do not count the group is 0.
    pub(super) fn add_cycle(
        &mut self,
        number: u32,
        group: u64,
        begun: Instant,
        latencies_ms: BTreeMap<String, f64>,
    ) {
        let at_ms = millis(self.offset(begun));
        self.cycles.push(Cycle { index: number.into(), group, at_ms, latencies_ms, error: None });
    }

    /// A refresh said what it did.
    pub(super) fn record_outcome(&mut self, operation: &str, outcome: &str) {
        let outcomes = self.outcomes.entry(operation.to_owned()).or_default();
        outcomes.full += u64::from(outcome == "full");
        outcomes.total += 1;
    }

    /// A metric of its own.
    pub(super) fn add_metric(&mut self, name: &str, metric: Metric) {
        self.metrics.insert(name.to_owned(), metric);
    }

    /// A metric that is the median latency of one operation by that of another.
    pub(super) fn add_ratio(
        &mut self,
        name: String,
        numerator: String,
        denominator: String,
        better: Better,
    ) {
        self.ratios.push(Ratio { name, numerator, denominator, better });
    }

    /// A metric that is the largest of those ratios whose names go on behind its own.
    pub(super) fn add_worst_ratio(&mut self, name: &'static str) {
        self.worst_ratios.push(name);
    }

    /// A metric that is how many of those ratios are over 1 whose names have this ending, of so
    /// many.
    pub(super) fn add_faster_count(
        &mut self,
        name: &'static str,
        ending: &'static str,
        total: u64,
    ) {
        self.faster_counts.push(RatioCount { name, ending, total });
    }

    /// Adds a warning for the reader.
    pub(super) fn add_warning(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Compares a view with its query, and says how many rows it has too few or too many.
    pub(super) async fn compare_view(
        &mut self,
        schema: &ScenarioSchema,
        client: &Client,
        view: &str,
        query: &str,
    ) -> Result<u64> {
        let differing_rows = schema.count_differing_rows(client, view, query).await?;
        self.wrong_rows += differing_rows;
        self.compared_count += 1;
        if differing_rows > 0 {
            self.warnings.push(format!("{view} has {differing_rows} rows too few or too many"));
        }
        Ok(differing_rows)
    }

    pub(super) fn into_measurement(self, observation: WindowObservation) -> Measurement {
        let recording = Recording::merge([self.recorder]);
        let latencies = recording.metrics();
        let mut metrics = self.metrics;
        for ratio in &self.ratios {
            let (Some(numerator), Some(denominator)) =
                (latencies.get(&ratio.numerator), latencies.get(&ratio.denominator))
            else {
                continue;
            };
            let value = typical_latency(numerator) / typical_latency(denominator).max(1e-9);
            let samples = numerator.samples.min(denominator.samples);
            metrics.insert(ratio.name.clone(), scalar("ratio", ratio.better, value, samples));
        }
        for name in self.worst_ratios {
            let ratios = metrics.iter().filter(|(other, _)| other.starts_with(&format!("{name}.")));
            let worst = ratios.max_by(|(_, a), (_, b)| a.value.total_cmp(&b.value));
            if let Some((_, worst)) = worst {
                metrics.insert(name.to_owned(), worst.clone());
            }
        }
        for ratio_count in &self.faster_counts {
            metrics.insert(ratio_count.name.to_owned(), ratio_count.count_metric(&metrics));
        }
        let mut warnings = self.warnings;
        for (operation, Outcomes { full, total }) in self.outcomes {
            if operation.ends_with(".auto") {
                let share = full as f64 / total as f64;
                let share = scalar("ratio", Better::Neither, share, total);
                metrics.insert(format!("{operation}_full_share"), share);
            } else if operation.ends_with(".incremental") && full > 0 {
                warnings.push(format!(
                    "{operation}: {full} of {total} refreshes were full recomputations"
                ));
            }
        }
        let wrong = scalar("count", Better::Lower, self.wrong_rows as f64, self.compared_count);
        metrics.insert("wrong_rows".to_owned(), wrong);
        let mut measurement = Measurement::new(observation, recording);
        measurement.metrics = metrics;
        measurement.cycles = self.cycles;
        measurement.warnings = warnings;
        measurement
    }
}

impl RatioCount {
    fn count_metric(&self, metrics: &BTreeMap<String, Metric>) -> Metric {
        let ratios = metrics
            .iter()
            .filter(|(name, metric)| name.ends_with(self.ending) && metric.value > 1.0);
        scalar("count", Better::Higher, ratios.count() as f64, self.total)
    }
}

/// What stands for a latency.
fn typical_latency(metric: &Metric) -> f64 {
    metric.p50.unwrap_or(metric.value)
}
