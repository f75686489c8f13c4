//! Leases: handing tasks out, and reports on them.

use super::machine::State;
use super::ready_position::ReadyPosition;
use super::rows::{LostLease, Queue, TaskRef};
use crate::core::command::{Defer, Refusal, TaskReport};
use crate::core::entry::{TaskState, flag};
use crate::core::lanes;
use crate::core::retry::{delay_ms, mix};
use crate::core::slab::{NO_SLOT, SlotIndex};
use crate::core::wheel::Links;
use crate::model::{AttemptEnd, QueueSettings, RetryPolicy, TaskId, TaskOptions};

/// Bits of a token that count leases; the epoch stands above them. When they are used up the
/// partition begins an epoch by itself.
pub(super) const LEASE_BITS: u32 = 40;

/// A task that a worker now holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedTask {
    /// The task that is leased.
    pub task: TaskRef,
    /// The record that holds its content.
    pub record: u64,
    /// Id of the task's queue.
    pub queue: u32,
    /// Its tags, by number.
    pub tags: u32,
    /// Token of the lease.
    pub token: u64,
    /// When the lease ends, in Unix milliseconds.
    pub until_ms: u64,
    /// How long it lasts, in milliseconds.
    pub lease_ms: u64,
    /// The longest that the attempt may take, in milliseconds; zero: any time.
    pub timeout_ms: u64,
    /// Attempts begun, this one included.
    pub attempt: u16,
    /// Attempts before it is dead.
    pub max_attempts: u16,
    /// Priority from 0 to 9.
    pub priority: u8,
    /// Whether it tells of another task's end.
    pub is_callback: bool,
}

/// Status of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStatus {
    /// It holds its task.
    Held,
    /// It has completed its task with attachments.
    Completed,
    /// It has ended, or never was.
    Ended,
}

/// How a report relates to the lease of its task.
enum ReportMatch {
    /// The lease holds the task.
    Current(SlotIndex),
    /// The lease has ended by the same report.
    Repeated,
}

impl State {
    /// Hands out up to `count` ready tasks of a queue for `lease_ms`.
    pub fn claim(
        &mut self,
        queue: u32,
        worker: &str,
        count: u32,
        lease_ms: u64,
        claimed: &mut Vec<ClaimedTask>,
    ) {
        self.claim_ranked(queue, worker, count, lease_ms, i64::MIN, claimed);
    }

    /// As [`State::claim`], only with tasks of at least this rank.
    pub(crate) fn claim_ranked(
        &mut self,
        queue: u32,
        worker: &str,
        count: u32,
        lease_ms: u64,
        rank_min: i64,
        claimed: &mut Vec<ClaimedTask>,
    ) {
        let count_before = claimed.len();
        // A claim that gets nothing is not logged, so it must not change the state, not even by a
        // name.
        if self.next_lane(queue).is_none() || !self.next_has_rank(queue, rank_min) {
            return;
        }
        let worker = self.workers.acquire(worker);
        for _ in 0..count {
            let Some(lane) = self.next_lane(queue) else {
                break;
            };
            if !self.next_has_rank(queue, rank_min) {
                break;
            }
            let slot = self.pop_lane_head(queue, lane);
            claimed.push(self.lease_task(slot, worker, lease_ms));
        }
        self.workers.add_uses(worker, (claimed.len() - count_before) as u64);
        self.workers.release(worker, 1);
    }

    /// Whether the next task of a queue has at least this rank.
    fn next_has_rank(&self, queue: u32, rank_min: i64) -> bool {
        rank_min == i64::MIN || self.next_rank(queue) >= Some(rank_min)
    }

    /// The lane of a queue whose turn it is.
    fn next_lane(&self, queue: u32) -> Option<SlotIndex> {
        let row = self.queue(queue).ok()?;
        let aging_ms = row.settings.aging_ms;
        row.rings.front(&self.lanes, &self.entries, aging_ms, self.now_ms)
    }

