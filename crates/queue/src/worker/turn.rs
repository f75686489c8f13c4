//! A turn of a partition: commands that are applied and encoded, to be committed together.

use egret_base::{LimitExceeded, TenantShare, Timestamp};
use egret_log::{Batch, Seq};

use tokio::sync::oneshot;

use super::watch::{Subscription, Watchers};
use crate::core::command::{Command, Enqueue, Refusal, TaskReport};
use crate::core::state::{ClaimedTask, EnqueueOutcome, PurgeResult, State};
use crate::store::record;

/// State and log batch of a turn. A command is applied immediately, and logged only if it changed
/// the state. A caller that reads the state in the turn gets the reply after the commit.
pub(crate) struct BatchTurn<'a> {
    pub state: &'a mut State,
    pub batch: &'a mut Batch,
    /// Receives the changes of tasks.
    pub watchers: &'a mut Watchers,
    /// Number of the batch's first record.
    pub first: Seq,
    pub now: Timestamp,
    pub seed: u64,
}

impl BatchTurn<'_> {
    /// The number of the next record. The first record of a turn is its clock.
    fn next_seq(&mut self) -> u64 {
        if self.batch.is_empty() {
            self.state.set_clock(self.now.as_millis_unsigned(), self.seed);
            let clock = Command::Clock { now_ms: self.state.now_ms(), seed: self.seed };
            self.batch.push_with(|out| record::encode(&clock, out));
        }
        self.first.plus(self.batch.len() as u64).0
    }

    fn write(&mut self, command: &Command<'_>) {
        self.batch.push_with(|out| record::encode(command, out));
    }

    /// Applies a command and encodes it.
    pub(crate) fn run(&mut self, command: &Command<'_>) -> Result<(), Refusal> {
        let seq = self.next_seq();
        self.state.apply(seq, command)?;
        self.write(command);
        Ok(())
    }

    pub(crate) fn enqueue(&mut self, task: &Enqueue<'_>) -> Result<EnqueueOutcome, Refusal> {
        let seq = self.next_seq();
        let outcome = self.state.enqueue(seq, task)?;
        if let EnqueueOutcome::Created(_) = outcome {
            self.batch.push_with(|out| record::encode_enqueue(task, out));
        }
        Ok(outcome)
    }

    /// Makes a task of a chain, see [`Command::Chain`]. Its record is written even if the task was
    /// made before, since the records of a chain are counted.
    pub(crate) fn enqueue_member(&mut self, task: &Enqueue<'_>) -> Result<EnqueueOutcome, Refusal> {
        let seq = self.next_seq();
        let outcome = self.state.enqueue(seq, task)?;
        self.batch.push_with(|out| record::encode_enqueue(task, out));
        Ok(outcome)
    }

    pub(crate) fn complete(&mut self, report: &TaskReport<'_>) -> Result<(), Refusal> {
        let seq = self.next_seq();
        if self.state.complete(seq, report)? {
            self.write(&Command::Complete(*report));
        }
        Ok(())
    }

    pub(crate) fn complete_attached(&mut self, report: &TaskReport<'_>) -> Result<(), Refusal> {
        let seq = self.next_seq();
        if self.state.complete_attached(seq, report)? {
            self.write(&Command::CompleteAttached(*report));
        }
        Ok(())
    }

    /// Applies a report; one that was made before is not written again.
    pub(crate) fn apply_report(&mut self, command: &Command<'_>) -> Result<(), Refusal> {
        let seq = self.next_seq();
        let changed = match command {
            Command::Fail { report: held, permanent } => self.state.fail(seq, held, *permanent)?,
            Command::Defer { report: held, delay_ms, mode } => {
                self.state.defer(seq, held, *delay_ms, *mode)?
            }
            Command::Heartbeat { report: held, lease_ms } => {
                self.state.heartbeat(held, *lease_ms)?;
                true
            }
            others => return self.run(others),
        };
        if changed {
            self.write(command);
        }
        Ok(())
    }

    pub(crate) fn claim(
        &mut self,
        queue: u32,
        worker: &str,
        count: u32,
        lease_ms: u64,
        rank_min: i64,
        claimed: &mut Vec<ClaimedTask>,
    ) -> u32 {
        self.next_seq();
        let count_before = claimed.len();
        self.state.claim_ranked(queue, worker, count, lease_ms, rank_min, claimed);
        let count = (claimed.len() - count_before) as u32;
        if count > 0 {
            self.write(&Command::Claim { queue, worker, count, lease_ms });
        }
        count
    }

    pub(crate) fn purge(
        &mut self,
        queue: u32,
        states: u8,
        count: u32,
    ) -> Result<PurgeResult, Refusal> {
        self.next_seq();
        let purged = self.state.purge(queue, states, count)?;
        if purged.tasks > 0 {
            self.write(&Command::Purge { queue, states, count });
        }
        Ok(purged)
    }

    /// Notifies a caller when the task with this number has ended or is deleted.
    pub(crate) fn notify_when_ended(&mut self, number: u64, sender: oneshot::Sender<()>) {
        self.watchers.add_waiter(number, sender);
        self.state.events.wants_changes = true;
    }

    pub(crate) fn subscribe(
        &mut self,
        subscription: Subscription,
        share: &TenantShare,
    ) -> Result<(), LimitExceeded> {
        self.watchers.subscribe(subscription, share)?;
        self.state.events.wants_changes = true;
        Ok(())
    }

    /// Advances timers, in at most so many steps.
    pub(crate) fn advance(&mut self, budget: u32) {
        let now_ms = self.now.as_millis_unsigned();
        if self.state.next_due_ms().is_none_or(|due| due > now_ms) {
            return;
        }
        self.next_seq();
        self.state.advance(budget);
        self.write(&Command::Advance { budget });
    }
}
