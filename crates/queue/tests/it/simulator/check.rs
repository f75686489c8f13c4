//! What must hold between commands.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::PathBuf;

use egret_log::Seq;
use egret_queue::core::lanes::PRIORITY_DEFAULT;
use egret_queue::core::state::{Schedule, State, TaskLoad};
use egret_queue::model::{TaskOptions, TaskState};
use egret_queue::testing::snapshot;

use super::side::Side;
use crate::model::{Attempt, Model, Task};

impl Side {
    /// What can be checked after every command.
    pub fn check_counts(&self) {
        let mut sum = 0;
        for id in self.model.queues.keys() {
            let lens = TaskState::ALL.map(|state| self.model.list(*id, state).len() as u64);
            sum += lens.iter().sum::<u64>();
            match self.model.queue(*id) {
                Ok(_) => {
                    let row = self.state.queue_by_id(*id).expect("the queue is there");
                    assert_eq!(row.counts(), lens, "counts of queue {id}");
                }
                Err(_) => assert!(self.state.queue_by_id(*id).is_none()),
            }
        }
        check_loads(&self.state, &self.model);
        assert_eq!(sum, self.state.len() as u64);
        assert_eq!(sum, self.model.tasks.len() as u64);
        let (due, model_due) = (self.state.next_due_ms(), self.model.next_due_ms());
        if let Some(model_due) = model_due {
            let model_due = model_due.max(self.model.now_ms);
            assert!(due.is_some_and(|due| due <= model_due), "{due:?} is later than {model_due}");
        }
    }

    /// Everything that can be seen.
    pub fn check_all(&self) {
        for state in [&self.state, &self.replica] {
            check_lists(state, &self.model);
            self.model.tasks.values().for_each(|task| check_task(state, &self.model, task));
            check_schedules(state, &self.model);
            check_others(state, &self.model);
            check_loads(state, &self.model);
            check_priorities(state, &self.model);
        }
        for task in self.model.tasks.values() {
            let place = self.state.slot_of(task.this.number).expect("just checked");
            assert_eq!(Some(place), self.replica.slot_of(task.this.number));
            assert_eq!(self.state.entry(place), self.replica.entry(place));
        }
        assert_eq!(self.state.allocation_counts(), self.replica.allocation_counts());
    }

    /// A snapshot of the replay is that of the state, byte by byte; what is read back goes on from
    /// here.
    pub fn check_snapshot(&mut self) {
        self.write_clock();
        let [bytes, replayed] = [&mut self.state, &mut self.replica].map(snapshot_of);
        assert_same(&bytes, &replayed);
        let read = snapshot::read_from(&*bytes, PathBuf::from("memory"));
        let (seq, image) = read.expect("just written");
        assert_eq!(seq, Seq(9));
        self.replica = State::restore(image);
        assert_same(&bytes, &snapshot_of(&mut self.replica));
    }
}

/// Without showing thousands of bytes.
fn assert_same(bytes: &[u8], others: &[u8]) {
    let mut pairs = bytes.iter().zip(others);
    let differs = pairs.position(|(one, other)| one != other);
    assert_eq!(differs, None, "snapshots differ from this byte on");
    assert_eq!(bytes.len(), others.len());
}

fn snapshot_of(state: &mut State) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = snapshot::write_to(&mut bytes, Seq(9), &state.take_snapshot(), &mut |_| {});
    assert_eq!(written.expect("memory is large"), bytes.len() as u64);
    bytes
}

/// What each tenant has, and all together.
fn check_loads(state: &State, model: &Model) {
    let loads = model.loads();
    for (tenant, load) in &loads {
        assert_eq!(state.tenant_load(tenant), *load, "{tenant}");
    }
    let queues = model.queues.iter();
    for (id, queue) in queues.filter(|(id, _)| model.queue(**id).is_ok()) {
        let load = loads.get(&*queue.tenant).copied().unwrap_or_default();
        assert_eq!(state.queue_tenant_load(*id), load, "{}", queue.tenant);
    }
    let sum: TaskLoad = loads.into_values().sum();
    assert_eq!(state.total_load(), sum);
}

fn check_lists(state: &State, model: &Model) {
    for id in model.queues.keys().filter(|id| model.queue(**id).is_ok()) {
        for kind in TaskState::ALL {
            let page = state.list_page(*id, kind, 0, usize::MAX, |_| true);
            let listed: Vec<u64> =
                page.slots.iter().map(|place| state.entry(*place).number).collect();
            assert_eq!(listed, model.list(*id, kind), "{kind:?} of queue {id}");
        }
        let row = state.queue_by_id(*id).expect("the queue is there");
        let oldest =
            model.list(*id, TaskState::Ready).first().map(|number| model.tasks[number].at_ms);
        assert_eq!(row.oldest_ready_ms(state), oldest);
        let queue = &model.queues[id];
        assert_eq!(row.settings, queue.settings);
        assert_eq!((row.paused, row.draining), (queue.paused, queue.draining));
        assert_eq!((&*row.tenant, &*row.name), (&*queue.tenant, &*queue.name));
    }
}

/// A start finds the queues for which several partitions are to be compared.
fn check_priorities(state: &State, model: &Model) {
    let tasks = model.tasks.values().map(|task| (task.queue, task.priority));
    let schedules = model.schedules.values().map(|schedule| (schedule.queue, schedule.priority));
    let all = tasks.chain(schedules);
    let unusual = all.filter(|(_, priority)| *priority != PRIORITY_DEFAULT);
    let expected: BTreeSet<u32> = unusual.map(|(queue, _)| queue).collect();
    assert_eq!(state.queues_with_priorities(), expected);
}

