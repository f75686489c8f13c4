//! Submissions that wait for a partition's next turns, tenant by tenant: a tenant that sends much
//! delays its own requests, not those of others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use egret_base::sync::lock;
use egret_base::{LimitExceeded, TenantUsage};

use crate::worker::submission::{ASKING, NO_TENANT, Submission};

/// New tasks and reports of one tenant before the next tenant's turn…
const QUANTUM: usize = 256;

/// …and bytes of their records.
const QUANTUM_BYTES: usize = 512 << 10;

/// Bytes of each tenant that wait for a partition. However much one sends, room is left for others:
/// a tenant may take as much as is still free (the dynamic threshold of Choudhury and Hahne, 1998,
/// with factor 1), so one alone gets half, and each of two a third.
pub(crate) struct TenantBufferQuota {
    bytes_max: usize,
    taken: Mutex<TenantUsage<u32>>,
}

impl TenantBufferQuota {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            taken: Mutex::default(),
        }
    }

    /// Reserves a part of a tenant's share. A request larger than the share is admitted when
    /// nothing else of the tenant waits; otherwise it could never pass.
    pub(crate) fn take(&self, tenant: u32, bytes: usize) -> Result<(), LimitExceeded> {
        if tenant == NO_TENANT {
            return Ok(());
        }
        let mut taken = lock(&self.taken);
        let (max, more) = (self.bytes_max as u64, bytes as u64);
        let free = max.saturating_sub(taken.all());
        let own = taken.of(&tenant);
        if own > 0 && own + more > free {
            return Err(LimitExceeded {
                name: "queue.waiting_bytes_max",
                max,
                asked: own + more,
            });
        }
        taken.add(tenant, more);
        Ok(())
    }

    /// Releases the bytes of a submission that waits no longer.
    pub(crate) fn give_back_of(&self, submission: &Submission) {
        self.give_back(submission.tenant(), submission.held_bytes());
    }

    /// Releases bytes of a tenant.
    pub(crate) fn give_back(&self, tenant: u32, bytes: usize) {
        if tenant == NO_TENANT {
            return;
        }
        lock(&self.taken).subtract(&tenant, bytes as u64);
    }
}

#[derive(Default)]
pub(crate) struct FairQueue {
    by_tenant: BTreeMap<u32, VecDeque<Submission>>,
    /// Tenants with waiting submissions; the first has its turn.
    turns: VecDeque<u32>,
    /// Number of tenants with waiting submissions.
    tenants: usize,
    /// What the first has used of its turn: items, and bytes of records.
    had: (usize, usize),
    items: usize,
    bytes: usize,
    /// The latest tenant, and when a tenant last came after another one.
    last: u32,
    contested_at: Option<Instant>,
}

/// Whether a key of the queue stands for a tenant.
fn is_of_tenant(line: u32) -> bool {
    !matches!(line, NO_TENANT | ASKING)
}

/// How long tenants that take turns count as active together.
const CONTESTED: Duration = Duration::from_millis(100);

impl FairQueue {
    /// Whether several tenants are active: turns are short then, as each waits for those of the
    /// others.
    pub(crate) fn is_contested(&self) -> bool {
        let is_recent = || self.contested_at.is_some_and(|at| at.elapsed() < CONTESTED);
        self.tenants > 1 || is_recent()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub(crate) fn push(&mut self, submission: Submission) {
        let line = submission.line();
        let is_tenants = is_of_tenant(line);
        if is_tenants && line != self.last {
            self.contested_at = (self.last != NO_TENANT).then(Instant::now);
            self.last = line;
        }
        self.items += 1;
        self.bytes += submission.held_bytes();
        let of_tenant = self.by_tenant.entry(line).or_default();
        if of_tenant.is_empty() {
            self.turns.push_back(line);
            self.tenants += usize::from(is_tenants);
        }
        of_tenant.push_back(submission);
    }

    /// How many submissions wait, and how many bytes they take.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.items, self.bytes)
    }

    /// Whether the next submission fits a turn that has `items` of at most `items_max` already. One
    /// that is larger by itself gets a turn of its own while several tenants are active.
    pub(crate) fn fits(&self, items: usize, items_max: usize) -> bool {
        let next = self.peek().map_or(0, Submission::weight);
        items < items_max && (items == 0 || !self.is_contested() || items + next <= items_max)
    }

    /// The next submission of the queue.
    pub(crate) fn peek(&self) -> Option<&Submission> {
        self.by_tenant.get(self.turns.front()?)?.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Submission> {
        let tenant = *self.turns.front()?;
        let of_tenant = self.by_tenant.get_mut(&tenant)?;
        let submission = of_tenant.pop_front()?;
        self.had.0 += submission.weight();
        self.had.1 += submission.record_bytes();
        self.items -= 1;
        self.bytes -= submission.held_bytes();
        if of_tenant.is_empty() {
            self.by_tenant.remove(&tenant);
            self.tenants -= usize::from(is_of_tenant(tenant));
            self.turns.pop_front();
            self.had = (0, 0);
        } else if self.had.0 >= QUANTUM || self.had.1 >= QUANTUM_BYTES {
            self.turns.rotate_left(1);
            self.had = (0, 0);
        }
        Some(submission)
    }
}

#[cfg(test)]
mod tests;
