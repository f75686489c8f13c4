//! The threads that workers live on. A worker stays on its thread, so nothing it does crosses to
//! another one, and the generator takes no more cores than it was given.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::sync::{mpsc, oneshot};

use super::arrivals::{Dispatch, DueOperation};
use super::{Load, Operation, Worker, cold};
use crate::record::{QUEUE, Recorder};
use crate::result::Cycle;
use crate::steady::RateCounter;

pub(super) struct WorkerPool {
    threads: Vec<mpsc::UnboundedSender<RunCommand>>,
    cold: Vec<Cycle>,
}

/// Work through what a dispatch hands out, at most until a moment.
struct RunCommand {
    dispatch: Dispatch,
    until: Instant,
    answer: oneshot::Sender<ThreadResult>,
}

/// Results of the workers of a thread for one command. The workers take turns, so there is one for
/// all of them: histograms for each of thousands would be gigabytes.
#[derive(Default)]
struct ThreadResult {
    recorder: Recorder,
    cold: Vec<Cycle>,
}

/// A worker and what is kept of it between operations.
struct WorkerPlace<W> {
    number: u32,
    worker: W,
    made: Duration,
    is_cold: bool,
    /// Kept for its memory.
    phases: Vec<(&'static str, Duration)>,
}

/// Holds a worker between two commands.
type WorkerSlot<W> = Arc<Mutex<Option<WorkerPlace<W>>>>;

impl WorkerPool {
    /// Starts the threads; each makes its workers.
    pub(super) async fn hire<W, M, F>(load: &Load, make: M, pulse: Arc<RateCounter>) -> Result<Self>
    where
        W: Worker,
        M: Fn(u32) -> F + Clone + Send + 'static,
        F: Future<Output = Result<W>>,
    {
        let threads = load.threads.min(load.clients);
        let mut senders = Vec::new();
        let mut ready = Vec::new();
        for thread in 0..threads {
            let (orders, taken) = mpsc::unbounded_channel();
            let (made, is_made) = oneshot::channel();
            let numbers: Vec<u32> = (thread..load.clients).step_by(threads as usize).collect();
            let (make, pulse) = (make.clone(), pulse.clone());
            std::thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn(move || live(&numbers, make, made, taken, &pulse))
                .context("start a thread")?;
            senders.push(orders);
            ready.push(is_made);
        }
        for is_made in ready {
            is_made
                .await
                .map_err(|_| anyhow!("a load thread ended"))??;
        }
        Ok(Self {
            threads: senders,
            cold: Vec::new(),
        })
    }

    /// Runs the operations of `dispatch`. Those that still run at `deadline` are aborted.
    pub(super) async fn work(
        &mut self,
        dispatch: &Dispatch,
        until: Instant,
    ) -> Result<Vec<Recorder>> {
        let mut answers = Vec::new();
        for thread in &self.threads {
            let (answer, answered) = oneshot::channel();
            let order = RunCommand {
                dispatch: dispatch.clone(),
                until,
                answer,
            };
            thread
                .send(order)
                .map_err(|_| anyhow!("a load thread ended"))?;
            answers.push(answered);
        }
        let mut recorders = Vec::new();
        for answered in answers {
            let done = answered.await.map_err(|_| anyhow!("a load thread ended"))?;
            recorders.push(done.recorder);
            self.cold.extend(done.cold);
        }
        Ok(recorders)
    }

