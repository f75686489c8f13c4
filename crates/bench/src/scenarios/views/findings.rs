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
    all: u64,
}

pub(super) struct Findings {
    /// From where offsets count.
    origin: Instant,
    recorder: Recorder,
    cycles: Vec<Cycle>,
    metrics: BTreeMap<String, Metric>,
    outcomes: BTreeMap<String, Outcomes>,
    ratios: Vec<Ratio>,
    worst: Vec<&'static str>,
    faster: Vec<RatioCount>,
    wrong_rows: u64,
    compared: u64,
    warnings: Vec<String>,
}

/// A metric that is the median of one latency by that of another.
struct Ratio {
    name: String,
    above: String,
    below: String,
    better: Better,
}

/// A metric that says how many of those ratios are over 1 whose names end alike.
struct RatioCount {
    name: &'static str,
    ending: &'static str,
    all: u64,
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
            worst: Vec::new(),
            faster: Vec::new(),
            wrong_rows: 0,
            compared: 0,
            warnings: Vec::new(),
        }
    }

    /// How long ago they began.
    pub(super) fn at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.origin)
    }

    /// An operation took some time.
    pub(super) fn took(&mut self, operation: &str, begun: Instant, took: Duration) {
        let at = self.at(begun);
        self.recorder.success(operation, at, at, at + took);
    }

    pub(super) fn failed(&mut self, cause: &str, at: Duration) {
        self.recorder.failure(cause, at, at, at);
    }

    /// A cycle by itself, by its number; of those that do not count the group is 0.
    pub(super) fn cycle(
        &mut self,
        number: u32,
        group: u64,
        begun: Instant,
        latencies_ms: BTreeMap<String, f64>,
    ) {
        let at_ms = millis(self.at(begun));
        self.cycles.push(Cycle {
            index: number.into(),
            group,
            at_ms,
            latencies_ms,
            error: None,
        });
    }

    /// A refresh said what it did.
    pub(super) fn outcome(&mut self, operation: &str, outcome: &str) {
        let outcomes = self.outcomes.entry(operation.to_owned()).or_default();
        outcomes.full += u64::from(outcome == "full");
        outcomes.all += 1;
    }

    /// A metric of its own.
    pub(super) fn metric(&mut self, name: &str, metric: Metric) {
        self.metrics.insert(name.to_owned(), metric);
    }

    /// A metric that is the median latency of one operation by that of another.
    pub(super) fn ratio(&mut self, name: String, above: String, below: String, better: Better) {
        self.ratios.push(Ratio {
            name,
            above,
            below,
            better,
        });
    }

    /// A metric that is the largest of those ratios whose names go on behind its own.
    pub(super) fn worst(&mut self, name: &'static str) {
        self.worst.push(name);
    }

    /// A metric that is how many of those ratios are over 1 whose names have this ending, of so
    /// many.
    pub(super) fn faster(&mut self, name: &'static str, ending: &'static str, all: u64) {
        self.faster.push(RatioCount { name, ending, all });
    }

    /// Adds a warning for the reader.
    pub(super) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Compares a view with its query, and says how many rows it has too few or too many.
    pub(super) async fn compare(
        &mut self,
        site: &ScenarioSchema,
        client: &Client,
        view: &str,
        query: &str,
    ) -> Result<u64> {
        let differing = site.differing(client, view, query).await?;
        self.wrong_rows += differing;
        self.compared += 1;
        if differing > 0 {
            self.warnings
                .push(format!("{view} has {differing} rows too few or too many"));
        }
        Ok(differing)
    }

    pub(super) fn measurement(self, observed: WindowObservation) -> Measurement {
        let recording = Recording::merge([self.recorder]);
        let latencies = recording.metrics();
        let mut metrics = self.metrics;
        for ratio in &self.ratios {
            let (Some(above), Some(below)) =
                (latencies.get(&ratio.above), latencies.get(&ratio.below))
            else {
                continue;
            };
            let value = median(above) / median(below).max(1e-9);
            let samples = above.samples.min(below.samples);
            metrics.insert(
                ratio.name.clone(),
                scalar("ratio", ratio.better, value, samples),
            );
        }
        for name in self.worst {
            let all = metrics
                .iter()
                .filter(|(other, _)| other.starts_with(&format!("{name}.")));
            let worst = all.max_by(|(_, a), (_, b)| a.value.total_cmp(&b.value));
            if let Some((_, worst)) = worst {
                metrics.insert(name.to_owned(), worst.clone());
            }
        }
        for faster in &self.faster {
            metrics.insert(faster.name.to_owned(), faster.count(&metrics));
        }
        let mut warnings = self.warnings;
        for (operation, Outcomes { full, all }) in self.outcomes {
            if operation.ends_with(".auto") {
                let share = full as f64 / all as f64;
                let share = scalar("ratio", Better::Neither, share, all);
                metrics.insert(format!("{operation}_full_share"), share);
            } else if operation.ends_with(".incremental") && full > 0 {
                warnings.push(format!(
                    "{operation}: {full} of {all} refreshes were full recomputations"
                ));
            }
        }
        let wrong = scalar(
            "count",
            Better::Lower,
            self.wrong_rows as f64,
            self.compared,
        );
        metrics.insert("wrong_rows".to_owned(), wrong);
        let mut measurement = Measurement::new(observed, recording);
        measurement.metrics = metrics;
        measurement.cycles = self.cycles;
        measurement.warnings = warnings;
        measurement
    }
}

impl RatioCount {
    fn count(&self, metrics: &BTreeMap<String, Metric>) -> Metric {
        let ratios = metrics
            .iter()
            .filter(|(name, metric)| name.ends_with(self.ending) && metric.value > 1.0);
        scalar("count", Better::Higher, ratios.count() as f64, self.all)
    }
}

/// What stands for a latency.
fn median(metric: &Metric) -> f64 {
    metric.p50.unwrap_or(metric.value)
}
