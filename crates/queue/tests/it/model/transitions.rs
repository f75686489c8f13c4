//! New tasks, and tasks from state to state.

use egret_queue::core::command::{Enqueue, PutSchedule, Refusal};
use egret_queue::core::state::{
    CALLBACK_QUEUE, EndedTask, LostLease, PurgeResult, StateChange, TaskRef, callback_key,
};
use egret_queue::model::{AttemptEnd, TaskId, TaskState};

use super::{Answer, Attempt, Model, Schedule, Task};

impl Model {
    pub(super) fn enqueue(&mut self, seq: u64, new: &Enqueue<'_>) -> Result<Answer, Refusal> {
        if self.queue(new.queue)?.draining {
            return Err(Refusal::Draining);
        }
        let keys: Vec<(u128, u64)> = [new.origin, new.unique].into_iter().flatten().collect();
        for (hash, _) in &keys {
            if let Some((first, until_ms)) = self.uniques.get(hash)
                && *until_ms > self.now_ms
            {
                return Ok(Answer::Replayed(*first));
            }
        }
        let made = self.create_task(seq, new);
        let bytes = (new.content.len() + new.tags.len() + new.after.len()) as u64;
        let task = self.tasks.get_mut(&made.number).expect("just made");
        (task.content_bytes, task.has_own_record) = (bytes, true);
        let tenant = self.queues[&new.queue].tenant.clone();
        self.contents.insert(seq, (tenant, bytes));
        for (hash, window_ms) in keys {
            let until_ms = self.now_ms.saturating_add(window_ms);
            self.uniques.insert(hash, (made, until_ms));
        }
        Ok(Answer::Made(made))
    }

    pub(super) fn create_task(&mut self, seq: u64, new: &Enqueue<'_>) -> TaskRef {
        let this = TaskRef { number: self.next_number, created_ms: self.now_ms, shard: new.shard };
        self.next_number += 1;
        let (chunks, _) = new.after.as_chunks::<16>();
        let mut waits: Vec<TaskId> = chunks.iter().map(|id| TaskId::from_bytes(*id)).collect();
        waits.sort();
        waits.dedup();
        let begin_ms = match new.delay_ms {
            0 => new.run_at_ms,
            delay_ms => self.now_ms + delay_ms,
        };
        let is_plain = waits.is_empty() && begin_ms <= self.now_ms;
        let task = Task {
            this,
            queue: new.queue,
            key: new.key,
            priority: new.priority,
            options: new.options,
            tags: new.tags.to_vec(),
            callback: new.callback,
            ended_task: None,
            record: seq,
            has_own_record: false,
            state: TaskState::Waiting,
            moves: 0,
            at_ms: begin_ms,
            run_at: new.run_at_ms > 0,
            put_off: 0,
            attempts: 0,
            token: 0,
            started_ms: 0,
            worker: String::new(),
            outcome: 0,
            attached: false,
            holds_key: false,
            plain: is_plain,
            leased_before: false,
            dependencies: waits.clone(),
            dependents: Default::default(),
            past_attempts: Vec::new(),
            content_bytes: 0,
            result_bytes: 0,
        };
        self.tasks.insert(this.number, task);
        if !waits.is_empty() {
            self.enter_state(this.number, TaskState::Waiting);
            self.send_awaits(this, &waits);
        } else if begin_ms > self.now_ms {
            self.delay_task(this.number, begin_ms);
        } else {
            self.make_ready(this.number, false);
        }
        this
    }

    fn record_change(&mut self, number: u64, state: Option<TaskState>) {
        let task = &self.tasks[&number];
        self.changes.push(StateChange {
            task: task.this,
            queue: task.queue,
            state,
            attempts: task.attempts,
        });
    }

    pub(super) fn enter_state(&mut self, number: u64, state: TaskState) {
        let task = self.tasks.get_mut(&number).expect("a task that moves");
        (task.state, task.moves) = (state, task.moves + 1);
        task.run_at &= matches!(state, TaskState::Waiting | TaskState::Delayed);
        let list = self.lists.entry((task.queue, state)).or_default();
        list.push(number);
        self.record_change(number, Some(state));
    }

    pub(super) fn exit_state(&mut self, number: u64) {
        let task = &self.tasks[&number];
        let (queue, key, priority, state) = (task.queue, task.key, task.priority, task.state);
        let list = self.lists.get_mut(&(queue, state)).expect("it is listed");
        list.retain(|other| *other != number);
        if state == TaskState::Ready {
            let lane = self.lanes.entry((queue, key, priority)).or_default();
            lane.retain(|other| *other != number);
            if lane.is_empty() {
                self.leave_ring(queue, priority, key);
            }
        }
    }

