//! Metrics of bursts besides latencies.

use std::time::Duration;

use anyhow::Result;
use egret_bench_cli::BranchesArgs;

use super::burst::{self, BurstOutcome};
use crate::environment::GENERATOR_SHARE_MAX;
use crate::process::Snapshot;
use crate::record::{Recorder, Recording, millis, scalar};
use crate::result::{Better, Metric};
use crate::scenario::Measurement;
use crate::server::Server;

/// The mean proportional set size of the branches in the pool, in bytes; `None` where Egret's
/// processes are not on this machine.
pub(super) async fn hot_memory(server: &Server) -> Result<Option<(f64, u64)>> {
    let Some(pid) = server.pid() else {
        return Ok(None);
    };
    let pools = server.get("v1/pools").await?;
    let hot: u64 = pools["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pool| pool["hot"].as_u64())
        .sum();
    let snapshot = Snapshot::take()?;
    let branches = snapshot.tree(&[pid]).into_iter().filter(|pid| {
        std::fs::read_link(format!("/proc/{pid}/cwd"))
            .is_ok_and(|cwd| cwd.parent().is_some_and(|parent| parent.ends_with("branches")))
    });
    let pss = |pid: u32| -> Option<u64> {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    let kilobytes: u64 = branches.filter_map(pss).sum();
    Ok((hot > 0).then(|| ((kilobytes * 1_024) as f64 / hot as f64, hot)))
}

/// What bursts add up to besides latencies.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) wall: Vec<Duration>,
    pub(super) refill: Vec<Duration>,
    cpu: Vec<Duration>,
    burst_cpu: Vec<Duration>,
    generator_cpu: Vec<Duration>,
    pub(super) mutations: u64,
    pub(super) memory: Option<(f64, u64)>,
}

impl Figures {
    /// After a burst and the refill behind it.
    pub(super) fn add_burst(&mut self, outcome: &BurstOutcome, roots: &[u32]) -> Result<()> {
        self.wall.push(outcome.wall);
        self.burst_cpu.push(outcome.usage.system);
        self.generator_cpu.push(outcome.usage.own);
        let usage = Snapshot::take()?.usage_since(&outcome.before, roots);
        self.cpu.push(usage.system);
        Ok(())
    }

    /// What may be wrong with them. The generator counts in bursts, since it waits during refills.
    pub(super) fn generator_warning(&self) -> Option<String> {
        let seconds = |all: &[Duration]| all.iter().sum::<Duration>().as_secs_f64();
        let share = seconds(&self.generator_cpu) / seconds(&self.wall).max(1e-9);
        (share > GENERATOR_SHARE_MAX).then(|| {
            format!(
                "the generator used {share:.2} of a core during bursts: it may be the bottleneck"
            )
        })
    }

    pub(super) fn add_metrics_to(self, measurement: &mut Measurement, args: &BranchesArgs) {
        let recording = &measurement.recording;
        let destroyed_count = recording.successes("destroy");
        let per_branch = |all: &[Duration]| {
            let sum: Duration = all.iter().sum();
            millis(sum) / (f64::from(args.branches) * all.len().max(1) as f64)
        };
        let bursts = self.wall.len() as u64;
        let mut metrics = vec![
            ("wall", latency_metric(&self.wall)),
            ("refill", latency_metric(&self.refill)),
            ("cpu_ms_per_branch", scalar("ms", Better::Lower, per_branch(&self.cpu), bursts)),
            (
                "burst_cpu_ms_per_branch",
                scalar("ms", Better::Lower, per_branch(&self.burst_cpu), bursts),
            ),
            (
                "generator_cpu_ms_per_branch",
                scalar("ms", Better::Neither, per_branch(&self.generator_cpu), bursts),
            ),
            (
                "deadlocks",
                scalar(
                    "count",
                    Better::Lower,
                    burst::count_deadlocks(&recording.errors) as f64,
                    destroyed_count,
                ),
            ),
            (
                "source_mutations",
                scalar("count", Better::Lower, self.mutations as f64, destroyed_count),
            ),
        ];
        // Users of every kind of burst; each has one entry, with an error or without.
        let counted_cycles = || measurement.cycles.iter().filter(|cycle| cycle.group != 0);
        let attempted_count = counted_cycles().count() as u64;
        let succeeded_count = counted_cycles().filter(|cycle| cycle.error.is_none()).count();
        let share = succeeded_count as f64 / attempted_count.max(1) as f64;
        metrics.push(("success", scalar("ratio", Better::Higher, share, attempted_count)));
        if let Some((bytes, hot)) = self.memory {
            metrics.push(("hot_branch_pss_bytes", scalar("bytes", Better::Lower, bytes, hot)));
        }
        let latencies = recording.metrics();
        let median = |name: &str| latencies.get(name).and_then(|metric| metric.p50);
        for (name, arm) in [
            ("cold_create_ratio", "script_create"),
            ("cold_create_watched_ratio", "watched_create"),
        ] {
            if let (Some(cold), Some(arm)) = (median("cold_create"), median(arm)) {
                metrics
                    .push((name, scalar("ratio", Better::Lower, cold / arm, u64::from(args.arms))));
            }
        }
        let names = metrics.into_iter().map(|(name, metric)| (name.to_owned(), metric));
        measurement.metrics.extend(names);
    }
}

/// A latency metric of a few values.
fn latency_metric(values: &[Duration]) -> Metric {
    let mut recorder = Recorder::default();
    for value in values {
        recorder.record_success("it", Duration::ZERO, Duration::ZERO, *value);
    }
    let mut metrics = Recording::merge([recorder]).metrics();
    metrics.remove("it").unwrap_or_else(|| scalar("ms", Better::Lower, 0.0, 0))
}
