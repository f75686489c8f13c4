//! The threads that workers live on. A worker stays on its thread, so nothing it does crosses to
//! another one, and the generator takes no more cores than it was given.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::sync::{mpsc, oneshot};

use super::arrivals::{Dispatch, Due};
use super::{Load, Turn, Worker, cold};
use crate::record::{QUEUE, Recorder};
use crate::result::Cycle;
use crate::schedule::random;

/// All threads.
pub(super) struct Crew {
    threads: Vec<mpsc::UnboundedSender<Order>>,
    cold: Vec<Cycle>,
}

/// Work through what a dispatch hands out, at most until a moment.
struct Order {
    dispatch: Dispatch,
    until: Instant,
    answer: oneshot::Sender<Done>,
}

struct Done {
    recorders: Vec<Recorder>,
    cold: Vec<Cycle>,
}

/// A worker with what it has written down.
struct Place<W> {
    number: u32,
    worker: W,
    made: Duration,
    is_cold: bool,
    /// Kept for its memory.
    phases: Vec<(&'static str, Duration)>,
}

/// Where a worker is when it does not work.
type Seat<W> = Arc<Mutex<Option<Place<W>>>>;

impl Crew {
    /// Starts the threads; each makes its workers.
    pub(super) async fn hire<W, M, F>(
        load: &Load,
        seed: u64,
        make: M,
        completed: Arc<AtomicU64>,
    ) -> Result<Self>
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
            let (make, completed) = (make.clone(), completed.clone());
            std::thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn(move || live(seed, &numbers, make, made, taken, &completed))
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

    /// Works through what `dispatch` hands out. What still runs at `until` is given up.
    pub(super) async fn work(
        &mut self,
        dispatch: &Dispatch,
        until: Instant,
    ) -> Result<Vec<Recorder>> {
        let mut answers = Vec::new();
        for thread in &self.threads {
            let (answer, answered) = oneshot::channel();
            let order = Order {
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
            recorders.extend(done.recorders);
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

/// A thread's life: makes its workers, then takes orders until there are no more.
fn live<W, M, F>(
    seed: u64,
    numbers: &[u32],
    make: M,
    made: oneshot::Sender<Result<()>>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    completed: &Arc<AtomicU64>,
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
            // Nobody listens any more only when another thread has failed.
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
            let done = obey(seed, &seats, &order, completed).await;
            let _ = order.answer.send(done);
        }
    });
}

async fn make_all<W, M, F>(numbers: &[u32], make: M) -> Result<Vec<Seat<W>>>
where
    M: Fn(u32) -> F,
    F: Future<Output = Result<W>>,
{
    let mut seats = Vec::new();
    for number in numbers {
        let begun = Instant::now();
        let worker = make(*number).await?;
        seats.push(Arc::new(Mutex::new(Some(Place {
            number: *number,
            worker,
            made: begun.elapsed(),
            is_cold: true,
            phases: Vec::new(),
        }))));
    }
    Ok(seats)
}

/// Sets every worker to work and waits for all of them, or until it is too late.
async fn obey<W: Worker>(
    seed: u64,
    seats: &[Seat<W>],
    order: &Order,
    completed: &Arc<AtomicU64>,
) -> Done {
    // Shared with the tasks, so that what a task wrote down outlives its abortion.
    let notes: Vec<Arc<Mutex<Notes>>> = seats.iter().map(|_| Arc::default()).collect();
    let mut tasks = Vec::new();
    for (seat, notes) in seats.iter().zip(&notes) {
        let (seat, notes) = (seat.clone(), notes.clone());
        let (dispatch, completed) = (order.dispatch.clone(), completed.clone());
        tasks.push(tokio::spawn(async move {
            // Empty when an earlier order gave the worker up in the middle of an operation.
            let Some(mut place) = lock(&seat).take() else {
                return;
            };
            while let Some(due) = dispatch.next().await {
                serve(seed, &dispatch, due, &mut place, &notes).await;
                completed.fetch_add(1, Ordering::Relaxed);
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
    let mut done = Done {
        recorders: Vec::new(),
        cold: Vec::new(),
    };
    for notes in notes {
        let notes = std::mem::take(&mut *lock(&notes));
        done.recorders.push(notes.recorder);
        done.cold.extend(notes.cold);
    }
    done
}

/// What is locked here is whole even when a worker panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Notes {
    recorder: Recorder,
    cold: Option<Cycle>,
}

async fn serve<W: Worker>(
    seed: u64,
    dispatch: &Dispatch,
    due: Due,
    place: &mut Place<W>,
    notes: &Mutex<Notes>,
) {
    let origin = dispatch.origin();
    let started = origin.elapsed();
    let mut turn = Turn {
        index: due.index,
        random: random(seed, due.index),
        phases: std::mem::take(&mut place.phases),
    };
    let done = place.worker.operate(&mut turn).await;
    let ended = origin.elapsed();
    let notes = &mut *lock(notes);
    if std::mem::take(&mut place.is_cold) {
        let took = ended.saturating_sub(started);
        notes.cold = Some(cold(place.number, started, place.made, took, &done));
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
}
