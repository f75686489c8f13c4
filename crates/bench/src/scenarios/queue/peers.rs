//! `--peer`: other task queues, each under the same load with the same durability, right after Egret's.
//!
//! Each is started here in a directory of its own on a free port. None of them keeps results, so a
//! completion is the removal of the task, which is less work than Egret's.

mod beanstalkd;
mod nats;
mod redis;

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::cycle::{END_TO_END, Plan};
use super::drive::{self, Driven, Lengths};
use super::figures::{self, Watch};
use super::pipe::Pipe;
use crate::cli::{Durability, Peer};
use crate::record::scalar;
use crate::refusal;
use crate::result::Better;
use crate::scenario::Measurement;
use crate::stage::Stage;

/// How long a peer may take to answer on its port.
const START_MAX: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(10);

/// A peer that runs. Dropped, it is ended and its files are removed.
struct Running {
    child: Child,
    port: u16,
    directory: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only when it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
        // Where it is there, it says its version and ends.
        let found = Command::new(program)
            .arg(if self == Self::Nats {
                "--version"
            } else {
                "-v"
            })
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let Ok(output) = found else {
            return Err(refusal::usage(format!(
                "--peer {}: there is no {program} on the path: apt-get install {package}",
                self.name()
            )));
        };
        if self == Self::Nats {
            let version = String::from_utf8_lossy(&output.stdout).into_owned();
            nats::check(durability, version.trim())?;
        }
        Ok(())
    }

    async fn start(self, durability: Durability) -> Result<Running> {
        let directory = crate::private_directory(None)?;
        // Free at this moment.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let path = directory.path();
        let mut command = Command::new(self.program().0);
        match self {
            Self::Beanstalkd => beanstalkd::arguments(&mut command, path, port, durability),
            Self::Redis => redis::arguments(&mut command, path, port, durability),
            Self::Nats => nats::arguments(&mut command, path, port, durability)?,
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("start {}", self.name()))?;
        let mut running = Running {
            child,
            port,
            directory,
        };
        let begun = Instant::now();
        while Pipe::open(port).await.is_err() {
            if let Some(status) = running.child.try_wait()? {
                bail!("{} ended as soon as it was started ({status})", self.name());
            }
            if begun.elapsed() > START_MAX {
                bail!("{} does not answer on its port", self.name());
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(running)
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
    let (port, pid) = (running.port, running.child.id());
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
