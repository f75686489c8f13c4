//! Steady load: workers on threads of their own, a warm-up, and the measured window.
//!
//! *Closed loop*: each worker begins its next operation when the last one ended; the rate is what
//! the server makes of it, its capacity. *Open loop*: operations are due by a fixed schedule,
//! whether or not earlier ones have ended, and wait in a queue while all workers are busy.

mod arrivals;
mod worker_pool;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use egret_bench_cli::{ArrivalSpacing, LoadArgs};
use rand::rngs::Xoshiro256PlusPlus;

use crate::record::{LATENCY_MAX, Recording, scalar};
use crate::result::{Better, Cycle, Warmup, Watched};
use crate::scenario::Measurement;
use crate::schedule::Spacing;
use crate::stage::Stage;
use crate::steady::{
    Detector, LATENCY_SLOPE_MAX, RATE_SLOPE_MAX, RateCounter, RateSample, WARMUP_WINDOW,
};
use arrivals::Dispatch;
use worker_pool::WorkerPool;

/// What does operations, one at a time, e.g. one connection.
pub trait Worker: Send + 'static {
    /// Does one operation and returns its name, or the cause of its failure.
    fn operate(
        &mut self,
        operation: &mut Operation,
    ) -> impl Future<Output = Result<Arc<str>, String>> + Send;
}

/// One operation to be done.
pub struct Operation {
    /// Its number among all operations of the measurement, those of warm-ups and of every run: no
    /// other one has it.
    pub number: u64,
    /// Random values for this operation: the same in every run, whichever worker takes it.
    pub random: Xoshiro256PlusPlus,
    phases: Vec<(&'static str, Duration)>,
}

impl Operation {
    /// Notes how long a part of the operation took.
    pub(crate) fn record_phase(&mut self, name: &'static str, duration: Duration) {
        self.phases.push((name, duration));
    }
}

/// Amount and length of the load.
#[derive(Clone, Debug)]
pub struct Load {
    /// When operations begin: by their predecessor or by a schedule.
    pub pace: Pace,
    /// Number of concurrent workers.
    pub clients: u32,
    /// Length of the window.
    pub duration: Duration,
    /// The warm-up ends after this time at the latest.
    pub warmup_max: Duration,
    /// Threads for the workers.
    pub threads: u32,
}

/// How the begin of operations is decided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// When the last one of the worker ended.
    Closed,
    /// At the times of a schedule.
    Open {
        /// Rate in operations per second.
        rate: f64,
        /// How operations are spaced.
        spacing: Spacing,
    },
}

/// Workers of an open loop that is not told how many.
const OPEN_LOOP_CLIENTS: u32 = 16;

/// Operations that are due when the window ends are done for this long; those left are dropped.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// More late operations than this share: the latencies are of a queue, not of the server.
const LATE_SHARE_MAX: f64 = 0.01;

impl Load {
    /// The load that the command line asks for.
    pub fn new(args: &LoadArgs) -> Self {
        let pace = args.rate.map_or(Pace::Closed, |rate| Pace::Open {
            rate,
            spacing: match args.arrivals {
                ArrivalSpacing::Constant => Spacing::Constant,
                ArrivalSpacing::Poisson => Spacing::Poisson,
            },
        });
        let default = match pace {
            Pace::Closed => 1,
            Pace::Open { .. } => OPEN_LOOP_CLIENTS,
        };
        Self {
            pace,
            clients: args.clients.unwrap_or(default),
            duration: args.duration,
            warmup_max: args.warmup_max,
            threads: args.threads,
        }
    }

