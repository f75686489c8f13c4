//! Pushing committed claims to their workers, in the turn or later.

use std::sync::Arc;

use egret_log::{LogError, LogReader};

use super::{ClaimedTask, Dispatcher, Push, State};
use crate::worker::deliver::{Budget, PushResult, lease_of, push_tasks};

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
        let mut read_error = None;
        for Push { session, claimed: range } in pushes.drain(..) {
            let claimed = &claimed[range];
            let undelivered =
                self.undelivered.iter_mut().find(|(one, _)| Arc::ptr_eq(one, &session));
            if let Some((_, waiting)) = undelivered {
                waiting.extend(claimed);
                continue;
            }
            let pushed = if session.is_claim || !budget.is_spent(reader) {
                push_tasks(state, reader, &session, claimed, &budget)
            } else {
                PushResult::default()
            };
            read_error = read_error.or(pushed.read_error);
            let remaining = &claimed[pushed.count..];
            if session.is_claim {
                session.sink.return_leases(&mut remaining.iter().map(lease_of));
            } else if !remaining.is_empty() {
                self.undelivered.push((session, remaining.iter().copied().collect()));
            }
        }
        let stuck = read_error.or(self.deliver_undelivered(state, reader));
        match stuck {
            Some(error) => {
                let message = "cannot read the contents of tasks; retrying";
                self.read_condition.fail(error, message);
            }
            None => self.read_condition.recover("contents of tasks can be read again"),
        }
    }

    /// Delivers waiting tasks. Returns the error if a content could not be read.
    fn deliver_undelivered(&mut self, state: &State, reader: &impl LogReader) -> Option<LogError> {
        let mut read_error = None;
        let budget = Budget::new(reader);
        self.has_readable_undelivered = false;
        let mut served = 0;
        for (session, waiting) in &mut self.undelivered {
            if served > 0 && budget.is_spent(reader) {
                self.has_readable_undelivered = true;
                break;
            }
            served += 1;
            let waiting_now = waiting.make_contiguous();
            let pushed = push_tasks(state, reader, session, waiting_now, &budget);
            waiting.drain(..pushed.count);
            // A content that cannot be read is tried again in the next turn that has other work.
            self.has_readable_undelivered |=
                !waiting.is_empty() && pushed.read_error.is_none() && !session.sink.is_full();
            read_error = read_error.or(pushed.read_error);
        }
        // The next turn goes on where this one stopped.
        self.undelivered.rotate_left(served);
        self.undelivered.retain(|(_, waiting)| !waiting.is_empty());
        read_error
    }
}
