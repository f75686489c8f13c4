//! What is due. How much of it is done at once, and which kind first, is for the core to choose.

use egret_queue::core::command::Refusal;
use egret_queue::core::state::{State, StateChange};
use egret_queue::model::{AttemptEnd, TaskState};

use super::{Answer, Model};

impl Model {
    /// The time is another one: as much is left of everything as before, but for what has a time of
    /// day.
    pub(super) fn step_clock(&mut self, by_ms: i64) {
        let shift = |ms: &mut u64| {
            if *ms > 0 && *ms < u64::MAX {
                *ms = ms.saturating_add_signed(by_ms).max(1);
            }
        };
        shift(&mut self.now_ms);
        shift(&mut self.grace_until_ms);
        let mut tasks: Vec<_> = self.tasks.values_mut().collect();
        tasks.sort_by_key(|task| (task.at_ms, task.put_off));
        for task in tasks {
            self.put_off += 1;
            task.put_off = self.put_off;
            if !task.run_at {
                shift(&mut task.at_ms);
            }
            shift(&mut task.started_ms);
            for past in &mut task.past_attempts {
                shift(&mut past.started_ms);
                shift(&mut past.ended_ms);
            }
        }
        self.uniques.values_mut().for_each(|(_, until_ms)| shift(until_ms));
    }

    /// Judges what the core has done of what is due, by what it tells of it.
    pub(super) fn advance(&mut self, answer: &Result<Answer, Refusal>, after: &State) -> Answer {
        let Ok(Answer::More(more)) = answer else {
            panic!("what is due cannot be refused: {answer:?}");
        };
        let told = after.events.changes.clone();
        let from = self.changes.len();
        let mut at = from;
        while at < told.len() {
            self.apply_change(&told[at], after);
            let caused = &self.changes[at..];
            let count = caused.len();
            assert_eq!(caused, &told[at..(at + count).min(told.len())]);
            at += count;
        }
        self.check_leases(after);
        if !more {
            let now_ms = self.now_ms;
            self.uniques.retain(|_, (_, until_ms)| *until_ms > now_ms);
            let is_gone = |id: &u32, lists: &Self| {
                lists.queues[id].deleted
                    && TaskState::ALL.iter().all(|s| lists.list(*id, *s).is_empty())
            };
            let gone: Vec<u32> =
                self.queues.keys().copied().filter(|id| is_gone(id, self)).collect();
            for id in gone {
                self.queues.remove(&id);
            }
            let due = self.next_due_ms();
            assert!(due.is_none_or(|due| due > now_ms), "not everything due is done");
            let next = after.next_due_ms();
            assert!(next.is_none_or(|next| next > now_ms), "all is done, and yet it is due");
        }
        Answer::More(*more)
    }

    /// One thing that was due.
    fn apply_change(&mut self, change: &StateChange, after: &State) {
        let number = change.task.number;
        let task = &self.tasks[&number];
        let queue = &self.queues[&task.queue];
        match (task.state, change.state) {
            (_, None) if queue.deleted => self.remove_task(number),
            (state, None) => {
                let age_ms = queue.settings.retention(state).map_or(0, |one| one.age_ms);
                let is_old = age_ms > 0 && task.at_ms + age_ms <= self.now_ms;
                let is_too_many = self.excess_tasks(task.queue, state) > 0;
                assert!(is_old || is_too_many, "{number} is deleted before its time");
                let oldest = self.list(task.queue, state)[0];
                assert_eq!(oldest, number, "a younger task is deleted first");
                self.erase_task(number);
            }
            (TaskState::Delayed, Some(_)) => {
                let mut delayed = self.tasks.values().filter(|one| one.state == TaskState::Delayed);
                let earlier =
                    delayed.find(|one| (one.at_ms, one.put_off) < (task.at_ms, task.put_off));
                let earlier = earlier.map(|one| one.this.number);
                assert!(task.at_ms <= self.now_ms, "{number} comes before its time");
                assert_eq!(earlier, None, "{number} comes before this one");
                self.exit_state(number);
                self.make_ready(number, false);
            }
            (TaskState::Leased, Some(_)) => self.expire_lease(number, after),
            (state, new) => panic!("{number} goes from {state:?} to {new:?} by itself"),
        }
    }

