//! The attempts of a task that have ended.

use super::machine::{PAST_ATTEMPTS_MAX, State};
use super::rows::PastAttempt;
use crate::core::slab::{NO_SLOT, SlotIndex};
use crate::model::AttemptEnd;

impl State {
    /// Records an attempt that ended. The oldest ones beyond the maximum are removed.
    pub(super) fn record_past_attempt(
        &mut self,
        slot: SlotIndex,
        end: AttemptEnd,
        record: u64,
        bytes: u32,
    ) {
        self.add_bytes(slot, bytes);
        let entry = self.entries.get(slot);
        let past_attempt = PastAttempt {
            started_ms: entry.started_ms.get(),
            ended_ms: self.now_ms,
            record,
            worker: entry.worker,
            earlier: entry.past_attempts,
            bytes,
            attempt: entry.attempts,
            end,
            used: true,
        };
        self.workers.add_uses(past_attempt.worker, 1);
        let newest = self.past_attempts.insert(past_attempt);
        self.entries.get_mut(slot).past_attempts = newest;
        let mut oldest = newest;
        for _ in 1..PAST_ATTEMPTS_MAX {
            match self.past_attempts.get(oldest).earlier {
                NO_SLOT => return,
                earlier => oldest = earlier,
            }
        }
        if self.past_attempts.get(oldest).earlier != NO_SLOT {
            let excess =
                std::mem::replace(&mut self.past_attempts.get_mut(oldest).earlier, NO_SLOT);
            let bytes = self.erase_past_attempts(excess);
            self.subtract_bytes(slot, bytes);
        }
    }

    /// Removes a past attempt and those before it. Returns the size of their records.
    pub(super) fn erase_past_attempts(&mut self, mut past: SlotIndex) -> u32 {
        let mut bytes = 0;
        while past != NO_SLOT {
            let erased = self.past_attempts.remove(past);
            self.workers.release(erased.worker, 1);
            bytes += erased.bytes;
            past = erased.earlier;
        }
        bytes
    }
}
