//! What a partition should do, said as plainly as possible: maps, vectors, and no thought of speed.
//!
//! It shares with the core the types of commands and answers, and no line of code. Where the core
//! may choose (the chance in a delay, how much of what is due is done at once), the model looks at
//! what was chosen and judges it.

mod chain;
mod due;
mod transitions;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use egret_queue::core::command::{Command, Refusal};
use egret_queue::core::state::{
    ClaimedTask, EndedTask, LostLease, Message, PurgeResult, State, StateChange, TaskLoad, TaskRef,
};
use egret_queue::model::{AttemptEnd, QueueSettings, TaskId, TaskOptions, TaskState};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub number: u16,
    pub end: AttemptEnd,
    pub record: u64,
    pub started_ms: u64,
    pub ended_ms: u64,
    pub worker: String,
    pub bytes: u64,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub this: TaskRef,
    pub queue: u32,
    pub key: u128,
    pub priority: u8,
    pub options: TaskOptions,
    pub tags: Vec<u8>,
    pub callback: bool,
    /// The task that this one tells of.
    pub ended_task: Option<EndedTask>,
    /// The record of its content.
    pub record: u64,
    /// Whether the content came with this task.
    pub has_own_record: bool,
    pub state: TaskState,
    /// Changes of state so far.
    pub moves: u64,
    /// Not before, while it waits; due, while delayed; end of the lease, while leased; else since
    /// when it has been in its state.
    pub at_ms: u64,
    /// While it waits or is delayed: whether `at_ms` is a time of day.
    pub run_at: bool,
    /// Which of those that are due at the same time was put off first.
    pub put_off: u64,
    pub attempts: u16,
    /// The lease it has, or whose report brought it where it is.
    pub token: u64,
    pub started_ms: u64,
    pub worker: String,
    pub outcome: u64,
    /// Whether it was completed with attachments.
    pub attached: bool,
    pub holds_key: bool,
    /// Ready from the beginning, and never begun anew: such tasks of a key go in the order of
    /// numbers.
    pub plain: bool,
    pub leased_before: bool,
    pub dependencies: Vec<TaskId>,
    pub dependents: BTreeSet<TaskId>,
    pub past_attempts: Vec<Attempt>,
    /// Bytes of its content, where it has one of its own.
    pub content_bytes: u64,
    /// Bytes of its result.
    pub result_bytes: u64,
}

impl Task {
    /// Bytes of all that records hold of it alone.
    pub fn bytes(&self) -> u64 {
        self.content_bytes + self.outcome_bytes()
    }

    /// Bytes of its result and of the words of its past attempts.
    fn outcome_bytes(&self) -> u64 {
        let pasts = self.past_attempts.iter().map(|past| past.bytes);
        self.result_bytes + pasts.sum::<u64>()
    }

    /// Callbacks that it may still cause.
    pub fn reserved_callbacks(&self) -> u64 {
        u64::from(self.callback && !self.state.has_ended())
    }
}

#[derive(Clone, Debug)]
pub struct Queue {
    pub tenant: String,
    pub name: String,
    pub settings: QueueSettings,
    pub paused: bool,
    pub draining: bool,
    pub deleted: bool,
    /// One task of a key at a time, since ever.
    pub strict: bool,
}

/// A schedule, as far as the partition cares.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub record: u64,
    pub queue: u32,
    pub shard: u16,
    pub priority: u8,
    pub key: u128,
    pub options: TaskOptions,
    pub tags: Vec<u8>,
    pub callback: bool,
    pub paused: bool,
    pub next_ms: u64,
    pub last_ms: u64,
    pub last_task: TaskRef,
}