    /// How many ended tasks there are more than are kept.
    fn excess_tasks(&self, queue: u32, state: TaskState) -> usize {
        let retention = self.queues[&queue].settings.retention(state);
        match retention.map_or(0, |one| one.count) as usize {
            0 => 0,
            count => self.list(queue, state).len().saturating_sub(count),
        }
    }

    /// Whether an attempt has taken longer than it may.
    fn is_over(&self, number: u64) -> bool {
        let timeout_ms = self.timeout_ms(number);
        timeout_ms > 0 && self.now_ms >= self.tasks[&number].started_ms + timeout_ms
    }

    fn expire_lease(&mut self, number: u64, after: &State) {
        let ends_ms = self.tasks[&number].at_ms;
        let is_over = self.is_over(number);
        assert!(ends_ms <= self.now_ms, "{number} loses its lease before its time");
        let in_grace = self.now_ms < self.grace_until_ms;
        assert!(is_over || !in_grace, "{number} loses its lease in the time of grace");
        let end = if is_over { AttemptEnd::TimedOut } else { AttemptEnd::LeaseExpired };
        self.lose_lease(number, end);
        self.exit_state(number);
        if self.tasks[&number].attempts >= self.max_attempts(number) {
            self.end_task(number, TaskState::Dead, 0);
        } else if is_over {
            self.back_off(number, after);
        } else {
            self.make_ready(number, true);
        }
    }

    /// Leases that were due and go on must do so because of a time of grace.
    fn check_leases(&mut self, after: &State) {
        let (now_ms, grace_until_ms) = (self.now_ms, self.grace_until_ms);
        let leased = self.tasks.values().filter(|one| one.state == TaskState::Leased);
        let due: Vec<u64> =
            leased.filter(|one| one.at_ms <= now_ms).map(|one| one.this.number).collect();
        for number in due {
            let place = after.slot_of(number).expect("it is leased");
            let at_ms = after.entry(place).at_ms;
            if at_ms == self.tasks[&number].at_ms {
                continue;
            }
            assert!(now_ms < grace_until_ms && !self.is_over(number));
            let most_ms = match self.timeout_ms(number) {
                0 => grace_until_ms,
                timeout_ms => grace_until_ms.min(self.tasks[&number].started_ms + timeout_ms),
            };
            assert_eq!(at_ms, most_ms, "{number} is leased for longer than it may");
            self.tasks.get_mut(&number).expect("it is leased").at_ms = at_ms;
        }
    }

    /// When something must happen. What is due already and has no effect that can be seen is left
    /// out.
    pub fn next_due_ms(&self) -> Option<u64> {
        let timed = self
            .tasks
            .values()
            .filter(|one| matches!(one.state, TaskState::Delayed | TaskState::Leased));
        let uniques = self.uniques.values().map(|(_, until_ms)| *until_ms);
        let mut due: Vec<u64> = timed.map(|one| one.at_ms).collect();
        due.extend(uniques.filter(|until_ms| *until_ms > self.now_ms));
        for ((id, state), list) in &self.lists {
            let (Some(queue), Some(oldest)) = (self.queues.get(id), list.first()) else {
                continue;
            };
            if queue.deleted {
                due.push(self.now_ms);
            }
            if self.excess_tasks(*id, *state) > 0 {
                due.push(self.now_ms);
            }
            let retention = queue.settings.retention(*state);
            if let Some(retention) = retention.filter(|one| one.age_ms > 0) {
                due.push(self.tasks[oldest].at_ms.saturating_add(retention.age_ms));
            }
        }
        due.into_iter().min()
    }
}
