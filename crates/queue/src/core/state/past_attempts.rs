//! The attempts of a task that have ended.

use super::machine::{ATTEMPTS_KEPT, State};
use super::rows::PastAttempt;
use crate::core::slab::{NOWHERE, SlotIndex};
use crate::model::AttemptEnd;

impl State {
    /// Records an attempt that ended. The oldest ones beyond the maximum are removed.
    pub(super) fn note_past(&mut self, place: SlotIndex, end: AttemptEnd, record: u64, bytes: u32) {
        self.add_bytes(place, bytes);
        let entry = self.entries.get(place);
        let past = PastAttempt {
            started_ms: entry.started_ms.get(),
            ended_ms: self.now_ms,
            record,
            worker: entry.worker,
            earlier: entry.past,
            bytes,
            attempt: entry.attempts,
            end,
            used: true,
        };
        self.workers.hold(past.worker, 1);
        let newest = self.pasts.insert(past);
        self.entries.get_mut(place).past = newest;
        let mut last = newest;
        for _ in 1..ATTEMPTS_KEPT {
            match self.pasts.get(last).earlier {
                NOWHERE => return,
                earlier => last = earlier,
            }
        }
        if self.pasts.get(last).earlier != NOWHERE {
            let forgotten = std::mem::replace(&mut self.pasts.get_mut(last).earlier, NOWHERE);
            let bytes = self.erase_pasts(forgotten);
            self.take_bytes(place, bytes);
        }
    }

    /// Removes a past attempt and those before it. Returns the size of their records.
    pub(super) fn erase_pasts(&mut self, mut past: SlotIndex) -> u32 {
        let mut bytes = 0;
        while past != NOWHERE {
            let erased = self.pasts.remove(past);
            self.workers.release(erased.worker, 1);
            bytes += erased.bytes;
            past = erased.earlier;
        }
        bytes
    }
}
