//! Messages from partition to partition, for tasks that wait for others.

use std::sync::{Arc, OnceLock};

use super::precedence::PartitionSet;
use super::turn::BatchTurn;
use crate::core::command::Command;
use crate::core::state::{Message, MessageKind, State};
use crate::error::QueueError;
use crate::model::SHARD_BITS;
use crate::worker::partition_handle::PartitionHandle;
use crate::worker::session::WorkSession;
use crate::worker::submission::{OnCommit, Submission};

/// Messages sent at once; the rest follows.
const MESSAGES_PER_TURN: usize = 1_024;

/// Sends the messages of a partition's state to other partitions.
pub(crate) struct PartitionMailer {
    /// Every partition, this one included; known when all are open.
    peers: Arc<OnceLock<Vec<Arc<PartitionHandle>>>>,
    partition: usize,
    /// The last message sent since the start.
    last_sent: u64,
}

impl PartitionMailer {
    pub(crate) fn new(peers: Arc<OnceLock<Vec<Arc<PartitionHandle>>>>, partition: usize) -> Self {
        Self { peers, partition, last_sent: 0 }
    }

    /// Sends new messages, up to the maximum of one turn.
    pub(crate) fn send_messages(&mut self, state: &State) {
        let Some(peers) = self.peers.get() else {
            return;
        };
        for (number, message) in state.messages_after(self.last_sent).take(MESSAGES_PER_TURN) {
            let recipient = (usize::from(message.to.shard()) * peers.len()) >> SHARD_BITS;
            let sender = peers[self.partition].clone();
            let delivery = message_submission(*message, sender, number);
            // A partition that has ended gets it after the next start.
            let _ = peers[recipient].inbox.push_unbounded(delivery);
            self.last_sent = number;
        }
    }

    /// Makes a partition reconsider a queue: it may have a permit now.
    pub(crate) fn reconsider_queue(&self, partition: usize, queue: u32) {
        if let Some(peers) = self.peers.get() {
            // A partition that has ended hands nothing out.
            let _ = peers[partition].inbox.push_unbounded(Submission::ReconsiderQueue(queue));
        }
    }

    /// Makes partitions reconsider a queue: they need not yield to this one any more.
    pub(crate) fn reconsider_queue_in(&self, partitions: &PartitionSet, queue: u32) {
        match partitions {
            PartitionSet::Listed(partitions) => {
                for partition in partitions {
                    self.reconsider_queue(*partition, queue);
                }
            }
            PartitionSet::AllExcept(excluded) => {
                let count = self.peers.get().map_or(0, Vec::len);
                for partition in (0..count).filter(|partition| partition != excluded) {
                    self.reconsider_queue(partition, queue);
                }
            }
        }
    }

    /// Announces a worker's credits to a partition.
    pub(crate) fn send_credits(&self, partition: usize, session: Arc<WorkSession>) {
        let submission = Submission::Credits(session.clone());
        let peers = self.peers.get();
        if peers.is_none_or(|peers| peers[partition].inbox.push_unbounded(submission).is_err()) {
            session.unregister_from(partition);
        }
    }

    /// Whether messages are left to be sent.
    pub(crate) fn has_more(&self, state: &State) -> bool {
        self.peers.get().is_some() && state.messages_after(self.last_sent).next().is_some()
    }
}

fn message_submission(message: Message, sender: Arc<PartitionHandle>, number: u64) -> Submission {
    Submission::Job(Box::new(move |turn: &mut BatchTurn<'_>| -> OnCommit {
        let received = match message.kind {
            MessageKind::Await { tenant } => {
                turn.run(&Command::Await { tenant, task: message.to, waiting: message.from })
            }
            MessageKind::Ended { completed } => {
                turn.run(&Command::Resolve { waiting: message.to, task: message.from, completed })
            }
        };
        debug_assert!(received.is_ok(), "messages are never refused");
        Box::new(move |committed: Result<(), QueueError>| {
            if committed.is_ok() {
                let acknowledgement =
                    Submission::Job(Box::new(move |turn: &mut BatchTurn<'_>| -> OnCommit {
                        let removed = turn.run(&Command::Delivered { message: number });
                        debug_assert!(removed.is_ok(), "messages are never refused");
                        Box::new(|_| {})
                    }));
                // If it is not accepted, it is sent again after a restart, and does nothing then.
                let _ = sender.inbox.push_unbounded(acknowledgement);
            }
        })
    }))
}