    pub(super) fn delay_task(&mut self, number: u64, until_ms: u64) {
        self.put_off += 1;
        let put_off = self.put_off;
        let task = self.tasks.get_mut(&number).expect("a task that moves");
        (task.at_ms, task.put_off) = (until_ms, put_off);
        self.enter_state(number, TaskState::Delayed);
    }

    pub(super) fn make_ready(&mut self, number: u64, again: bool) {
        let now_ms = self.now_ms;
        let task = self.tasks.get_mut(&number).expect("a task that moves");
        task.at_ms = now_ms;
        let goes_first = again || task.holds_key;
        let (queue, key, priority) = (task.queue, task.key, task.priority);
        let lane = self.lanes.entry((queue, key, priority)).or_default();
        lane.insert(if goes_first { 0 } else { lane.len() }, number);
        self.enter_state(number, TaskState::Ready);
        self.release_key(number);
        self.try_enter_ring(queue, key);
    }

    pub(super) fn release_key(&mut self, number: u64) {
        let task = self.tasks.get_mut(&number).expect("a task that moves");
        if std::mem::take(&mut task.holds_key) {
            let (queue, key) = (task.queue, task.key);
            self.try_enter_ring(queue, key);
        }
    }

    /// A task that is in no list ends.
    pub(super) fn end_task(&mut self, number: u64, state: TaskState, record: u64) {
        self.release_key(number);
        let now_ms = self.now_ms;
        let task = self.tasks.get_mut(&number).expect("a task that moves");
        (task.at_ms, task.outcome) = (now_ms, record);
        let (this, queue, tells, content) = (task.this, task.queue, task.callback, task.record);
        self.enter_state(number, state);
        self.notify_dependents(number, state == TaskState::Completed);
        if tells && self.queue(CALLBACK_QUEUE).is_ok() {
            let new = Enqueue {
                queue: CALLBACK_QUEUE,
                shard: this.shard,
                priority: 5,
                key: callback_key(&self.queues[&queue].tenant),
                ..Enqueue::default()
            };
            let told = self.create_task(content, &new);
            let about = EndedTask { task: this, queue, state };
            self.tasks.get_mut(&told.number).expect("just made").ended_task = Some(about);
        }
        let most =
            self.queues[&queue].settings.retention(state).map_or(0, |retention| retention.count)
                as usize;
        let list = self.list(queue, state);
        if most > 0 && list.len() > most {
            self.erase_task(list[0]);
        }
    }

    pub(super) fn erase_task(&mut self, number: u64) {
        self.exit_state(number);
        self.record_change(number, None);
        let task = self.tasks.remove(&number).expect("a task that moves");
        self.orphaned_attachments.extend(task.attached.then_some(task.this));
    }

    pub(super) fn lose_lease(&mut self, number: u64, end: AttemptEnd) {
        self.record_past_attempt(number, end, 0, 0);
        let task = self.tasks.get_mut(&number).expect("a task that moves");
        self.lost_leases.push(LostLease {
            task: task.this,
            token: std::mem::take(&mut task.token),
            end,
        });
    }

    /// Notes how an attempt ended, with the record of the worker's words and their bytes.
    pub(super) fn record_past_attempt(
        &mut self,
        number: u64,
        end: AttemptEnd,
        record: u64,
        bytes: u64,
    ) {
        let now_ms = self.now_ms;
        let task = self.tasks.get_mut(&number).expect("a task that moves");
        let past = Attempt {
            number: task.attempts,
            end,
            record,
            started_ms: task.started_ms,
            ended_ms: now_ms,
            worker: task.worker.clone(),
            bytes,
        };
        task.past_attempts.insert(0, past);
        task.past_attempts.truncate(10);
    }

    // ---- What people ask for. ----

    fn task_state(&self, number: u64) -> Result<TaskState, Refusal> {
        let task = self.tasks.get(&number).ok_or(Refusal::TaskUnknown)?;
        Ok(task.state)
    }

    pub(super) fn cancel(&mut self, number: u64) -> Result<(), Refusal> {
        let state = self.task_state(number)?;
        if state.has_ended() {
            return Err(Refusal::WrongState(state));
        }
        self.cancel_task(number, 0);
        Ok(())
    }