fn check_task(state: &State, model: &Model, task: &Task) {
    let number = task.this.number;
    let place = state.slot_of(number).expect("the task is there");
    let entry = state.entry(place);
    assert_eq!(state.find_task(model.id(task.this)), Some(place));
    assert_eq!((entry.queue, entry.priority), (task.queue, task.priority));
    assert_eq!((entry.record, entry.attempts), (task.record, task.attempts));
    assert_eq!((entry.state, entry.at_ms), (task.state, task.at_ms), "{number}");
    assert_eq!(entry.started_ms.get(), task.started_ms);
    assert_eq!(u64::from(entry.bytes), task.bytes(), "bytes of {number}");
    match task.state {
        TaskState::Leased => assert_eq!(entry.token, task.token),
        state if state.has_ended() => assert_eq!(entry.token, task.outcome),
        _ => {}
    }
    assert_eq!(state.worker_name(entry.worker), task.worker);
    assert_eq!(state.tags(entry.tags), task.tags);
    assert_eq!(state.max_attempts(place), model.max_attempts(number));
    assert_eq!(state.callback_subject(number), task.ended_task);
    assert_eq!(state.dependencies_of(number), task.dependencies);
    let pasts = state.past_attempts(place).map(|past| Attempt {
        number: past.attempt,
        end: past.end,
        record: past.record,
        started_ms: past.started_ms,
        ended_ms: past.ended_ms,
        worker: state.worker_name(past.worker).to_owned(),
        bytes: u64::from(past.bytes),
    });
    assert_eq!(pasts.collect::<Vec<_>>(), task.past_attempts);
}

/// The tick of a schedule, with its tenant and name.
fn tick_of(tenant: &str, name: &str, schedule: &Schedule) -> (u64, String, String) {
    (schedule.next_ms, tenant.to_owned(), name.to_owned())
}

fn check_schedules(state: &State, model: &Model) {
    assert_eq!(state.schedules().count(), model.schedules.len());
    for (tenant, name, schedule) in state.schedules() {
        let expected = &model.schedules[&(tenant.to_owned(), name.to_owned())];
        assert_eq!(schedule.record, expected.record);
        assert_eq!((schedule.queue, schedule.paused), (expected.queue, expected.paused));
        assert_eq!((schedule.next_ms, schedule.last_ms), (expected.next_ms, expected.last_ms));
        assert_eq!(schedule.last_task, expected.last_task);
    }
    let ticks: Vec<_> =
        state.schedules_by_tick().map(|(tenant, name, it)| tick_of(tenant, name, it)).collect();
    let waiting = state.tenants_with_waiting_ticks().flat_map(move |tenant| {
        let waiting = state.waiting_schedules(tenant);
        waiting.map(move |(name, it)| tick_of(tenant, name, it))
    });
    let expected = |waits: bool| {
        let awake = model.schedules.iter().filter(|(_, it)| !it.paused);
        // A tick that came and is still the next one waits for room.
        let awake = awake.filter(|(_, it)| (it.last_ms > 0 && it.last_ms == it.next_ms) == waits);
        let mut expected: Vec<_> =
            awake.map(|((tenant, name), it)| (it.next_ms, tenant.clone(), name.clone())).collect();
        expected.sort_unstable();
        expected
    };
    assert_eq!(ticks, expected(false));
    let mut waiting: Vec<_> = waiting.collect();
    waiting.sort_unstable();
    assert_eq!(waiting, expected(true));
}

/// Compares messages, and checks that nothing is kept that is not needed.
fn check_others(state: &State, model: &Model) {
    let messages = state.messages().map(|(number, message)| (number, *message));
    let expected = model.messages.iter().map(|(number, message)| (*number, *message));
    assert_eq!(messages.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let (census, tasks) = (state.allocation_counts(), || model.tasks.values());
    let live = || tasks().filter(|task| !task.state.has_ended());
    let keys: BTreeSet<_> = live().map(|task| (task.queue, task.key)).collect();
    assert_eq!(census.keyed_flows, keys.iter().filter(|(_, key)| *key != 0).count());
    assert_eq!(census.past_attempts, tasks().map(|task| task.past_attempts.len()).sum::<usize>());
    let options: HashSet<_> = tasks().map(|task| task.options).collect();
    assert_eq!(census.options, options.iter().filter(|it| **it != TaskOptions::default()).count());
    let tags: BTreeSet<_> = tasks().map(|task| &task.tags).collect();
    assert_eq!(census.tags, tags.iter().filter(|it| !it.is_empty()).count());
    let mut workers: BTreeSet<&str> = tasks().map(|task| &*task.worker).collect();
    workers.extend(tasks().flat_map(|task| task.past_attempts.iter().map(|past| &*past.worker)));
    assert_eq!(census.workers, workers.iter().filter(|it| !it.is_empty()).count());
    assert_eq!(census.dependencies, tasks().filter(|task| !task.dependencies.is_empty()).count());
    assert_eq!(census.dependents, tasks().map(|task| task.dependents.len()).sum::<usize>());
    assert_eq!(census.callbacks, tasks().filter(|task| task.ended_task.is_some()).count());
    let holders: BTreeMap<u64, u64> = state.shared_records().collect();
    assert_eq!(holders, model.holders());
    let mut tenants: BTreeSet<&str> = model.loads().into_keys().collect();
    tenants.extend(model.queues.values().map(|queue| &*queue.tenant));
    tenants.extend(model.schedules.keys().map(|(tenant, _)| &**tenant));
    assert!(census.tenants <= tenants.len(), "{census:?}");
    assert!(census.retentions <= 3 * census.queues, "{census:?}");
    assert!(census.uniques <= model.uniques.len());
}
