//! What callers and workers know from what they were told, and what must therefore be true.

use std::collections::{BTreeMap, BTreeSet};

use egret_log::simulated::SplitMix64;
use egret_queue::ReportKind;
use egret_queue::core::command::Command;
use egret_queue::core::state::State;
use egret_queue::model::{Lease, TaskId, TaskState};
use egret_queue::testing::{DrivenPartition, record};

use super::QUEUE;
use super::recording_sink::SinkEvent;

/// The content of the task with this label.
pub fn content_of(label: u64, size: usize) -> Vec<u8> {
    let mut content = vec![0];
    content.extend_from_slice(&label.to_le_bytes());
    content.resize(1 + 8 + size, label as u8);
    content
}

fn label_of(content: &[u8]) -> u64 {
    let (label, rest) = content.split_at(8);
    let label = u64::from_le_bytes(label.try_into().expect("eight bytes"));
    assert!(rest.iter().all(|byte| *byte == label as u8), "another's content");
    label
}

/// What became of a new task, as far as its caller knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskOutcome {
    /// No answer yet, or one that leaves it open.
    Open,
    Made(TaskId),
    Refused,
}

/// What a worker said.
#[derive(Clone, Copy, Debug)]
struct SentReport {
    lease: Lease,
    kind: ReportKind,
    answered: Option<bool>,
}

#[derive(Default)]
pub struct ClientHistory {
    outcomes: BTreeMap<u64, TaskOutcome>,
    /// Labels that were handed in together.
    batches: Vec<Vec<u64>>,
    /// What tasks of chains wait for: labels of the same chain, and tasks from before.
    dependencies: BTreeMap<u64, (Vec<u64>, Vec<TaskId>)>,
    /// Labels of tasks that were handed out in the last turn.
    handed_out: Vec<u64>,
    unanswered: BTreeSet<u64>,
    /// Every lease given, with its task and attempt.
    leases: BTreeMap<u64, (Lease, TaskId, u16)>,
    reports: Vec<SentReport>,
    open_reports: BTreeSet<u64>,
    /// Tasks whose completion was acknowledged, with the lease's token.
    completed: BTreeMap<u64, u64>,
}

impl ClientHistory {
    pub fn submit(&mut self, labels: &[u64]) {
        self.batches.push(labels.to_vec());
        self.unanswered.extend(labels);
        self.outcomes.extend(labels.iter().map(|label| (*label, TaskOutcome::Open)));
    }

    /// The same of a chain, with the places of what its tasks wait for, and tasks from before.
    pub fn submit_chain(&mut self, labels: &[u64], links: &[Vec<u32>], outside: &[Vec<TaskId>]) {
        self.submit(labels);
        for (label, (links, outside)) in labels.iter().zip(links.iter().zip(outside)) {
            let inside = links.iter().map(|place| labels[*place as usize]);
            self.dependencies.insert(*label, (inside.collect(), outside.clone()));
        }
    }

    /// A task that was made lately, or long ago.
    pub fn some_task(&self, chance: &mut SplitMix64) -> Option<TaskId> {
        let back = chance.next_below(20) as usize;
        let made = self.outcomes.values().rev().filter_map(|fate| match fate {
            TaskOutcome::Made(id) => Some(*id),
            TaskOutcome::Open | TaskOutcome::Refused => None,
        });
        made.take(20).nth(back)
    }

    /// The states of what a task of a chain waits for.
    fn awaited_states(&self, label: u64, state: &State) -> Vec<TaskState> {
        let Some((inside, outside)) = self.dependencies.get(&label) else {
            return Vec::new();
        };
        let inside = inside.iter().map(|label| match self.outcomes[label] {
            TaskOutcome::Made(id) => id,
            fate => panic!("{label} is {fate:?}, and a later task of its chain is there"),
        });
        let ids = inside.chain(outside.iter().copied());
        let places = ids.map(|id| state.find_task(id).expect("what was made stays"));
        places.map(|place| state.entry(place).state).collect()
    }