    /// Removes the first task of the lane whose turn it is, and passes the turn on.
    fn pop_lane_head(&mut self, queue: u32, lane: SlotIndex) -> SlotIndex {
        let (slot, flow) = {
            let row = self.lanes.get(lane);
            (row.head, row.flow)
        };
        lanes::remove_task(&mut self.lanes, &mut self.entries, lane, slot);
        let row = self.queues.get_mut(queue).expect("found by the caller");
        let has_more = self.lanes.get(lane).head != NO_SLOT;
        if !has_more || self.lanes.get(lane).ring != Links::default() {
            row.rings.remove_lane(&mut self.lanes, lane);
            if has_more {
                row.rings.push_lane(&mut self.lanes, lane);
            }
        }
        if self.flows.get(flow).key == 0 {
            return slot;
        }
        self.entries.get_mut(slot).set_flag(flag::HOLDS_KEY);
        let row = self.flows.get_mut(flow);
        row.in_flight += 1;
        let (in_flight, mut lane) = (row.in_flight, row.first_lane);
        let row = self.queues.get_mut(queue).expect("found by the caller");
        let key_concurrency = row.settings.key_concurrency;
        while key_concurrency > 0 && in_flight >= key_concurrency && lane != NO_SLOT {
            row.rings.remove_lane(&mut self.lanes, lane);
            lane = self.lanes.get(lane).sibling;
        }
        slot
    }

    fn lease_task(&mut self, slot: SlotIndex, worker: u32, lease_ms: u64) -> ClaimedTask {
        self.exit_state(slot);
        self.leases_given += 1;
        if self.leases_given >> LEASE_BITS != 0 {
            (self.epoch, self.leases_given) = (self.epoch + 1, 1);
        }
        let token = u64::from(self.epoch) << LEASE_BITS | self.leases_given;
        let until_ms = self.lease_end(slot, self.now_ms, lease_ms);
        let (max_attempts, timeout_ms) = (self.max_attempts(slot), self.timeout_ms(slot));
        let previous_worker = self.entries.get(slot).worker;
        self.workers.release(previous_worker, 1);
        let entry = self.entries.get_mut(slot);
        entry.worker = worker;
        entry.token = token;
        entry.started_ms = self.now_ms.into();
        entry.at_ms = until_ms;
        entry.attempts = entry.attempts.saturating_add(1);
        let claimed = ClaimedTask {
            task: Self::task_ref(entry),
            record: entry.record,
            queue: entry.queue,
            tags: entry.tags,
            token,
            until_ms,
            lease_ms: until_ms - self.now_ms,
            timeout_ms,
            attempt: entry.attempts,
            max_attempts,
            priority: entry.priority,
            is_callback: entry.has_flag(flag::IS_CALLBACK),
        };
        self.start_lease_timer(slot);
        self.enter_state(slot, TaskState::Leased);
        claimed
    }

    /// Starts the timer of a lease. Of leases that end at the same time, the one given last expires
    /// first: each task is put in front of all ready tasks, so that their original order is
    /// restored.
    fn start_lease_timer(&mut self, slot: SlotIndex) {
        self.timers.insert_first(&mut self.entries, slot);
    }

    /// When a lease that begins now ends: at most the timeout of the attempt begun at `started_ms`.
    fn lease_end(&self, slot: SlotIndex, started_ms: u64, lease_ms: u64) -> u64 {
        let end = self.now_ms.saturating_add(lease_ms);
        match self.timeout_ms(slot) {
            0 => end,
            timeout_ms => end.min(started_ms.saturating_add(timeout_ms)),
        }
    }

    /// Completes a task; its result is in record `seq`. `false` for a repeated report.
    ///
    /// # Errors
    /// [`Refusal::LeaseLost`].
    pub fn complete(&mut self, seq: u64, report: &TaskReport<'_>) -> Result<bool, Refusal> {
        self.complete_with_flags(seq, report, 0)
    }

    /// As [`State::complete`], with attachments.
    ///
    /// # Errors
    /// [`Refusal::LeaseLost`].
    pub fn complete_attached(
        &mut self,
        seq: u64,
        report: &TaskReport<'_>,
    ) -> Result<bool, Refusal> {
        self.complete_with_flags(seq, report, flag::ATTACHED)
    }

    fn complete_with_flags(
        &mut self,
        seq: u64,
        report: &TaskReport<'_>,
        flags: u16,
    ) -> Result<bool, Refusal> {
        match self.match_report(report, |state| state == TaskState::Completed)? {
            ReportMatch::Repeated => Ok(false),
            ReportMatch::Current(slot) => {
                self.entries.get_mut(slot).set_flag(flags);
                self.leave_timer_or_lane(slot);
                self.exit_state(slot);
                self.end_task(slot, TaskState::Completed, seq);
                // After the end: a callback takes the task's bytes, except those of its past
                // attempts, as the size of the shared record.
                self.add_bytes(slot, content_bytes(report));
                Ok(true)
            }
        }
    }

