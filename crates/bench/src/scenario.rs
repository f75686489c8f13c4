//! What a scenario is. A new one is a file below `scenarios/`, a variant of
//! [`BenchCommand`](egret_bench_cli::BenchCommand), and an arm in [`run`](crate::run()).
//!
//! The runner (`runner.rs`) does the rest: it starts and ends a private Egret, repeats the run,
//! discards a run in which a clock jumped, describes the environment, keeps profiles and plans,
//! writes the result file and prints the table.
//!
//! ```text
//! prepare ── measure ── measure ── … ── explain ── write the result ── clean (always)
//!               │
//!               ├ cold operations, warm-up: as the scenario likes; `load::run_load` does both
//!               ├ let window = stage.open_window(expected)
//!               ├ load; offsets from `window.origin()` go into `Recorder`s
//!               └ Measurement::new(window.close().await?, Recording::merge(recorders))
//! ```
//!
//! A scenario that runs steadily gives [`load::run_load`](crate::load::run_load) a worker and gets
//! a whole [`Measurement`] back; see `scenarios/sql.rs`. One that is made of cycles or bursts opens
//! the window itself, puts each cycle into [`Measurement::cycles`], and adds its figures to
//! [`Measurement::metrics`] with [`scalar`](crate::record::scalar); latency metrics come out of the
//! recording by operation name, phases likewise.

use std::collections::BTreeMap;
use std::future::Future;

use anyhow::{Result, bail};
use serde_json::Value;

use crate::record::Recording;
use crate::result::{Cycle, Metric, Warmup};
use crate::stage::Stage;
use crate::window::WindowObservation;

/// One kind of load and what it measures.
pub trait Scenario: Send {
    /// As it is typed and as the result has it.
    const NAME: &'static str;

    /// Its parameters after defaults, by option name: what must be equal for results to be
    /// compared.
    fn parameters(&self) -> BTreeMap<String, Value>;

    /// Settings (`section.key`, value) for a private Egret, besides directory and ports.
    fn private_settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The metric by which runs are ranked, the median one being the result.
    fn ranking_metric(&self) -> &str;

    /// Called once, before the first run: connects, makes data, and tells the stage what is
    /// measured ([`Stage::subject`]).
    fn prepare(&mut self, stage: &mut Stage) -> impl Future<Output = Result<()>> + Send;

    /// Does one run and returns what was measured.
    fn measure(&mut self, stage: &mut Stage) -> impl Future<Output = Result<Measurement>> + Send;

    /// Whether [`Scenario::explain`] does something. Where it does not, `--explain` is refused
    /// before anything is prepared.
    const CAN_EXPLAIN: bool = false;

    /// The plans of the scenario's statements, with `--explain`. What fails here costs plans, not
    /// the measurement.
    fn explain(&mut self, _stage: &mut Stage) -> impl Future<Output = Result<Plans>> + Send {
        async { bail!("this scenario has no plans") }
    }

    /// Called once, after the last run or a failure: removes what was made.
    fn clean(&mut self, _stage: &mut Stage) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }
}

/// The plans of a scenario's statements.
#[derive(Debug, Default)]
pub struct Plans {
    /// As PostgreSQL gives them, each with its statement.
    pub plans: Vec<Value>,
    /// Of which statements there is none, and why.
    pub missing: Vec<String>,
}

/// Results of one run.
#[derive(Debug)]
pub struct Measurement {
    /// Time, processor time and profile of the window.
    pub observation: WindowObservation,
    /// Operations, errors, phases, seconds.
    pub recording: Recording,
    /// Metrics besides the latencies of the recording; over them where they have the same name.
    pub metrics: BTreeMap<String, Metric>,
    /// How the warm-up went.
    pub warmup: Option<Warmup>,
    /// Cold first operations, and every cycle where there are cycles.
    pub cycles: Vec<Cycle>,
    /// Warnings for the reader of the result.
    pub warnings: Vec<String>,
    /// Number of concurrent workers, for the check of the phases; 0 if unknown.
    pub workers: u64,
}

impl Measurement {
    /// A measurement with nothing but a recording.
    pub fn new(observed: WindowObservation, recording: Recording) -> Self {
        Self {
            observation: observed,
            recording,
            metrics: BTreeMap::new(),
            warmup: None,
            cycles: Vec::new(),
            warnings: Vec::new(),
            workers: 0,
        }
    }
}
