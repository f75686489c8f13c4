//! One load on one system: what is written beforehand, the warm-up, the window.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::acked_steps::AckedSteps;
use super::churn::Churn;
use super::components::Components;
use super::evaluate::Catalog;
use super::fleet::Fleet;
use super::probe::Probe;
use super::read::{Reader, ReaderResult, Turns};
use super::system::System;
use super::verdict::{CheckCounts, judge};
use super::write::{Clock, Sender, SenderResult, WriteParams};
use crate::footprint::rss_bytes;
use crate::record::Recorder;
use crate::stage::Stage;
use crate::window::WindowObservation;

/// Not counted before the window.
const WARMUP: Duration = Duration::from_secs(3);

/// How often is looked whether the window has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Interval of memory samples.
const MEMORY_LOOK: Duration = Duration::from_millis(500);

/// What is done, besides how samples are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesLoad {
    pub(super) sending: WriteParams,
    /// Steps that are written beforehand, and those that there are at most.
    pub(super) preloaded: u64,
    pub(super) steps_max: u64,
    pub(super) window: Duration,
    /// Samples per second, in an open loop.
    pub(super) rate: Option<f64>,
    pub(super) readers: u32,
    /// Queries per second, in an open loop.
    pub(super) read_rate: Option<f64>,
    /// New series each second, beside the others.
    pub(super) churn: Option<u32>,
}

/// Results of a load.
pub(super) struct LoadResult {
    pub(super) observed: WindowObservation,
    pub(super) recorders: Vec<Recorder>,
    /// Milliseconds that the server says it spent in each of its parts.
    pub(super) components: Vec<(String, f64)>,
    /// Nothing where there were no readers.
    pub(super) verdict: Option<CheckCounts>,
    /// Acknowledged in the window.
    pub(super) samples: u64,
    /// Acknowledged from the first one on.
    pub(super) samples_of_all: u64,
    pub(super) window: Duration,
    pub(super) preload: Preload,
    /// The most memory that was seen, where its process is here.
    pub(super) rss_bytes: Option<u64>,
}

/// Samples written beforehand, and how long that took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preload {
    pub(super) samples: u64,
    pub(super) took: Duration,
}

/// Senders that have written what is written beforehand.
pub(super) struct PreloadedSenders {
    pub(super) lanes: Vec<Sender>,
    pub(super) frontier: Arc<AckedSteps>,
    pub(super) preload: Preload,
}

/// Ends the load of a measurement that is given up.
struct AbortOnDrop(Arc<Clock>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Samples the memory of a process at an interval.
struct MemorySampler {
    process: Option<u32>,
    next: Instant,
    most: Option<u64>,
}

impl MemorySampler {
    fn new(process: Option<u32>) -> Self {
        Self {
            process,
            next: Instant::now(),
            most: None,
        }
    }

    fn look(&mut self) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + MEMORY_LOOK;
            self.most = self.most.max(self.process.and_then(rss_bytes));
        }
    }
}