    /// Fails an attempt; the error is in record `seq`. `false` as for [`State::complete`].
    ///
    /// # Errors
    /// [`Refusal::LeaseLost`].
    pub fn fail(
        &mut self,
        seq: u64,
        report: &TaskReport<'_>,
        permanent: bool,
    ) -> Result<bool, Refusal> {
        match self.match_report(report, |state| state != TaskState::Completed)? {
            ReportMatch::Repeated => Ok(false),
            ReportMatch::Current(slot) => {
                self.leave_timer_or_lane(slot);
                self.exit_state(slot);
                self.record_past_attempt(
                    slot,
                    AttemptEnd::Failed,
                    content_record(seq, report),
                    content_bytes(report),
                );
                let attempts = self.entries.get(slot).attempts;
                if permanent || attempts >= self.max_attempts(slot) {
                    self.end_task(slot, TaskState::Dead, content_record(seq, report));
                } else {
                    self.back_off(slot);
                }
                Ok(true)
            }
        }
    }

    /// Returns the task to its queue. `false` as for [`State::complete`].
    ///
    /// # Errors
    /// [`Refusal::LeaseLost`].
    pub fn defer(
        &mut self,
        seq: u64,
        report: &TaskReport<'_>,
        delay_ms: u64,
        mode: Defer,
    ) -> Result<bool, Refusal> {
        let ReportMatch::Current(slot) =
            self.match_report(report, |state| state != TaskState::Completed)?
        else {
            return Ok(false);
        };
        self.leave_timer_or_lane(slot);
        self.exit_state(slot);
        let end = match mode {
            Defer::Nack => AttemptEnd::Nacked,
            Defer::Snooze => AttemptEnd::Snoozed,
            Defer::Release => AttemptEnd::Released,
        };
        self.record_past_attempt(slot, end, content_record(seq, report), content_bytes(report));
        let max_attempts = self.max_attempts(slot);
        let entry = self.entries.get_mut(slot);
        if mode != Defer::Nack {
            entry.attempts -= 1;
        } else if entry.attempts >= max_attempts {
            self.end_task(slot, TaskState::Dead, content_record(seq, report));
            return Ok(true);
        }
        match delay_ms {
            0 => self.make_ready(slot, ReadyPosition::First),
            delay_ms => self.delay_task(slot, self.now_ms.saturating_add(delay_ms)),
        }
        Ok(true)
    }

    /// The lease lasts `lease_ms` from now, or until the attempt's timeout; returns its new end.
    ///
    /// # Errors
    /// [`Refusal::LeaseLost`].
    pub fn heartbeat(&mut self, report: &TaskReport<'_>, lease_ms: u64) -> Result<u64, Refusal> {
        let ReportMatch::Current(slot) = self.match_report(report, |_| false)? else {
            return Err(Refusal::LeaseLost);
        };
        let started_ms = self.entries.get(slot).started_ms.get();
        let until_ms = self.lease_end(slot, started_ms, lease_ms);
        self.timers.remove(&mut self.entries, slot);
        self.entries.get_mut(slot).at_ms = until_ms;
        self.start_lease_timer(slot);
        Ok(until_ms)
    }

    /// Matches a report with the lease of its task. A report of the same lease that repeats an
    /// earlier one is no error: the acknowledgement of the first may have been lost.
    fn match_report(
        &self,
        report: &TaskReport<'_>,
        is_repeat: impl Fn(TaskState) -> bool,
    ) -> Result<ReportMatch, Refusal> {
        let slot = self.slot_of(report.number).ok_or(Refusal::LeaseLost)?;
        let entry = self.entries.get(slot);
        // A task without a lease has token 0, which no lease has.
        if report.token == 0 {
            return Err(Refusal::LeaseLost);
        }
        let is_same_lease = match entry.state {
            TaskState::Leased if entry.token == report.token => {
                return Ok(ReportMatch::Current(slot));
            }
            TaskState::Leased | TaskState::Waiting | TaskState::Cancelled => false,
            TaskState::Delayed | TaskState::Ready => entry.token == report.token,
            TaskState::Completed | TaskState::Dead => entry.was_ended_by(report.token),
        };
        if is_same_lease && is_repeat(entry.state) {
            return Ok(ReportMatch::Repeated);
        }
        Err(Refusal::LeaseLost)
    }