/// What a command answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    Done,
    Made(TaskRef),
    Replayed(TaskRef),
    Claimed(Vec<ClaimedTask>),
    /// Of a report: whether anything has changed.
    Reported(bool),
    Until(u64),
    Purged(PurgeResult),
    Ticked(u32),
    More(bool),
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub now_ms: u64,
    pub epoch: u32,
    pub instance: u16,
    pub grace_until_ms: u64,
    next_number: u64,
    next_message: u64,
    put_off: u64,
    /// Every token ever given.
    tokens: BTreeSet<u64>,
    pub tasks: BTreeMap<u64, Task>,
    pub lists: BTreeMap<(u32, TaskState), Vec<u64>>,
    /// Ready tasks, by queue, key and priority.
    pub lanes: BTreeMap<(u32, u128, u8), Vec<u64>>,
    /// Keys whose turn may come, by queue and priority.
    pub rings: BTreeMap<(u32, u8), Vec<u128>>,
    pub queues: BTreeMap<u32, Queue>,
    /// Keys with the task that came first, and until when.
    pub uniques: BTreeMap<u128, (TaskRef, u64)>,
    pub messages: BTreeMap<u64, Message>,
    pub schedules: BTreeMap<(String, String), Schedule>,
    /// Whose each content is that was ever taken in, and its bytes, by record.
    contents: BTreeMap<u64, (String, u64)>,
    /// What the last command caused.
    pub changes: Vec<StateChange>,
    pub lost_leases: Vec<LostLease>,
    pub orphaned_attachments: Vec<TaskRef>,
}

impl Model {
    pub fn new() -> Self {
        Self { next_number: 1, next_message: 1, ..Self::default() }
    }

    /// Does what the command says. `after` is the partition after it did, to look at its choices.
    pub fn apply(
        &mut self,
        seq: u64,
        command: &Command<'_>,
        answer: &Result<Answer, Refusal>,
        after: &State,
    ) -> Result<Answer, Refusal> {
        match command {
            Command::Clock { now_ms, .. } => self.now_ms = self.now_ms.max(*now_ms),
            Command::Step { by_ms } => self.step_clock(*by_ms),
            Command::Epoch { epoch, instance, grace_ms } => {
                self.begin_epoch(*epoch, *instance, *grace_ms)
            }
            Command::PutQueue { queue, tenant, name, settings } => {
                self.put_queue(*queue, tenant, name, settings)
            }
            Command::SetFlow { queue, paused, draining } => {
                let queue = self.queue_mut(*queue)?;
                (queue.paused, queue.draining) = (*paused, *draining);
            }
            Command::DeleteQueue { queue } => self.queue_mut(*queue)?.deleted = true,
            Command::Enqueue(task) => return self.enqueue(seq, task),
            Command::Claim { queue, worker, count, lease_ms } => {
                return Ok(self.claim(*queue, worker, *count, *lease_ms, answer));
            }
            Command::Complete(_)
            | Command::CompleteAttached(_)
            | Command::Fail { .. }
            | Command::Defer { .. }
            | Command::Heartbeat { .. } => return self.report(seq, command, after),
            Command::Cancel { number } => self.cancel(*number)?,
            Command::Requeue { number, key } => self.requeue(*number, *key)?,
            Command::Delete { number } => self.delete(*number)?,
            Command::Purge { queue, states, count } => return self.purge(*queue, *states, *count),
            Command::Advance { .. } => return Ok(self.advance(answer, after)),
            others => return self.apply_between(seq, others),
        }
        Ok(Answer::Done)
    }

    /// What partitions say to each other, and schedules.
    fn apply_between(&mut self, seq: u64, command: &Command<'_>) -> Result<Answer, Refusal> {
        match command {
            Command::Await { task, waiting, tenant } => self.await_task(*task, *waiting, *tenant),
            Command::Resolve { waiting, task, completed } => {
                self.resolve(seq, *waiting, *task, *completed)
            }
            Command::Delivered { message } => drop(self.messages.remove(message)),
            Command::PutSchedule(put) => self.put_schedule(seq, put)?,
            Command::DeleteSchedule { tenant, name } => {
                let removed = self.schedules.remove(&((*tenant).into(), (*name).into()));
                removed.ok_or(Refusal::ScheduleUnknown)?;
            }
            Command::PauseSchedule { tenant, name, paused, next_ms } => {
                let schedule = self.schedule_mut(tenant, name)?;
                (schedule.paused, schedule.next_ms) = (*paused, *next_ms);
            }
            Command::Tick { tenant, name, tick_ms, next_ms, tasks } => {
                return self.tick(tenant, name, *tick_ms, *next_ms, *tasks);
            }
            others => panic!("the model does not know {others:?}"),
        }
        Ok(Answer::Done)
    }

    fn begin_epoch(&mut self, epoch: u32, instance: u16, grace_ms: u64) {
        if epoch <= self.epoch {
            return;
        }
        if self.epoch == 0 {
            self.instance = instance;
        }
        self.epoch = epoch;
        self.grace_until_ms = self.now_ms.saturating_add(grace_ms);
        self.resend_awaits();
    }