    /// The name of the rate that comes out.
    pub(crate) fn rate_metric(&self) -> &'static str {
        match self.pace {
            Pace::Closed => "capacity",
            Pace::Open { .. } => "throughput",
        }
    }

    /// Parameters of the load, as in result files.
    pub fn parameters(&self) -> Vec<(&'static str, serde_json::Value)> {
        let mut all = vec![
            ("clients", self.clients.into()),
            ("duration_s", self.duration.as_secs_f64().into()),
            ("threads", self.threads.into()),
        ];
        match self.pace {
            Pace::Closed => all.push(("loop", "closed".into())),
            Pace::Open { rate, spacing } => {
                all.push(("loop", "open".into()));
                all.push(("rate", rate.into()));
                let spacing = format!("{spacing:?}").to_lowercase();
                all.push(("arrivals", spacing.into()));
            }
        }
        all
    }
}

/// Makes workers (`make_worker` gets their number), warms up, measures, and adds up.
///
/// # Errors
/// When a worker cannot be made.
pub(crate) async fn run_load<W, M, F>(
    stage: &mut Stage,
    load: &Load,
    make_worker: M,
) -> Result<Measurement>
where
    W: Worker,
    M: Fn(u32) -> F + Clone + Send + 'static,
    F: Future<Output = Result<W>>,
{
    stage.progress.show("connecting");
    let counter = Arc::new(RateCounter::default());
    let mut pool = WorkerPool::start(load, make_worker, counter.clone()).await?;
    let warmup = warm_up(stage, load, &mut pool, &counter).await?;

    stage.progress.show(format!("measuring for {:.0} s", load.duration.as_secs_f64()));
    let window = stage.open_window(Some(load.duration))?;
    let dispatch =
        Dispatch::new(load, window.origin(), load.duration, stage.seed, stage.operations_begun);
    let recorders =
        pool.run(&dispatch, window.origin() + load.duration + DRAIN_MAX + LATENCY_MAX).await?;
    let observed = window.close().await?;
    stage.operations_begun = dispatch.begun_count();
    let mut recording = Recording::merge(recorders);
    recording.dropped = dispatch.dropped(recording.total_successes() + recording.failures());
    let mut measurement = Measurement::new(observed, recording);
    measurement.cycles = pool.cold_operations();
    measurement.warmup = Some(warmup);
    measurement.workers = u64::from(load.clients);
    summarize(load, &mut measurement);
    Ok(measurement)
}

/// Runs the load unmeasured until it is steady, or the cap ends it.
async fn warm_up(
    stage: &mut Stage,
    load: &Load,
    pool: &mut WorkerPool,
    counter: &RateCounter,
) -> Result<Warmup> {
    stage.progress.show("warming up");
    let begun = Instant::now();
    // Another seed than the window's: what the warm-up brings into caches is not what is measured.
    let dispatch = Dispatch::new(load, begun, load.warmup_max, !stage.seed, stage.operations_begun);
    let work = pool.run(&dispatch, begun + load.warmup_max + LATENCY_MAX);
    let (warmup, _) =
        run_until_steady(load.pace, load.warmup_max, counter, work, || dispatch.stop()).await?;
    stage.operations_begun = dispatch.begun_count();
    Ok(warmup)
}

/// Runs `work` until what it reports to `counter` is steady, or for `warmup_max` at most. Then it
/// is stopped, and its output returned.
///
/// # Errors
/// When it fails.
pub(crate) async fn run_until_steady<T>(
    pace: Pace,
    warmup_max: Duration,
    counter: &RateCounter,
    work: impl Future<Output = Result<T>>,
    stop: impl Fn(),
) -> Result<(Warmup, T)> {
    let begun = Instant::now();
    let mut detector = Detector::new(match pace {
        Pace::Closed => RATE_SLOPE_MAX,
        Pace::Open { .. } => LATENCY_SLOPE_MAX,
    });
    let mut steady = false;
    let mut work = std::pin::pin!(work);
    let mut ticks = tokio::time::interval(WARMUP_WINDOW);
    // Windows that follow one another at once would hold nothing.
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks.tick().await;
    let (mut previous, mut last_tick) = (counter.read(), begun);
    let output = loop {
        tokio::select! {
            done = &mut work => break done.context("warm up")?,
            _ = ticks.tick() => {
                let (sample, moment) = (counter.read(), Instant::now());
                if let Some(value) = watched_value(pace, &sample, &previous, moment - last_tick) {
                    steady |= detector.push(moment - begun, value);
                }
                (previous, last_tick) = (sample, moment);
                if steady || begun.elapsed() >= warmup_max {
                    stop();
                }
            }
        }
    };
    let slope = detector.slope();
    let warmup = Warmup {
        seconds: begun.elapsed().as_secs_f64(),
        steady,
        slope: slope.map_or(0.0, |slope| slope.relative),
        standard_error: slope.map(|slope| slope.standard_error),
        watched: Some(match pace {
            Pace::Closed => Watched::Rate,
            Pace::Open { .. } => Watched::Latency,
        }),
    };
    Ok((warmup, output))
}

