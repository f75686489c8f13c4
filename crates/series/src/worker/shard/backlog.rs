//! Writes of bulk requests that wait for a later turn of their shard's thread.
//!
//! A turn does everything else that waits, and only so much of bulk requests that a live write that
//! comes meanwhile does not wait long for the next turn. Bulk writes keep their order, and each
//! turn does at least one of them. A live write may overtake a bulk write: none of the two was
//! acknowledged when the other came.

use std::collections::VecDeque;

use super::{Submission, Write, WritePriority};

/// Samples of a turn, beyond which it takes no further bulk write.
pub(super) const TURN_SAMPLES_MAX: usize = 32_768;

#[derive(Default)]
pub(super) struct BulkBacklog {
    writes: VecDeque<Write>,
    /// Room of the writes in the log, at most.
    bytes: usize,
}

impl BulkBacklog {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes the bulk writes out of what has come, and adds those at the end that are due in this
    /// turn.
    pub(super) fn plan_turn(&mut self, queued: &mut Vec<Submission>) {
        let mut turn_samples = 0;
        for submission in std::mem::take(queued) {
            match submission {
                Submission::Write(write) if write.priority == WritePriority::Bulk => {
                    self.bytes += write.log_bytes();
                    self.writes.push_back(write);
                }
                Submission::Write(write) => {
                    turn_samples += write.sample_count();
                    queued.push(Submission::Write(write));
                }
                other => queued.push(other),
            }
        }
        let mut has_bulk = false;
        while let Some(write) = self.writes.front()
            && (!has_bulk || turn_samples + write.sample_count() <= TURN_SAMPLES_MAX)
        {
            has_bulk = true;
            turn_samples += write.sample_count();
            self.bytes -= write.log_bytes();
            queued.extend(self.writes.pop_front().map(Submission::Write));
        }
    }

    /// Takes out all writes.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Submission> {
        self.bytes = 0;
        self.writes.drain(..).map(Submission::Write)
    }
}

#[cfg(test)]
mod tests;
