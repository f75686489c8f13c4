//! Handing out, reports, and whose turn it is.

use egret_queue::core::command::{Command, Defer, Refusal, TaskReport};
use egret_queue::core::state::{ClaimedTask, State};
use egret_queue::model::{AttemptEnd, Backoff, Jitter, TaskState};

use super::{Answer, Model};

enum ReportMatch {
    Current,
    Repeated,
}

impl Model {
    // ---- Whose turn it is. ----

    fn in_flight(&self, queue: u32, key: u128) -> u32 {
        let of_key = |task: &&super::Task| task.queue == queue && task.key == key;
        let all = self.tasks.values().filter(of_key);
        all.filter(|task| task.holds_key).count() as u32
    }

    fn has_capacity(&self, queue: u32, key: u128) -> bool {
        let most = self.queues[&queue].settings.key_concurrency;
        key == 0 || most == 0 || self.in_flight(queue, key) < most
    }

    /// Lets a key's lanes stand where their turn may come, if it may.
    pub(super) fn try_enter_ring(&mut self, queue: u32, key: u128) {
        if !self.has_capacity(queue, key) {
            return;
        }
        for priority in 0..10 {
            let lane = self.lanes.get(&(queue, key, priority));
            if lane.is_none_or(Vec::is_empty) {
                continue;
            }
            let ring = self.rings.entry((queue, priority)).or_default();
            if !ring.contains(&key) {
                ring.push(key);
            }
        }
    }

    pub(super) fn leave_ring(&mut self, queue: u32, priority: u8, key: u128) {
        if let Some(ring) = self.rings.get_mut(&(queue, priority)) {
            ring.retain(|other| *other != key);
        }
    }

    /// After a change of settings: keys that may begin now come in the order of their first tasks.
    pub(super) fn refresh_key_concurrency(&mut self, queue: u32) {
        let mut lanes: Vec<_> = self
            .lanes
            .iter()
            .filter(|((of, ..), lane)| *of == queue && !lane.is_empty())
            .map(|(id, lane)| (lane[0], *id))
            .collect();
        lanes.sort_unstable();
        for (_, (_, key, priority)) in lanes {
            if !self.has_capacity(queue, key) {
                self.leave_ring(queue, priority, key);
                continue;
            }
            let ring = self.rings.entry((queue, priority)).or_default();
            if !ring.contains(&key) {
                ring.push(key);
            }
        }
    }

    /// The priority and key whose turn it is.
    fn front(&self, queue: u32) -> Option<(u8, u128)> {
        let aging_ms = self.queues[&queue].settings.aging_ms;
        let mut best: Option<(u128, u8, u128)> = None;
        for priority in 0..10u8 {
            let first = self.rings.get(&(queue, priority)).and_then(|ring| ring.first());
            let Some(key) = first.copied() else { continue };
            let task = self.lanes[&(queue, key, priority)][0];
            let waited_ms = self.now_ms - self.tasks[&task].at_ms;
            let score = match aging_ms {
                0 => u128::from(priority),
                _ => u128::from(priority) * u128::from(aging_ms) + u128::from(waited_ms),
            };
            if best.is_none_or(|(so_far, ..)| score >= so_far) {
                best = Some((score, priority, key));
            }
        }
        best.map(|(_, priority, key)| (priority, key))
    }

    pub(super) fn claim(
        &mut self,
        queue: u32,
        worker: &str,
        count: u32,
        lease_ms: u64,
        answer: &Result<Answer, Refusal>,
    ) -> Answer {
        let Ok(Answer::Claimed(got)) = answer else {
            panic!("a claim is never refused, but it was: {answer:?}");
        };
        let mut claimed = Vec::new();
        while claimed.len() < count as usize && self.queue(queue).is_ok() {
            let Some((priority, key)) = self.front(queue) else {
                break;
            };
            let number = self.lanes[&(queue, key, priority)][0];
            self.check_turn(number);
            self.exit_state(number);
            let ring = self.rings.entry((queue, priority)).or_default();
            if let Some(at) = ring.iter().position(|other| *other == key) {
                ring.remove(at);
                ring.push(key);
            }
            self.tasks.get_mut(&number).expect("it is ready").holds_key = key != 0;
            if !self.has_capacity(queue, key) {
                (0..10).for_each(|priority| self.leave_ring(queue, priority, key));
            }
            let token = got.get(claimed.len()).map_or(0, |one| one.token);
            claimed.push(self.lease_task(number, worker, lease_ms, token));
            self.check_key(queue, key);
        }
        Answer::Claimed(claimed)
    }

