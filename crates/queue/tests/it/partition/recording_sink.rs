//! Sinks that record what a partition reports.

use std::sync::Mutex;

use egret_base::sync::lock;
use egret_queue::model::{AttemptEnd, Lease, TaskId};
use egret_queue::{EnqueueReceipt, ProduceSink, QueueError, ReportSink, TaskAssignment, WorkSink};

#[derive(Clone, Debug)]
pub enum SinkEvent {
    Enqueued(u64, Result<EnqueueReceipt, QueueError>),
    Reported(u64, Result<(), QueueError>),
    /// The task, its lease, which attempt it is, and its content for workers.
    Assigned(TaskId, Lease, u16, Vec<u8>),
    Lost(Lease),
    Ended,
}

#[derive(Default)]
pub struct RecordingSink(Mutex<Vec<SinkEvent>>);

impl RecordingSink {
    fn record(&self, events: impl Iterator<Item = SinkEvent>) {
        lock(&self.0).extend(events);
    }

    /// Everything heard since the last time, in order.
    pub fn take(&self) -> Vec<SinkEvent> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl ProduceSink for RecordingSink {
    fn deliver_receipts(&self, outcomes: &[(u64, Result<EnqueueReceipt, QueueError>)]) {
        let heard = outcomes.iter().cloned();
        self.record(heard.map(|(number, outcome)| SinkEvent::Enqueued(number, outcome)));
    }
}

impl ReportSink for RecordingSink {
    fn deliver_outcomes(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        let heard = outcomes.iter().cloned();
        self.record(heard.map(|(number, outcome)| SinkEvent::Reported(number, outcome)));
    }
}

impl WorkSink for RecordingSink {
    fn deliver_tasks(&self, tasks: &mut dyn Iterator<Item = TaskAssignment<'_>>) {
        self.record(
            tasks.map(|one| {
                SinkEvent::Assigned(one.id, one.lease, one.attempt, one.content.to_vec())
            }),
        );
    }

    fn notify_lost_lease(&self, _: TaskId, lease: Lease, _: AttemptEnd) {
        self.record(std::iter::once(SinkEvent::Lost(lease)));
    }

    fn notify_end(&self, _: QueueError) {
        self.record(std::iter::once(SinkEvent::Ended));
    }
}
