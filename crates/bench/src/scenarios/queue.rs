//! `egret bench queue`: full cycles of a task queue: make a task, hand it out, complete it with a
//! result.
//!
//! ```text
//! callers ── one producer connection ──▶ queue ──▶ one worker connection ── slots
//!    ▲ acknowledged: next call              acknowledged: a cycle ▲
//! ```
//!
//! Only what the server has acknowledged counts, and in the end every task is accounted for.

mod backlog;
mod broker;
mod cycle;
mod drive;
mod egret;
mod expiry;
mod figures;
mod in_flight;
mod ledger;
mod link;
mod peers;
mod pipe;
mod rest;
mod signals;
mod start;
mod target;
mod tenants;
mod wire;
mod worker;

use std::collections::BTreeMap;

use anyhow::Result;
use egret_bench_cli::{ArrivalSpacing, Durability, QueueArgs, QueueScenario};
use serde_json::Value;

use crate::record::scalar;
use crate::refusal;
use crate::result::Better;
use crate::scenario::{Measurement, Scenario};
use crate::schedule::Spacing;
use crate::stage::Stage;
use cycle::{CyclePlan, Purpose};
use drive::Lengths;
use target::QueueTarget;

/// How many partitions a sweep tries.
const SWEEP_PARTITIONS: [u32; 3] = [1, 2, 4];

/// State of the scenario `queue`.
pub struct Queue {
    args: QueueArgs,
    /// Queues made so far.
    created_queues: Vec<String>,
}

impl Queue {
    /// Checks the arguments.
    ///
    /// # Errors
    /// When they contradict one another.
    pub fn new(args: &QueueArgs) -> Result<Self> {
        let has_server_settings = args.partitions.is_some() || args.durability.is_some();
        if has_server_settings && !args.run.private {
            return Err(refusal::usage(
                "--partitions and --durability need --private: configure a running Egret itself",
            ));
        }
        if args.scenario != QueueScenario::Cycle && !args.run.private {
            return Err(refusal::usage(
                "only `--scenario cycle` can measure a running Egret: give --private",
            ));
        }
        if !args.peers.is_empty() && args.scenario != QueueScenario::Cycle {
            return Err(refusal::usage("--peer needs `--scenario cycle`"));
        }
        if !args.peers.is_empty() && !args.run.private {
            return Err(refusal::usage(
                "--peer needs --private: the durability of a running Egret is unknown",
            ));
        }
        for peer in &args.peers {
            peers::check_peer(*peer, args.durability.unwrap_or(Durability::Fsync))?;
        }
        Ok(Self { args: args.clone(), created_queues: Vec::new() })
    }

    fn cycle_plan(&self, stage: &Stage) -> CyclePlan {
        let args = &self.args;
        let spacing = match args.arrivals {
            ArrivalSpacing::Constant => Spacing::Constant,
            ArrivalSpacing::Poisson => Spacing::Poisson,
        };
        CyclePlan {
            callers: args.producers,
            slots: args.slots,
            batch: args.batch,
            payload_bytes: args.payload_bytes,
            rate: args.rate.map(|rate| (rate, spacing)),
            seed: stage.seed,
            cycles: args.cycles,
            purpose: Purpose::Cycles,
        }
    }

    fn lengths(&self) -> Lengths {
        Lengths { warmup_max: self.args.warmup_max, window: self.args.seconds }
    }

    fn settings(&self, partitions: Option<u32>) -> Vec<(String, String)> {
        let partitions = partitions.map(|count| count.to_string());
        let durability = self.args.durability().map(str::to_owned);
        let settings = [("queue.partitions", partitions), ("queue.durability", durability)];
        let given = settings.into_iter();
        given.filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
    }

    async fn measure_cycles(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let target = QueueTarget::from_stage(stage)?;
        // A queue of this measurement's own.
        let queue = format!("bench-{}-{}", std::process::id(), self.created_queues.len());
        target.put_queue(&queue, None).await?;
        self.created_queues.push(queue.clone());
        let (plan, lengths) = (self.cycle_plan(stage), self.lengths());
        let (sampler, connect) = (target.resource_sampler(), target.connector(&queue));
        let gate = std::future::ready(Ok(()));
        let result = drive::run_load(stage, &plan, lengths, sampler, connect, gate).await?;
        Ok(figures::into_measurement(result))
    }

