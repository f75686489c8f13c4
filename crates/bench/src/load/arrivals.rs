//! Which operation begins next, and when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use tokio::sync::Semaphore;

use super::{DRAIN_MAX, Load, Pace};
use crate::schedule::{ArrivalSchedule, arrival_schedule, seeded_random};

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
    number_offset: u64,
    stopped: AtomicBool,
    next_index: AtomicU64,
    order: DispatchOrder,
}

enum DispatchOrder {
    Closed,
    Open(Box<ArrivalCursor>),
}

struct ArrivalCursor {
    schedule: ArrivalSchedule,
    /// The same schedule, from the first operation on that no worker has taken.
    remaining: Mutex<ArrivalSchedule>,
    /// One permit per operation that is due and not taken.
    due_permits: Semaphore,
    released_count: AtomicU64,
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
        number_offset: u64,
    ) -> Self {
        let order = match load.pace {
            Pace::Closed => DispatchOrder::Closed,
            Pace::Open { rate, spacing } => {
                let schedule = arrival_schedule(spacing, rate, window, seed);
                DispatchOrder::Open(Box::new(ArrivalCursor {
                    remaining: Mutex::new(schedule.clone()),
                    schedule,
                    due_permits: Semaphore::new(0),
                    released_count: AtomicU64::new(0),
                    workers: load.clients as usize,
                }))
            }
        };
        let dispatch = Self {
            shared: Arc::new(DispatchState {
                origin,
                end: window,
                seed,
                number_offset,
                stopped: AtomicBool::new(false),
                next_index: AtomicU64::new(0),
                order,
            }),
        };
        if dispatch.is_open_loop() {
            let clock = dispatch.clone();
            // A thread, as timers of an event loop are exact to a millisecond only.
            std::thread::spawn(move || clock.release_due_operations());
        }
        dispatch
    }

    pub(super) fn origin(&self) -> Instant {
        self.shared.origin
    }

    /// Random generator of an operation, seeded by its index.
    pub(super) fn random(&self, due: DueOperation) -> Xoshiro256PlusPlus {
        seeded_random(self.shared.seed, due.index)
    }

    /// An operation's number among those of all dispatches.
    pub(super) fn number(&self, due: DueOperation) -> u64 {
        self.shared.number_offset + due.index
    }

    /// How many operations were begun, with those of earlier dispatches.
    pub(super) fn begun_count(&self) -> u64 {
        self.shared.number_offset + self.shared.next_index.load(Ordering::Relaxed)
    }

    /// Whether an operation may be due before a worker takes it.
    pub(super) fn is_open_loop(&self) -> bool {
        matches!(self.shared.order, DispatchOrder::Open(_))
    }

    /// The next operation, once it is due; `None` when there are no more.
    pub(super) async fn next(&self) -> Option<DueOperation> {
        let shared = &*self.shared;
        match &shared.order {
            DispatchOrder::Closed => {
                let now = shared.origin.elapsed();
                if now >= shared.end || shared.stopped.load(Ordering::Relaxed) {
                    return None;
                }
                let index = shared.next_index.fetch_add(1, Ordering::Relaxed);
                Some(DueOperation { index, intended: now })
            }
            DispatchOrder::Open(cursor) => {
                cursor.due_permits.acquire().await.ok()?.forget();
                let late = shared.origin.elapsed() > shared.end + DRAIN_MAX;
                if late || shared.stopped.load(Ordering::Relaxed) {
                    return None;
                }
                // The lock is held for both, so that index and moment belong together.
                let mut remaining = cursor.remaining.lock().unwrap_or_else(PoisonError::into_inner);
                let intended = remaining.next()?;
                let index = shared.next_index.fetch_add(1, Ordering::Relaxed);
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
        let due = match &self.shared.order {
            DispatchOrder::Closed => self.shared.next_index.load(Ordering::Relaxed),
            DispatchOrder::Open(cursor) => cursor.released_count.load(Ordering::Relaxed),
        };
        due.saturating_sub(ended)
    }

    /// Releases each operation at its time.
    fn release_due_operations(&self) {
        let DispatchOrder::Open(cursor) = &self.shared.order else {
            return;
        };
        // Without it the kernel wakes up to 50 µs late, to save power. Where it refuses, it does.
        let _ = rustix::thread::set_current_timer_slack(Some(
            std::num::NonZeroU64::new(1).expect("one is not zero"),
        ));
        for intended in cursor.schedule.clone() {
            if self.shared.stopped.load(Ordering::Relaxed) {
                return;
            }
            let due_at = self.shared.origin + intended;
            std::thread::sleep(due_at.saturating_duration_since(Instant::now()));
            cursor.released_count.fetch_add(1, Ordering::Relaxed);
            cursor.due_permits.add_permits(1);
        }
        // Each worker asks once more and finds that there are no more.
        self.wake_all();
    }

    fn wake_all(&self) {
        if let DispatchOrder::Open(cursor) = &self.shared.order {
            cursor.due_permits.add_permits(cursor.workers);
        }
    }
}
