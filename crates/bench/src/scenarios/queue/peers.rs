//! `--peer`: other task queues, each under the same load with the same durability, right after Egret's.
//!
//! Each is started here in a directory of its own on a free port. None of them keeps results, so a
//! completion is the removal of the task, which is less work than Egret's.

mod beanstalkd;
mod nats;
mod redis;

use anyhow::{Context, Result};

use super::cycle::{END_TO_END, Plan};
use super::drive::{self, Driven, Lengths};
use super::figures::{self, Watch};
use crate::cli::{Durability, Peer};
use crate::record::scalar;
use crate::result::Better;
use crate::running::{self, Running};
use crate::scenario::Measurement;
use crate::stage::Stage;

impl Peer {
    /// The program that has to be there, and the package that has it.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Beanstalkd => ("beanstalkd", "beanstalkd"),
            Self::Redis => ("redis-server", "redis-server"),
            Self::Nats => ("nats-server", "nats-server"),
        }
    }

    /// As results have it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Beanstalkd => "beanstalkd",
            Self::Redis => "redis",
            Self::Nats => "nats",
        }
    }

    /// Refuses a peer that is not there, or does not have the durability.
    ///
    /// # Errors
    /// What is missing and how to get it.
    pub(super) fn check(self, durability: Durability) -> Result<()> {
        let (program, package) = self.program();
        let flag = match self {
            Self::Nats => "--version",
            _ => "-v",
        };
        let version = running::version(self.name(), program, package, flag)?;
        match self {
            Self::Nats => nats::check(durability, &version),
            _ => Ok(()),
        }
    }

    async fn start(self, durability: Durability) -> Result<Running> {
        Running::start(self.name(), self.program().0, |command, path, port| {
            match self {
                Self::Beanstalkd => beanstalkd::arguments(command, path, port, durability),
                Self::Redis => redis::arguments(command, path, port, durability),
                Self::Nats => nats::arguments(command, path, port, durability)?,
            }
            Ok(())
        })
        .await
    }
}

/// Puts a peer under the load and adds its figures to Egret's.
pub(super) async fn measure(
    stage: &mut Stage,
    peer: Peer,
    plan: &Plan,
    lengths: Lengths,
    durability: Durability,
    measurement: &mut Measurement,
) -> Result<()> {
    let running = peer.start(durability).await?;
    let (port, pid) = (running.port, running.pid());
    let watch = Watch::new(Some(pid), Some(running.directory.path().to_owned()));
    let before = std::mem::replace(&mut stage.subject.processes, vec![pid]);
    let driven = match peer {
        Peer::Beanstalkd => {
            let connect = move || beanstalkd::Beanstalkd::open(port);
            drive(stage, plan, lengths, watch, connect).await
        }
        Peer::Redis => {
            let connect = move || redis::Redis::open(port);
            drive(stage, plan, lengths, watch, connect).await
        }
        Peer::Nats => {
            let connect = move || nats::Nats::open(port);
            drive(stage, plan, lengths, watch, connect).await
        }
    };
    stage.subject.processes = before;
    let arm = figures::measurement(driven.with_context(|| format!("measure {}", peer.name()))?);
    let kept = [
        "cycles_per_second",
        "server_cpu_us_per_cycle",
        "generator_cpu_us_per_cycle",
        "lost",
        "duplicated",
        "rss_bytes",
        "disk_bytes",
    ];
    let mut metrics = arm.metrics;
    metrics.extend(arm.recording.metrics());
    for name in kept.into_iter().chain([END_TO_END]) {
        if let Some(metric) = metrics.remove(name) {
            let name = format!("{}_{name}", peer.name());
            measurement.metrics.insert(name, metric);
        }
    }
    let rate = |name: &str| {
        measurement
            .metrics
            .get(name)
            .map_or(0.0, |metric| metric.value)
    };
    let theirs = rate(&format!("{}_cycles_per_second", peer.name()));
    if theirs > 0.0 {
        let ratio = scalar(
            "ratio",
            Better::Higher,
            rate("cycles_per_second") / theirs,
            1,
        );
        let name = format!("{}_ratio", peer.name());
        measurement.metrics.insert(name, ratio);
    }
    measurement.warnings.extend(
        arm.warnings
            .into_iter()
            .map(|warning| format!("{}: {warning}", peer.name())),
    );
    Ok(())
}

async fn drive<B, C, F>(
    stage: &mut Stage,
    plan: &Plan,
    lengths: Lengths,
    watch: Watch,
    connect: C,
) -> Result<Driven>
where
    B: super::broker::Broker,
    C: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<B>>,
{
    drive::drive(
        stage,
        plan,
        lengths,
        watch,
        connect,
        std::future::ready(Ok(())),
    )
    .await
}
