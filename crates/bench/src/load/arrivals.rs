//! Which operation begins next, and when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use tokio::sync::Semaphore;

use super::{DRAIN_MAX, Load, Pace};
use crate::schedule::{ArrivalSchedule, arrivals, random};

/// An operation to begin: its index, and when it was to begin, counted from the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DueOperation {
    pub(super) index: u64,
    pub(super) intended: Duration,
}

/// The operations of a warm-up or a window, handed out to the workers.
#[derive(Clone)]
pub(super) struct Dispatch {
    shared: Arc<DispatchState>,
}

struct DispatchState {
    origin: Instant,
    end: Duration,
    seed: u64,
    /// Operations that were begun before this dispatch, by other ones.
    begun_before: u64,
    stopped: AtomicBool,
    next: AtomicU64,
    plan: DispatchOrder,
}

enum DispatchOrder {
    Closed,
    Open(Box<ArrivalCursor>),
}

struct ArrivalCursor {
    schedule: ArrivalSchedule,
    /// The same schedule, from the first operation on that no worker has taken.
    not_taken: Mutex<ArrivalSchedule>,
    /// One permit per operation that is due and not taken.
    due: Semaphore,
    released: AtomicU64,
    workers: usize,
}

impl Dispatch {
    /// Hands out operations from `origin` on for `window`. Earlier dispatches have used the numbers
    /// below `number_offset`.
    pub(super) fn new(
        load: &Load,
        origin: Instant,
        window: Duration,
        seed: u64,
        begun_before: u64,
    ) -> Self {
        let plan = match load.pace {
            Pace::Closed => DispatchOrder::Closed,
            Pace::Open { rate, spacing } => {
                let schedule = arrivals(spacing, rate, window, seed);
                DispatchOrder::Open(Box::new(ArrivalCursor {
                    not_taken: Mutex::new(schedule.clone()),
                    schedule,
                    due: Semaphore::new(0),
                    released: AtomicU64::new(0),
                    workers: load.clients as usize,
                }))
            }
        };
        let dispatch = Self {
            shared: Arc::new(DispatchState {
                origin,
                end: window,
                seed,
                begun_before,
                stopped: AtomicBool::new(false),
                next: AtomicU64::new(0),
                plan,
            }),
        };
        if dispatch.queues() {
            let clock = dispatch.clone();
            // A thread, as timers of an event loop are exact to a millisecond only.
            std::thread::spawn(move || clock.release());
        }
        dispatch
    }

    pub(super) fn origin(&self) -> Instant {
        self.shared.origin
    }

    /// Random generator of an operation, seeded by its index.
    pub(super) fn random(&self, due: DueOperation) -> Xoshiro256PlusPlus {
        random(self.shared.seed, due.index)
    }

    /// An operation's number among those of all dispatches.
    pub(super) fn number(&self, due: DueOperation) -> u64 {
        self.shared.begun_before + due.index
    }

    /// How many operations were begun, with those of earlier dispatches.
    pub(super) fn begun(&self) -> u64 {
        self.shared.begun_before + self.shared.next.load(Ordering::Relaxed)
    }

    /// Whether an operation may be due before a worker takes it.
    pub(super) fn queues(&self) -> bool {
        matches!(self.shared.plan, DispatchOrder::Open(_))
    }

    /// The next operation, once it is due; `None` when there are no more.
    pub(super) async fn next(&self) -> Option<DueOperation> {
        let shared = &*self.shared;
        match &shared.plan {
            DispatchOrder::Closed => {
                let now = shared.origin.elapsed();
                if now >= shared.end || shared.stopped.load(Ordering::Relaxed) {
                    return None;
                }
                let index = shared.next.fetch_add(1, Ordering::Relaxed);
                Some(DueOperation {
                    index,
                    intended: now,
                })
            }
            DispatchOrder::Open(table) => {
                table.due.acquire().await.ok()?.forget();
                let late = shared.origin.elapsed() > shared.end + DRAIN_MAX;
                if late || shared.stopped.load(Ordering::Relaxed) {
                    return None;
                }
                // The lock is held for both, so that index and moment belong together.
                let mut not_taken = table
                    .not_taken
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let intended = not_taken.next()?;
                let index = shared.next.fetch_add(1, Ordering::Relaxed);
                Some(DueOperation { index, intended })
            }
        }
    }

    /// Hands out no more.
    pub(super) fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// How many operations were due and are not among the `ended` ones.
    pub(super) fn dropped(&self, ended: u64) -> u64 {
        let due = match &self.shared.plan {
            DispatchOrder::Closed => self.shared.next.load(Ordering::Relaxed),
            DispatchOrder::Open(table) => table.released.load(Ordering::Relaxed),
        };
        due.saturating_sub(ended)
    }

    /// Releases each operation at its time.
    fn release(&self) {
        let DispatchOrder::Open(table) = &self.shared.plan else {
            return;
        };
        // Without it the kernel wakes up to 50 µs late, to save power. Where it refuses, it does.
        let _ = rustix::thread::set_current_timer_slack(Some(
            std::num::NonZeroU64::new(1).expect("one is not zero"),
        ));
        for intended in table.schedule.clone() {
            if self.shared.stopped.load(Ordering::Relaxed) {
                return;
            }
            let at = self.shared.origin + intended;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            table.released.fetch_add(1, Ordering::Relaxed);
            table.due.add_permits(1);
        }
        // Each worker asks once more and finds that there are no more.
        self.wake_all();
    }

    fn wake_all(&self) {
        if let DispatchOrder::Open(table) = &self.shared.plan {
            table.due.add_permits(table.workers);
        }
    }
}
