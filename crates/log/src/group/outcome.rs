//! Which records of a group are in the log, and which callers wait for the others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::task::Waker;

use egret_base::sync::lock;

use crate::{LogError, Seq};

/// Failed batches that are remembered until their callers ask for the outcome.
const FAILURES_MAX: usize = 1024;

/// Numbers are decided in order: everything below `decided_below` is in the log or has failed.
#[derive(Debug)]
pub(super) struct Outcomes {
    decided: AtomicU64,
    /// Number 0 would have this sequence number.
    origin: Seq,
    /// Nothing has failed so far.
    flawless: AtomicBool,
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
    /// Tasks to be woken, by parity of generations.
    wakers: [Vec<Waker>; 2],
    sleepers: [usize; 2],
    failures: VecDeque<Failure>,
    /// Numbers that failed and are no longer among `failures`.
    forgotten: u64,
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
            decided: AtomicU64::new(0),
            origin,
            flawless: AtomicBool::new(true),
            state: Mutex::new(OutcomeState {
                generation: 0,
                writing_end: 0,
                wakers: [Vec::new(), Vec::new()],
                sleepers: [0; 2],
                failures: VecDeque::new(),
                forgotten: 0,
                forgotten_below: 0,
            }),
            decisions: [Condvar::new(), Condvar::new()],
        }
    }

    /// What became of a number, once that is decided.
    pub(crate) fn get(&self, number: u64) -> Option<Result<Seq, LogError>> {
        if number >= self.decided.load(Ordering::Acquire) {
            return None;
        }
        if self.flawless.load(Ordering::Acquire) {
            return Some(Ok(self.origin.plus(number)));
        }
        Some(self.state().judge(self.origin, number))
    }

    /// Sleeps until the number is decided.
    pub(crate) fn wait(&self, number: u64) -> Result<Seq, LogError> {
        if let Some(known) = self.get(number) {
            return known;
        }
        let mut state = self.state();
        loop {
            if number < self.decided.load(Ordering::Acquire) {
                return state.judge(self.origin, number);
            }
            let parity = state.parity_of(number);
            state.sleepers[parity] += 1;
            state = self.decisions[parity]
                .wait(state)
                .expect("no holder of this lock can panic");
            state.sleepers[parity] -= 1;
        }
    }

    /// Has `waker` woken when the number's generation is decided, unless it is already.
    pub(crate) fn register(&self, number: u64, waker: &Waker) -> Option<Result<Seq, LogError>> {
        let mut state = self.state();
        if number < self.decided.load(Ordering::Acquire) {
            return Some(state.judge(self.origin, number));
        }
        let parity = state.parity_of(number);
        state.wakers[parity].push(waker.clone());
        None
    }

    /// The numbers up to `end` are being written.
    pub(crate) fn begin(&self, end: u64) {
        let mut state = self.state();
        state.generation += 1;
        state.writing_end = end;
    }

    pub(crate) fn finish(&self, failure: Option<LogError>) {
        let mut state = self.state();
        let first = self.decided.load(Ordering::Relaxed);
        let end = state.writing_end;
        if let Some(error) = failure {
            self.flawless.store(false, Ordering::Release);
            state.fail(Failure { first, end, error });
        }
        self.decided.store(end, Ordering::Release);
        let parity = state.generation % 2;
        let wakers = std::mem::take(&mut state.wakers[parity]);
        let asleep = state.sleepers[parity] > 0;
        drop(state);
        if asleep {
            self.decisions[parity].notify_all();
        }
        self.wake(parity, wakers);
    }

    fn wake(&self, parity: usize, mut wakers: Vec<Waker>) {
        if wakers.is_empty() {
            return;
        }
        wakers.drain(..).for_each(Waker::wake);
        let mut state = self.state();
        // Its memory serves the next generation of this parity, unless that has begun already.
        if state.wakers[parity].is_empty() {
            state.wakers[parity] = wakers;
        }
    }

    fn state(&self) -> MutexGuard<'_, OutcomeState> {
        lock(&self.state)
    }
}

impl OutcomeState {
    /// A number that is being written belongs to this generation, a later one to the next.
    fn parity_of(&self, number: u64) -> usize {
        (self.generation + usize::from(number >= self.writing_end)) % 2
    }

    fn fail(&mut self, failure: Failure) {
        self.failures.push_back(failure);
        if self.failures.len() > FAILURES_MAX
            && let Some(oldest) = self.failures.pop_front()
        {
            self.forgotten += oldest.end - oldest.first;
            self.forgotten_below = oldest.end;
        }
    }

    fn judge(&self, origin: Seq, number: u64) -> Result<Seq, LogError> {
        if number < self.forgotten_below {
            return Err(LogError::Closed {
                name: "the memory of a ticket this old",
            });
        }
        let mut failed = self.forgotten;
        for failure in &self.failures {
            if number < failure.first {
                break;
            }
            if number < failure.end {
                return Err(failure.error.clone());
            }
            failed += failure.end - failure.first;
        }
        Ok(Seq(origin.0 + number - failed))
    }
}
