//! The load itself: callers that each wait for their acknowledgement, and a worker with slots, as
//! one state machine that is polled. It is what so many tasks of a runtime would do, without their
//! cost.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Result, bail};

use super::broker::{Broker, Events, write_number};
use super::in_flight::Flight;
use super::ledger::Ledger;
use super::signals::Signals;
use crate::record::{LATE, Recorder};
use crate::schedule::{ArrivalSchedule, Spacing, arrivals};

/// From a call until its task is acknowledged.
pub(super) const ENQUEUE: &str = "enqueue";
/// From the arrival of a task at the worker until its completion is acknowledged.
pub(super) const CLAIM_TO_COMPLETE: &str = "claim_to_complete";
/// From a call until the completion of its task is acknowledged.
pub(super) const END_TO_END: &str = "end_to_end";

/// How long after the window tasks may take to be completed.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// Tasks of an open loop that may be under way; more wait before they are sent, and are late.
const UNDER_WAY_MAX: usize = 1 << 20;

/// Longer than any measurement.
const FOREVER: Duration = Duration::from_secs(1 << 32);

#[derive(Clone, Debug)]
pub(super) struct CyclePlan {
    /// Callers that wait for their acknowledgement before they call again.
    pub(super) callers: u32,
    /// Tasks that the worker has room for.
    pub(super) slots: u32,
    /// Tasks in a call.
    pub(super) batch: u32,
    pub(super) payload_bytes: u32,
    /// Tasks per second by a schedule; callers do not wait then.
    pub(super) rate: Option<(f64, Spacing)>,
    pub(super) seed: u64,
    /// The window ends with so many cycles, where this is given.
    pub(super) cycles: Option<u64>,
    pub(super) purpose: Purpose,
}

/// Purpose of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Cycles; in the end every task must be completed.
    Cycles,
    /// So many tasks are made, and none is worked on.
    Fill(u64),
    /// Cycles behind so many tasks that were there before: most of those made are never reached.
    Behind(u64),
}

/// Results of a load.
pub(super) struct CycleOutcome {
    pub(super) recorder: Recorder,
    pub(super) ledger: Ledger,
    /// Completions that were acknowledged within the window.
    pub(super) cycles: u64,
    /// Enqueues that were acknowledged within the window.
    pub(super) enqueued: u64,
    /// Tasks that began too late, in an open loop.
    pub(super) late: u64,
    /// Tasks not completed when the window ended.
    pub(super) unfinished: u64,
}

/// A task whose caller waits for the acknowledgement.
struct PendingEnqueue {
    caller: u32,
    begun_ns: u64,
}

/// A task that the worker has completed and of which the acknowledgement is to come.
struct PendingCompletion {
    task: u64,
    handed_ns: u64,
}

/// Places of the operations in the recorder.
struct Operations {
    enqueue: usize,
    claim_to_complete: usize,
    end_to_end: usize,
}

pub(super) struct CycleLoad<B> {
    broker: B,
    plan: CyclePlan,
    signals: Arc<Signals>,
    /// Of each caller, tasks of its call that are not acknowledged.
    callers: Vec<u32>,
    idle: Vec<u32>,
    timetable: Option<CallSchedule>,
    asked: Flight<PendingEnqueue>,
    /// When each task began that is not completed.
    begun_ns: Flight<u64>,
    held: Flight<PendingCompletion>,
    events: Events,
    payload: Vec<u8>,
    window: Range<u64>,
    operations: Operations,
    outcome: CycleOutcome,
}

impl<B: Broker> CycleLoad<B> {
    /// A load on `broker`, whose worker is given its slots.
    pub(super) fn new(mut broker: B, plan: &CyclePlan, signals: Arc<Signals>) -> Self {
        if !matches!(plan.purpose, Purpose::Fill(_)) {
            broker.take(plan.slots);
        }
        let mut recorder = Recorder::default();
        let operations = Operations {
            enqueue: recorder.operation(ENQUEUE),
            claim_to_complete: recorder.operation(CLAIM_TO_COMPLETE),
            end_to_end: recorder.operation(END_TO_END),
        };
        Self {
            callers: vec![0; plan.callers as usize],
            idle: (0..plan.callers).collect(),
            // Another seed than the window's.
            timetable: CallSchedule::new(plan, !plan.seed, signals.now_ns()),
            asked: Flight::default(),
            begun_ns: Flight::default(),
            held: Flight::default(),
            events: Events::default(),
            payload: vec![b'.'; plan.payload_bytes as usize],
            window: u64::MAX..u64::MAX,
            operations,
            outcome: CycleOutcome {
                recorder,
                ledger: Ledger::default(),
                cycles: 0,
                enqueued: 0,
                late: 0,
                unfinished: 0,
            },
            broker,
            plan: plan.clone(),
            signals,
        }
    }