    /// A task is handed out when all that it waits for has completed, and not before.
    pub fn check_handed_out(&mut self, state: &State) {
        for label in std::mem::take(&mut self.handed_out) {
            let awaited = self.awaited_states(label, state);
            let all = awaited.iter().all(|state| *state == TaskState::Completed);
            assert!(all, "{label} is handed out and waits for {awaited:?}");
        }
    }

    /// What holds of chains at any time.
    fn check_chains(&self, state: &State) {
        for (label, (inside, _)) in &self.dependencies {
            let TaskOutcome::Made(id) = self.outcomes[label] else {
                continue;
            };
            let awaited = self.awaited_states(*label, state);
            let place = state.find_task(id).expect("what was made stays");
            let has_failed =
                |state: &TaskState| state.has_ended() && *state != TaskState::Completed;
            match state.entry(place).state {
                TaskState::Waiting => assert!(!awaited.is_empty(), "{label} waits for nothing"),
                TaskState::Cancelled => assert!(awaited.iter().any(has_failed), "{label}"),
                other => {
                    let all = awaited.iter().all(|state| *state == TaskState::Completed);
                    assert!(all, "{label} is {other:?} and waits for {inside:?}: {awaited:?}");
                }
            }
        }
    }

    /// What holds of chains when every message has arrived.
    pub fn check_settled(&self, state: &State) {
        self.check_chains(state);
        for label in self.dependencies.keys() {
            let TaskOutcome::Made(id) = self.outcomes[label] else {
                continue;
            };
            let place = state.find_task(id).expect("what was made stays");
            if state.entry(place).state == TaskState::Waiting {
                let awaited = self.awaited_states(*label, state);
                assert!(awaited.iter().any(|state| !state.has_ended()), "{label}");
                let failed = awaited
                    .iter()
                    .any(|state| matches!(state, TaskState::Dead | TaskState::Cancelled));
                assert!(!failed, "{label} waits although {awaited:?}");
            }
        }
    }

    /// A lease given lately, or long ago.
    pub fn some_lease(&self, chance: &mut SplitMix64) -> Option<Lease> {
        let count = self.leases.len() as u64;
        let back =
            if chance.percent(80) { chance.next_below(8) } else { chance.next_below(count.max(1)) };
        let mut latest = self.leases.values().rev();
        latest.nth(back as usize).map(|(lease, ..)| *lease)
    }

    pub fn leases(&self) -> Vec<Lease> {
        self.leases.values().map(|(lease, ..)| *lease).collect()
    }

    /// Sends a report of a worker; returns its number.
    pub fn send_report(&mut self, lease: Lease, kind: ReportKind) -> u64 {
        let number = self.reports.len() as u64;
        self.reports.push(SentReport { lease, kind, answered: None });
        self.open_reports.insert(number);
        number
    }

    pub fn receive_event(&mut self, event: SinkEvent) {
        match event {
            SinkEvent::Enqueued(label, outcome) => {
                assert!(self.unanswered.remove(&label), "{label} is answered twice");
                let fate = match outcome {
                    Ok(made) => TaskOutcome::Made(made.id),
                    Err(egret_queue::QueueError::DiskFull { .. }) => TaskOutcome::Refused,
                    Err(egret_queue::QueueError::Limit(limit))
                        if limit.name == "queue.chain_messages_max" =>
                    {
                        assert!(
                            self.dependencies.contains_key(&label),
                            "{label} waits for nothing"
                        );
                        TaskOutcome::Refused
                    }
                    Err(egret_queue::QueueError::Log(_)) => TaskOutcome::Open,
                    Err(error) => panic!("{label}: {error:?}"),
                };
                self.outcomes.insert(label, fate);
            }
            SinkEvent::Reported(number, outcome) => {
                assert!(self.open_reports.remove(&number), "answered twice");
                let saying = &mut self.reports[number as usize];
                saying.answered = Some(outcome.is_ok());
                let saying = *saying;
                if outcome.is_ok() && saying.kind == ReportKind::Complete {
                    let (task, token) = (saying.lease.number, saying.lease.token);
                    let before = self.completed.insert(task, token);
                    let same = before.is_none_or(|before| before == token);
                    assert!(same, "{task} is completed under two leases");
                }
            }
            SinkEvent::Assigned(id, lease, attempt, content) => {
                let label = label_of(&content);
                // The answer may be told in the same turn, and then it is told first.
                assert_eq!(self.outcomes.get(&label), Some(&TaskOutcome::Made(id)), "{label}");
                let new = self.leases.insert(lease.token, (lease, id, attempt));
                assert!(new.is_none(), "a token is given twice");
                self.handed_out.push(label);
            }
            SinkEvent::Lost(lease) => assert!(self.leases.contains_key(&lease.token)),
            SinkEvent::Ended => {}
        }
    }

