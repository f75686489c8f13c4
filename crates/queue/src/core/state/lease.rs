//! Leases: handing tasks out, and reports on them.

use super::machine::State;
use super::ready_position::ReadyPosition;
use super::rows::{LostLease, Queue, TaskRef};
use crate::core::command::{Defer, Refusal, TaskReport};
use crate::core::entry::{TaskState, flag};
use crate::core::lanes;
use crate::core::retry::{delay_ms, mix};
use crate::core::slab::{NOWHERE, SlotIndex};
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
    Over,
}

/// How a report relates to the lease of its task.
enum ReportMatch {
    /// The lease holds the task.
    Now(SlotIndex),
    /// The lease has ended by the same report.
    Before,
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
        let before = claimed.len();
        // A claim that gets nothing is not logged, so it must not change the state, not even by a
        // name.
        if self.turn_of(queue).is_none() || !self.has_rank(queue, rank_min) {
            return;
        }
        let worker = self.workers.acquire(worker);
        for _ in 0..count {
            let Some(lane) = self.turn_of(queue) else {
                break;
            };
            if !self.has_rank(queue, rank_min) {
                break;
            }
            let place = self.take_turn(queue, lane);
            claimed.push(self.lease(place, worker, lease_ms));
        }
        self.workers.hold(worker, (claimed.len() - before) as u64);
        self.workers.release(worker, 1);
    }

    /// Whether the next task of a queue has at least this rank.
    fn has_rank(&self, queue: u32, rank_min: i64) -> bool {
        rank_min == i64::MIN || self.next_rank(queue) >= Some(rank_min)
    }

    /// The lane of a queue whose turn it is.
    fn turn_of(&self, queue: u32) -> Option<SlotIndex> {
        let row = self.queue(queue).ok()?;
        let aging_ms = row.settings.aging_ms;
        row.rings
            .front(&self.lanes, &self.entries, aging_ms, self.now_ms)
    }

    /// Removes the first task of the lane whose turn it is, and passes the turn on.
    fn take_turn(&mut self, queue: u32, lane: SlotIndex) -> SlotIndex {
        let (place, flow) = {
            let row = self.lanes.get(lane);
            (row.head, row.flow)
        };
        lanes::take_out(&mut self.lanes, &mut self.entries, lane, place);
        let row = self.queues.get_mut(queue).expect("found by the caller");
        let has_more = self.lanes.get(lane).head != NOWHERE;
        if !has_more || self.lanes.get(lane).ring != Links::default() {
            row.rings.leave(&mut self.lanes, lane);
            if has_more {
                row.rings.enter(&mut self.lanes, lane);
            }
        }
        if self.flows.get(flow).key == 0 {
            return place;
        }
        self.entries.get_mut(place).set(flag::HOLDS_KEY);
        let row = self.flows.get_mut(flow);
        row.under_way += 1;
        let (under_way, mut lane) = (row.under_way, row.lanes);
        let row = self.queues.get_mut(queue).expect("found by the caller");
        let most = row.settings.key_concurrency;
        while most > 0 && under_way >= most && lane != NOWHERE {
            row.rings.leave(&mut self.lanes, lane);
            lane = self.lanes.get(lane).sibling;
        }
        place
    }

    fn lease(&mut self, place: SlotIndex, worker: u32, lease_ms: u64) -> ClaimedTask {
        self.exit(place);
        self.leases += 1;
        if self.leases >> LEASE_BITS != 0 {
            (self.epoch, self.leases) = (self.epoch + 1, 1);
        }
        let token = u64::from(self.epoch) << LEASE_BITS | self.leases;
        let until_ms = self.lease_end(place, self.now_ms, lease_ms);
        let (max_attempts, timeout_ms) = (self.max_attempts(place), self.timeout_ms(place));
        let former = self.entries.get(place).worker;
        self.workers.release(former, 1);
        let entry = self.entries.get_mut(place);
        entry.worker = worker;
        entry.token = token;
        entry.started_ms = self.now_ms.into();
        entry.at_ms = until_ms;
        entry.attempts = entry.attempts.saturating_add(1);
        let claimed = ClaimedTask {
            task: Self::reference(entry),
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
            is_callback: entry.has(flag::IS_CALLBACK),
        };
        self.time_lease(place);
        self.enter(place, TaskState::Leased);
        claimed
    }

    /// Starts the timer of a lease. Of leases that end at the same time, the one given last expires
    /// first: each task is put in front of all ready tasks, so that their original order is
    /// restored.
    fn time_lease(&mut self, place: SlotIndex) {
        self.timers.insert_first(&mut self.entries, place);
    }

    /// When a lease that begins now ends: at most the timeout of the attempt begun at `started_ms`.
    fn lease_end(&self, place: SlotIndex, started_ms: u64, lease_ms: u64) -> u64 {
        let end = self.now_ms.saturating_add(lease_ms);
        match self.timeout_ms(place) {
            0 => end,
            timeout_ms => end.min(started_ms.saturating_add(timeout_ms)),
        }
    }

    /// Completes a task; its result is in record `seq`. `false` for a repeated report.
    ///
    /// # Errors
    /// [`Refusal::LeaseLost`].
    pub fn complete(&mut self, seq: u64, held: &TaskReport<'_>) -> Result<bool, Refusal> {
        self.complete_as(seq, held, 0)
    }

    /// As [`State::complete`], with attachments.
    ///
    /// # Errors
    /// [`Refusal::LeaseLost`].
    pub fn complete_attached(&mut self, seq: u64, held: &TaskReport<'_>) -> Result<bool, Refusal> {
        self.complete_as(seq, held, flag::ATTACHED)
    }

    fn complete_as(
        &mut self,
        seq: u64,
        held: &TaskReport<'_>,
        flags: u16,
    ) -> Result<bool, Refusal> {
        match self.holder(held, |state| state == TaskState::Completed)? {
            ReportMatch::Before => Ok(false),
            ReportMatch::Now(place) => {
                self.entries.get_mut(place).set(flags);
                self.detach(place);
                self.exit(place);
                self.end(place, TaskState::Completed, seq);
                // After the end: a callback takes the task's bytes, except those of its past
                // attempts, as the size of the shared record.
                self.add_bytes(place, bytes_of(held));
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
        held: &TaskReport<'_>,
        permanent: bool,
    ) -> Result<bool, Refusal> {
        match self.holder(held, |state| state != TaskState::Completed)? {
            ReportMatch::Before => Ok(false),
            ReportMatch::Now(place) => {
                self.detach(place);
                self.exit(place);
                self.note_past(
                    place,
                    AttemptEnd::Failed,
                    record_of(seq, held),
                    bytes_of(held),
                );
                let attempts = self.entries.get(place).attempts;
                if permanent || attempts >= self.max_attempts(place) {
                    self.end(place, TaskState::Dead, record_of(seq, held));
                } else {
                    self.back_off(place);
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
        held: &TaskReport<'_>,
        delay_ms: u64,
        how: Defer,
    ) -> Result<bool, Refusal> {
        let ReportMatch::Now(place) = self.holder(held, |state| state != TaskState::Completed)?
        else {
            return Ok(false);
        };
        self.detach(place);
        self.exit(place);
        let end = match how {
            Defer::Nack => AttemptEnd::Nacked,
            Defer::Snooze => AttemptEnd::Snoozed,
            Defer::Release => AttemptEnd::Released,
        };
        self.note_past(place, end, record_of(seq, held), bytes_of(held));
        let max_attempts = self.max_attempts(place);
        let entry = self.entries.get_mut(place);
        if how != Defer::Nack {
            entry.attempts -= 1;
        } else if entry.attempts >= max_attempts {
            self.end(place, TaskState::Dead, record_of(seq, held));
            return Ok(true);
        }
        match delay_ms {
            0 => self.make_ready(place, ReadyPosition::First),
            delay_ms => self.delay(place, self.now_ms.saturating_add(delay_ms)),
        }
        Ok(true)
    }

    /// The lease lasts `lease_ms` from now, or until the attempt's timeout; returns its new end.
    ///
    /// # Errors
    /// [`Refusal::LeaseLost`].
    pub fn heartbeat(&mut self, held: &TaskReport<'_>, lease_ms: u64) -> Result<u64, Refusal> {
        let ReportMatch::Now(place) = self.holder(held, |_| false)? else {
            return Err(Refusal::LeaseLost);
        };
        let started_ms = self.entries.get(place).started_ms.get();
        let until_ms = self.lease_end(place, started_ms, lease_ms);
        self.timers.remove(&mut self.entries, place);
        self.entries.get_mut(place).at_ms = until_ms;
        self.time_lease(place);
        Ok(until_ms)
    }

    /// Matches a report with the lease of its task. A report of the same lease that repeats an
    /// earlier one is no error: the acknowledgement of the first may have been lost.
    fn holder(
        &self,
        held: &TaskReport<'_>,
        repeats: impl Fn(TaskState) -> bool,
    ) -> Result<ReportMatch, Refusal> {
        let place = self.place_of(held.number).ok_or(Refusal::LeaseLost)?;
        let entry = self.entries.get(place);
        // A task without a lease has token 0, which no lease has.
        if held.token == 0 {
            return Err(Refusal::LeaseLost);
        }
        let same = match entry.state {
            TaskState::Leased if entry.token == held.token => return Ok(ReportMatch::Now(place)),
            TaskState::Leased | TaskState::Waiting | TaskState::Cancelled => false,
            TaskState::Delayed | TaskState::Ready => entry.token == held.token,
            TaskState::Completed | TaskState::Dead => entry.was_ended_by(held.token),
        };
        if same && repeats(entry.state) {
            return Ok(ReportMatch::Before);
        }
        Err(Refusal::LeaseLost)
    }

    /// Status of a lease, which decides whether the attachments that were uploaded under it are
    /// kept.
    pub(crate) fn lease_status(&self, task: TaskId, token: u64) -> LeaseStatus {
        let Some(entry) = self.find(task).map(|place| self.entries.get(place)) else {
            return LeaseStatus::Over;
        };
        match entry.state {
            TaskState::Leased if entry.token == token => LeaseStatus::Held,
            TaskState::Completed if entry.has(flag::ATTACHED) && entry.was_ended_by(token) => {
                LeaseStatus::Completed
            }
            _ => LeaseStatus::Over,
        }
    }

    /// Ends a lease that has expired; its timer is already removed.
    pub(super) fn expire(&mut self, place: SlotIndex) {
        let timeout_ms = self.timeout_ms(place);
        let entry = self.entries.get_mut(place);
        let timeout_at_ms = entry.started_ms.get().saturating_add(timeout_ms);
        let over = timeout_ms > 0 && self.now_ms >= timeout_at_ms;
        if !over && self.now_ms < self.grace_until_ms {
            let timeout_at_ms = match timeout_ms {
                0 => u64::MAX,
                _ => timeout_at_ms,
            };
            entry.at_ms = self.grace_until_ms.min(timeout_at_ms);
            self.time_lease(place);
            return;
        }
        let end = if over {
            AttemptEnd::TimedOut
        } else {
            AttemptEnd::LeaseExpired
        };
        self.lose_lease(place, end);
        self.exit(place);
        let attempts = self.entries.get(place).attempts;
        if attempts >= self.max_attempts(place) {
            self.end(place, TaskState::Dead, 0);
        } else if over {
            self.back_off(place);
        } else {
            self.make_ready(place, ReadyPosition::First);
        }
    }

    /// Notes that a lease ended without a report: its worker is notified and its token is void.
    pub(super) fn lose_lease(&mut self, place: SlotIndex, end: AttemptEnd) {
        self.note_past(place, end, 0, 0);
        let entry = self.entries.get_mut(place);
        let token = std::mem::take(&mut entry.token);
        let task = Self::reference(entry);
        self.news.lost.push(LostLease { task, token, end });
    }

    fn back_off(&mut self, place: SlotIndex) {
        let entry = self.entries.get(place);
        let failed = entry.attempts;
        let random = mix(self.seed, entry.number);
        match delay_ms(&self.retry(place), failed, random) {
            0 => self.make_ready(place, ReadyPosition::Last),
            delay_ms => self.delay(place, self.now_ms.saturating_add(delay_ms)),
        }
    }

    /// The lease time of the queue of the task with this number.
    pub(crate) fn lease_ms_of(&self, number: u64) -> Option<u64> {
        let place = self.place_of(number)?;
        Some(self.settings_of(place).lease_ms)
    }

    /// The queue of the task with this number.
    pub(crate) fn queue_of(&self, number: u64) -> Option<&Queue> {
        let place = self.place_of(number)?;
        self.queues.get(self.entries.get(place).queue)
    }

    // ---- Options of a task, or else the settings of its queue. ----

    fn options_of(&self, place: SlotIndex) -> &TaskOptions {
        self.options.get(self.entries.get(place).options)
    }

    pub(super) fn settings_of(&self, place: SlotIndex) -> &QueueSettings {
        let queue = self.queues.get(self.entries.get(place).queue);
        &queue.expect("a task's queue stays").settings
    }

    /// Attempts before the task is dead.
    pub fn max_attempts(&self, place: SlotIndex) -> u16 {
        let asked = self.options_of(place).max_attempts;
        asked.unwrap_or_else(|| self.settings_of(place).max_attempts)
    }

    fn timeout_ms(&self, place: SlotIndex) -> u64 {
        let asked = self.options_of(place).timeout_ms;
        asked.unwrap_or_else(|| self.settings_of(place).timeout_ms)
    }

    fn retry(&self, place: SlotIndex) -> RetryPolicy {
        let asked = self.options_of(place).retry;
        asked.unwrap_or_else(|| self.settings_of(place).retry)
    }
}

/// Bytes of an error, a reason or a result.
fn bytes_of(held: &TaskReport<'_>) -> u32 {
    held.content.len() as u32
}

/// The record with the worker's error or reason, if there is one.
fn record_of(seq: u64, held: &TaskReport<'_>) -> u64 {
    if held.content.is_empty() { 0 } else { seq }
}
