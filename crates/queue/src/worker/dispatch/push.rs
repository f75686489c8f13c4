//! Pushing committed claims to their workers, in the turn or later.

use std::sync::Arc;

use egret_log::{LogError, LogReader};

use super::{ClaimedTask, Dispatcher, Push, State};
use crate::worker::deliver::{Budget, PushResult, lease, push};

impl Dispatcher {
    /// Pushes committed claims to their workers. The rest of a worker that can take no more waits
    /// until it can, except for a claim, whose rest is released. Tasks that would exceed the fetch
    /// budget of this turn wait for the next.
    pub(crate) fn deliver(
        &mut self,
        state: &State,
        reader: &impl LogReader,
        pushes: &mut Vec<Push>,
        claimed: &[ClaimedTask],
    ) {
        let budget = Budget::new(reader);
        let mut stuck = None;
        for Push {
            session,
            claimed: range,
        } in pushes.drain(..)
        {
            let claimed = &claimed[range];
            let before = self
                .late
                .iter_mut()
                .find(|(one, _)| Arc::ptr_eq(one, &session));
            if let Some((_, waiting)) = before {
                waiting.extend(claimed);
                continue;
            }
            let pushed = if session.alone || !budget.is_spent(reader) {
                push(state, reader, &session, claimed, &budget)
            } else {
                PushResult::default()
            };
            stuck = stuck.or(pushed.stuck);
            let left = &claimed[pushed.count..];
            if session.alone {
                session.sink.not_taken(&mut left.iter().map(lease));
            } else if !left.is_empty() {
                self.late.push((session, left.iter().copied().collect()));
            }
        }
        let stuck = stuck.or(self.deliver_late(state, reader));
        match stuck {
            Some(error) => {
                let message = "cannot read the contents of tasks; retrying";
                self.unreadable.fail(error, message);
            }
            None => self
                .unreadable
                .recover("contents of tasks can be read again"),
        }
    }

    /// Delivers waiting tasks. Returns the error if a content could not be read.
    fn deliver_late(&mut self, state: &State, reader: &impl LogReader) -> Option<LogError> {
        let mut stuck = None;
        let budget = Budget::new(reader);
        self.cut_short = false;
        let mut served = 0;
        for (session, waiting) in &mut self.late {
            if served > 0 && budget.is_spent(reader) {
                self.cut_short = true;
                break;
            }
            served += 1;
            let waiting_now = waiting.make_contiguous();
            let pushed = push(state, reader, session, waiting_now, &budget);
            waiting.drain(..pushed.count);
            // A content that cannot be read is tried again in the next turn that has other work.
            self.cut_short |=
                !waiting.is_empty() && pushed.stuck.is_none() && !session.sink.is_full();
            stuck = stuck.or(pushed.stuck);
        }
        // The next turn goes on where this one stopped.
        self.late.rotate_left(served);
        self.late.retain(|(_, waiting)| !waiting.is_empty());
        stuck
    }
}