    /// Status of a lease, which decides whether the attachments that were uploaded under it are
    /// kept.
    pub(crate) fn lease_status(&self, task: TaskId, token: u64) -> LeaseStatus {
        let Some(entry) = self.find_task(task).map(|slot| self.entries.get(slot)) else {
            return LeaseStatus::Ended;
        };
        match entry.state {
            TaskState::Leased if entry.token == token => LeaseStatus::Held,
            TaskState::Completed if entry.has_flag(flag::ATTACHED) && entry.was_ended_by(token) => {
                LeaseStatus::Completed
            }
            _ => LeaseStatus::Ended,
        }
    }

    /// Ends a lease that has expired; its timer is already removed.
    pub(super) fn expire_lease(&mut self, slot: SlotIndex) {
        let timeout_ms = self.timeout_ms(slot);
        let entry = self.entries.get_mut(slot);
        let timeout_at_ms = entry.started_ms.get().saturating_add(timeout_ms);
        let is_timed_out = timeout_ms > 0 && self.now_ms >= timeout_at_ms;
        if !is_timed_out && self.now_ms < self.grace_until_ms {
            let timeout_at_ms = match timeout_ms {
                0 => u64::MAX,
                _ => timeout_at_ms,
            };
            entry.at_ms = self.grace_until_ms.min(timeout_at_ms);
            self.start_lease_timer(slot);
            return;
        }
        let end = if is_timed_out { AttemptEnd::TimedOut } else { AttemptEnd::LeaseExpired };
        self.lose_lease(slot, end);
        self.exit_state(slot);
        let attempts = self.entries.get(slot).attempts;
        if attempts >= self.max_attempts(slot) {
            self.end_task(slot, TaskState::Dead, 0);
        } else if is_timed_out {
            self.back_off(slot);
        } else {
            self.make_ready(slot, ReadyPosition::First);
        }
    }

    /// Notes that a lease ended without a report: its worker is notified and its token is void.
    pub(super) fn lose_lease(&mut self, slot: SlotIndex, end: AttemptEnd) {
        self.record_past_attempt(slot, end, 0, 0);
        let entry = self.entries.get_mut(slot);
        let token = std::mem::take(&mut entry.token);
        let task = Self::task_ref(entry);
        self.events.lost_leases.push(LostLease { task, token, end });
    }

    fn back_off(&mut self, slot: SlotIndex) {
        let entry = self.entries.get(slot);
        let failed = entry.attempts;
        let random = mix(self.seed, entry.number);
        match delay_ms(&self.retry_policy(slot), failed, random) {
            0 => self.make_ready(slot, ReadyPosition::Last),
            delay_ms => self.delay_task(slot, self.now_ms.saturating_add(delay_ms)),
        }
    }

    /// The lease time of the queue of the task with this number.
    pub(crate) fn lease_ms_of(&self, number: u64) -> Option<u64> {
        let slot = self.slot_of(number)?;
        Some(self.settings_of(slot).lease_ms)
    }

    /// The queue of the task with this number.
    pub(crate) fn queue_of_task(&self, number: u64) -> Option<&Queue> {
        let slot = self.slot_of(number)?;
        self.queues.get(self.entries.get(slot).queue)
    }

    // ---- Options of a task, or else the settings of its queue. ----

    fn options_of(&self, slot: SlotIndex) -> &TaskOptions {
        self.options.get(self.entries.get(slot).options)
    }

    pub(super) fn settings_of(&self, slot: SlotIndex) -> &QueueSettings {
        let queue = self.queues.get(self.entries.get(slot).queue);
        &queue.expect("a task's queue stays").settings
    }

    /// Attempts before the task is dead.
    pub fn max_attempts(&self, slot: SlotIndex) -> u16 {
        let option = self.options_of(slot).max_attempts;
        option.unwrap_or_else(|| self.settings_of(slot).max_attempts)
    }

    fn timeout_ms(&self, slot: SlotIndex) -> u64 {
        let option = self.options_of(slot).timeout_ms;
        option.unwrap_or_else(|| self.settings_of(slot).timeout_ms)
    }

    fn retry_policy(&self, slot: SlotIndex) -> RetryPolicy {
        let option = self.options_of(slot).retry;
        option.unwrap_or_else(|| self.settings_of(slot).retry)
    }
}

/// Bytes of an error, a reason or a result.
fn content_bytes(report: &TaskReport<'_>) -> u32 {
    report.content.len() as u32
}

/// The record with the worker's error or reason, if there is one.
fn content_record(seq: u64, report: &TaskReport<'_>) -> u64 {
    if report.content.is_empty() { 0 } else { seq }
}
