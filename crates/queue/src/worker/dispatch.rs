//! Dispatch of ready tasks to workers.

mod push;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use egret_base::Condition;

use super::limits::{Limits, is_limited};
use super::precedence::{Allowance, PartitionSet, Precedence, SharedRanks};
use super::turn::BatchTurn;
use crate::core::command::{Command, Defer, TaskReport};
use crate::core::entry::TaskState;
use crate::core::retry::mix;
use crate::core::state::{ClaimedTask, LostLease, Queue, State};
use crate::error::QueueError;
use crate::model::{Lease, QueueSettings};
use crate::worker::partition_handle::ReadyQueues;
use crate::worker::partition_handle::part_name;
use crate::worker::session::{CreditGrant, WorkSession};

/// Tasks handed to one worker at once.
const PUSH_MAX: usize = 1_024;

/// Tasks claimed for a worker, to be pushed when the turn is committed.
pub(crate) struct Push {
    pub session: Arc<WorkSession>,
    pub claimed: Range<usize>,
}

/// The workers of a partition, and the queues that have tasks for them.
pub(crate) struct Dispatcher {
    /// Which partition this is.
    partition: usize,
    limits: Arc<Limits>,
    precedence: Precedence,
    /// Queues that have limits, as of their last turn.
    limited: BTreeSet<u32>,
    /// When queues without a permit are tried again, in Unix milliseconds.
    retry_times: BTreeSet<(u64, u32)>,
    /// Workers with credits by queue; the first has its turn.
    sessions: BTreeMap<u32, VecDeque<Arc<WorkSession>>>,
    /// Queues that may have tasks to hand out.
    candidate_queues: BTreeSet<u32>,
    /// Ready queues, for claims.
    ready: Arc<ReadyQueues>,
    /// Sessions that hold a lease, by its token.
    holders: HashMap<u64, Arc<WorkSession>, BuildHasherDefault<TokenHasher>>,
    /// Tasks of workers that could take no more when the tasks were handed out.
    undelivered: Vec<(Arc<WorkSession>, VecDeque<ClaimedTask>)>,
    /// Whether some of them can be delivered now: reading their tasks would have delayed other
    /// workers.
    has_readable_undelivered: bool,
    /// Whether the content of some could not be read in the last turn.
    read_condition: Condition,
    /// Where the next round of queues begins.
    next_queue: u32,
    /// Partitions to be notified of workers that have credits again.
    freed_sessions: Vec<(usize, Arc<WorkSession>)>,
}

/// Tokens are counted up: a multiplication spreads them.
#[derive(Default)]
struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(self.0 ^ number, 0);
    }
}

impl Dispatcher {
    pub(crate) fn new(
        partition: usize,
        limits: Arc<Limits>,
        ranks: Arc<SharedRanks>,
        ready: Arc<ReadyQueues>,
    ) -> Self {
        Self {
            partition,
            limits,
            precedence: Precedence::new(partition, ranks),
            limited: BTreeSet::new(),
            retry_times: BTreeSet::new(),
            sessions: BTreeMap::new(),
            candidate_queues: BTreeSet::new(),
            ready,
            holders: HashMap::default(),
            undelivered: Vec::new(),
            has_readable_undelivered: false,
            read_condition: Condition::new("queue_contents_unreadable", part_name(partition)),
            next_queue: 0,
            freed_sessions: Vec::new(),
        }
    }

    /// Adds a worker that has credits.
    pub(crate) fn add_session(&mut self, session: &Arc<WorkSession>) {
        for (queue, _) in &session.queues {
            let sessions = self.sessions.entry(*queue).or_default();
            sessions.push_back(session.clone());
            self.candidate_queues.insert(*queue);
        }
    }

    /// Removes a worker without credits, until it announces new ones.
    fn suspend_session(&mut self, session: &Arc<WorkSession>) {
        for (queue, _) in &session.queues {
            if let Some(sessions) = self.sessions.get_mut(queue) {
                sessions.retain(|known| !Arc::ptr_eq(known, session));
            }
        }
        session.unregister_from(self.partition);
        // It may have announced some just before.
        if session.has_credits() && session.register_with(self.partition) {
            self.add_session(session);
        }
    }

    /// Adds a worker that takes ready tasks in this turn only.
    pub(crate) fn add_claim_session(&mut self, session: &Arc<WorkSession>) {
        if session.register_with(self.partition) {
            self.add_session(session);
        }
    }

