//! `egret bench series`: metrics in by remote write, PromQL out.

mod acked_steps;
mod answer;
mod answer_checks;
mod body;
mod churn;
mod components;
mod drive;
mod evaluate;
mod expression;
mod figures;
mod fleet;
mod idle_measurements;
mod kinds;
mod points;
mod probe;
mod query;
mod read;
mod shape;
mod snappy;
mod system;
mod write;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use egret_bench_cli::{Protocol, SeriesArgs, SeriesScenario};
use serde_json::Value;

use crate::refusal;
use crate::scenario::{Measurement, Scenario};
use crate::server_process::ServerProcess;
use crate::stage::Stage;
use drive::SeriesLoad;
use fleet::{Fleet, INTERVAL_MS};
use query::SeriesQuery;
use system::System;
use write::WriteParams;

/// Most samples per second assumed of a closed loop, whose rate is unknown beforehand: bounds how
/// far the generator's clock will run.
const CLOSED_RATE_MAX: f64 = 8e6;

/// All samples are of so many days: what every system keeps without being asked to.
const DAYS_MAX: u64 = 14;

/// Samples of each series, with `--scenario cardinality`.
const CARDINALITY_STEPS: u64 = 4;

const STEPS_MAX: u64 = DAYS_MAX * 86_400_000 / INTERVAL_MS as u64;

/// State of the scenario `series`.
pub struct Series {
    args: SeriesArgs,
    /// The metric by which runs are ranked.
    ranking_metric: String,
}

impl Series {
    /// Checks the arguments.
    ///
    /// # Errors
    /// When they contradict one another, or a peer is not there.
    pub fn new(args: &SeriesArgs) -> Result<Self> {
        let series = Self { args: args.clone(), ranking_metric: ranking_metric(args) };
        if !args.run.private && args.run.server.is_none() && args.peers.is_empty() {
            return Err(refusal::usage(
                "there is nothing to measure: give --private, --server URL or --peer PEER",
            ));
        }
        if args.protocol == Protocol::Rw2 && !args.peers.is_empty() {
            return Err(refusal::usage(
                "--protocol rw2: the supported peers accept only remote write 1.0: omit --peer",
            ));
        }
        if args.read_rate.is_some() && args.readers == 0 {
            return Err(refusal::usage("--read-rate needs --readers"));
        }
        if args.writers > args.series {
            return Err(refusal::usage("--writers: there are fewer --series than writers"));
        }
        if args.scenario == SeriesScenario::Restart && args.run.server.is_some() {
            return Err(refusal::usage(
                "--scenario restart kills what it measures: give --private instead of --server",
            ));
        }
        for peer in &args.peers {
            system::ensure_installed(*peer)?;
        }
        let steps = series.preloaded_steps() + series.live_steps();
        if steps > STEPS_MAX {
            return Err(refusal::usage(format!(
                "these samples, 15 s apart, cover {:.1} days; at most {DAYS_MAX} are supported: \
                 give more --series, or fewer samples by --preload, --rate or --seconds",
                steps as f64 / STEPS_MAX as f64 * DAYS_MAX as f64
            )));
        }
        Ok(series)
    }

    /// Steps that are written beforehand, in whole requests.
    fn preloaded_steps(&self) -> u64 {
        let steps = match self.args.scenario {
            SeriesScenario::Cardinality => CARDINALITY_STEPS,
            _ => self.args.preload.div_ceil(self.args.series.into()),
        };
        steps.next_multiple_of(self.write_params(0).steps_per_request())
    }

    /// Steps that the load may take.
    fn live_steps(&self) -> u64 {
        if !matches!(self.args.scenario, SeriesScenario::Load | SeriesScenario::Churn) {
            return 0;
        }
        let rate = self.args.rate.unwrap_or(CLOSED_RATE_MAX);
        // The warm-up takes some, too.
        let seconds = self.args.seconds.as_secs_f64() + 5.0;
        let steps = (rate * seconds / f64::from(self.args.series)).ceil() as u64;
        match self.args.rate {
            Some(_) => steps,
            // The load ends when they are used up.
            None => steps.min(STEPS_MAX - self.preloaded_steps().min(STEPS_MAX)),
        }
    }

    /// How samples are made, the first of them then.
    fn write_params(&self, begin_ms: i64) -> WriteParams {
        WriteParams {
            fleet: Fleet { seed: self.args.run.seed, series: self.args.series, begin_ms },
            writers: self.args.writers,
            batch: self.args.batch,
            protocol: self.args.protocol,
        }
    }