    pub(super) fn cancel_task(&mut self, number: u64, reason: u64) {
        if self.tasks[&number].state == TaskState::Leased {
            self.lose_lease(number, AttemptEnd::Cancelled);
        }
        self.exit_state(number);
        let task = self.tasks.get_mut(&number).expect("a task that moves");
        task.dependencies.clear();
        task.token = 0;
        self.end_task(number, TaskState::Cancelled, reason);
    }

    pub(super) fn requeue(&mut self, number: u64, key: u128) -> Result<(), Refusal> {
        let state = self.task_state(number)?;
        if !matches!(state, TaskState::Dead | TaskState::Cancelled) {
            return Err(Refusal::WrongState(state));
        }
        self.queue(self.tasks[&number].queue)?;
        self.exit_state(number);
        let task = self.tasks.get_mut(&number).expect("a task that moves");
        (task.attempts, task.token, task.outcome) = (0, 0, 0);
        (task.key, task.plain) = (key, false);
        self.make_ready(number, false);
        Ok(())
    }

    pub(super) fn delete(&mut self, number: u64) -> Result<(), Refusal> {
        if self.task_state(number)? == TaskState::Leased {
            return Err(Refusal::WrongState(TaskState::Leased));
        }
        self.remove_task(number);
        Ok(())
    }

    pub(super) fn remove_task(&mut self, number: u64) {
        let state = self.tasks[&number].state;
        if state == TaskState::Leased {
            self.lose_lease(number, AttemptEnd::Cancelled);
        }
        if !state.has_ended() {
            self.release_key(number);
            self.notify_dependents(number, false);
        }
        self.erase_task(number);
    }

    pub(super) fn purge(&mut self, id: u32, states: u8, count: u32) -> Result<Answer, Refusal> {
        self.queue(id)?;
        let mut tasks = 0;
        for state in TaskState::ALL {
            if state == TaskState::Leased || states & 1 << state as u8 == 0 {
                continue;
            }
            while let Some(oldest) = self.list(id, state).first().copied() {
                if tasks == count {
                    return Ok(Answer::Purged(PurgeResult { tasks, has_more: true }));
                }
                self.remove_task(oldest);
                tasks += 1;
            }
        }
        Ok(Answer::Purged(PurgeResult { tasks, has_more: false }))
    }

    // ---- Schedules. ----

    pub(super) fn put_schedule(&mut self, seq: u64, put: &PutSchedule<'_>) -> Result<(), Refusal> {
        self.queue(put.task.queue)?;
        let key = (put.tenant.to_owned(), put.name.to_owned());
        let former = self.schedules.get(&key);
        let (last_ms, last) =
            former.map_or((0, TaskRef::default()), |it| (it.last_ms, it.last_task));
        let schedule = Schedule {
            record: seq,
            queue: put.task.queue,
            shard: put.task.shard,
            priority: put.task.priority,
            key: put.task.key,
            options: put.task.options,
            tags: put.task.tags.to_vec(),
            callback: put.task.callback,
            paused: put.paused,
            next_ms: put.next_ms,
            last_ms,
            last_task: last,
        };
        let bytes = put.task.content.len() + put.task.tags.len();
        let content = (put.tenant.to_owned(), bytes as u64);
        self.contents.insert(seq, content);
        self.schedules.insert(key, schedule);
        Ok(())
    }

    pub(super) fn tick(
        &mut self,
        tenant: &str,
        name: &str,
        tick_ms: u64,
        next_ms: u64,
        tasks: u32,
    ) -> Result<Answer, Refusal> {
        let schedule = self.schedule_mut(tenant, name)?;
        if schedule.paused || schedule.next_ms != tick_ms {
            return Ok(Answer::Ticked(0));
        }
        (schedule.next_ms, schedule.last_ms) = (next_ms, tick_ms);
        let schedule = schedule.clone();
        if !self.queue(schedule.queue).is_ok_and(|queue| !queue.draining) {
            return Ok(Answer::Ticked(0));
        }
        let new = Enqueue {
            queue: schedule.queue,
            shard: schedule.shard,
            priority: schedule.priority,
            key: schedule.key,
            options: schedule.options,
            tags: &schedule.tags,
            callback: schedule.callback,
            ..Enqueue::default()
        };
        for _ in 0..tasks {
            let made = self.create_task(schedule.record, &new);
            self.schedule_mut(tenant, name)?.last_task = made;
        }
        Ok(Answer::Ticked(tasks))
    }
}