    /// Ends the sessions of claims: nothing more is pushed to them.
    pub(crate) fn end_claim_sessions(&mut self, sessions: &mut Vec<Arc<WorkSession>>) {
        for session in sessions.drain(..) {
            session.close();
            self.suspend_session(&session);
        }
    }

    /// Removes a worker. Its leases stay until they expire, except those whose tasks it never
    /// received.
    pub(crate) fn remove_session(&mut self, session: &Arc<WorkSession>, turn: &mut BatchTurn<'_>) {
        self.suspend_session(session);
        for (queue, _) in &session.queues {
            if self.sessions.get(queue).is_some_and(VecDeque::is_empty) {
                self.sessions.remove(queue);
            }
        }
        self.release_undelivered(session, turn);
    }

    /// Releases the tasks that a worker has not received.
    pub(crate) fn release_undelivered(
        &mut self,
        session: &Arc<WorkSession>,
        turn: &mut BatchTurn<'_>,
    ) {
        let unseen = self.undelivered.extract_if(.., |(late, _)| Arc::ptr_eq(late, session));
        // Each task is returned to the front: the last one first, which keeps their order.
        let unseen: Vec<_> = unseen.flat_map(|(_, waiting)| waiting).collect();
        for claimed in unseen.iter().rev() {
            self.release_task(claimed, turn);
        }
    }

    /// Releases a task that its worker has not received; the attempt does not count.
    fn release_task(&mut self, claimed: &ClaimedTask, turn: &mut BatchTurn<'_>) {
        self.forget_holder(claimed.token);
        let report = TaskReport { number: claimed.task.number, token: claimed.token, content: &[] };
        let released =
            turn.apply_report(&Command::Defer { report, delay_ms: 0, mode: Defer::Release });
        if let Err(refusal) = released {
            // It was cancelled, or its lease has ended.
            tracing::debug!(task = %turn.state.task_id(claimed.task), ?refusal, "cannot release an undelivered task");
        }
    }

    /// Releases tasks that a slow worker will hardly receive in time: half of their lease is over.
    fn release_overdue(&mut self, turn: &mut BatchTurn<'_>) {
        let now_ms = turn.now.as_millis_unsigned();
        let mut overdue = Vec::new();
        for (session, waiting) in &mut self.undelivered {
            let count_before = overdue.len();
            while let Some(claimed) =
                waiting.pop_front_if(|task| lease_half_over_ms(task) <= now_ms)
            {
                overdue.push(claimed);
            }
            // Its credits are returned, and partitions may have found none.
            let returned = u32::try_from(overdue.len() - count_before).unwrap_or(u32::MAX);
            if returned > 0 && session.add_credits(returned) {
                let partitions = session.register_with_all().into_iter();
                let freed = partitions.map(|partition| (partition, session.clone()));
                self.freed_sessions.extend(freed);
            }
        }
        self.undelivered.retain(|(_, waiting)| !waiting.is_empty());
        for claimed in overdue {
            self.release_task(&claimed, turn);
        }
    }

    /// Adds a queue that may have tasks to hand out, or new limits.
    pub(crate) fn add_candidate(&mut self, queue: u32, state: &State) {
        self.track_limits(queue, state);
        self.candidate_queues.insert(queue);
    }

    /// A lease has ended by its worker's report.
    pub(crate) fn forget_holder(&mut self, token: u64) {
        self.holders.remove(&token);
    }

    /// A lease has ended without a report of its worker, which is notified.
    pub(crate) fn notify_lost_lease(&mut self, lost: &LostLease, state: &State) {
        let holder = self.holders.remove(&lost.token);
        if let Some(session) = holder.filter(|session| !session.is_closed()) {
            for (_, undelivered) in &mut self.undelivered {
                undelivered.retain(|claimed| claimed.token != lost.token);
            }
            let lease =
                Lease { shard: lost.task.shard, number: lost.task.number, token: lost.token };
            session.sink.notify_lost_lease(state.task_id(lost.task), lease, lost.end);
        }
    }

