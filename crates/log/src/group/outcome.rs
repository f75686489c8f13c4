//! Which records of a group are in the log, and which callers wait for the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use egret_base::sync::lock;

use crate::{LogError, Seq};

/// Failed batches that are remembered until their callers ask for the outcome.
const FAILURES_MAX: usize = 1024;

/// Numbers are decided in order: everything below `decided_below` is in the log or has failed.
#[derive(Debug)]
pub(super) struct Outcomes {
    decided_below: AtomicU64,
    /// Number 0 would have this sequence number.
    origin: Seq,
    /// Nothing has failed so far.
    has_no_failures: AtomicBool,
    state: Mutex<OutcomeState>,
    /// One for each parity of generations.
    decisions: [Condvar; 2],
}

#[derive(Debug)]
struct OutcomeState {
    /// Goes up when a generation begins to be written.
    generation: usize,
    /// Where the generation being written ends; equal to `decided_below` while none is.
    writing_end: u64,
    sleeper_counts: [usize; 2],
    failures: VecDeque<Failure>,
    /// Numbers that failed and are no longer among `failures`.
    forgotten_count: u64,
    forgotten_below: u64,
}

#[derive(Debug)]
struct Failure {
    first: u64,
    end: u64,
    error: LogError,
}

impl Outcomes {
    pub(crate) fn new(origin: Seq) -> Self {
        Self {
            decided_below: AtomicU64::new(0),
            origin,
            has_no_failures: AtomicBool::new(true),
            state: Mutex::new(OutcomeState {
                generation: 0,
                writing_end: 0,
                sleeper_counts: [0; 2],
                failures: VecDeque::new(),
                forgotten_count: 0,
                forgotten_below: 0,
            }),
            decisions: [Condvar::new(), Condvar::new()],
        }
    }

    /// What became of a number, once that is decided.
    pub(crate) fn get(&self, number: u64) -> Option<Result<Seq, LogError>> {
        if number >= self.decided_below.load(Ordering::Acquire) {
            return None;
        }
        if self.has_no_failures.load(Ordering::Acquire) {
            return Some(Ok(self.origin.plus(number)));
        }
        Some(self.lock_state().outcome_of(self.origin, number))
    }

    /// Sleeps until the number is decided.
    pub(crate) fn wait(&self, number: u64) -> Result<Seq, LogError> {
        if let Some(result) = self.get(number) {
            return result;
        }
        let mut state = self.lock_state();
        loop {
            if number < self.decided_below.load(Ordering::Acquire) {
                return state.outcome_of(self.origin, number);
            }
            let parity = state.parity_of(number);
            state.sleeper_counts[parity] += 1;
            state = self.decisions[parity].wait(state).expect("no holder of this lock can panic");
            state.sleeper_counts[parity] -= 1;
        }
    }

    /// The numbers up to `end` are being written.
    pub(crate) fn begin_generation(&self, end: u64) {
        let mut state = self.lock_state();
        state.generation += 1;
        state.writing_end = end;
    }

    pub(crate) fn finish_generation(&self, failure: Option<LogError>) {
        let mut state = self.lock_state();
        let first = self.decided_below.load(Ordering::Relaxed);
        let end = state.writing_end;
        if let Some(error) = failure {
            self.has_no_failures.store(false, Ordering::Release);
            state.add_failure(Failure { first, end, error });
        }
        self.decided_below.store(end, Ordering::Release);
        let parity = state.generation % 2;
        let has_sleepers = state.sleeper_counts[parity] > 0;
        drop(state);
        if has_sleepers {
            self.decisions[parity].notify_all();
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, OutcomeState> {
        lock(&self.state)
    }
}

impl OutcomeState {
    /// A number that is being written belongs to this generation, a later one to the next.
    fn parity_of(&self, number: u64) -> usize {
        (self.generation + usize::from(number >= self.writing_end)) % 2
    }

    fn add_failure(&mut self, failure: Failure) {
        self.failures.push_back(failure);
        if self.failures.len() > FAILURES_MAX
            && let Some(oldest) = self.failures.pop_front()
        {
            self.forgotten_count += oldest.end - oldest.first;
            self.forgotten_below = oldest.end;
        }
    }

    fn outcome_of(&self, origin: Seq, number: u64) -> Result<Seq, LogError> {
        if number < self.forgotten_below {
            return Err(LogError::Closed { name: "the memory of a ticket this old" });
        }
        let mut failed_count = self.forgotten_count;
        for failure in &self.failures {
            if number < failure.first {
                break;
            }
            if number < failure.end {
                return Err(failure.error.clone());
            }
            failed_count += failure.end - failure.first;
        }
        Ok(Seq(origin.0 + number - failed_count))
    }
}