    /// The promises of order, in other words than those of lanes and rings.
    fn check_turn(&self, number: u64) {
        let task = &self.tasks[&number];
        assert_eq!(task.state, TaskState::Ready, "{number} is handed out twice");
        if !task.plain || task.leased_before {
            return;
        }
        let strict = self.queues[&task.queue].strict && task.key != 0;
        for earlier in self.tasks.range(..number).map(|(_, earlier)| earlier) {
            let same = (earlier.queue, earlier.key, earlier.priority)
                == (task.queue, task.key, task.priority);
            if !same || !earlier.plain {
                continue;
            }
            let overtaken = match earlier.state {
                // Without a key, another attempt stands behind what came meanwhile.
                TaskState::Ready => task.key != 0 || !earlier.leased_before,
                TaskState::Delayed | TaskState::Leased => strict,
                _ => false,
            };
            let earlier = earlier.this.number;
            assert!(!overtaken, "{number} overtakes {earlier} of the same key");
        }
    }

    fn check_key(&self, queue: u32, key: u128) {
        let most = self.queues[&queue].settings.key_concurrency;
        let leased = self.list(queue, TaskState::Leased).iter();
        let of_key = leased.filter(|number| self.tasks[number].key == key).count();
        let few = key == 0 || most == 0 || of_key as u32 <= most;
        assert!(few, "{of_key} tasks of one key are leased");
    }

    fn lease_task(&mut self, number: u64, worker: &str, lease_ms: u64, token: u64) -> ClaimedTask {
        let fresh = token != 0 && self.tokens.insert(token);
        assert!(fresh, "the token {token:#x} has been given before");
        let until_ms = self.lease_end(number, self.now_ms, lease_ms);
        let (now_ms, max_attempts) = (self.now_ms, self.max_attempts(number));
        let timeout_ms = self.timeout_ms(number);
        let task = self.tasks.get_mut(&number).expect("it is ready");
        task.attempts += 1;
        (task.token, task.at_ms, task.started_ms) = (token, until_ms, now_ms);
        task.worker = worker.to_owned();
        task.leased_before = true;
        let claimed = ClaimedTask {
            task: task.this,
            record: task.record,
            queue: task.queue,
            tags: 0,
            token,
            until_ms,
            lease_ms: until_ms - now_ms,
            timeout_ms,
            attempt: task.attempts,
            max_attempts,
            priority: task.priority,
            is_callback: task.ended_task.is_some(),
        };
        self.enter_state(number, TaskState::Leased);
        claimed
    }

    fn lease_end(&self, number: u64, started_ms: u64, lease_ms: u64) -> u64 {
        let end = self.now_ms.saturating_add(lease_ms);
        match self.timeout_ms(number) {
            0 => end,
            timeout_ms => end.min(started_ms.saturating_add(timeout_ms)),
        }
    }

    // ---- Reports. ----

    fn match_report(
        &self,
        held: &TaskReport<'_>,
        command: &Command<'_>,
    ) -> Result<ReportMatch, Refusal> {
        let task = self.tasks.get(&held.number).ok_or(Refusal::LeaseLost)?;
        if held.token == 0 || task.token != held.token {
            return Err(Refusal::LeaseLost);
        }
        let completes = matches!(command, Command::Complete(_) | Command::CompleteAttached(_));
        match (task.state, command) {
            (TaskState::Leased, _) => Ok(ReportMatch::Current),
            (_, Command::Heartbeat { .. }) => Err(Refusal::LeaseLost),
            (TaskState::Completed, _) if completes => Ok(ReportMatch::Repeated),
            (TaskState::Delayed | TaskState::Ready | TaskState::Dead, _) if !completes => {
                Ok(ReportMatch::Repeated)
            }
            _ => Err(Refusal::LeaseLost),
        }
    }