    /// Shifts the times that are waited for, after a step of the clock.
    pub(crate) fn step_clock(&mut self, by_ms: i64) {
        self.precedence.clear_yielding();
        let retry_times = std::mem::take(&mut self.retry_times).into_iter();
        let shift = |ms: u64| ms.saturating_add_signed(by_ms);
        self.retry_times = retry_times.map(|(at_ms, queue)| (shift(at_ms), queue)).collect();
        for (_, waiting) in &mut self.undelivered {
            for claimed in waiting {
                claimed.until_ms = shift(claimed.until_ms);
            }
        }
    }

    /// When something can be handed out without a request, in Unix milliseconds.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let retry = self.retry_times.first().map(|(at_ms, _)| *at_ms);
        let undelivered = self.undelivered.iter().filter_map(|(_, waiting)| waiting.front());
        retry.into_iter().chain(undelivered.map(lease_half_over_ms)).min()
    }

    /// From here on the leased tasks of a queue with limits are counted.
    pub(crate) fn track_limits(&mut self, queue: u32, state: &State) {
        let row = state.queue_by_id(queue);
        if row.is_some_and(|row| is_limited(&row.settings)) {
            self.limited.insert(queue);
        }
    }

    /// Lets claims know of a queue's ready tasks from before the start.
    pub(crate) fn mark_ready(&mut self, queue: u32, state: &State) {
        if state.queue_by_id(queue).is_some_and(Queue::can_dispatch) {
            self.ready.add(std::iter::once(queue));
        }
    }

    /// Publishes how many tasks of limited queues are leased. Returns the partitions that may have
    /// a permit now, each with its queue.
    pub(crate) fn update_leased_counts(&mut self, state: &State) -> Vec<(usize, u32)> {
        let mut freed = Vec::new();
        self.limited.retain(|queue| {
            let row = state.queue_by_id(*queue);
            let leased = row.map_or(0, |row| row.lists[TaskState::Leased as usize].len);
            let partitions = self.limits.set_leased(*queue, self.partition, leased);
            freed.extend(partitions.into_iter().map(|partition| (partition, *queue)));
            leased > 0
        });
        freed
    }

    /// Publishes ranks that have risen. Queues for which this partition need not yield any more
    /// become candidates.
    pub(crate) fn publish_rises(&mut self, state: &State) {
        self.candidate_queues.extend(self.precedence.publish_rises(state));
    }

    /// Publishes ranks that have fallen. Returns the partitions that need not yield any more.
    pub(crate) fn publish_falls(&mut self, state: &State) -> Vec<(PartitionSet, u32)> {
        self.precedence.publish_falls(state)
    }

    /// Withdraws all ranks while nothing can be handed out: no other partition yields to this one.
    pub(crate) fn withdraw_ranks(&mut self) -> Vec<(PartitionSet, u32)> {
        let withdrawn = self.precedence.withdraw_ranks();
        // Their ranks are published again when something can be handed out.
        self.candidate_queues.extend(withdrawn.iter().map(|(_, queue)| *queue));
        withdrawn
    }

    /// Ends all sessions: there will be no more tasks.
    pub(crate) fn end_sessions(&mut self, error: &QueueError) {
        let waiting = std::mem::take(&mut self.sessions).into_values().flatten();
        let busy = std::mem::take(&mut self.holders).into_values();
        let mut notified = BTreeSet::new();
        for session in waiting.chain(busy) {
            if notified.insert(Arc::as_ptr(&session)) {
                session.sink.notify_end(error.clone());
            }
        }
    }

    /// Claims ready tasks for workers with credits, as long as the turn has claimed fewer than
    /// `tasks_max` and has fewer bytes of records than its limit: one push of each queue in turn,
    /// so that none waits for another's backlog.
    pub(crate) fn dispatch(
        &mut self,
        turn: &mut BatchTurn<'_>,
        tasks_max: usize,
        record_bytes_max: usize,
        claimed: &mut Vec<ClaimedTask>,
        pushes: &mut Vec<Push>,
    ) {
        if !turn.state.events.readiness_changes.is_empty() {
            self.ready.add(turn.state.events.readiness_changes.iter().copied());
            self.candidate_queues.extend(turn.state.events.readiness_changes.drain(..));
        }
        let now_ms = turn.now.as_millis_unsigned();
        while let Some((at_ms, queue)) = self.retry_times.first().copied() {
            if at_ms > now_ms {
                break;
            }
            self.retry_times.pop_first();
            self.candidate_queues.insert(queue);
        }
        self.release_overdue(turn);
        while claimed.len() < tasks_max && turn.batch.frame_bytes() < record_bytes_max {
            let later = self.candidate_queues.range(self.next_queue..).next();
            let Some(queue) = later.or_else(|| self.candidate_queues.first()).copied() else {
                break;
            };
            self.next_queue = queue.wrapping_add(1);
            let push_max = (tasks_max - claimed.len()).min(PUSH_MAX);
            if !self.dispatch_queue(queue, push_max as u32, turn, claimed, pushes) {
                self.candidate_queues.remove(&queue);
            }
        }
    }

    /// Whether the next turn has tasks to hand out or push, even without a request.
    pub(crate) fn has_more(&self) -> bool {
        self.has_readable_undelivered || !self.candidate_queues.is_empty()
    }

    /// Hands up to `tasks_max` tasks of a queue to the worker whose turn it is; false when no task
    /// or no credit is left.
    fn dispatch_queue(
        &mut self,
        queue: u32,
        tasks_max: u32,
        turn: &mut BatchTurn<'_>,
        claimed: &mut Vec<ClaimedTask>,
        pushes: &mut Vec<Push>,
    ) -> bool {
        let row = turn.state.queue_by_id(queue);
        let Some(row) = row.filter(|row| row.can_dispatch()) else {
            self.ready.remove(queue);
            return false;
        };
        let ready = row.lists[TaskState::Ready as usize].len;
        let wanted = u32::try_from(ready).unwrap_or(u32::MAX).min(tasks_max);
        let settings = is_limited(&row.settings).then(|| row.settings.clone());
        self.precedence.track(queue, turn.state);
        let Some(sessions) = self.sessions.get_mut(&queue) else {
            return false;
        };
        let Some(session) = sessions.front().cloned() else {
            return false;
        };
        let rank_min =
            match self.precedence.allowance(queue, turn.state, turn.now.as_millis_unsigned()) {
                Allowance::AtLeast(rank) => rank,
                Allowance::Nothing { until_ms } => {
                    self.retry_times.insert((until_ms, queue));
                    return false;
                }
            };
        let grant = session.take_credits(wanted);
        if grant.credits == 0 {
            self.suspend_session(&session);
            return true;
        }
        sessions.rotate_left(1);
        let permits = match settings {
            Some(settings) => self.permits(queue, grant.credits, &settings, turn),
            None => grant.credits,
        };
        if permits == 0 {
            self.return_credits(&session, &grant, grant.credits);
            return false;
        }
        let first = claimed.len();
        let lease_ms = session.lease_ms(queue);
        let count = turn.claim(queue, &session.worker, permits, lease_ms, rank_min, claimed);
        self.return_credits(&session, &grant, grant.credits - count);
        if self.limited.contains(&queue) {
            self.limits.release_tokens(queue, permits - count);
        }
        if count == 0 {
            return false;
        }
        for task in &claimed[first..] {
            self.holders.insert(task.token, session.clone());
        }
        pushes.push(Push { session, claimed: first..claimed.len() });
        true
    }
}

impl Dispatcher {
    fn return_credits(&mut self, session: &Arc<WorkSession>, grant: &CreditGrant, unused: u32) {
        let partitions = session.return_credits(grant, unused).into_iter();
        self.freed_sessions.extend(partitions.map(|partition| (partition, session.clone())));
    }

    /// Partitions that found no credits of a worker that has some again, since the last call.
    pub(crate) fn sessions_with_credit(&mut self) -> Vec<(usize, Arc<WorkSession>)> {
        std::mem::take(&mut self.freed_sessions)
    }

    fn permits(
        &mut self,
        queue: u32,
        wanted: u32,
        settings: &QueueSettings,
        turn: &BatchTurn<'_>,
    ) -> u32 {
        let now_ms = turn.now.as_millis_unsigned();
        self.limited.insert(queue);
        let permits = self.limits.acquire(queue, self.partition, wanted, settings, now_ms);
        if let Some(at_ms) = permits.retry_ms {
            self.retry_times.insert((at_ms, queue));
        }
        permits.count
    }
}

/// When half of a lease is over, in Unix milliseconds.
fn lease_half_over_ms(claimed: &ClaimedTask) -> u64 {
    claimed.until_ms.saturating_sub(claimed.lease_ms / 2)
}
