//! One load on one system: what is written beforehand, the warm-up, the window.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::acked_steps::AckedSteps;
use super::answer_checks::{CheckCounts, check_answers};
use super::churn::Churn;
use super::components::Components;
use super::evaluate::Catalog;
use super::fleet::Fleet;
use super::probe::Probe;
use super::read::{QueryTurns, Reader, ReaderResult};
use super::system::System;
use super::write::{Clock, Sender, SenderResult, WriteParams};
use crate::footprint::rss_bytes;
use crate::record::Recorder;
use crate::stage::Stage;
use crate::window::WindowObservation;

/// Not counted before the window.
const WARMUP: Duration = Duration::from_secs(3);

/// How often is looked whether the window has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Interval of memory samples.
const MEMORY_SAMPLE_INTERVAL: Duration = Duration::from_millis(500);

/// What is done, besides how samples are sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesLoad {
    pub(super) write_params: WriteParams,
    /// Steps that are written beforehand, and those that there are at most.
    pub(super) preloaded_steps: u64,
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
    pub(super) observation: WindowObservation,
    pub(super) recorders: Vec<Recorder>,
    /// Milliseconds that the server says it spent in each of its parts.
    pub(super) components: Vec<(String, f64)>,
    /// Nothing where there were no readers.
    pub(super) check_counts: Option<CheckCounts>,
    /// Acknowledged in the window.
    pub(super) samples: u64,
    /// Acknowledged from the first one on.
    pub(super) total_samples: u64,
    pub(super) window: Duration,
    pub(super) preload: Preload,
    /// The most memory that was seen, where its process is here.
    pub(super) rss_bytes: Option<u64>,
}

/// Samples written beforehand, and how long that took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Preload {
    pub(super) samples: u64,
    pub(super) duration: Duration,
}

/// Senders that have written what is written beforehand.
pub(super) struct PreloadedSenders {
    pub(super) senders: Vec<Sender>,
    pub(super) acked_steps: Arc<AckedSteps>,
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
    next_sample: Instant,
    max_rss: Option<u64>,
}

impl MemorySampler {
    fn new(process: Option<u32>) -> Self {
        Self { process, next_sample: Instant::now(), max_rss: None }
    }

    fn sample_if_due(&mut self) {
        let now = Instant::now();
        if now >= self.next_sample {
            self.next_sample = now + MEMORY_SAMPLE_INTERVAL;
            self.max_rss = self.max_rss.max(self.process.and_then(rss_bytes));
        }
    }
}