    /// The load, whose last possible sample is of now.
    fn new_load(&self) -> Result<SeriesLoad> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ms = now.context("the clock is before 1970")?.as_millis() as i64;
        let steps_max = self.preloaded_steps() + self.live_steps();
        let begin_ms = now_ms - (steps_max as i64 + 1) * INTERVAL_MS;
        Ok(SeriesLoad {
            write_params: self.write_params(begin_ms - begin_ms % 60_000),
            preloaded_steps: self.preloaded_steps(),
            steps_max,
            window: self.args.seconds,
            rate: self.args.rate,
            readers: self.args.readers,
            read_rate: self.args.read_rate,
            churn: (self.args.scenario == SeriesScenario::Churn).then_some(self.args.churn),
        })
    }

    async fn measure_system(
        &self,
        stage: &mut Stage,
        load: &SeriesLoad,
        system: &System,
        peer: Option<&mut ServerProcess>,
    ) -> Result<Measurement> {
        match self.args.scenario {
            SeriesScenario::Queries => {
                return idle_measurements::measure_queries(stage, load, system).await;
            }
            SeriesScenario::Restart => {
                return idle_measurements::measure_restart(stage, load, system, peer).await;
            }
            SeriesScenario::Cardinality => {
                return idle_measurements::measure_cardinality(stage, load, system).await;
            }
            SeriesScenario::Disk => {
                return idle_measurements::measure_disk(stage, load, system).await;
            }
            SeriesScenario::Load | SeriesScenario::Churn => {}
        }
        let result = drive::run_load(stage, load, system).await?;
        stage.progress.show("waiting for the disk");
        let system = system.clone();
        let disk = tokio::task::spawn_blocking(move || system.disk_bytes()).await??;
        let mut measurement = figures::into_measurement(result, disk);
        if load.readers > 0 {
            let warning = SeriesQuery::warning(&load.write_params.fleet, load.preloaded_steps);
            measurement.warnings.extend(warning);
        }
        Ok(measurement)
    }

    fn measures_egret(&self) -> bool {
        self.args.run.private || self.args.run.server.is_some()
    }
}

/// What the scenario is about, of Egret or of the first peer.
fn ranking_metric(args: &SeriesArgs) -> String {
    let name = match args.scenario {
        SeriesScenario::Load => "samples_per_second",
        SeriesScenario::Queries => "read_geometric_mean",
        SeriesScenario::Restart => "restart",
        SeriesScenario::Cardinality => "rss_bytes",
        SeriesScenario::Churn => "write",
        SeriesScenario::Disk => "bytes_per_sample",
    };
    let measures_egret = args.run.private || args.run.server.is_some();
    let peer = args.peers.first().filter(|_| !measures_egret);
    let prefix = peer.map_or("", |peer| system::vendor(*peer).prefix());
    format!("{prefix}{name}")
}

impl Scenario for Series {
    const NAME: &'static str = "series";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let args = &self.args;
        let peers: Vec<&str> = args.peers.iter().map(|peer| peer.name()).collect();
        let churn = (args.scenario == SeriesScenario::Churn).then_some(args.churn);
        let all: [(&str, Value); 12] = [
            ("scenario", args.scenario.name().into()),
            ("writers", args.writers.into()),
            ("readers", args.readers.into()),
            ("series", args.series.into()),
            ("batch", args.batch.into()),
            ("seconds", args.seconds.as_secs_f64().into()),
            ("preload", args.preload.into()),
            ("rate", args.rate.into()),
            ("read_rate", args.read_rate.into()),
            ("protocol", args.protocol.name().into()),
            ("churn", churn.into()),
            ("peers", (!peers.is_empty()).then_some(peers).into()),
        ];
        all.into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn ranking_metric(&self) -> &str {
        &self.ranking_metric
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        stage.subject.data_set = format!("{} series, 15 s apart", self.args.series);
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let load = self.new_load()?;
        let mut joined = None;
        if self.measures_egret() {
            let system = System::from_stage(stage)?;
            let measurement = self.measure_system(stage, &load, &system, None).await?;
            figures::join_system(&mut joined, measurement, system.vendor);
        }
        for peer in &self.args.peers {
            let mut process = system::start_peer(*peer).await?;
            let egret_processes =
                std::mem::replace(&mut stage.subject.processes, vec![process.pid()]);
            let system = System::from_peer(*peer, &process);
            let result = self.measure_system(stage, &load, &system, Some(&mut process)).await;
            stage.subject.processes = egret_processes;
            let mut arm = result.with_context(|| format!("measure {}", peer.name()))?;
            arm.warnings.push(system::durability_note(*peer).to_owned());
            figures::join_system(&mut joined, arm, system.vendor);
        }
        joined.context("nothing was measured")
    }
}