/// The quantity that must be steady, over one window: the rate of a closed loop, in operations per
/// second; the typical latency of an open one, in microseconds, where any operation ended.
pub(crate) fn watched_value(
    pace: Pace,
    current: &RateSample,
    previous: &RateSample,
    elapsed: Duration,
) -> Option<f64> {
    match pace {
        Pace::Closed => Some(current.ended_since(previous) as f64 / elapsed.as_secs_f64()),
        Pace::Open { .. } => current.latency_since(previous),
    }
}

/// Adds the figures of a loop, and what casts doubt on them.
fn summarize(load: &Load, measurement: &mut Measurement) {
    let recording = &measurement.recording;
    let (succeeded, failed) = (recording.total_successes(), recording.failures());
    let begun_count = succeeded + failed;
    // Operations that began in the window and ended after it count, and so does the time they took.
    let wall = load.duration.max(recording.last_end).as_secs_f64();
    let rate = scalar("1/s", Better::Higher, succeeded as f64 / wall, succeeded);
    let mut metrics = vec![(load.rate_metric(), rate)];
    let count = |value: u64| scalar("count", Better::Lower, value as f64, begun_count);
    let mut warnings = Vec::new();
    if let Pace::Open { .. } = load.pace {
        // No verdict depends on it: latencies count from when an operation was due, so it is in
        // them.
        let late = scalar("count", Better::Neither, recording.late_count as f64, begun_count);
        metrics.push(("late", late));
        let share = recording.late_count as f64 / begun_count.max(1) as f64;
        if share > LATE_SHARE_MAX {
            warnings.push(format!(
                "{:.1}% of the operations started late: the rate exceeds what {} clients, the \
                 server or this generator can do, and the latencies are dominated by queueing",
                share * 100.0,
                load.clients
            ));
        }
    }
    metrics.push(("dropped", count(recording.dropped)));
    let attempted = begun_count + recording.dropped;
    let success = succeeded as f64 / attempted.max(1) as f64;
    metrics.push(("success", scalar("ratio", Better::Higher, success, attempted)));
    if succeeded == 0 {
        warnings.push("no operation succeeded: there are no latencies".to_owned());
    }
    let names: Vec<(String, _)> =
        metrics.into_iter().map(|(name, metric)| (name.to_owned(), metric)).collect();
    measurement.metrics.extend(names);
    measurement.warnings.extend(warnings);
}

/// The first operation of a worker, with the time that its connection took.
fn cold_cycle(
    worker: u32,
    started: Duration,
    connect_time: Duration,
    latency: Duration,
    outcome: &Result<Arc<str>, String>,
) -> Cycle {
    let millis = crate::record::millis;
    let mut latencies_ms =
        std::collections::BTreeMap::from([("connect".to_owned(), millis(connect_time))]);
    let error = match outcome {
        Ok(operation) => {
            latencies_ms.insert(operation.to_string(), millis(latency));
            None
        }
        Err(cause) => Some(cause.clone()),
    };
    Cycle { index: u64::from(worker), group: 0, at_ms: millis(started), latencies_ms, error }
}

#[cfg(test)]
mod tests;
