//! The clock of the program: opened before everything that takes its time from it, watched while
//! Egret runs, and kept for the next start.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::SteadyClock;
use egret_base::clock::ClockStatus;
use egret_base::clock::model::{ClockPolicy, ClockState};
use egret_base::condition::{self, Condition};
use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::settings::ConfigDuration;
use egret_base::sync::lock;
use egret_server::Metrics;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

egret_base::settings! {
    /// Settings of the clock that everything in Egret goes by.
    pub struct ClockConfig in "clock" {
        /// Largest jump of the machine's wall clock that Egret follows, while it runs or between
        /// two of its runs in one boot of the machine. After a larger jump Egret's time is held: it
        /// advances by the elapsed time until the wall clock is corrected or `egret clock release`
        /// accepts it. Jumps within an hour are added up.
        jump_max: ConfigDuration = ConfigDuration::secs(300); positive,
        /// Largest difference between the wall clock and Egret's last stop that is accepted at the
        /// first start after a boot of the machine; over it Egret's time is held in the same way.
        start_jump_max: ConfigDuration = ConfigDuration::secs(31 * 86_400); positive,
    }
}

/// How often the wall clock is looked at when nothing else asks for the time.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Looks at the clock between two writes of its record.
const CHECKS_PER_SAVE: u32 = 60;

/// Opens the clock; what is wrong with its record is logged.
pub(super) fn open_clock(path: &Path, config: &ClockConfig) -> SteadyClock {
    let policy = ClockPolicy {
        jump_max: config.jump_max.duration(),
        start_jump_max: config.start_jump_max.duration(),
    };
    let (clock, problems) = SteadyClock::open(path, policy);
    for error in problems {
        tracing::warn!(%error, "cannot use the clock's record: a wrong wall clock may go unnoticed at this start or the next");
    }
    clock
}

#[derive(Clone, Default)]
struct ClockMetrics {
    offset: Gauge<f64, AtomicU64>,
    held: Gauge,
}

/// Watches the clock, and ends the faults that no request runs into any more.
pub(super) struct ClockService {
    clock: Arc<SteadyClock>,
    metrics: ClockMetrics,
    stopping: watch::Sender<bool>,
    watch_task: Mutex<Option<JoinHandle<()>>>,
}

impl ClockService {
    pub(super) fn new(clock: Arc<SteadyClock>, metrics: &Metrics) -> Self {
        let clock_metrics = ClockMetrics::default();
        metrics.register(|registry| {
            registry.register(
                "egret_clock_offset_seconds",
                "By how much the wall clock is ahead of Egret's time",
                clock_metrics.offset.clone(),
            );
            registry.register(
                "egret_clock_held",
                "Whether Egret's time is held because the wall clock has jumped: 1 or 0",
                clock_metrics.held.clone(),
            );
        });
        Self {
            clock,
            metrics: clock_metrics,
            stopping: watch::Sender::new(false),
            watch_task: Mutex::default(),
        }
    }
}

/// Logs the beginning and the end of a hold, once each.
fn report(held: &Condition, status: &ClockStatus) {
    let offset_seconds = status.offset_us as f64 / 1e6;
    match status.state {
        ClockState::Held => {
            let reason = format!(
                "the wall clock and Egret's time differ by {} s: set the wall clock right, or accept it with `egret clock release`",
                offset_seconds.abs()
            );
            if held.begin(reason) {
                tracing::warn!(
                    condition = "clock_held",
                    subject = "clock",
                    wall = %status.wall,
                    accepted = %status.accepted,
                    offset_seconds,
                    "the wall clock has jumped, Egret's time is held: set the wall clock right, or accept it with `egret clock release`"
                );
            }
        }
        ClockState::Following => {
            if held.end() {
                tracing::info!(
                    condition = "clock_held",
                    subject = "clock",
                    accepted = %status.accepted,
                    "Egret's time follows the wall clock again"
                );
            }
        }
    }
}

async fn run_watch(
    clock: Arc<SteadyClock>,
    metrics: ClockMetrics,
    mut stopping: watch::Receiver<bool>,
) {
    let mut interval = tokio::time::interval(WATCH_INTERVAL);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let held = Condition::new("clock_held", "clock");
    let unsaved = Condition::new("clock_record_unwritable", "clock");
    let mut checks = 0;
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            _ = stopping.changed() => return,
        }
        let status = clock.status();
        report(&held, &status);
        condition::end_quiet();
        metrics.offset.set(status.offset_us as f64 / 1e6);
        metrics.held.set(i64::from(status.state == ClockState::Held));
        checks += 1;
        if checks % CHECKS_PER_SAVE == 0 {
            save(&clock, &unsaved).await;
        }
    }
}

/// Writes the clock's record.
async fn save(clock: &Arc<SteadyClock>, unsaved: &Condition) {
    let saved = {
        let clock = clock.clone();
        tokio::task::spawn_blocking(move || clock.save()).await
    };
    match saved {
        Ok(Ok(())) => {
            unsaved.recover("writing the clock's record works again");
        }
        Ok(Err(error)) => {
            unsaved.fail(&error, "cannot write the clock's record; retrying every minute");
        }
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl Service for ClockService {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            let watching =
                run_watch(self.clock.clone(), self.metrics.clone(), self.stopping.subscribe());
            let task = tokio::spawn(watching);
            *lock(&self.watch_task) = Some(task);
            Ok(())
        })
    }

    fn ready(&self) -> Readiness {
        Readiness::Ready
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // The receiver is gone when the service never started.
            let _ = self.stopping.send(true);
            let task = lock(&self.watch_task).take();
            if let Some(task) = task {
                if let Err(error) = task.await {
                    tracing::error!(%error, "the watch of the clock panicked");
                }
                let unsaved = Condition::new("clock_record_unwritable", "clock");
                save(&self.clock, &unsaved).await;
            }
        })
    }
}
