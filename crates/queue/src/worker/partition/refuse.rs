//! Refuses the submissions of a partition that cannot go on.

use super::*;

impl<L: Log + 'static> Partition<L> {
    pub(super) fn refuse_told(&mut self, error: &QueueError) {
        for answer in self.last.drain(..) {
            answer(Err(error.clone()));
        }
        for told in self.told.drain(..) {
            match told {
                PendingReply::Produced(sink, mut outcomes) => {
                    for (_, outcome) in &mut outcomes {
                        *outcome = Err(error.clone());
                    }
                    sink.outcomes(&outcomes);
                }
                PendingReply::Reported(sink, mut outcomes) => {
                    for (_, outcome) in &mut outcomes {
                        *outcome = Err(error.clone());
                    }
                    sink.reported(&outcomes);
                }
                PendingReply::Asked(answer) => answer(Err(error.clone())),
            }
        }
    }

    pub(super) fn refuse_all(&mut self, error: &QueueError) {
        while let Some(submission) = self.waiting.pop() {
            match submission {
                Submission::Enqueue(batch) => batch.refuse(error),
                Submission::Report(batch) => batch.refuse(error),
                Submission::Detach(_, Some(answer)) | Submission::Once(_, answer) => {
                    answer(Err(error.clone()));
                }
                // The callers notice that their reply channel was dropped.
                _ => {}
            }
        }
        for (partitions, queue) in self.dispatcher.withdraw() {
            self.post.consider_in(&partitions, queue);
        }
        self.dispatcher.end(error);
    }
}
