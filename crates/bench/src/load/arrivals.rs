//! Who begins the next operation, and when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::Xoshiro256PlusPlus;
use tokio::sync::Semaphore;

use super::{DRAIN_MAX, Load, Pace};
use crate::schedule::{Arrivals, arrivals, random};

/// An operation to begin: its index, and when it was to begin, counted from the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Due {
    pub(super) index: u64,
    pub(super) intended: Duration,
}

/// The operations of a warm-up or a window, handed out to whoever asks.
#[derive(Clone)]
pub(super) struct Dispatch {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Instant,
    end: Duration,
    seed: u64,
    /// Operations that were begun before this dispatch, by other ones.
    begun_before: u64,
    stopped: AtomicBool,
    next: AtomicU64,
    plan: Plan,
}

enum Plan {
    Closed,
    Open(Box<Timetable>),
}

struct Timetable {
    schedule: Arrivals,
    /// The same schedule from the first operation on that nobody has taken.
    not_taken: Mutex<Arrivals>,
    /// One permit per operation that is due and not taken.
    due: Semaphore,
    released: AtomicU64,
    workers: usize,
}

impl Dispatch {
    /// Hands out operations from `origin` on for `window`; `begun_before` were begun by earlier ones.
    pub(super) fn new(
        load: &Load,
        origin: Instant,
        window: Duration,
        seed: u64,
        begun_before: u64,
    ) -> Self {
        let plan = match load.pace {
            Pace::Closed => Plan::Closed,
            Pace::Open { rate, spacing } => {
                let schedule = arrivals(spacing, rate, window, seed);
                Plan::Open(Box::new(Timetable {
                    not_taken: Mutex::new(schedule.clone()),
                    schedule,
                    due: Semaphore::new(0),
                    released: AtomicU64::new(0),
                    workers: load.clients as usize,
                }))
            }
        };
        let dispatch = Self {
            shared: Arc::new(Shared {
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

    /// Where an operation's random values come from.
    pub(super) fn random(&self, due: Due) -> Xoshiro256PlusPlus {
        random(self.shared.seed, due.index)
    }

    /// An operation's number among those of all dispatches.
    pub(super) fn number(&self, due: Due) -> u64 {
        self.shared.begun_before + due.index
    }

    /// How many operations were begun, with those of earlier dispatches.
    pub(super) fn begun(&self) -> u64 {
        self.shared.begun_before + self.shared.next.load(Ordering::Relaxed)
    }

    /// Whether an operation may be due before a worker takes it.
    pub(super) fn queues(&self) -> bool {
        matches!(self.shared.plan, Plan::Open(_))
    }

    /// The next operation, once it is due; `None` when there are no more.
    pub(super) async fn next(&self) -> Option<Due> {
        let shared = &*self.shared;
        match &shared.plan {
            Plan::Closed => {
                let now = shared.origin.elapsed();
                if now >= shared.end || shared.stopped.load(Ordering::Relaxed) {
                    return None;
                }
                let index = shared.next.fetch_add(1, Ordering::Relaxed);
                Some(Due {
                    index,
                    intended: now,
                })
            }
            Plan::Open(table) => {
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
                Some(Due { index, intended })
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
            Plan::Closed => self.shared.next.load(Ordering::Relaxed),
            Plan::Open(table) => table.released.load(Ordering::Relaxed),
        };
        due.saturating_sub(ended)
    }

    /// Releases each operation at its time.
    fn release(&self) {
        let Plan::Open(table) = &self.shared.plan else {
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
        if let Plan::Open(table) = &self.shared.plan {
            table.due.add_permits(table.workers);
        }
    }
}