    /// The first operation of each worker, in the order of the workers.
    pub(super) fn cold_operations(&self) -> Vec<Cycle> {
        let mut cold = self.cold.clone();
        cold.sort_by_key(|cycle| cycle.index);
        cold
    }
}

/// The loop of a thread: makes its workers, then runs commands until the channel is closed.
fn live<W, M, F>(
    numbers: &[u32],
    make: M,
    made: oneshot::Sender<Result<()>>,
    mut orders: mpsc::UnboundedReceiver<RunCommand>,
    pulse: &Arc<RateCounter>,
) where
    W: Worker,
    M: Fn(u32) -> F,
    F: Future<Output = Result<W>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // The receiver is gone only if another thread has failed.
            let _ = made.send(Err(error.into()));
            return;
        }
    };
    runtime.block_on(async move {
        let seats = match make_all(numbers, make).await {
            Ok(seats) => seats,
            Err(error) => {
                let _ = made.send(Err(error));
                return;
            }
        };
        let _ = made.send(Ok(()));
        while let Some(order) = orders.recv().await {
            let done = obey(&seats, &order, pulse).await;
            let _ = order.answer.send(done);
        }
    });
}

async fn make_all<W, M, F>(numbers: &[u32], make: M) -> Result<Vec<WorkerSlot<W>>>
where
    M: Fn(u32) -> F,
    F: Future<Output = Result<W>>,
{
    let mut seats = Vec::new();
    for number in numbers {
        let begun = Instant::now();
        let worker = make(*number).await?;
        seats.push(Arc::new(Mutex::new(Some(WorkerPlace {
            number: *number,
            worker,
            made: begun.elapsed(),
            is_cold: true,
            phases: Vec::new(),
        }))));
    }
    Ok(seats)
}

/// Runs all workers and waits for them, at most until the deadline of the command.
async fn obey<W: Worker>(
    seats: &[WorkerSlot<W>],
    order: &RunCommand,
    pulse: &Arc<RateCounter>,
) -> ThreadResult {
    // Shared with the tasks, so that what a task wrote down outlives its abortion.
    let notes: Arc<Mutex<ThreadResult>> = Arc::default();
    let mut tasks = Vec::new();
    for seat in seats {
        let (seat, notes) = (seat.clone(), notes.clone());
        let (dispatch, pulse) = (order.dispatch.clone(), pulse.clone());
        tasks.push(tokio::spawn(async move {
            // Empty when an earlier order gave the worker up in the middle of an operation.
            let Some(mut place) = lock(&seat).take() else {
                return;
            };
            while let Some(due) = dispatch.next().await {
                let latency = serve(&dispatch, due, &mut place, &notes).await;
                pulse.add(latency);
            }
            *lock(&seat) = Some(place);
        }));
    }
    let all = async {
        for task in &mut tasks {
            // A worker that panicked has told standard error; the others go on.
            let _ = task.await;
        }
    };
    let in_time = tokio::time::timeout_at(order.until.into(), all).await;
    if in_time.is_err() {
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
    std::mem::take(&mut *lock(&notes))
}

/// What is locked here is whole even when a worker panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one operation, records it, and returns its latency from its intended start.
async fn serve<W: Worker>(
    dispatch: &Dispatch,
    due: DueOperation,
    place: &mut WorkerPlace<W>,
    notes: &Mutex<ThreadResult>,
) -> Duration {
    let origin = dispatch.origin();
    let started = origin.elapsed();
    let mut turn = Operation {
        number: dispatch.number(due),
        random: dispatch.random(due),
        phases: std::mem::take(&mut place.phases),
    };
    let done = place.worker.operate(&mut turn).await;
    let ended = origin.elapsed();
    let notes = &mut *lock(notes);
    if std::mem::take(&mut place.is_cold) {
        let took = ended.saturating_sub(started);
        let cold = cold(place.number, started, place.made, took, &done);
        notes.cold.push(cold);
    }
    match done {
        Ok(operation) => {
            let recorder = &mut notes.recorder;
            recorder.success(&operation, due.intended, started, ended);
            if dispatch.queues() {
                recorder.phase(&operation, QUEUE, started.saturating_sub(due.intended));
            }
            for (phase, took) in &turn.phases {
                recorder.phase(&operation, phase, *took);
            }
        }
        Err(cause) => notes.recorder.failure(&cause, due.intended, started, ended),
    }
    turn.phases.clear();
    place.phases = turn.phases;
    ended.saturating_sub(due.intended)
}
