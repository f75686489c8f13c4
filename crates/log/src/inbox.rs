//! A bounded multi-producer, single-consumer queue: the consumer takes all items at once, and parks
//! only if there are none.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use egret_base::LimitExceeded;
use egret_base::sync::lock;

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub struct InboxLimits {
    /// Name under which refusals report the number of items.
    pub items_name: &'static str,
    /// The most items that may wait.
    pub items_max: usize,
    /// Name under which refusals report the bytes.
    pub bytes_name: &'static str,
    /// The most bytes that may wait, as the items' weights add up.
    pub bytes_max: usize,
}

/// Why an item was not taken in; it is handed back.
#[derive(Debug)]
pub enum InboxRejection<T> {
    /// A limit is reached.
    Full(T, LimitExceeded),
    /// The consumer has gone.
    Closed(T),
}

/// Result of a call of [`Inbox::take_all`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainResult {
    /// At least one item was taken.
    Items,
    /// The time has passed, or [`Inbox::wake`] was called.
    Nothing,
    /// Nothing is there and nothing will come.
    Closed,
}

/// A bounded, many-to-one hand-over of whole batches. No allocation once its vectors have grown.
#[derive(Debug)]
pub struct Inbox<T> {
    limits: InboxLimits,
    state: Mutex<InboxState<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct InboxState<T> {
    items: Vec<T>,
    bytes: usize,
    /// Items that the consumer has taken and not dealt with, and their bytes.
    unprocessed: (usize, usize),
    /// The consumer waits for the condition variable.
    is_parked: bool,
    is_woken: bool,
    is_closed: bool,
}

impl<T> Inbox<T> {
    /// Makes an empty inbox with these limits.
    pub fn new(limits: InboxLimits) -> Self {
        Self {
            limits,
            state: Mutex::new(InboxState {
                items: Vec::new(),
                bytes: 0,
                unprocessed: (0, 0),
                is_parked: false,
                is_woken: false,
                is_closed: false,
            }),
            arrived: Condvar::new(),
        }
    }

    /// Puts one item in, which weighs `bytes`. An item heavier than the limit is taken when nothing
    /// else waits, else it could never pass.
    ///
    /// # Errors
    /// The item, when a limit is reached or the inbox is closed.
    pub fn push(&self, item: T, bytes: usize) -> Result<(), InboxRejection<T>> {
        let mut state = self.lock_state();
        if state.is_closed {
            return Err(InboxRejection::Closed(item));
        }
        if let Err(limit) = self.check_limits(&state, 1, bytes) {
            return Err(InboxRejection::Full(item, limit));
        }
        state.items.push(item);
        state.bytes += bytes;
        self.wake_consumer(state);
        Ok(())
    }

    /// Puts one item in, whatever waits: for what is bounded otherwise, and must not be lost.
    ///
    /// # Errors
    /// The item, when the inbox is closed.
    pub fn push_unbounded(&self, item: T) -> Result<(), T> {
        let mut state = self.lock_state();
        if state.is_closed {
            return Err(item);
        }
        state.items.push(item);
        self.wake_consumer(state);
        Ok(())
    }

    /// Moves everything that waits into `items`, which must be empty and lends its memory to what
    /// comes next. Waits up to `timeout` while there is nothing; `None` waits for ever.
    pub fn take_all(&self, items: &mut Vec<T>, timeout: Option<Duration>) -> DrainResult {
        assert!(items.is_empty(), "what was taken before has been dealt with");
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut state = self.lock_state();
        while state.items.is_empty() {
            if state.is_closed {
                return DrainResult::Closed;
            }
            if std::mem::take(&mut state.is_woken) {
                return DrainResult::Nothing;
            }
            state.is_parked = true;
            state = match deadline {
                None => self.arrived.wait(state).expect("no holder of this lock can panic"),
                Some(deadline) => {
                    let remaining = deadline.saturating_duration_since(Instant::now());
                    if remaining.is_zero() {
                        state.is_parked = false;
                        return DrainResult::Nothing;
                    }
                    let result = self.arrived.wait_timeout(state, remaining);
                    result.expect("no holder of this lock can panic").0
                }
            };
            state.is_parked = false;
        }
        state.is_woken = false;
        state.bytes = 0;
        std::mem::swap(&mut state.items, items);
        DrainResult::Items
    }

    /// The consumer has taken so many items, of so many bytes, with which it has not dealt yet:
    /// they count as waiting until it says otherwise.
    pub fn set_unprocessed(&self, items: usize, bytes: usize) {
        self.lock_state().unprocessed = (items, bytes);
    }

    /// Lets a consumer that waits, or will wait next, come back with nothing.
    pub fn wake(&self) {
        let mut state = self.lock_state();
        state.is_woken = true;
        self.wake_consumer(state);
    }

    /// Takes nothing more in. What waits can still be taken.
    pub fn close(&self) {
        let mut state = self.lock_state();
        state.is_closed = true;
        self.wake_consumer(state);
    }

    /// Whether it takes nothing more in.
    pub fn is_closed(&self) -> bool {
        self.lock_state().is_closed
    }

    /// Number of items that wait.
    pub fn len(&self) -> usize {
        self.lock_state().items.len()
    }

    /// Whether no item waits in the inbox.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn check_limits(
        &self,
        state: &InboxState<T>,
        items: usize,
        bytes: usize,
    ) -> Result<(), LimitExceeded> {
        if state.items.is_empty() && state.unprocessed.0 == 0 && items == 1 {
            return Ok(());
        }
        let exceeded = |name, max: usize, asked: usize| LimitExceeded {
            name,
            max: max as u64,
            asked: asked as u64,
        };
        let items = state.items.len() + state.unprocessed.0 + items;
        let bytes = state.bytes + state.unprocessed.1 + bytes;
        if items > self.limits.items_max {
            let limits = &self.limits;
            return Err(exceeded(limits.items_name, limits.items_max, items));
        }
        if bytes > self.limits.bytes_max {
            let limits = &self.limits;
            return Err(exceeded(limits.bytes_name, limits.bytes_max, bytes));
        }
        Ok(())
    }

    /// Wakes the consumer if it sleeps; the system is not called otherwise.
    fn wake_consumer(&self, mut state: MutexGuard<'_, InboxState<T>>) {
        let was_parked = std::mem::take(&mut state.is_parked);
        drop(state);
        if was_parked {
            self.arrived.notify_one();
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, InboxState<T>> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests;
