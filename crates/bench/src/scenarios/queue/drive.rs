//! Runs a load on a thread of its own: connects, warms up until it is steady, measures, drains.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::broker::Broker;
use super::cycle::{CycleLoad, CycleOutcome, CyclePlan, Purpose};
use super::figures::ResourceSampler;
use super::signals::Signals;
use crate::load::{Pace, watched_value};
use crate::result::{Warmup, Watched};
use crate::stage::Stage;
use crate::steady::{Detector, LATENCY_SLOPE_MAX, RATE_SLOPE_MAX, WARMUP_WINDOW};
use crate::window::WindowObservation;

/// The load looks at its clock this often when nothing comes.
const TICK_INTERVAL: Duration = Duration::from_millis(10);

/// Calls of an open loop that are due are begun this often: far below what is told from one
/// another, and few enough to cost the generator little.
const RELEASE_INTERVAL: Duration = Duration::from_micros(200);

/// Tasks in a call of those that fill a queue.
const FILL_BATCH: u32 = 250;

/// Lengths of warm-up and window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) warmup_max: Duration,
    pub(super) window: Duration,
}

/// A load that has run.
pub(super) struct LoadResult {
    pub(super) outcome: CycleOutcome,
    pub(super) observation: WindowObservation,
    pub(super) warmup: Warmup,
    /// How long the window was, as the load saw it.
    pub(super) window: Duration,
    pub(super) sampler: ResourceSampler,
}

/// Ends the load's thread when dropped, as its result is no longer awaited.
struct AbortOnDrop(Arc<Signals>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs a load on the task queue that `connect` connects to. Between warm-up and window, with the
/// load running, it waits for `gate`.
///
/// # Errors
/// When it cannot be connected to, or the load fails.
pub(super) async fn run_load<B, C, F>(
    stage: &mut Stage,
    plan: &CyclePlan,
    lengths: Lengths,
    mut sampler: ResourceSampler,
    connect: C,
    gate: impl Future<Output = Result<()>>,
) -> Result<LoadResult>
where
    B: Broker,
    C: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<B>>,
{
    stage.progress.show("connecting");
    let signals = Arc::new(Signals::new(Instant::now()));
    let abort_guard = AbortOnDrop(signals.clone());
    let mut outcome_receiver = spawn_load(plan, &signals, connect);
    let warmup = tokio::select! {
        warmup = warm_up(stage, plan, lengths.warmup_max, &signals) => warmup,
        ended = &mut outcome_receiver => return Err(early_end_error(ended)),
    };
    tokio::select! {
        result = gate => result?,
        ended = &mut outcome_receiver => return Err(early_end_error(ended)),
    }
    let fixed_length = plan.cycles.is_none().then_some(lengths.window);
    stage.progress.show(match plan.cycles {
        Some(cycles) => format!("measuring {cycles} cycles"),
        None => format!("measuring for {:.0} s", lengths.window.as_secs_f64()),
    });
    let window = stage.open_window(fixed_length)?;
    signals.open_window(window.origin(), fixed_length);
    let early_outcome = tokio::select! {
        () = sampler.sample_until_end(&signals, fixed_length.map(|lasts| window.origin() + lasts)) => None,
        ended = &mut outcome_receiver => Some(ended),
    };
    let observation = window.close().await?;
    sampler.sample();
    stage.progress.show("waiting for the last tasks");
    let outcome_result = match early_outcome {
        Some(ended) => ended,
        None => outcome_receiver.await,
    };
    let outcome = outcome_result.context("the load's thread has ended")??;
    let length = signals.window_length();
    drop(abort_guard);
    Ok(LoadResult { outcome, observation, warmup, window: length, sampler })
}

type LoadEnd = Result<Result<CycleOutcome>, oneshot::error::RecvError>;

fn early_end_error(ended: LoadEnd) -> anyhow::Error {
    match ended {
        Ok(Err(error)) => error,
        Ok(Ok(_)) => anyhow!("the load has ended too early"),
        Err(_) => anyhow!("the load's thread has failed"),
    }
}

/// Makes tasks without a worker, as fast as they are acknowledged; returns how long that took.
///
/// # Errors
/// When the task queue cannot be connected to, or refuses one.
pub(super) async fn fill_queue<B, C, F>(
    plan: &CyclePlan,
    tasks: u64,
    connect: C,
) -> Result<Duration>
where
    B: Broker,
    C: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<B>>,
{
    let signals = Arc::new(Signals::new(Instant::now()));
    let _abort_guard = AbortOnDrop(signals.clone());
    let plan = CyclePlan {
        batch: FILL_BATCH,
        rate: None,
        cycles: None,
        purpose: Purpose::Fill(tasks),
        ..plan.clone()
    };
    signals.open_window(Instant::now(), None);
    let begun = Instant::now();
    let outcome = spawn_load(&plan, &signals, connect)
        .await
        .context("the thread that fills the queue has ended")??;
    let accepted = outcome.ledger.accepted();
    ensure!(accepted >= tasks, "only {accepted} of {tasks} tasks were accepted");
    Ok(begun.elapsed())
}

/// A load that runs beside what is measured.
pub(super) struct BackgroundLoad {
    signals: Arc<Signals>,
    outcome_receiver: oneshot::Receiver<Result<CycleOutcome>>,
    begun: Instant,
    _abort_guard: AbortOnDrop,
}

impl BackgroundLoad {
    pub(super) fn start<B, C, F>(plan: &CyclePlan, connect: C) -> Self
    where
        B: Broker,
        C: FnOnce() -> F + Send + 'static,
        F: Future<Output = Result<B>>,
    {
        let begun = Instant::now();
        let signals = Arc::new(Signals::new(begun));
        signals.open_window(begun, None);
        Self {
            outcome_receiver: spawn_load(plan, &signals, connect),
            _abort_guard: AbortOnDrop(signals.clone()),
            signals,
            begun,
        }
    }

    /// Ends it; what it has done, and for how long.
    ///
    /// # Errors
    /// When it has failed.
    pub(super) async fn finish(self) -> Result<(CycleOutcome, Duration)> {
        self.signals.end_window(self.signals.now_ns());
        let elapsed = self.begun.elapsed();
        let outcome = self.outcome_receiver.await.context("the background load has ended")??;
        Ok((outcome, elapsed))
    }
}

fn spawn_load<B, C, F>(
    plan: &CyclePlan,
    signals: &Arc<Signals>,
    connect: C,
) -> oneshot::Receiver<Result<CycleOutcome>>
where
    B: Broker,
    C: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<B>>,
{
    let (outcome_sender, outcome_receiver) = oneshot::channel();
    let (plan, signals) = (plan.clone(), signals.clone());
    if plan.rate.is_some() {
        let signals = signals.clone();
        std::thread::spawn(move || wake_periodically(&signals));
    }
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start an event loop");
        let outcome = runtime.and_then(|runtime| {
            runtime.block_on(async {
                let cycle = CycleLoad::new(connect().await?, &plan, signals.clone());
                run_cycle_load(cycle, &signals).await
            })
        });
        signals.window_ended.notify_one();
        // The receiver may be gone: the result is then not needed.
        let _ = outcome_sender.send(outcome);
    });
    outcome_receiver
}