    pub(super) fn report(
        &mut self,
        seq: u64,
        command: &Command<'_>,
        after: &State,
    ) -> Result<Answer, Refusal> {
        let held = match command {
            Command::Complete(held) | Command::CompleteAttached(held) => held,
            Command::Fail { report: held, .. } => held,
            Command::Defer { report: held, .. } => held,
            Command::Heartbeat { report: held, .. } => held,
            other => panic!("{other:?} is no report"),
        };
        if let ReportMatch::Repeated = self.match_report(held, command)? {
            return Ok(Answer::Reported(false));
        }
        let number = held.number;
        let bytes = held.content.len() as u64;
        let record = if bytes == 0 { 0 } else { seq };
        match command {
            Command::Heartbeat { lease_ms, .. } => {
                let until_ms = self.lease_end(number, self.tasks[&number].started_ms, *lease_ms);
                self.tasks.get_mut(&number).expect("it is leased").at_ms = until_ms;
                return Ok(Answer::Until(until_ms));
            }
            Command::Complete(_) | Command::CompleteAttached(_) => {
                let attached = matches!(command, Command::CompleteAttached(_));
                let task = self.tasks.get_mut(&number).expect("it is leased");
                (task.attached, task.result_bytes) = (attached, bytes);
                self.exit_state(number);
                self.end_task(number, TaskState::Completed, seq);
            }
            Command::Fail { permanent, .. } => {
                self.exit_state(number);
                self.record_past_attempt(number, AttemptEnd::Failed, record, bytes);
                if *permanent || self.tasks[&number].attempts >= self.max_attempts(number) {
                    self.end_task(number, TaskState::Dead, record);
                } else {
                    self.back_off(number, after);
                }
            }
            Command::Defer { delay_ms, mode: how, .. } => {
                self.return_task(number, *how, *delay_ms, record, bytes)
            }
            other => panic!("{other:?} is no report"),
        }
        Ok(Answer::Reported(true))
    }

    fn return_task(&mut self, number: u64, how: Defer, delay_ms: u64, record: u64, bytes: u64) {
        self.exit_state(number);
        let end = match how {
            Defer::Nack => AttemptEnd::Nacked,
            Defer::Snooze => AttemptEnd::Snoozed,
            Defer::Release => AttemptEnd::Released,
        };
        self.record_past_attempt(number, end, record, bytes);
        if how != Defer::Nack {
            self.tasks.get_mut(&number).expect("it is leased").attempts -= 1;
        } else if self.tasks[&number].attempts >= self.max_attempts(number) {
            self.end_task(number, TaskState::Dead, record);
            return;
        }
        match delay_ms {
            0 => self.make_ready(number, true),
            _ => self.delay_task(number, self.now_ms.saturating_add(delay_ms)),
        }
    }

    /// Another attempt will be made: after a delay that chance has part in.
    pub(super) fn back_off(&mut self, number: u64, after: &State) {
        let failed = u64::from(self.tasks[&number].attempts);
        let asked = self.tasks[&number].options.retry;
        let policy = asked.unwrap_or(self.settings(number).retry);
        let mut most = policy.base_ms;
        match policy.backoff {
            Backoff::Fixed => {}
            Backoff::Linear => most = most.saturating_mul(failed),
            Backoff::Exponential => (1..failed).for_each(|_| most = most.saturating_mul(2)),
        }
        most = most.min(policy.max_ms);
        let least = match policy.jitter {
            Jitter::None => most,
            Jitter::Full => 0,
            Jitter::Equal => most / 2,
        };
        let (entry, now_ms) = (after.slot_of(number).map(|place| after.entry(place)), self.now_ms);
        let mut told = after.events.changes[self.changes.len()..].iter();
        let next = told.find(|change| change.task.number == number);
        let chosen = match next.and_then(|change| change.state) {
            Some(TaskState::Ready) => 0,
            // With its queue gone the delay cannot be known.
            _ => entry.map_or(least.max(1), |entry| entry.at_ms - now_ms),
        };
        let allowed = (least..=most).contains(&chosen);
        assert!(allowed, "{number} waits {chosen} ms, not {least} to {most}");
        match chosen {
            0 => self.make_ready(number, false),
            _ => self.delay_task(number, now_ms.saturating_add(chosen)),
        }
    }
}
