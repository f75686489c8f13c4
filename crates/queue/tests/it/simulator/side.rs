//! One partition in the simulator: the state as it is driven, the model, and a replay.

use egret_log::simulated::SplitMix64;
use egret_queue::core::command::{Command, Refusal};
use egret_queue::core::state::{EnqueueOutcome, State};
use egret_queue::testing::record;

use super::cursor::Cursor;
use crate::model::{Answer, Model};

pub struct Side {
    pub state: State,
    pub model: Model,
    pub replica: State,
    seq: u64,
    /// The clock of this turn, while nothing has been written in it.
    clock: Option<(u64, u64)>,
    /// Every lease ever given: number of the task, token.
    pub leases: Vec<(u64, u64)>,
    pub cursors: Vec<Cursor>,
}

impl Side {
    pub fn new() -> Self {
        let mut state = State::default();
        state.events.wants_changes = true;
        Self {
            state,
            model: Model::new(),
            replica: State::default(),
            seq: 0,
            clock: None,
            leases: Vec::new(),
            cursors: Vec::new(),
        }
    }

    /// A turn begins. As in a real one, its clock is written down before what changes something.
    pub fn set_clock(&mut self, now_ms: u64, seed: u64) {
        self.state.set_clock(now_ms, seed);
        self.model.now_ms = self.model.now_ms.max(now_ms);
        assert_eq!(self.state.now_ms(), self.model.now_ms);
        self.clock = Some((self.state.now_ms(), seed));
    }

    /// Does what is due in at most so many steps; `true`: there is more.
    pub fn advance(&mut self, budget: u32) -> bool {
        let answer = self.run(&Command::Advance { budget });
        assert!(matches!(answer, Ok(Answer::More(_))));
        answer == Ok(Answer::More(true))
    }

    /// Does a command everywhere and compares.
    pub fn run(&mut self, command: &Command<'_>) -> Result<Answer, Refusal> {
        let seq = self.seq + 1 + u64::from(self.clock.is_some());
        let news = &mut self.state.events;
        news.changes.clear();
        news.lost_leases.clear();
        news.readiness_changes.clear();
        news.orphaned_attachments.clear();
        self.model.changes.clear();
        self.model.lost_leases.clear();
        self.model.orphaned_attachments.clear();
        let ids: Vec<u32> = self.model.queues.keys().copied().collect();
        let idle: Vec<u32> = ids.into_iter().filter(|id| !self.model.can_dispatch(*id)).collect();
        let answer = self.perform(seq, command);
        let expected = self.model.apply(seq, command, &answer, &self.state);
        let plain = match answer.clone() {
            Ok(Answer::Claimed(mut claimed)) => {
                claimed.iter_mut().for_each(|one| one.tags = 0);
                Ok(Answer::Claimed(claimed))
            }
            other => other,
        };
        assert_eq!(plain, expected, "answer of {command:?}");
        let news = &self.state.events;
        assert_eq!(news.changes, self.model.changes, "changes by {command:?}");
        assert_eq!(news.lost_leases, self.model.lost_leases, "leases lost by {command:?}");
        assert_eq!(news.miscounts, 0, "sums after {command:?}");
        let model = &self.model;
        assert_eq!(
            news.orphaned_attachments, model.orphaned_attachments,
            "files left by {command:?}"
        );
        for id in idle {
            let told = news.readiness_changes.contains(&id) || !self.model.can_dispatch(id);
            assert!(told, "nobody is told that queue {id} has its turn after {command:?}");
        }
        if let Ok(Answer::Claimed(claimed)) = &answer {
            let leases = claimed.iter().map(|one| (one.task.number, one.token));
            self.leases.extend(leases);
        }
        self.write(command, &answer);
        self.check_counts();
        answer
    }

    fn perform(&mut self, seq: u64, command: &Command<'_>) -> Result<Answer, Refusal> {
        let state = &mut self.state;
        match command {
            Command::Enqueue(task) => state.enqueue(seq, task).map(|enqueued| match enqueued {
                EnqueueOutcome::Created(task) => Answer::Made(task),
                EnqueueOutcome::Duplicate(task) => Answer::Replayed(task),
            }),
            Command::Claim { queue, worker, count, lease_ms } => {
                let mut claimed = Vec::new();
                state.claim(*queue, worker, *count, *lease_ms, &mut claimed);
                Ok(Answer::Claimed(claimed))
            }
            Command::Complete(held) => state.complete(seq, held).map(Answer::Reported),
            Command::CompleteAttached(held) => {
                state.complete_attached(seq, held).map(Answer::Reported)
            }
            Command::Fail { report: held, permanent } => {
                state.fail(seq, held, *permanent).map(Answer::Reported)
            }
            Command::Defer { report: held, delay_ms, mode: how } => {
                state.defer(seq, held, *delay_ms, *how).map(Answer::Reported)
            }
            Command::Heartbeat { report: held, lease_ms } => {
                state.heartbeat(held, *lease_ms).map(Answer::Until)
            }
            Command::Purge { queue, states, count } => {
                state.purge(*queue, *states, *count).map(Answer::Purged)
            }
            Command::Advance { budget } => Ok(Answer::More(state.advance(*budget))),
            Command::Tick { tenant, name, tick_ms, next_ms, tasks } => {
                state.tick(tenant, name, *tick_ms, *next_ms, *tasks).map(Answer::Ticked)
            }
            other => state.apply(seq, other).map(|()| Answer::Done),
        }
    }

    /// Writes down what changed something, and replays it.
    fn write(&mut self, command: &Command<'_>, answer: &Result<Answer, Refusal>) {
        match answer {
            Err(_) | Ok(Answer::Replayed(_) | Answer::Reported(false)) => return,
            Ok(Answer::Claimed(claimed)) if claimed.is_empty() => return,
            Ok(_) => {}
        }
        self.write_clock();
        match (command, answer) {
            (Command::Claim { queue, worker, lease_ms, .. }, Ok(Answer::Claimed(claimed))) => self
                .replay(&Command::Claim {
                    queue: *queue,
                    worker,
                    count: claimed.len() as u32,
                    lease_ms: *lease_ms,
                }),
            _ => self.replay(command),
        }
    }

    /// Writes down the clock of this turn, if that has not been done.
    pub fn write_clock(&mut self) {
        if let Some((now_ms, seed)) = self.clock.take() {
            self.replay(&Command::Clock { now_ms, seed });
        }
    }

    fn replay(&mut self, command: &Command<'_>) {
        self.seq += 1;
        let mut written = Vec::new();
        record::encode(command, &mut written);
        let read = record::decode(&written).expect("just written");
        assert_eq!(read, *command);
        let applied = self.replica.apply(self.seq, &read);
        assert_eq!(applied, Ok(()), "replay of {command:?}");
        assert!(self.replica.events.changes.is_empty());
        self.replica.events.lost_leases.clear();
        self.replica.events.readiness_changes.clear();
    }

    /// A lease: one of those given lately, or long ago, or never.
    pub fn some_lease(&self, chance: &mut SplitMix64) -> (u64, u64) {
        let count = self.leases.len() as u64;
        match chance.next_below(20) {
            _ if count == 0 => (1 + chance.next_below(5), 0),
            0 => (1 + chance.next_below(20), 0),
            1 => (1 + chance.next_below(20), 1 << 40 | chance.next_below(20)),
            2..6 => self.leases[chance.next_below(count) as usize],
            _ => self.leases[(count - 1 - chance.next_below(count.min(6))) as usize],
        }
    }
}