/// Makes the senders and writes what is written beforehand.
///
/// # Errors
/// When the system refuses.
pub(super) async fn preload(
    stage: &Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<PreloadedSenders> {
    stage.progress.say("making requests");
    let (sending, steps) = (load.sending, load.preloaded);
    let frontier = Arc::new(AckedSteps::new(sending.writers as usize));
    let address = system.address.clone();
    let lanes = tokio::task::spawn_blocking(move || -> Result<Vec<Sender>> {
        (0..sending.writers)
            .map(|number| Sender::new(&sending, &address, number))
            .collect()
    })
    .await??;
    stage.progress.say("preloading samples");
    let begun = Instant::now();
    let threads: Vec<JoinHandle<Result<Sender>>> = lanes
        .into_iter()
        .map(|mut lane| {
            let frontier = frontier.clone();
            std::thread::spawn(move || {
                let done = lane.preload(&sending.fleet, &frontier, steps);
                done.inspect_err(|_| frontier.abandon())?;
                Ok(lane)
            })
        })
        .collect();
    let lanes = tokio::task::spawn_blocking(move || all(threads)).await??;
    let took = begun.elapsed();
    let flushed = system.clone();
    tokio::task::spawn_blocking(move || flushed.flush()).await??;
    Ok(PreloadedSenders {
        lanes,
        preload: Preload {
            samples: frontier.acknowledged() * u64::from(sending.fleet.series),
            took,
        },
        frontier,
    })
}

/// Puts a system under the load.
///
/// # Errors
/// When it refuses what it must not.
pub(super) async fn drive(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<LoadResult> {
    let loaded = preload(stage, load, system).await?;
    let (preload, frontier) = (loaded.preload, loaded.frontier.clone());
    let fleet = load.sending.fleet;
    let catalog = Arc::new(Catalog::new(match load.readers {
        // There are no readers, so the catalog may be empty.
        0 => Fleet { series: 0, ..fleet },
        _ => fleet,
    }));
    let clock = Arc::new(Clock::new(WARMUP, load.window));
    let leash = AbortOnDrop(clock.clone());
    let crew = LoadThreads::start(load, system, loaded, &catalog, &clock, stage.seed);
    stage.progress.say("warming up");
    let mut watch = MemorySampler::new(system.process);
    until(&clock, clock.origin, &mut watch).await;
    let seconds = load.window.as_secs_f64();
    stage.progress.say(format!("measuring for {seconds:.0} s"));
    let window = stage.open_window(Some(load.window))?;
    let before = components(system).await?;
    until(&clock, clock.end, &mut watch).await;
    let components = components(system).await?.since(&before);
    let observed = window.close().await?;
    let done = tokio::task::spawn_blocking(move || crew.join()).await??;
    let length = clock.window();
    drop(leash);
    stage.progress.say("checking answers");
    let make = system.make;
    let verdict = match load.readers {
        0 => None,
        _ => Some(tokio::task::spawn_blocking(move || judge(done.asked, &catalog, make)).await?),
    };
    Ok(LoadResult {
        observed,
        recorders: done.recorders,
        components,
        verdict,
        samples: done.samples,
        samples_of_all: frontier.acknowledged() * u64::from(fleet.series),
        window: length,
        preload,
        rss_bytes: watch.most,
    })
}

/// All threads of a load.
struct LoadThreads {
    writers: Vec<JoinHandle<Result<SenderResult>>>,
    readers: Vec<JoinHandle<Result<ReaderResult>>>,
    /// Threads of churn and probe.
    others: Vec<JoinHandle<Result<Recorder>>>,
}

/// Results of all threads.
struct ThreadTotals {
    recorders: Vec<Recorder>,
    asked: Vec<ReaderResult>,
    /// Acknowledged in the window.
    samples: u64,
}

impl LoadThreads {
    fn start(
        load: &SeriesLoad,
        system: &System,
        loaded: PreloadedSenders,
        catalog: &Arc<Catalog>,
        clock: &Arc<Clock>,
        seed: u64,
    ) -> Self {
        let PreloadedSenders {
            lanes, frontier, ..
        } = loaded;
        let turns = Arc::new(Turns::new(load.read_rate, clock, seed));
        let readers = (0..load.readers).map(|_| Reader {
            system: system.clone(),
            catalog: catalog.clone(),
            frontier: frontier.clone(),
            clock: clock.clone(),
            turns: turns.clone(),
            readers: load.readers,
        });
        let readers = readers
            .map(|reader| spawn(clock, move || reader.run()))
            .collect();
        let probe = Probe {
            system: system.clone(),
            sending: load.sending,
            frontier: frontier.clone(),
            clock: clock.clone(),
        };
        let mut others = vec![spawn(clock, move || probe.run())];
        if let Some(rate) = load.churn {
            let churn = Churn {
                system: system.clone(),
                sending: load.sending,
                frontier: frontier.clone(),
                clock: clock.clone(),
                rate,
            };
            others.push(spawn(clock, move || churn.run()));
        }
        let writers = lanes.into_iter().map(|lane| {
            let (clock, frontier, load) = (clock.clone(), frontier.clone(), *load);
            let ends = clock.clone();
            spawn(&ends, move || {
                lane.load(&load.sending, &frontier, &clock, load.rate, load.steps_max)
            })
        });
        Self {
            writers: writers.collect(),
            readers,
            others,
        }
    }

    fn join(self) -> Result<ThreadTotals> {
        let written = all(self.writers)?;
        let mut asked = all(self.readers)?;
        let mut recorders = all(self.others)?;
        let samples = written.iter().map(|written| written.samples).sum();
        recorders.extend(written.into_iter().map(|written| written.recorder));
        recorders.extend(
            asked
                .iter_mut()
                .map(|asked| std::mem::take(&mut asked.recorder)),
        );
        Ok(ThreadTotals {
            recorders,
            asked,
            samples,
        })
    }
}

/// A thread whose failure ends the load.
fn spawn<T: Send + 'static>(
    clock: &Arc<Clock>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> JoinHandle<Result<T>> {
    let clock = clock.clone();
    std::thread::spawn(move || work().inspect_err(|_| clock.stop()))
}

async fn components(system: &System) -> Result<Components> {
    let system = system.clone();
    Ok(tokio::task::spawn_blocking(move || Components::of(&system)).await?)
}

/// Waits for a moment, or for the load's end if that is earlier.
async fn until(clock: &Clock, moment: Instant, watch: &mut MemorySampler) {
    while !clock.is_stopped() {
        watch.look();
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

/// What threads return; the first failure where one failed.
fn all<T>(threads: Vec<JoinHandle<Result<T>>>) -> Result<Vec<T>> {
    let ended: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    ended
        .into_iter()
        .map(|ended| ended.map_err(|_| anyhow!("a thread of the load has panicked"))?)
        .collect::<Result<_>>()
        .context("load")
}
