//! A partition's thread: takes the waiting submissions, applies them, writes them with one append,
//! and replies.
//!
//! A command is applied before it is in the log, and answered after: no caller sees state that is
//! not in the log yet. When the log fails, the state cannot be used any more and the partition
//! ends.

pub mod driven;
mod intake;
mod items;
mod refuse;
mod reply;
mod step;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_base::{Clock, Condition, Entropy, Limit, condition};
use egret_log::{AppendResult, Batch, DrainResult, Log, LogError, Seq};

use crate::worker::partition_handle::{PartitionHandle, part_name};
use intake::Intake;
pub(super) use intake::room_bytes;
use items::{IntakeLimits, enqueue, report};
use reply::PendingReply;

use super::admission_queue::FairQueue;
use super::attachment_store::AttachmentStore;
use super::dispatch::{Dispatcher, Push};
use super::mailer::PartitionMailer;
use super::monotonic_clock::MonotonicClock;
use super::schedule_runner::ScheduleRunner;
use super::turn::BatchTurn;
use super::upkeep::Upkeep;
use super::watch::Watchers;
use crate::core::command::Command;
use crate::core::state::{ClaimedTask, State};
use crate::error::QueueError;
use crate::metrics::Metrics;
use crate::worker::session::WorkSession;
use crate::worker::sinks::{ProduceSink, ReportSink};
use crate::worker::submission::{
    EnqueueBatch, OnCommit, Rejectable, ReportBatch, ReportKind, Submission,
};
use crate::worker::task_shares::TaskShares;

/// New tasks and reports in one turn; the rest waits for the next.
const TURN_ITEMS_MAX: usize = 1_024;

/// The same limit while several tenants are active, which wait for each other's turns.
const CONTESTED_ITEMS_MAX: usize = 256;

fn turn_max(waiting: &FairQueue) -> usize {
    if waiting.is_contested() {
        CONTESTED_ITEMS_MAX
    } else {
        TURN_ITEMS_MAX
    }
}

/// Whether a turn that has `items` takes the next submission.
fn takes_next(waiting: &FairQueue, intake: &Intake, items: usize, batch: &Batch) -> bool {
    waiting.fits(items, turn_max(waiting)) && intake.has_room(waiting, items, batch)
}

/// Steps of timers in one turn.
const ADVANCE_BUDGET: u32 = 2_048;

/// The longest sleep of a partition, after which the metrics are updated.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How often the gauges of the queues are updated.
const METRICS_INTERVAL: Duration = Duration::from_secs(1);

/// The wait before a failed append is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The wait before the remaining messages for other partitions are sent.
const POST_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Partition<L: Log> {
    pub shared: Arc<PartitionHandle>,
    pub state: State,
    pub log: L,
    pub reader: L::Reader,
    pub time: MonotonicClock,
    pub entropy: Arc<dyn Entropy>,
    pub dispatcher: Dispatcher,
    watchers: Watchers,
    ticks: ScheduleRunner,
    pub upkeep: Upkeep<L>,
    metrics: Arc<Metrics>,
    /// When the gauges of the queues were updated.
    told_at: Option<Instant>,
    pub(super) partition: usize,
    pub reserve_bytes: u64,
    /// This partition's share of `queue.tasks_max`, and its limit on messages between tasks that
    /// wait for others.
    limits: IntakeLimits,
    shelf: Arc<AttachmentStore>,
    batch: Batch,
    waiting: FairQueue,
    post: PartitionMailer,
    /// Replies that are sent after the tasks of this turn.
    last: Vec<OnCommit>,
    /// Replies that are sent when everything is durable.
    when_durable: Vec<OnCommit>,
    /// Sessions of claims, which take ready tasks in this turn only.
    once: Vec<Arc<WorkSession>>,
    told: Vec<PendingReply>,
    claimed: Vec<ClaimedTask>,
    pushes: Vec<Push>,
    /// Number and bytes of waiting submissions as last reported to the inbox.
    held: (usize, usize),
    /// Why the log did not take the batch of the last turn, which is retried before the next turn.
    held_back: Option<LogError>,
    /// When it is retried.
    retry_at: Instant,
    /// Whether there is no room for new tasks.
    log_full: Condition,
    log_unwritable: Condition,
}