    /// After a turn in which everything was taken every caller has an answer.
    pub fn assert_all_answered(&self, is_idle: bool) {
        if is_idle {
            assert!(self.unanswered.is_empty(), "{:?}", self.unanswered);
            assert!(self.open_reports.is_empty());
        }
    }

    /// Callers that waited for an answer when the process ended get none.
    pub fn restart(&mut self) {
        self.unanswered.clear();
        self.open_reports.clear();
        self.handed_out.clear();
    }

    /// Looks at a partition after a start.
    pub fn check(&mut self, driven: &DrivenPartition) {
        let labels = self.tasks_by_label(driven);
        for (label, fate) in &mut self.outcomes {
            let found = labels.get(label);
            match fate {
                TaskOutcome::Made(id) => assert_eq!(found, Some(&*id), "{label} is lost"),
                TaskOutcome::Refused => {
                    assert_eq!(found, None, "{label} is there, and was refused")
                }
                TaskOutcome::Open => {
                    *fate = found.map_or(TaskOutcome::Refused, |id| TaskOutcome::Made(*id))
                }
            }
        }
        for batch in &self.batches {
            let there = batch.iter().filter(|label| labels.contains_key(label)).count();
            assert!(there == 0 || there == batch.len(), "{batch:?} is there in part");
        }
        self.check_chains(driven.state());
        for (_, id, attempt) in self.leases.values() {
            let place = driven.state().find_task(*id).expect("checked above");
            // What is released does not count; each report of it may have come into the log.
            let released = self.reports.iter().filter(|one| {
                one.lease.number == id.number() && matches!(one.kind, ReportKind::Defer { .. })
            });
            let entry = driven.state().entry(place);
            let least = usize::from(*attempt).saturating_sub(released.count());
            assert!(usize::from(entry.attempts) >= least, "an attempt is forgotten");
        }
        for number in self.completed.keys() {
            let place = driven.state().slot_of(*number).expect("checked above");
            let state = driven.state().entry(place).state;
            assert_eq!(state, TaskState::Completed, "{number} was completed");
        }
    }

    /// Every task by its label.
    fn tasks_by_label(&self, driven: &DrivenPartition) -> BTreeMap<u64, TaskId> {
        let state = driven.state();
        let mut labels = BTreeMap::new();
        for kind in TaskState::ALL {
            for place in state.list_page(QUEUE, kind, 0, usize::MAX, |_| true).slots {
                let entry = state.entry(place);
                let content = driven.read(entry.record).expect("its record is there");
                let Ok(Command::Enqueue(task)) = record::decode(&content) else {
                    panic!("record {} is no task", entry.record);
                };
                let label = label_of(&task.content[1..]);
                let id = state.id_at(place);
                assert_eq!(labels.insert(label, id), None, "{label} is there twice");
                let said = |one: &&SentReport| {
                    one.lease.number == entry.number && one.kind == ReportKind::Complete
                };
                if kind == TaskState::Completed {
                    assert!(self.reports.iter().any(|one| said(&one)), "nobody did {label}");
                    let outcome = driven.read(entry.token).expect("its record is there");
                    let is_result = matches!(
                        record::decode(&outcome),
                        Ok(Command::Complete(held)) if held.content == b"result" || held.content == b"done"
                    );
                    assert!(is_result);
                }
            }
        }
        labels
    }
}
