//! Refuses the submissions of a partition that cannot go on.

use super::*;

impl<L: Log + 'static> Partition<L> {
    pub(super) fn reject_pending(&mut self, error: &QueueError) {
        for reply in self.replies_after_tasks.drain(..) {
            reply(Err(error.clone()));
        }
        for pending_reply in self.pending_replies.drain(..) {
            match pending_reply {
                PendingReply::Produced(sink, mut outcomes) => {
                    for (_, outcome) in &mut outcomes {
                        *outcome = Err(error.clone());
                    }
                    sink.deliver_receipts(&outcomes);
                }
                PendingReply::Reported(sink, mut outcomes) => {
                    for (_, outcome) in &mut outcomes {
                        *outcome = Err(error.clone());
                    }
                    sink.deliver_outcomes(&outcomes);
                }
                PendingReply::Job(answer) => answer(Err(error.clone())),
            }
        }
    }

    pub(super) fn reject_waiting(&mut self, error: &QueueError) {
        while let Some(submission) = self.waiting.pop() {
            match submission {
                Submission::Enqueue(batch) => batch.refuse(error),
                Submission::Report(batch) => batch.refuse(error),
                Submission::Detach(_, Some(reply)) | Submission::Claim(_, reply) => {
                    reply(Err(error.clone()));
                }
                // The callers notice that their reply channel was dropped.
                _ => {}
            }
        }
        for (partitions, queue) in self.dispatcher.withdraw_ranks() {
            self.mailer.reconsider_queue_in(&partitions, queue);
        }
        self.dispatcher.end_sessions(error);
    }
}