impl<L: Log + 'static> Partition<L> {
    pub(crate) fn new(parts: PartitionParts<L>) -> Self {
        Self {
            shared: parts.shared,
            time: MonotonicClock::new(parts.clock, parts.state.now_ms()),
            state: parts.state,
            reader: parts.log.reader(),
            log: parts.log,
            entropy: parts.entropy,
            dispatcher: parts.dispatcher,
            watchers: Watchers::default(),
            ticks: ScheduleRunner::new(parts.partition),
            upkeep: parts.upkeep,
            metrics: parts.metrics,
            told_at: None,
            partition: parts.partition,
            reserve_bytes: parts.reserve_bytes,
            limits: IntakeLimits {
                shares: parts.task_shares,
                messages: Limit::new("queue.chain_messages_max", parts.chain_messages_max),
            },
            shelf: parts.shelf,
            batch: Batch::new(),
            waiting: FairQueue::default(),
            post: parts.post,
            last: Vec::new(),
            when_durable: Vec::new(),
            once: Vec::new(),
            told: Vec::new(),
            claimed: Vec::new(),
            pushes: Vec::new(),
            held: (0, 0),
            held_back: None,
            retry_at: Instant::now(),
            log_full: Condition::new("queue_log_full", part_name(parts.partition)),
            log_unwritable: Condition::new("queue_log_unwritable", part_name(parts.partition)),
        }
    }

    /// Publishes how many tasks of limited queues are leased from before: to be called for every
    /// partition before one of them runs.
    pub(crate) fn note_limits(&mut self) {
        for (queue, _) in self.state.queues() {
            self.dispatcher.watch_limits(queue, &self.state);
            self.dispatcher.note_ready(queue, &self.state);
        }
        let nobody_waits = self.dispatcher.update_leased_counts(&self.state);
        debug_assert!(nobody_waits.is_empty(), "no permit has been requested yet");
    }

    /// Runs turns until the inbox is closed and empty, or the log fails. However it ends, all
    /// waiting callers get a reply, and later ones are refused.
    ///
    /// # Errors
    /// Why the partition cannot go on.
    pub(crate) fn run(mut self) -> Result<(), QueueError> {
        // After a panic the state is not used any more.
        let worked = catch_unwind(AssertUnwindSafe(|| self.work()));
        let failure = match worked {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(QueueError::Log(error)),
            Err(_) => Some(QueueError::PartitionFailed {
                partition: self.partition,
            }),
        };
        if let Some(failure) = &failure {
            // Only the first failure is kept.
            let _ = self.shared.failure.set(failure.clone());
        }
        self.shared.inbox.close();
        let mut taken = Vec::new();
        self.shared.inbox.take_all(&mut taken, None);
        taken.drain(..).for_each(|one| self.waiting.push(one));
        let error = failure.clone().unwrap_or(QueueError::Stopping);
        self.refuse_told(&error);
        self.refuse_all(&error);
        self.watchers.end(&error);
        self.upkeep.end();
        failure.map_or(Ok(()), Err)
    }

    fn work(&mut self) -> Result<(), LogError> {
        let mut taken = Vec::new();
        loop {
            let timeout = match (&self.held_back, self.waiting.is_empty()) {
                (Some(_), _) => self.retry_at.saturating_duration_since(Instant::now()),
                (None, false) => Duration::ZERO,
                (None, true) if self.dispatcher.has_more() => Duration::ZERO,
                (None, true) if self.post.has_more(&self.state) => POST_PAUSE,
                (None, true) => self.pause(),
            };
            match self.shared.inbox.take_all(&mut taken, Some(timeout)) {
                DrainResult::Closed if self.held_back.is_some() => return self.give_up(),
                DrainResult::Closed if self.waiting.is_empty() => return self.log.sync(),
                _ => {
                    self.metrics.waited(taken.len());
                    taken.drain(..).for_each(|one| self.waiting.push(one));
                }
            }
            if self.held_back.is_some() && self.retry_at > Instant::now() {
                self.upkeep.take_back(&mut self.log)?
            } else {
                self.turn()?
            }
            self.hold();
        }
    }

    /// Reports the waiting submissions to the inbox, whose limits include them.
    fn hold(&mut self) {
        let size = self.waiting.size();
        if size != self.held {
            self.shared.inbox.hold(size.0, size.1);
            self.held = size;
        }
    }

    /// How long the thread may sleep while nothing is submitted.
    fn pause(&mut self) -> Duration {
        let now = self.time.now().as_millis_unsigned();
        if self.time.is_step_due() {
            return Duration::ZERO;
        }
        let due = self
            .state
            .next_due_ms()
            .into_iter()
            .chain(self.dispatcher.next_due_ms())
            .chain(self.ticks.next_due_ms(&self.state))
            .min();
        let until_due = due.map(|due| Duration::from_millis(due.saturating_sub(now)));
        let deadline = self.log.sync_deadline();
        let until_sync = deadline.map(|at| at.saturating_duration_since(Instant::now()));
        let soonest = until_due.into_iter().chain(until_sync).min();
        soonest.map_or(PAUSE_MAX, |pause| pause.min(PAUSE_MAX))
    }

    fn seed(&self) -> u64 {
        let mut seed = [0; 8];
        self.entropy.fill(&mut seed);
        u64::from_le_bytes(seed)
    }

    fn intake(&mut self, now_ms: u64) -> Intake {
        let takes_in = !self.waiting.is_empty() || self.ticks.are_due(&self.state, now_ms);
        let intake = Intake::new(&self.log, self.reserve_bytes, takes_in);
        intake.note(&self.log_full);
        intake
    }

    fn turn(&mut self) -> Result<(), LogError> {
        if self.held_back.is_some() {
            return self.settle();
        }
        let (seed, now) = (self.seed(), self.time.now());
        let intake = self.intake(now.as_millis_unsigned());
        let mut turn = BatchTurn {
            state: &mut self.state,
            batch: &mut self.batch,
            watchers: &mut self.watchers,
            first: self.log.next(),
            now,
            seed,
        };
        if let Some(step) = self.time.take_step() {
            let (ticks, dispatcher) = (&mut self.ticks, &mut self.dispatcher);
            step::step_clock(&mut turn, step, ticks, dispatcher, &*self.shared.read);
        }
        // Ticks come first, so that a schedule that changes has made its tasks before.
        let room = intake.room_for_ticks(self.limits.shares.tasks, turn.state.load().tasks);
        self.ticks.run(&mut turn, &room, &*self.shared.read);
        let mut items = 0;
        while takes_next(&self.waiting, &intake, items, turn.batch) {
            let Some(submission) = self.waiting.pop() else {
                break;
            };
            items += submission.weight();
            self.shared.shares.give_back_of(&submission);
            let submission = intake.admit(submission);
            let Ok(submission) = submission.map_err(|refused| self.told.push(refused)) else {
                continue;
            };
            match submission {
                Submission::Enqueue(batch) => {
                    self.told.push(enqueue(&mut turn, batch, &self.limits));
                }
                Submission::Report(batch) => {
                    self.told
                        .push(report(&mut turn, batch, &mut self.dispatcher));
                }
                Submission::Credits(session) => self.dispatcher.attach(&session),
                Submission::Detach(session, answer) => {
                    self.dispatcher.detach(&session, &mut turn);
                    self.last.extend(answer);
                }
                Submission::Once(session, answer) => {
                    self.dispatcher.attach_once(&session);
                    self.once.push(session);
                    self.last.push(answer);
                }
                Submission::Drain(session, answer) => {
                    self.dispatcher.release_late(&session, &mut turn);
                    self.last.push(answer);
                }
                Submission::Consider(queue) => self.dispatcher.consider(queue, turn.state),
                Submission::Sync(answer) => self.when_durable.push(answer),
                Submission::Ask(ask) => self.told.push(PendingReply::Asked(ask(&mut turn))),
            }
        }
        turn.do_what_is_due(ADVANCE_BUDGET);
        self.dispatcher.dispatch(
            &mut turn,
            turn_max(&self.waiting),
            intake.claims_bytes,
            &mut self.claimed,
            &mut self.pushes,
        );
        self.dispatcher.detach_once(&mut self.once);
        self.settle()
    }

    /// Commits a turn and sends its replies. A log that has no room, or no spare segment, is
    /// unchanged: the commit is retried later, and meanwhile no reply is sent.
    fn settle(&mut self) -> Result<(), LogError> {
        match self.commit(self.log.next()) {
            Ok(()) => {
                self.held_back = None;
                self.log_unwritable
                    .recover("writing the queue's log works again");
            }
            Err(error @ (LogError::Full { .. } | LogError::Io { .. })) => {
                self.log_unwritable
                    .fail(&error, "cannot write the queue's log; retrying");
                self.held_back = Some(error);
                for (partitions, queue) in self.dispatcher.withdraw() {
                    self.post.consider_in(&partitions, queue);
                }
                self.retry_at = Instant::now() + RETRY_PAUSE;
                return Ok(());
            }
            Err(error) => {
                self.refuse_told(&QueueError::Log(error.clone()));
                return Err(error);
            }
        }
        self.tell();
        self.upkeep.step(&mut self.state, &mut self.log)
    }

    /// Ends with a turn that the log did not take.
    fn give_up(&mut self) -> Result<(), LogError> {
        match self.held_back.take() {
            None => Ok(()),
            Some(error) => {
                self.refuse_told(&QueueError::Log(error.clone()));
                Err(error)
            }
        }
    }

    fn commit(&mut self, first: Seq) -> Result<(), LogError> {
        // A batch with only a clock is not written.
        if self.batch.len() > 1 {
            let (bytes, records, started) = (self.batch.bytes(), self.batch.len(), Instant::now());
            match self.log.append(&mut self.batch, first)? {
                AppendResult::Committed(_) => self.upkeep.note(bytes),
                // A log in local files has one writer: its lock ensures that.
                AppendResult::Fenced | AppendResult::Unknown => {
                    unreachable!("a log in local files knows what it has")
                }
            }
            self.metrics.committed(started.elapsed(), records);
        }
        self.batch.clear();
        let deadline = self.log.sync_deadline();
        if !self.when_durable.is_empty() || deadline.is_some_and(|at| at <= Instant::now()) {
            self.log.sync()?;
            self.last.append(&mut self.when_durable);
        }
        Ok(())
    }

    /// Sends the replies and events of a turn, now that it is committed.
    fn tell(&mut self) {
        self.dispatcher.note_rises(&self.state);
        for told in self.told.drain(..) {
            match told {
                PendingReply::Produced(sink, outcomes) => sink.outcomes(&outcomes),
                PendingReply::Reported(sink, outcomes) => sink.reported(&outcomes),
                PendingReply::Asked(answer) => answer(Ok(())),
            }
        }
        self.dispatcher
            .deliver(&self.state, &self.reader, &mut self.pushes, &self.claimed);
        self.claimed.clear();
        for answer in self.last.drain(..) {
            answer(Ok(()));
        }
        for lost in std::mem::take(&mut self.state.news.lost) {
            self.dispatcher.lost(&lost, &self.state);
        }
        for task in std::mem::take(&mut self.state.news.detached) {
            self.shelf.forget(self.state.id(task));
        }
        match std::mem::take(&mut self.state.news.miscounts) {
            0 => {}
            miscounts => note_miscounts(self.partition, miscounts),
        }
        if !self.state.news.changes.is_empty() {
            let changes = std::mem::take(&mut self.state.news.changes);
            self.watchers.tell(&self.state, &changes);
        }
        self.state.news.wanted = self.watchers.are_there();
        let due = |at: Instant| at.elapsed() >= METRICS_INTERVAL;
        if self.told_at.is_none_or(due) {
            self.told_at = Some(Instant::now());
            self.metrics.tell(self.partition, &self.state);
        }
        self.post.carry(&self.state);
        for (partition, queue) in self.dispatcher.update_leased_counts(&self.state) {
            self.post.consider(partition, queue);
        }
        for (partitions, queue) in self.dispatcher.note_falls(&self.state) {
            self.post.consider_in(&partitions, queue);
        }
        for (partition, session) in self.dispatcher.sessions_with_credit() {
            self.post.has_room(partition, session);
        }
    }
}

/// Reports wrong sums of loads. That is an error of Egret, and no reason to stop the partition.
#[cold]
fn note_miscounts(partition: usize, miscounts: u64) {
    let reason = format!("{miscounts} counters would have become negative");
    let message = "counters of a partition are wrong";
    condition::occur("queue_counts_wrong", &part_name(partition), reason, message);
}

/// Parts of a new partition.
pub(crate) struct PartitionParts<L: Log> {
    pub shared: Arc<PartitionHandle>,
    pub state: State,
    pub log: L,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub dispatcher: Dispatcher,
    pub upkeep: Upkeep<L>,
    pub metrics: Arc<Metrics>,
    pub post: PartitionMailer,
    pub partition: usize,
    pub reserve_bytes: u64,
    pub task_shares: TaskShares,
    pub shelf: Arc<AttachmentStore>,
    pub chain_messages_max: u64,
}
