//! The load itself: callers that each wait for their acknowledgement, and a worker with slots, as
//! one state machine that is polled. It is what so many tasks of a runtime would do, without their
//! cost.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Result, bail};

use super::broker::{Broker, Events, write_number};
use super::in_flight::InFlight;
use super::ledger::Ledger;
use super::signals::Signals;
use crate::record::{LATE_THRESHOLD, Recorder};
use crate::schedule::{ArrivalSchedule, Spacing, arrival_schedule};

/// From a call until its task is acknowledged.
pub(super) const ENQUEUE: &str = "enqueue";
/// From the arrival of a task at the worker until its completion is acknowledged.
pub(super) const CLAIM_TO_COMPLETE: &str = "claim_to_complete";
/// From a call until the completion of its task is acknowledged.
pub(super) const END_TO_END: &str = "end_to_end";

/// How long after the window tasks may take to be completed.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Tasks of an open loop that may be under way; more wait before they are sent, and are late.
const IN_FLIGHT_MAX: usize = 1 << 20;

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
    BehindBacklog(u64),
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
    delivered_ns: u64,
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
    schedule: Option<CallSchedule>,
    pending_enqueues: InFlight<PendingEnqueue>,
    /// When each task began that is not completed.
    begin_times: InFlight<u64>,
    pending_completions: InFlight<PendingCompletion>,
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
            broker.add_credits(plan.slots);
        }
        let mut recorder = Recorder::default();
        let operations = Operations {
            enqueue: recorder.operation_index(ENQUEUE),
            claim_to_complete: recorder.operation_index(CLAIM_TO_COMPLETE),
            end_to_end: recorder.operation_index(END_TO_END),
        };
        Self {
            callers: vec![0; plan.callers as usize],
            idle: (0..plan.callers).collect(),
            // Another seed than the window's.
            schedule: CallSchedule::new(plan, !plan.seed, signals.now_ns()),
            pending_enqueues: InFlight::default(),
            begin_times: InFlight::default(),
            pending_completions: InFlight::default(),
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
            self.update_window(now_ns);
            self.begin_due_calls(now_ns);
            if now_ns >= self.window.end && self.is_drained(now_ns) {
                return Poll::Ready(Ok(()));
            }
            match self.broker.poll(context, &mut self.events) {
                Poll::Ready(result) => result?,
                Poll::Pending => return Poll::Pending,
            }
            self.process_events()?;
        }
    }

    pub(super) fn into_outcome(self) -> CycleOutcome {
        self.outcome
    }

    fn update_window(&mut self, now_ns: u64) {
        let window = self.signals.window();
        if self.window.start == u64::MAX && window.start != u64::MAX {
            self.schedule = CallSchedule::new(&self.plan, self.plan.seed, window.start);
        }
        let was_open = self.window.end > now_ns;
        self.window = window;
        if now_ns >= self.window.end && was_open {
            self.outcome.unfinished = self.begin_times.len() as u64;
        }
    }

    fn is_drained(&self, now_ns: u64) -> bool {
        let has_pending = match self.plan.purpose {
            Purpose::Cycles => {
                self.pending_enqueues.len()
                    + self.begin_times.len()
                    + self.pending_completions.len()
                    > 0
            }
            Purpose::Fill(_) => self.pending_enqueues.len() > 0,
            // What is pushed meanwhile stays leased: it is there, and that is all that counts.
            Purpose::BehindBacklog(_) => {
                self.pending_enqueues.len() + self.pending_completions.len() > 0
            }
        };
        !has_pending
            || now_ns > self.window.end + DRAIN_TIMEOUT.as_nanos() as u64
            || self.signals.is_stopped()
    }

    /// Begins the calls that are due.
    #[inline]
    fn begin_due_calls(&mut self, now_ns: u64) {
        if self.schedule.is_none() {
            while now_ns < self.window.end
                && self.can_call()
                && let Some(caller) = self.idle.pop()
            {
                self.begin_call(caller, now_ns);
            }
            return;
        }
        // What was due in the window begins, be it after its end.
        let until_ns = now_ns.min(self.window.end.saturating_sub(1));
        while let Some(intended_ns) = self.next_due(until_ns) {
            let is_late = now_ns - intended_ns > LATE_THRESHOLD.as_nanos() as u64;
            if is_late && self.window.contains(&intended_ns) {
                self.outcome.late += u64::from(self.plan.batch);
            }
            self.begin_call(0, intended_ns);
        }
    }

    /// Whether tasks are left to be made; the last one ends the window.
    #[inline]
    fn can_call(&self) -> bool {
        let Purpose::Fill(tasks) = self.plan.purpose else {
            return true;
        };
        let is_enough = self.pending_enqueues.begun_count() >= tasks;
        if is_enough {
            self.signals.end_window(self.signals.now_ns());
        }
        !is_enough
    }

    #[inline]
    fn next_due(&mut self, now_ns: u64) -> Option<u64> {
        if self.begin_times.len() >= IN_FLIGHT_MAX {
            return None;
        }
        self.schedule.as_mut()?.pop_due(now_ns)
    }

    #[inline]
    fn begin_call(&mut self, caller: u32, begun_ns: u64) {
        self.callers[caller as usize] += self.plan.batch;
        let first_number = self.first_number();
        for _ in 0..self.plan.batch {
            let number = self.pending_enqueues.begin(PendingEnqueue { caller, begun_ns });
            if self.plan.purpose == Purpose::Cycles {
                self.begin_times.begin(begun_ns);
            }
            write_number(&mut self.payload, first_number + number);
            self.broker.enqueue(&self.payload);
        }
    }

    /// The number of the first task in its payload.
    #[inline]
    fn first_number(&self) -> u64 {
        match self.plan.purpose {
            Purpose::BehindBacklog(tasks) => tasks,
            Purpose::Cycles | Purpose::Fill(_) => 0,
        }
    }

    /// One task of a caller's call is answered; with the last one it may call again.
    #[inline]
    fn release_caller(&mut self, caller: u32) {
        let outstanding = &mut self.callers[caller as usize];
        *outstanding -= 1;
        if *outstanding == 0 && self.schedule.is_none() {
            self.idle.push(caller);
        }
    }

    /// Takes in what the task queue has answered.
    fn process_events(&mut self) -> Result<()> {
        let mut events = std::mem::take(&mut self.events);
        let now_ns = self.signals.now_ns();
        for number in events.enqueued.drain(..) {
            let Some(asked) = self.pending_enqueues.end(number) else {
                bail!("the server acknowledged task {number}, which is not pending");
            };
            self.outcome.ledger.accept(self.first_number() + number);
            self.outcome.enqueued += u64::from(self.window.contains(&now_ns));
            self.record(self.operations.enqueue, asked.begun_ns, now_ns);
            self.release_caller(asked.caller);
        }
        for (number, cause) in events.refused_enqueues.drain(..) {
            let Some(asked) = self.pending_enqueues.end(number) else {
                bail!("the server refused task {number}, which is not pending");
            };
            self.begin_times.end(number);
            self.fail(&cause, asked.begun_ns, now_ns);
            self.release_caller(asked.caller);
        }
        let delivered_count = events.delivered.len() as u32;
        for (task, handle) in events.delivered.drain(..) {
            self.outcome.ledger.deliver(task);
            self.pending_completions.begin(PendingCompletion { task, delivered_ns: now_ns });
            let handle = handle.start as usize..handle.end as usize;
            self.broker.complete(&events.handles[handle]);
        }
        events.handles.clear();
        let wants_more = self.plan.purpose == Purpose::Cycles || now_ns < self.window.end;
        if delivered_count > 0 && wants_more {
            self.broker.add_credits(delivered_count);
        }
        self.process_completions(&mut events, now_ns)?;
        self.events = events;
        Ok(())
    }

    fn process_completions(&mut self, events: &mut Events, now_ns: u64) -> Result<()> {
        let in_window = self.window.contains(&now_ns);
        for number in events.completed.drain(..) {
            let Some(held) = self.pending_completions.end(number) else {
                bail!("the server acknowledged completion {number}, which is not pending");
            };
            self.outcome.ledger.complete(held.task);
            self.outcome.cycles += u64::from(in_window);
            self.record(self.operations.claim_to_complete, held.delivered_ns, now_ns);
            if let Some(begun_ns) = self.begin_times.end(held.task) {
                self.record(self.operations.end_to_end, begun_ns, now_ns);
                if self.window.start == u64::MAX {
                    let latency = now_ns.saturating_sub(begun_ns);
                    self.signals.counter.add(Duration::from_nanos(latency));
                }
            }
        }
        for (number, cause) in events.refused_completions.drain(..) {
            let Some(held) = self.pending_completions.end(number) else {
                bail!("the server refused completion {number}, which is not pending");
            };
            self.fail(&cause, held.delivered_ns, now_ns);
        }
        if in_window && self.plan.cycles.is_some_and(|cycles| self.outcome.cycles >= cycles) {
            self.signals.end_window(now_ns);
        }
        Ok(())
    }

    /// What began in the window counts, however long it took.
    #[inline]
    fn record(&mut self, operation: usize, begun_ns: u64, ended_ns: u64) {
        if self.window.contains(&begun_ns) {
            let offset = |ns: u64| Duration::from_nanos(ns - self.window.start);
            let (begun, ended) = (offset(begun_ns), offset(ended_ns));
            self.outcome.recorder.record_success_at(operation, begun, begun, ended);
        }
    }

    fn fail(&mut self, cause: &str, begun_ns: u64, ended_ns: u64) {
        if self.window.contains(&begun_ns) {
            let offset = |ns: u64| Duration::from_nanos(ns - self.window.start);
            let (begun, ended) = (offset(begun_ns), offset(ended_ns));
            self.outcome.recorder.record_failure(cause, begun, begun, ended);
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
        let call_rate = rate / f64::from(plan.batch);
        let mut schedule = Self {
            origin_ns,
            next: None,
            arrivals: arrival_schedule(spacing, call_rate, FOREVER, seed),
        };
        schedule.advance();
        Some(schedule)
    }

    fn advance(&mut self) {
        let next = self.arrivals.next();
        self.next = next.map(|at| self.origin_ns + at.as_nanos() as u64);
    }

    /// The next call, where it is due.
    #[inline]
    fn pop_due(&mut self, now_ns: u64) -> Option<u64> {
        let due = self.next.filter(|at| *at <= now_ns)?;
        self.advance();
        Some(due)
    }
}

#[cfg(test)]
mod tests;
