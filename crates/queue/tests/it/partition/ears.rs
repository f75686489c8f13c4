//! Whoever is told by a partition.

use std::sync::Mutex;

use egret_queue::model::{AttemptEnd, Lease, TaskId};
use egret_queue::{Assigned, Enqueued, ProduceSink, QueueError, ReportSink, WorkSink};

/// What was told.
#[derive(Clone, Debug)]
pub enum Heard {
    Enqueued(u64, Result<Enqueued, QueueError>),
    Reported(u64, Result<(), QueueError>),
    /// The task, its lease, which attempt it is, and its content for workers.
    Assigned(TaskId, Lease, u16, Vec<u8>),
    Lost(Lease),
    Ended,
}

/// See the module.
#[derive(Default)]
pub struct Ears(Mutex<Vec<Heard>>);

impl Ears {
    fn note(&self, heard: impl Iterator<Item = Heard>) {
        self.0.lock().expect("nobody panics with it").extend(heard);
    }

    /// Everything heard since the last time, in order.
    pub fn take(&self) -> Vec<Heard> {
        std::mem::take(&mut *self.0.lock().expect("nobody panics with it"))
    }
}

impl ProduceSink for Ears {
    fn outcomes(&self, outcomes: &[(u64, Result<Enqueued, QueueError>)]) {
        let heard = outcomes.iter().cloned();
        self.note(heard.map(|(number, outcome)| Heard::Enqueued(number, outcome)));
    }
}

impl ReportSink for Ears {
    fn reported(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        let heard = outcomes.iter().cloned();
        self.note(heard.map(|(number, outcome)| Heard::Reported(number, outcome)));
    }
}

impl WorkSink for Ears {
    fn assigned(&self, tasks: &mut dyn Iterator<Item = Assigned<'_>>) {
        self.note(
            tasks.map(|one| Heard::Assigned(one.id, one.lease, one.attempt, one.content.to_vec())),
        );
    }

    fn lost(&self, _: TaskId, lease: Lease, _: AttemptEnd) {
        self.note(std::iter::once(Heard::Lost(lease)));
    }

    fn ended(&self, _: QueueError) {
        self.note(std::iter::once(Heard::Ended));
    }
}
