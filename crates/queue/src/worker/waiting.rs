//! What waits for a partition's next turns, tenant by tenant: whoever sends much waits behind
//! themselves, not in front of everybody else.

use std::collections::{HashMap, VecDeque};

use crate::api::submit::Submission;

/// New tasks and reports of one tenant before it is the next one's turn.
const QUANTUM: usize = 512;

#[derive(Default)]
pub(crate) struct Waiting {
    by_tenant: HashMap<u32, VecDeque<Submission>>,
    /// Tenants of whom something waits; the first has its turn.
    turns: VecDeque<u32>,
    /// What the first has had of its turn.
    had: usize,
    items: usize,
    bytes: usize,
}

impl Waiting {
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub fn push(&mut self, submission: Submission) {
        let tenant = submission.tenant();
        self.items += 1;
        self.bytes += submission.record_bytes();
        let of_tenant = self.by_tenant.entry(tenant).or_default();
        if of_tenant.is_empty() {
            self.turns.push_back(tenant);
        }
        of_tenant.push_back(submission);
    }

    /// How many submissions wait, and how many bytes of records they may cause.
    pub fn size(&self) -> (usize, usize) {
        (self.items, self.bytes)
    }

    /// The one that comes next.
    pub fn peek(&self) -> Option<&Submission> {
        self.by_tenant.get(self.turns.front()?)?.front()
    }

    pub fn pop(&mut self) -> Option<Submission> {
        let tenant = *self.turns.front()?;
        let of_tenant = self.by_tenant.get_mut(&tenant)?;
        let submission = of_tenant.pop_front()?;
        self.had += submission.weight();
        self.items -= 1;
        self.bytes -= submission.record_bytes();
        if of_tenant.is_empty() {
            self.by_tenant.remove(&tenant);
            self.turns.pop_front();
            self.had = 0;
        } else if self.had >= QUANTUM {
            self.turns.rotate_left(1);
            self.had = 0;
        }
        Some(submission)
    }
}

#[cfg(test)]
mod tests;