    /// The same load on Egrets with more and more partitions. The measurement is that of the first,
    /// with the rates of all.
    async fn measure_sweep(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let mut first = None;
        for partitions in SWEEP_PARTITIONS {
            stage.start_private_server(self.settings(Some(partitions))).await?;
            let arm_measurement = self.measure_cycles(stage).await?;
            let rate = arm_measurement.metrics["cycles_per_second"].value;
            let (measurement, base) = first.get_or_insert((arm_measurement, rate));
            let ratio = scalar("ratio", Better::Higher, rate / base.max(1e-9), 1);
            let rate = scalar("1/s", Better::Higher, rate, 1);
            measurement.metrics.extend([
                (format!("partitions_{partitions}_cycles_per_second"), rate),
                (format!("partitions_{partitions}_ratio"), ratio),
            ]);
        }
        let (measurement, _) = first.expect("the sweep is not empty");
        Ok(measurement)
    }
}

impl Scenario for Queue {
    const NAME: &'static str = "queue";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let args = &self.args;
        let value_for = |scenario, value: u64| (args.scenario == scenario).then_some(value);
        let peers: Vec<&str> = args.peers.iter().map(|peer| peer.name()).collect();
        let peers = (!peers.is_empty()).then_some(peers);
        let connections = value_for(QueueScenario::Rest, args.connections.into());
        let all: [(&str, Value); 15] = [
            ("connections", connections.into()),
            ("peers", peers.into()),
            ("scenario", args.scenario.name().into()),
            ("backlog", value_for(QueueScenario::Backlog, args.backlog).into()),
            ("leases", value_for(QueueScenario::LeaseExpiry, args.leases).into()),
            ("producers", args.producers.into()),
            ("slots", args.slots.into()),
            ("payload_bytes", args.payload_bytes.into()),
            ("batch", args.batch.into()),
            ("partitions", args.partitions.into()),
            ("durability", args.durability().into()),
            ("seconds", args.seconds.as_secs_f64().into()),
            ("rate", args.rate.into()),
            ("arrivals", args.arrivals().into()),
            ("cycles", args.cycles.into()),
        ];
        all.into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn private_settings(&self) -> Vec<(String, String)> {
        self.settings(self.args.partitions)
    }

    fn ranking_metric(&self) -> &str {
        match self.args.scenario {
            QueueScenario::Start => "first_task",
            _ => "cycles_per_second",
        }
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        QueueTarget::from_stage(stage)?;
        stage.subject.data_set = format!("{} bytes a task", self.args.payload_bytes);
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let (plan, lengths) = (self.cycle_plan(stage), self.lengths());
        match self.args.scenario {
            QueueScenario::Cycle => {
                let mut measurement = self.measure_cycles(stage).await?;
                let durability = self.args.durability.unwrap_or(Durability::Fsync);
                for peer in self.args.peers.clone() {
                    let into = &mut measurement;
                    peers::measure(stage, peer, &plan, lengths, durability, into).await?;
                }
                Ok(measurement)
            }
            QueueScenario::Sweep => self.measure_sweep(stage).await,
            QueueScenario::Backlog => {
                backlog::measure(stage, &plan, lengths, self.args.backlog).await
            }
            QueueScenario::Rest => {
                let (connections, bytes) = (self.args.connections, self.args.payload_bytes);
                rest::measure(stage, connections, bytes, self.args.seconds).await
            }
            QueueScenario::LeaseExpiry => {
                expiry::measure(stage, &plan, lengths, self.args.leases).await
            }
            QueueScenario::Start => start::measure(stage).await,
            QueueScenario::Tenants => tenants::measure(stage, &plan, lengths).await,
        }
    }

    async fn clean(&mut self, stage: &mut Stage) -> Result<()> {
        if self.args.run.private {
            return Ok(());
        }
        let target = QueueTarget::from_stage(stage)?;
        for name in self.created_queues.drain(..) {
            target.delete_queue(&name).await?;
        }
        Ok(())
    }
}