    /// Works until the window has ended and every task is completed, or is taken for lost.
    ///
    /// # Errors
    /// When a connection is lost, or answers contradict what was asked.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            let now_ns = self.signals.now_ns();
            self.look_at_window(now_ns);
            self.begin(now_ns);
            if now_ns >= self.window.end && self.is_drained(now_ns) {
                return Poll::Ready(Ok(()));
            }
            match self.broker.poll(context, &mut self.events) {
                Poll::Ready(polled) => polled?,
                Poll::Pending => return Poll::Pending,
            }
            self.digest()?;
        }
    }

    pub(super) fn finish(self) -> CycleOutcome {
        self.outcome
    }

    fn look_at_window(&mut self, now_ns: u64) {
        let window = self.signals.window();
        if self.window.start == u64::MAX && window.start != u64::MAX {
            self.timetable = CallSchedule::new(&self.plan, self.plan.seed, window.start);
        }
        let was_open = self.window.end > now_ns;
        self.window = window;
        if now_ns >= self.window.end && was_open {
            self.outcome.unfinished = self.begun_ns.len() as u64;
        }
    }

    fn is_drained(&self, now_ns: u64) -> bool {
        let waits = match self.plan.purpose {
            Purpose::Cycles => self.asked.len() + self.begun_ns.len() + self.held.len() > 0,
            Purpose::Fill(_) => self.asked.len() > 0,
            // What is pushed meanwhile stays leased: it is there, and that is all that counts.
            Purpose::Behind(_) => self.asked.len() + self.held.len() > 0,
        };
        !waits
            || now_ns > self.window.end + DRAIN_MAX.as_nanos() as u64
            || self.signals.is_stopped()
    }

    /// Begins the calls that are due.
    #[inline]
    fn begin(&mut self, now_ns: u64) {
        if self.timetable.is_none() {
            while now_ns < self.window.end
                && self.may_call()
                && let Some(caller) = self.idle.pop()
            {
                self.call(caller, now_ns);
            }
            return;
        }
        // What was due in the window begins, be it after its end.
        let until_ns = now_ns.min(self.window.end.saturating_sub(1));
        while let Some(intended_ns) = self.next_due(until_ns) {
            let is_late = now_ns - intended_ns > LATE.as_nanos() as u64;
            if is_late && self.window.contains(&intended_ns) {
                self.outcome.late += u64::from(self.plan.batch);
            }
            self.call(0, intended_ns);
        }
    }

    /// Whether tasks are left to be made; the last one ends the window.
    #[inline]
    fn may_call(&self) -> bool {
        let Purpose::Fill(tasks) = self.plan.purpose else {
            return true;
        };
        let is_enough = self.asked.begun() >= tasks;
        if is_enough {
            self.signals.end_window(self.signals.now_ns());
        }
        !is_enough
    }

    #[inline]
    fn next_due(&mut self, now_ns: u64) -> Option<u64> {
        if self.begun_ns.len() >= UNDER_WAY_MAX {
            return None;
        }
        self.timetable.as_mut()?.due(now_ns)
    }

    #[inline]
    fn call(&mut self, caller: u32, begun_ns: u64) {
        self.callers[caller as usize] += self.plan.batch;
        let first = self.first();
        for _ in 0..self.plan.batch {
            let number = self.asked.begin(PendingEnqueue { caller, begun_ns });
            if self.plan.purpose == Purpose::Cycles {
                self.begun_ns.begin(begun_ns);
            }
            write_number(&mut self.payload, first + number);
            self.broker.enqueue(&self.payload);
        }
    }

    /// The number of the first task in its payload.
    #[inline]
    fn first(&self) -> u64 {
        match self.plan.purpose {
            Purpose::Behind(tasks) => tasks,
            Purpose::Cycles | Purpose::Fill(_) => 0,
        }
    }

    /// One task of a caller's call is answered; with the last one it may call again.
    #[inline]
    fn answer(&mut self, caller: u32) {
        let left = &mut self.callers[caller as usize];
        *left -= 1;
        if *left == 0 && self.timetable.is_none() {
            self.idle.push(caller);
        }
    }

    /// Takes in what the task queue has answered.
    fn digest(&mut self) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        let now_ns = self.signals.now_ns();
        for number in events.enqueued.drain(..) {
            let Some(asked) = self.asked.end(number) else {
                bail!("the server acknowledged task {number}, which is not pending");
            };
            self.outcome.ledger.accept(self.first() + number);
            self.outcome.enqueued += u64::from(self.window.contains(&now_ns));
            self.record(self.operations.enqueue, asked.begun_ns, now_ns);
            self.answer(asked.caller);
        }
        for (number, cause) in events.refused.drain(..) {
            let Some(asked) = self.asked.end(number) else {
                bail!("the server refused task {number}, which is not pending");
            };
            self.begun_ns.end(number);
            self.fail(&cause, asked.begun_ns, now_ns);
            self.answer(asked.caller);
        }
        let handed = events.handed.len() as u32;
        for (task, handle) in events.handed.drain(..) {
            self.outcome.ledger.hand(task);
            self.held.begin(PendingCompletion {
                task,
                handed_ns: now_ns,
            });
            let handle = handle.start as usize..handle.end as usize;
            self.broker.complete(&events.handles[handle]);
        }
        events.handles.clear();
        let takes_more = self.plan.purpose == Purpose::Cycles || now_ns < self.window.end;
        if handed > 0 && takes_more {
            self.broker.take(handed);
        }
        self.digest_completions(&mut events, now_ns)?;
        self.events = events;
        Ok(())
    }

    fn digest_completions(&mut self, events: &mut Events, now_ns: u64) -> Result<()> {
        let in_window = self.window.contains(&now_ns);
        for number in events.completed.drain(..) {
            let Some(held) = self.held.end(number) else {
                bail!("the server acknowledged completion {number}, which is not pending");
            };
            self.outcome.ledger.complete(held.task);
            self.outcome.cycles += u64::from(in_window);
            self.record(self.operations.claim_to_complete, held.handed_ns, now_ns);
            if let Some(begun_ns) = self.begun_ns.end(held.task) {
                self.record(self.operations.end_to_end, begun_ns, now_ns);
                if self.window.start == u64::MAX {
                    let latency = now_ns.saturating_sub(begun_ns);
                    self.signals.pulse.add(Duration::from_nanos(latency));
                }
            }
        }
        for (number, cause) in events.not_completed.drain(..) {
            let Some(held) = self.held.end(number) else {
                bail!("the server refused completion {number}, which is not pending");
            };
            self.fail(&cause, held.handed_ns, now_ns);
        }
        if in_window
            && self
                .plan
                .cycles
                .is_some_and(|cycles| self.outcome.cycles >= cycles)
        {
            self.signals.end_window(now_ns);
        }
        Ok(())
    }

    /// What began in the window counts, however long it took.
    #[inline]
    fn record(&mut self, operation: usize, begun_ns: u64, ended_ns: u64) {
        if self.window.contains(&begun_ns) {
            let at = |ns: u64| Duration::from_nanos(ns - self.window.start);
            let (begun, ended) = (at(begun_ns), at(ended_ns));
            self.outcome
                .recorder
                .success_of(operation, begun, begun, ended);
        }
    }

    fn fail(&mut self, cause: &str, begun_ns: u64, ended_ns: u64) {
        if self.window.contains(&begun_ns) {
            let at = |ns: u64| Duration::from_nanos(ns - self.window.start);
            let (begun, ended) = (at(begun_ns), at(ended_ns));
            self.outcome.recorder.failure(cause, begun, begun, ended);
        }
    }
}

/// When calls of an open loop are due: the harness's arrivals, from a moment on.
struct CallSchedule {
    origin_ns: u64,
    next: Option<u64>,
    arrivals: ArrivalSchedule,
}

impl CallSchedule {
    fn new(plan: &CyclePlan, seed: u64, origin_ns: u64) -> Option<Self> {
        let (rate, spacing) = plan.rate?;
        let calls = rate / f64::from(plan.batch);
        let mut timetable = Self {
            origin_ns,
            next: None,
            arrivals: arrivals(spacing, calls, FOREVER, seed),
        };
        timetable.turn();
        Some(timetable)
    }

    fn turn(&mut self) {
        let next = self.arrivals.next();
        self.next = next.map(|at| self.origin_ns + at.as_nanos() as u64);
    }

    /// The next call, where it is due.
    #[inline]
    fn due(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next.filter(|at| *at <= now_ns)?;
        self.turn();
        Some(due)
    }
}

#[cfg(test)]
mod tests;
