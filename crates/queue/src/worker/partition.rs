//! A partition's thread: takes the waiting submissions, applies them, writes them with one append,
//! and replies.
//!
//! A command is applied in memory before it is appended, and acknowledged after the append: no
//! caller sees state that is not in the log. When the log fails, the state cannot be used any more
//! and the partition ends.

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
pub(super) use intake::content_bytes_max;
use items::{IntakeLimits, apply_enqueues, apply_reports};
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

fn turn_items_max(waiting: &FairQueue) -> usize {
    if waiting.is_contested() { CONTESTED_ITEMS_MAX } else { TURN_ITEMS_MAX }
}

/// Whether a turn that has `items` takes the next submission.
fn has_room_for_next(waiting: &FairQueue, intake: &Intake, items: usize, batch: &Batch) -> bool {
    waiting.fits(items, turn_items_max(waiting)) && intake.has_room(waiting, items, batch)
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
const MESSAGES_PAUSE: Duration = Duration::from_millis(1);

pub(crate) struct Partition<L: Log> {
    pub handle: Arc<PartitionHandle>,
    pub state: State,
    pub log: L,
    pub reader: L::Reader,
    pub time: MonotonicClock,
    pub entropy: Arc<dyn Entropy>,
    pub dispatcher: Dispatcher,
    watchers: Watchers,
    schedule_runner: ScheduleRunner,
    pub upkeep: Upkeep<L>,
    metrics: Arc<Metrics>,
    /// When the gauges of the queues were updated.
    metrics_updated_at: Option<Instant>,
    pub(super) partition: usize,
    pub reserve_bytes: u64,
    /// This partition's share of `queue.tasks_max`, and its limit on messages between tasks that
    /// wait for others.
    limits: IntakeLimits,
    attachments: Arc<AttachmentStore>,
    batch: Batch,
    waiting: FairQueue,
    mailer: PartitionMailer,
    /// Replies that are sent after the tasks of this turn.
    replies_after_tasks: Vec<OnCommit>,
    /// Replies that are sent when everything is durable.
    replies_when_durable: Vec<OnCommit>,
    /// Sessions of claims, which take ready tasks in this turn only.
    claim_sessions: Vec<Arc<WorkSession>>,
    pending_replies: Vec<PendingReply>,
    claimed: Vec<ClaimedTask>,
    pushes: Vec<Push>,
    /// Number and bytes of waiting submissions as last reported to the inbox.
    inbox_held: (usize, usize),
    /// Why the log did not take the batch of the last turn, which is retried before the next turn.
    commit_error: Option<LogError>,
    /// When it is retried.
    retry_at: Instant,
    /// Whether there is no room for new tasks.
    log_full: Condition,
    log_unwritable: Condition,
}

impl<L: Log + 'static> Partition<L> {
    pub(crate) fn new(parts: PartitionParts<L>) -> Self {
        Self {
            handle: parts.handle,
            time: MonotonicClock::new(parts.clock, parts.state.now_ms()),
            state: parts.state,
            reader: parts.log.reader(),
            log: parts.log,
            entropy: parts.entropy,
            dispatcher: parts.dispatcher,
            watchers: Watchers::default(),
            schedule_runner: ScheduleRunner::new(parts.partition),
            upkeep: parts.upkeep,
            metrics: parts.metrics,
            metrics_updated_at: None,
            partition: parts.partition,
            reserve_bytes: parts.reserve_bytes,
            limits: IntakeLimits {
                shares: parts.task_shares,
                messages: Limit::new("queue.chain_messages_max", parts.chain_messages_max),
            },
            attachments: parts.attachments,
            batch: Batch::new(),
            waiting: FairQueue::default(),
            mailer: parts.mailer,
            replies_after_tasks: Vec::new(),
            replies_when_durable: Vec::new(),
            claim_sessions: Vec::new(),
            pending_replies: Vec::new(),
            claimed: Vec::new(),
            pushes: Vec::new(),
            inbox_held: (0, 0),
            commit_error: None,
            retry_at: Instant::now(),
            log_full: Condition::new("queue_log_full", part_name(parts.partition)),
            log_unwritable: Condition::new("queue_log_unwritable", part_name(parts.partition)),
        }
    }

    /// Publishes how many tasks of queues with a concurrency limit are leased since before the
    /// restart. Call it for every partition before any of them runs.
    pub(crate) fn publish_leased_counts(&mut self) {
        for (queue, _) in self.state.queues() {
            self.dispatcher.track_limits(queue, &self.state);
            self.dispatcher.mark_ready(queue, &self.state);
        }
        let freed = self.dispatcher.update_leased_counts(&self.state);
        debug_assert!(freed.is_empty(), "no permit has been requested yet");
    }

    /// Runs turns until the inbox is closed and empty, or the log fails. However it ends, all
    /// waiting callers get a reply, and later ones are refused.
    ///
    /// # Errors
    /// Why the partition cannot go on.
    pub(crate) fn run(mut self) -> Result<(), QueueError> {
        // After a panic the state is not used any more.
        let result = catch_unwind(AssertUnwindSafe(|| self.run_turns()));
        let failure = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(QueueError::Log(error)),
            Err(_) => Some(QueueError::PartitionFailed { partition: self.partition }),
        };
        if let Some(failure) = &failure {
            // Only the first failure is kept.
            let _ = self.handle.failure.set(failure.clone());
        }
        self.handle.inbox.close();
        let mut submissions = Vec::new();
        self.handle.inbox.take_all(&mut submissions, None);
        submissions.drain(..).for_each(|submission| self.waiting.push(submission));
        let error = failure.clone().unwrap_or(QueueError::Stopping);
        self.reject_pending(&error);
        self.reject_waiting(&error);
        self.watchers.end_subscriptions(&error);
        self.upkeep.join();
        failure.map_or(Ok(()), Err)
    }

    fn run_turns(&mut self) -> Result<(), LogError> {
        let mut submissions = Vec::new();
        loop {
            let timeout = match (&self.commit_error, self.waiting.is_empty()) {
                (Some(_), _) => self.retry_at.saturating_duration_since(Instant::now()),
                (None, false) => Duration::ZERO,
                (None, true) if self.dispatcher.has_more() => Duration::ZERO,
                (None, true) if self.mailer.has_more(&self.state) => MESSAGES_PAUSE,
                (None, true) => self.sleep_duration(),
            };
            match self.handle.inbox.take_all(&mut submissions, Some(timeout)) {
                DrainResult::Closed if self.commit_error.is_some() => return self.abandon_turn(),
                DrainResult::Closed if self.waiting.is_empty() => return self.log.sync(),
                _ => {
                    self.metrics.set_waiting(submissions.len());
                    submissions.drain(..).for_each(|submission| self.waiting.push(submission));
                }
            }
            if self.commit_error.is_some() && self.retry_at > Instant::now() {
                self.upkeep.collect_result(&mut self.log)?
            } else {
                self.run_turn()?
            }
            self.update_inbox_hold();
        }
    }

    /// Reports the waiting submissions to the inbox, whose limits include them.
    fn update_inbox_hold(&mut self) {
        let size = self.waiting.size();
        if size != self.inbox_held {
            self.handle.inbox.set_unprocessed(size.0, size.1);
            self.inbox_held = size;
        }
    }

    /// How long the thread may sleep while nothing is submitted.
    fn sleep_duration(&mut self) -> Duration {
        let now = self.time.now().as_millis_unsigned();
        if self.time.is_step_due() {
            return Duration::ZERO;
        }
        let due = self
            .state
            .next_due_ms()
            .into_iter()
            .chain(self.dispatcher.next_due_ms())
            .chain(self.schedule_runner.next_due_ms(&self.state))
            .min();
        let until_due = due.map(|due| Duration::from_millis(due.saturating_sub(now)));
        let deadline = self.log.sync_deadline();
        let until_sync = deadline.map(|instant| instant.saturating_duration_since(Instant::now()));
        let soonest = until_due.into_iter().chain(until_sync).min();
        soonest.map_or(PAUSE_MAX, |pause| pause.min(PAUSE_MAX))
    }

    fn random_seed(&self) -> u64 {
        let mut seed = [0; 8];
        self.entropy.fill(&mut seed);
        u64::from_le_bytes(seed)
    }

    fn intake(&mut self, now_ms: u64) -> Intake {
        let accepts_submissions =
            !self.waiting.is_empty() || self.schedule_runner.has_due(&self.state, now_ms);
        let intake = Intake::new(&self.log, self.reserve_bytes, accepts_submissions);
        intake.update_condition(&self.log_full);
        intake
    }

    fn run_turn(&mut self) -> Result<(), LogError> {
        if self.commit_error.is_some() {
            return self.commit_turn();
        }
        let (seed, now) = (self.random_seed(), self.time.now());
        let intake = self.intake(now.as_millis_unsigned());
        let mut turn = BatchTurn {
            state: &mut self.state,
            batch: &mut self.batch,
            watchers: &mut self.watchers,
            first: self.log.next_seq(),
            now,
            seed,
        };
        if let Some(step) = self.time.take_step() {
            let (ticks, dispatcher) = (&mut self.schedule_runner, &mut self.dispatcher);
            step::step_clock(&mut turn, step, ticks, dispatcher, &*self.handle.read_record);
        }
        // Ticks run first: a schedule that is changed in this turn has then created the tasks of
        // its old settings.
        let budget = intake.tick_budget(self.limits.shares.tasks, turn.state.total_load().tasks);
        self.schedule_runner.run(&mut turn, &budget, &*self.handle.read_record);
        let replies = &mut self.pending_replies;
        let mut items = 0;
        while has_room_for_next(&self.waiting, &intake, items, turn.batch)
            && let Some(submission) = self.waiting.pop()
        {
            items += submission.weight();
            self.handle.tenant_quota.release_submission(&submission);
            let submission = intake.admit(submission);
            let Ok(submission) = submission.map_err(|reply| replies.push(reply)) else {
                continue;
            };
            match submission {
                Submission::Enqueue(batch) => {
                    replies.push(apply_enqueues(&mut turn, batch, &self.limits));
                }
                Submission::Report(batch) => {
                    replies.push(apply_reports(&mut turn, batch, &mut self.dispatcher));
                }
                Submission::Credits(session) => self.dispatcher.add_session(&session),
                Submission::Detach(session, answer) => {
                    self.dispatcher.remove_session(&session, &mut turn);
                    self.replies_after_tasks.extend(answer);
                }
                Submission::Claim(session, answer) => {
                    self.dispatcher.add_claim_session(&session);
                    self.claim_sessions.push(session);
                    self.replies_after_tasks.push(answer);
                }
                Submission::Drain(session, answer) => {
                    self.dispatcher.release_undelivered(&session, &mut turn);
                    self.replies_after_tasks.push(answer);
                }
                Submission::ReconsiderQueue(queue) => {
                    self.dispatcher.add_candidate(queue, turn.state)
                }
                Submission::Sync(answer) => self.replies_when_durable.push(answer),
                Submission::Job(job) => replies.push(PendingReply::Job(job(&mut turn))),
            }
        }
        turn.advance(ADVANCE_BUDGET);
        let (items_max, bytes_max) = (turn_items_max(&self.waiting), intake.claim_bytes_max);
        let (claimed, pushes) = (&mut self.claimed, &mut self.pushes);
        self.dispatcher.dispatch(&mut turn, items_max, bytes_max, claimed, pushes);
        self.dispatcher.end_claim_sessions(&mut self.claim_sessions);
        self.commit_turn()
    }

    /// Commits a turn and sends its replies. A log that has no room, or no spare segment, is
    /// unchanged: the commit is retried later, and meanwhile no reply is sent.
    fn commit_turn(&mut self) -> Result<(), LogError> {
        match self.commit(self.log.next_seq()) {
            Ok(()) => {
                self.commit_error = None;
                self.log_unwritable.recover("writing the queue's log works again");
            }
            Err(error @ (LogError::Full { .. } | LogError::Io { .. })) => {
                self.log_unwritable.fail(&error, "cannot write the queue's log; retrying");
                self.commit_error = Some(error);
                for (partitions, queue) in self.dispatcher.withdraw_ranks() {
                    self.mailer.reconsider_queue_in(&partitions, queue);
                }
                self.retry_at = Instant::now() + RETRY_PAUSE;
                return Ok(());
            }
            Err(error) => {
                self.reject_pending(&QueueError::Log(error.clone()));
                return Err(error);
            }
        }
        self.send_replies();
        self.upkeep.run_step(&mut self.state, &mut self.log)
    }

    /// Ends with a turn that the log did not take.
    fn abandon_turn(&mut self) -> Result<(), LogError> {
        match self.commit_error.take() {
            None => Ok(()),
            Some(error) => {
                self.reject_pending(&QueueError::Log(error.clone()));
                Err(error)
            }
        }
    }

    fn commit(&mut self, first: Seq) -> Result<(), LogError> {
        // A batch with only a clock is not written.
        if self.batch.len() > 1 {
            let (bytes, records, started) =
                (self.batch.frame_bytes(), self.batch.len(), Instant::now());
            match self.log.append(&mut self.batch, first)? {
                AppendResult::Committed(_) => self.upkeep.add_appended(bytes),
                // A log in local files has one writer: its lock ensures that.
                AppendResult::Fenced | AppendResult::Unknown => {
                    unreachable!("a log in local files knows what it has")
                }
            }
            self.metrics.record_commit(started.elapsed(), records);
        }
        self.batch.clear();
        let deadline = self.log.sync_deadline();
        if !self.replies_when_durable.is_empty()
            || deadline.is_some_and(|instant| instant <= Instant::now())
        {
            self.log.sync()?;
            self.replies_after_tasks.append(&mut self.replies_when_durable);
        }
        Ok(())
    }

    /// Sends the replies and events of a turn, now that it is committed.
    fn send_replies(&mut self) {
        self.dispatcher.publish_rises(&self.state);
        for reply in self.pending_replies.drain(..) {
            match reply {
                PendingReply::Produced(sink, outcomes) => sink.deliver_receipts(&outcomes),
                PendingReply::Reported(sink, outcomes) => sink.deliver_outcomes(&outcomes),
                PendingReply::Job(answer) => answer(Ok(())),
            }
        }
        self.dispatcher.deliver(&self.state, &self.reader, &mut self.pushes, &self.claimed);
        self.claimed.clear();
        for answer in self.replies_after_tasks.drain(..) {
            answer(Ok(()));
        }
        for lease in std::mem::take(&mut self.state.events.lost_leases) {
            self.dispatcher.notify_lost_lease(&lease, &self.state);
        }
        for task in std::mem::take(&mut self.state.events.orphaned_attachments) {
            self.attachments.queue_deletion(self.state.task_id(task));
        }
        match std::mem::take(&mut self.state.events.miscounts) {
            0 => {}
            miscounts => report_miscounts(self.partition, miscounts),
        }
        if !self.state.events.changes.is_empty() {
            let changes = std::mem::take(&mut self.state.events.changes);
            self.watchers.notify(&self.state, &changes);
        }
        self.state.events.wants_changes = self.watchers.has_any();
        let due = |instant: Instant| instant.elapsed() >= METRICS_INTERVAL;
        if self.metrics_updated_at.is_none_or(due) {
            self.metrics_updated_at = Some(Instant::now());
            self.metrics.update_gauges(self.partition, &self.state);
        }
        self.mailer.send_messages(&self.state);
        for (partition, queue) in self.dispatcher.update_leased_counts(&self.state) {
            self.mailer.reconsider_queue(partition, queue);
        }
        for (partitions, queue) in self.dispatcher.publish_falls(&self.state) {
            self.mailer.reconsider_queue_in(&partitions, queue);
        }
        for (partition, session) in self.dispatcher.sessions_with_credit() {
            self.mailer.send_credits(partition, session);
        }
    }
}

/// Reports wrong sums of loads. That is an error of Egret, and no reason to stop the partition.
#[cold]
fn report_miscounts(partition: usize, miscounts: u64) {
    let reason = format!("{miscounts} counters would have become negative");
    let message = "counters of a partition are wrong";
    condition::occur("queue_counts_wrong", &part_name(partition), reason, message);
}

/// Parts of a new partition.
pub(crate) struct PartitionParts<L: Log> {
    pub handle: Arc<PartitionHandle>,
    pub state: State,
    pub log: L,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub dispatcher: Dispatcher,
    pub upkeep: Upkeep<L>,
    pub metrics: Arc<Metrics>,
    pub mailer: PartitionMailer,
    pub partition: usize,
    pub reserve_bytes: u64,
    pub task_shares: TaskShares,
    pub attachments: Arc<AttachmentStore>,
    pub chain_messages_max: u64,
}
