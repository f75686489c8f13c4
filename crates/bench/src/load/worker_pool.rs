//! The threads that workers live on. A worker stays on its thread, so nothing it does crosses to
//! another one, and the generator takes no more cores than it was given.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::sync::{mpsc, oneshot};

use super::arrivals::{Dispatch, DueOperation};
use super::{Load, Operation, Worker, cold_cycle};
use crate::record::{QUEUE_PHASE, Recorder};
use crate::result::Cycle;
use crate::steady::RateCounter;

pub(super) struct WorkerPool {
    command_senders: Vec<mpsc::UnboundedSender<RunCommand>>,
    cold_cycles: Vec<Cycle>,
}

/// Work through what a dispatch hands out, at most until a moment.
struct RunCommand {
    dispatch: Dispatch,
    deadline: Instant,
    reply: oneshot::Sender<ThreadResult>,
}

/// Results of the workers of a thread for one command. The workers take turns, so there is one for
/// all of them: histograms for each of thousands would be gigabytes.
#[derive(Default)]
struct ThreadResult {
    recorder: Recorder,
    cold_cycles: Vec<Cycle>,
}

/// A worker and what is kept of it between operations.
struct WorkerState<W> {
    number: u32,
    worker: W,
    connect_time: Duration,
    is_cold: bool,
    /// Kept for its memory.
    phases: Vec<(&'static str, Duration)>,
}

/// Holds a worker between two commands.
type WorkerSlot<W> = Arc<Mutex<Option<WorkerState<W>>>>;

impl WorkerPool {
    /// Starts the threads; each makes its workers.
    pub(super) async fn start<W, M, F>(
        load: &Load,
        make_worker: M,
        counter: Arc<RateCounter>,
    ) -> Result<Self>
    where
        W: Worker,
        M: Fn(u32) -> F + Clone + Send + 'static,
        F: Future<Output = Result<W>>,
    {
        let threads = load.threads.min(load.clients);
        let mut senders = Vec::new();
        let mut ready_receivers = Vec::new();
        for thread in 0..threads {
            let (command_sender, commands) = mpsc::unbounded_channel();
            let (ready_sender, ready_receiver) = oneshot::channel();
            let numbers: Vec<u32> = (thread..load.clients).step_by(threads as usize).collect();
            let (make, pulse) = (make_worker.clone(), counter.clone());
            std::thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn(move || run_thread(&numbers, make, ready_sender, commands, &pulse))
                .context("start a thread")?;
            senders.push(command_sender);
            ready_receivers.push(ready_receiver);
        }
        for is_made in ready_receivers {
            is_made.await.map_err(|_| anyhow!("a load thread ended"))??;
        }
        Ok(Self { command_senders: senders, cold_cycles: Vec::new() })
    }

    /// Runs the operations of `dispatch`. Those that still run at `deadline` are aborted.
    pub(super) async fn run(
        &mut self,
        dispatch: &Dispatch,
        deadline: Instant,
    ) -> Result<Vec<Recorder>> {
        let mut reply_receivers = Vec::new();
        for thread in &self.command_senders {
            let (reply, reply_receiver) = oneshot::channel();
            let command = RunCommand { dispatch: dispatch.clone(), deadline, reply };
            thread.send(command).map_err(|_| anyhow!("a load thread ended"))?;
            reply_receivers.push(reply_receiver);
        }
        let mut recorders = Vec::new();
        for answered in reply_receivers {
            let result = answered.await.map_err(|_| anyhow!("a load thread ended"))?;
            recorders.push(result.recorder);
            self.cold_cycles.extend(result.cold_cycles);
        }
        Ok(recorders)
    }