async fn run_cycle_load<B: Broker>(
    mut cycle: CycleLoad<B>,
    signals: &Signals,
) -> Result<CycleOutcome> {
    let mut ticks = tokio::time::interval(TICK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            result = poll_fn(|context| cycle.poll(context)) => {
                result?;
                return Ok(cycle.into_outcome());
            }
            () = signals.calls_due.notified() => {}
            _ = ticks.tick() => {}
        }
    }
}

/// Wakes the load of an open loop: timers of an event loop are exact to a millisecond only.
fn wake_periodically(signals: &Signals) {
    // Without it the kernel wakes up to 50 µs late, to save power. Where it refuses, it does.
    let _ = rustix::thread::set_current_timer_slack(Some(
        std::num::NonZeroU64::new(1).expect("one is not zero"),
    ));
    while signals.now_ns() < signals.window().end {
        signals.calls_due.notify_one();
        std::thread::sleep(RELEASE_INTERVAL);
    }
}

/// Lets the load run unmeasured until it is steady, or the cap ends it.
async fn warm_up(stage: &Stage, plan: &CyclePlan, cap: Duration, signals: &Signals) -> Warmup {
    stage.progress.show("warming up");
    let pace = match plan.rate {
        None => Pace::Closed,
        Some((rate, spacing)) => Pace::Open { rate, spacing },
    };
    let mut detector = Detector::new(match pace {
        Pace::Closed => RATE_SLOPE_MAX,
        Pace::Open { .. } => LATENCY_SLOPE_MAX,
    });
    let begun = Instant::now();
    let (mut previous, mut last_time, mut steady) = (signals.counter.read(), begun, false);
    while !steady && begun.elapsed() < cap {
        tokio::time::sleep(WARMUP_WINDOW.min(cap)).await;
        let (sample, moment) = (signals.counter.read(), Instant::now());
        if let Some(value) = watched_value(pace, &sample, &previous, moment - last_time) {
            steady = detector.push(moment - begun, value);
        }
        (previous, last_time) = (sample, moment);
    }
    let slope = detector.slope();
    Warmup {
        seconds: begun.elapsed().as_secs_f64(),
        steady,
        slope: slope.map_or(0.0, |slope| slope.relative),
        standard_error: slope.map(|slope| slope.standard_error),
        watched: Some(match pace {
            Pace::Closed => Watched::Rate,
            Pace::Open { .. } => Watched::Latency,
        }),
    }
}