    fn put_queue(&mut self, id: u32, tenant: &str, name: &str, settings: &QueueSettings) {
        let Some(queue) = self.queues.get_mut(&id) else {
            let queue = Queue {
                tenant: tenant.to_owned(),
                name: name.to_owned(),
                settings: settings.clone(),
                paused: false,
                draining: false,
                deleted: false,
                strict: settings.key_concurrency == 1,
            };
            self.queues.insert(id, queue);
            return;
        };
        queue.settings = settings.clone();
        queue.strict &= settings.key_concurrency == 1;
        self.refresh_key_concurrency(id);
    }

    /// The queue, if it is not on its way out.
    pub fn queue(&self, id: u32) -> Result<&Queue, Refusal> {
        let found = self.queues.get(&id).filter(|queue| !queue.deleted);
        found.ok_or(Refusal::QueueUnknown)
    }

    fn queue_mut(&mut self, id: u32) -> Result<&mut Queue, Refusal> {
        let found = self.queues.get_mut(&id).filter(|queue| !queue.deleted);
        found.ok_or(Refusal::QueueUnknown)
    }

    fn schedule_mut(&mut self, tenant: &str, name: &str) -> Result<&mut Schedule, Refusal> {
        let found = self.schedules.get_mut(&(tenant.into(), name.into()));
        found.ok_or(Refusal::ScheduleUnknown)
    }

    /// Whose a task is: a callback is of the tenant whose content it refers to.
    fn owner(&self, task: &Task) -> &str {
        match task.ended_task {
            None => &self.queues[&task.queue].tenant,
            Some(_) => &self.contents[&task.record].0,
        }
    }

    /// What each tenant has: tasks, and callbacks of those that have not ended; each content that
    /// something refers to once, and what was said of each task.
    pub fn loads(&self) -> BTreeMap<&str, TaskLoad> {
        let mut loads: BTreeMap<&str, TaskLoad> = BTreeMap::new();
        for task in self.tasks.values() {
            let load = loads.entry(self.owner(task)).or_default();
            load.tasks += 1 + task.reserved_callbacks();
            load.bytes += task.outcome_bytes();
        }
        let tasks = self.tasks.values().map(|task| task.record);
        let schedules = self.schedules.values().map(|schedule| schedule.record);
        let referred: BTreeSet<u64> = tasks.chain(schedules).collect();
        for (tenant, bytes) in referred.iter().map(|record| &self.contents[record]) {
            loads.entry(tenant).or_default().bytes += bytes;
        }
        loads
    }

    /// Tasks that refer to a content besides the schedule or task that it came with, by record.
    pub fn holders(&self) -> BTreeMap<u64, u64> {
        let mut holders = BTreeMap::new();
        for task in self.tasks.values().filter(|task| !task.has_own_record) {
            *holders.entry(task.record).or_default() += 1;
        }
        holders
    }

    /// The number of the task with this id, if it is here.
    pub fn find(&self, id: TaskId) -> Option<u64> {
        let task = self.tasks.get(&id.number())?;
        (self.id(task.this) == id).then_some(id.number())
    }

    pub fn id(&self, task: TaskRef) -> TaskId {
        TaskId::new(task.created_ms, task.shard, self.instance, task.number)
    }

    /// Tasks of a queue in a state, in the order in which they came into it.
    pub fn list(&self, queue: u32, state: TaskState) -> &[u64] {
        self.lists.get(&(queue, state)).map_or(&[], Vec::as_slice)
    }

    /// Whether a worker would get something.
    pub fn can_dispatch(&self, queue: u32) -> bool {
        let waiting = self.rings.range((queue, 0)..=(queue, 9));
        let is_open = self.queue(queue).is_ok_and(|queue| !queue.paused);
        is_open && waiting.into_iter().any(|(_, keys)| !keys.is_empty())
    }

    fn settings(&self, task: u64) -> &QueueSettings {
        &self.queues[&self.tasks[&task].queue].settings
    }

    pub fn max_attempts(&self, task: u64) -> u16 {
        let asked = self.tasks[&task].options.max_attempts;
        asked.unwrap_or(self.settings(task).max_attempts)
    }

    fn timeout_ms(&self, task: u64) -> u64 {
        let asked = self.tasks[&task].options.timeout_ms;
        asked.unwrap_or(self.settings(task).timeout_ms)
    }
}