    /// The first operation of each worker, in the order of the workers.
    pub(super) fn cold_operations(&self) -> Vec<Cycle> {
        let mut cycles = self.cold_cycles.clone();
        cycles.sort_by_key(|cycle| cycle.index);
        cycles
    }
}

/// The loop of a thread: makes its workers, then runs commands until the channel is closed.
fn run_thread<W, M, F>(
    numbers: &[u32],
    make_worker: M,
    ready_sender: oneshot::Sender<Result<()>>,
    mut commands: mpsc::UnboundedReceiver<RunCommand>,
    counter: &Arc<RateCounter>,
) where
    W: Worker,
    M: Fn(u32) -> F,
    F: Future<Output = Result<W>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            // The receiver is gone only if another thread has failed.
            let _ = ready_sender.send(Err(error.into()));
            return;
        }
    };
    runtime.block_on(async move {
        let slots = match make_workers(numbers, make_worker).await {
            Ok(seats) => seats,
            Err(error) => {
                let _ = ready_sender.send(Err(error));
                return;
            }
        };
        let _ = ready_sender.send(Ok(()));
        while let Some(command) = commands.recv().await {
            let result = run_command(&slots, &command, counter).await;
            let _ = command.reply.send(result);
        }
    });
}

async fn make_workers<W, M, F>(numbers: &[u32], make_worker: M) -> Result<Vec<WorkerSlot<W>>>
where
    M: Fn(u32) -> F,
    F: Future<Output = Result<W>>,
{
    let mut slots = Vec::new();
    for number in numbers {
        let begun = Instant::now();
        let worker = make_worker(*number).await?;
        slots.push(Arc::new(Mutex::new(Some(WorkerState {
            number: *number,
            worker,
            connect_time: begun.elapsed(),
            is_cold: true,
            phases: Vec::new(),
        }))));
    }
    Ok(slots)
}

/// Runs all workers and waits for them, at most until the deadline of the command.
async fn run_command<W: Worker>(
    slots: &[WorkerSlot<W>],
    command: &RunCommand,
    counter: &Arc<RateCounter>,
) -> ThreadResult {
    // Shared with the tasks, so that what a task wrote down outlives its abortion.
    let shared_result: Arc<Mutex<ThreadResult>> = Arc::default();
    let mut tasks = Vec::new();
    for slot in slots {
        let (seat, notes) = (slot.clone(), shared_result.clone());
        let (dispatch, pulse) = (command.dispatch.clone(), counter.clone());
        tasks.push(tokio::spawn(async move {
            // Empty when an earlier order gave the worker up in the middle of an operation.
            let Some(mut worker_state) = lock(&seat).take() else {
                return;
            };
            while let Some(due) = dispatch.next().await {
                let latency = run_operation(&dispatch, due, &mut worker_state, &notes).await;
                pulse.add(latency);
            }
            *lock(&seat) = Some(worker_state);
        }));
    }
    let all_ended = async {
        for task in &mut tasks {
            // A worker that panicked has told standard error; the others go on.
            let _ = task.await;
        }
    };
    let timeout_result = tokio::time::timeout_at(command.deadline.into(), all_ended).await;
    if timeout_result.is_err() {
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
    std::mem::take(&mut *lock(&shared_result))
}

/// What is locked here is whole even when a worker panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs one operation, records it, and returns its latency from its intended start.
async fn run_operation<W: Worker>(
    dispatch: &Dispatch,
    due: DueOperation,
    worker_state: &mut WorkerState<W>,
    shared_result: &Mutex<ThreadResult>,
) -> Duration {
    let origin = dispatch.origin();
    let started = origin.elapsed();
    let mut current_operation = Operation {
        number: dispatch.number(due),
        random: dispatch.random(due),
        phases: std::mem::take(&mut worker_state.phases),
    };
    let outcome = worker_state.worker.operate(&mut current_operation).await;
    let ended = origin.elapsed();
    let result = &mut *lock(shared_result);
    if std::mem::take(&mut worker_state.is_cold) {
        let latency = ended.saturating_sub(started);
        let cycle =
            cold_cycle(worker_state.number, started, worker_state.connect_time, latency, &outcome);
        result.cold_cycles.push(cycle);
    }
    match outcome {
        Ok(name) => {
            let recorder = &mut result.recorder;
            recorder.record_success(&name, due.intended, started, ended);
            if dispatch.is_open_loop() {
                recorder.record_phase(&name, QUEUE_PHASE, started.saturating_sub(due.intended));
            }
            for (phase, duration) in &current_operation.phases {
                recorder.record_phase(&name, phase, *duration);
            }
        }
        Err(cause) => result.recorder.record_failure(&cause, due.intended, started, ended),
    }
    current_operation.phases.clear();
    worker_state.phases = current_operation.phases;
    ended.saturating_sub(due.intended)
}