/// Makes the senders and writes what is written beforehand.
///
/// # Errors
/// When the system refuses.
pub(super) async fn preload_samples(
    stage: &Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<PreloadedSenders> {
    stage.progress.show("making requests");
    let (write_params, steps) = (load.write_params, load.preloaded_steps);
    let acked_steps = Arc::new(AckedSteps::new(write_params.writers as usize));
    let address = system.address.clone();
    let senders = tokio::task::spawn_blocking(move || -> Result<Vec<Sender>> {
        (0..write_params.writers)
            .map(|number| Sender::new(&write_params, &address, number))
            .collect()
    })
    .await??;
    stage.progress.show("preloading samples");
    let begun = Instant::now();
    let threads: Vec<JoinHandle<Result<Sender>>> = senders
        .into_iter()
        .map(|mut sender| {
            let frontier = acked_steps.clone();
            std::thread::spawn(move || {
                let result = sender.preload(&write_params.fleet, &frontier, steps);
                result.inspect_err(|_| frontier.abandon())?;
                Ok(sender)
            })
        })
        .collect();
    let lanes = tokio::task::spawn_blocking(move || join_threads(threads)).await??;
    let duration = begun.elapsed();
    let flush_system = system.clone();
    tokio::task::spawn_blocking(move || flush_system.flush()).await??;
    Ok(PreloadedSenders {
        senders: lanes,
        preload: Preload {
            samples: acked_steps.acknowledged() * u64::from(write_params.fleet.series),
            duration,
        },
        acked_steps,
    })
}

/// Puts a system under the load.
///
/// # Errors
/// When it refuses what it must not.
pub(super) async fn run_load(
    stage: &mut Stage,
    load: &SeriesLoad,
    system: &System,
) -> Result<LoadResult> {
    let preloaded = preload_samples(stage, load, system).await?;
    let (preload, acked_steps) = (preloaded.preload, preloaded.acked_steps.clone());
    let fleet = load.write_params.fleet;
    let catalog = Arc::new(Catalog::new(match load.readers {
        // There are no readers, so the catalog may be empty.
        0 => Fleet { series: 0, ..fleet },
        _ => fleet,
    }));
    let clock = Arc::new(Clock::new(WARMUP, load.window));
    let abort_guard = AbortOnDrop(clock.clone());
    let threads = LoadThreads::start(load, system, preloaded, &catalog, &clock, stage.seed);
    stage.progress.show("warming up");
    let mut sampler = MemorySampler::new(system.process);
    sample_until(&clock, clock.origin, &mut sampler).await;
    let seconds = load.window.as_secs_f64();
    stage.progress.show(format!("measuring for {seconds:.0} s"));
    let window = stage.open_window(Some(load.window))?;
    let before = read_components(system).await?;
    sample_until(&clock, clock.end, &mut sampler).await;
    let components = read_components(system).await?.since(&before);
    let observation = window.close().await?;
    let totals = tokio::task::spawn_blocking(move || threads.join()).await??;
    let length = clock.window();
    drop(abort_guard);
    stage.progress.show("checking answers");
    let vendor = system.vendor;
    let check_counts = match load.readers {
        0 => None,
        _ => Some(
            tokio::task::spawn_blocking(move || {
                check_answers(totals.reader_results, &catalog, vendor)
            })
            .await?,
        ),
    };
    Ok(LoadResult {
        observation,
        recorders: totals.recorders,
        components,
        check_counts,
        samples: totals.samples,
        total_samples: acked_steps.acknowledged() * u64::from(fleet.series),
        window: length,
        preload,
        rss_bytes: sampler.max_rss,
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
    reader_results: Vec<ReaderResult>,
    /// Acknowledged in the window.
    samples: u64,
}

impl LoadThreads {
    fn start(
        load: &SeriesLoad,
        system: &System,
        preloaded: PreloadedSenders,
        catalog: &Arc<Catalog>,
        clock: &Arc<Clock>,
        seed: u64,
    ) -> Self {
        let PreloadedSenders { senders, acked_steps: frontier, .. } = preloaded;
        let turns = Arc::new(QueryTurns::new(load.read_rate, clock, seed));
        let readers = (0..load.readers).map(|_| Reader {
            system: system.clone(),
            catalog: catalog.clone(),
            acked_steps: frontier.clone(),
            clock: clock.clone(),
            turns: turns.clone(),
            readers: load.readers,
        });
        let readers =
            readers.map(|reader| spawn_load_thread(clock, move || reader.run())).collect();
        let probe = Probe {
            system: system.clone(),
            write_params: load.write_params,
            acked_steps: frontier.clone(),
            clock: clock.clone(),
        };
        let mut others = vec![spawn_load_thread(clock, move || probe.run())];
        if let Some(rate) = load.churn {
            let churn = Churn {
                system: system.clone(),
                write_params: load.write_params,
                acked_steps: frontier.clone(),
                clock: clock.clone(),
                rate,
            };
            others.push(spawn_load_thread(clock, move || churn.run()));
        }
        let writers = senders.into_iter().map(|sender| {
            let (clock, acked_steps, load) = (clock.clone(), frontier.clone(), *load);
            let end_clock = clock.clone();
            spawn_load_thread(&end_clock, move || {
                sender.run(&load.write_params, &acked_steps, &clock, load.rate, load.steps_max)
            })
        });
        Self { writers: writers.collect(), readers, others }
    }

    fn join(self) -> Result<ThreadTotals> {
        let sender_results = join_threads(self.writers)?;
        let mut reader_results = join_threads(self.readers)?;
        let mut recorders = join_threads(self.others)?;
        let samples = sender_results.iter().map(|sender_result| sender_result.samples).sum();
        recorders.extend(sender_results.into_iter().map(|written| written.recorder));
        recorders.extend(
            reader_results
                .iter_mut()
                .map(|reader_result| std::mem::take(&mut reader_result.recorder)),
        );
        Ok(ThreadTotals { recorders, reader_results, samples })
    }
}

/// A thread whose failure ends the load.
fn spawn_load_thread<T: Send + 'static>(
    clock: &Arc<Clock>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> JoinHandle<Result<T>> {
    let clock = clock.clone();
    std::thread::spawn(move || work().inspect_err(|_| clock.stop()))
}

async fn read_components(system: &System) -> Result<Components> {
    let system = system.clone();
    Ok(tokio::task::spawn_blocking(move || Components::read(&system)).await?)
}

/// Waits for a moment, or for the load's end if that is earlier.
async fn sample_until(clock: &Clock, moment: Instant, sampler: &mut MemorySampler) {
    while !clock.is_stopped() {
        sampler.sample_if_due();
        let remaining = moment.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return;
        }
        tokio::time::sleep(remaining.min(POLL_INTERVAL)).await;
    }
}

/// What threads return; the first failure where one failed.
fn join_threads<T>(threads: Vec<JoinHandle<Result<T>>>) -> Result<Vec<T>> {
    let results: Vec<_> = threads.into_iter().map(JoinHandle::join).collect();
    results
        .into_iter()
        .map(|result| result.map_err(|_| anyhow!("a thread of the load has panicked"))?)
        .collect::<Result<_>>()
        .context("load")
}
