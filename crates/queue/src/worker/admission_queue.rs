//! Submissions that wait for a partition's next turns, tenant by tenant: a tenant that sends much
//! delays its own requests, not those of others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use egret_base::sync::lock;
use egret_base::{LimitExceeded, TenantUsage};

use crate::worker::submission::{JOB_TURN, NO_TENANT, Submission};

/// New tasks and reports of one tenant before the next tenant's turn…
const QUANTUM_ITEMS: usize = 256;

/// …and bytes of their records.
const QUANTUM_BYTES: usize = 512 << 10;

/// Bytes of each tenant that wait for a partition. However much one sends, room is left for others:
/// a tenant may take as much as is still free (the dynamic threshold of Choudhury and Hahne, 1998,
/// with factor 1), so one alone gets half, and each of two a third.
pub(crate) struct TenantBufferQuota {
    bytes_max: usize,
    usage: Mutex<TenantUsage<u32>>,
}

impl TenantBufferQuota {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, usage: Mutex::default() }
    }

    /// Reserves a part of a tenant's share. A request larger than the share is admitted when
    /// nothing else of the tenant waits; otherwise it could never pass.
    pub(crate) fn reserve(&self, tenant: u32, bytes: usize) -> Result<(), LimitExceeded> {
        if tenant == NO_TENANT {
            return Ok(());
        }
        let mut usage = lock(&self.usage);
        let (max, added) = (self.bytes_max as u64, bytes as u64);
        let free = max.saturating_sub(usage.total());
        let tenant_bytes = usage.used_by(&tenant);
        if tenant_bytes > 0 && tenant_bytes + added > free {
            return Err(LimitExceeded {
                name: "queue.waiting_bytes_max",
                max,
                asked: tenant_bytes + added,
            });
        }
        usage.add(tenant, added);
        Ok(())
    }

    /// Releases the bytes of a submission that waits no longer.
    pub(crate) fn release_submission(&self, submission: &Submission) {
        self.release(submission.tenant(), submission.memory_bytes());
    }

    /// Releases bytes of a tenant.
    pub(crate) fn release(&self, tenant: u32, bytes: usize) {
        if tenant == NO_TENANT {
            return;
        }
        lock(&self.usage).subtract(&tenant, bytes as u64);
    }
}

#[derive(Default)]
pub(crate) struct FairQueue {
    by_tenant: BTreeMap<u32, VecDeque<Submission>>,
    /// Tenants with waiting submissions; the first has its turn.
    tenant_order: VecDeque<u32>,
    /// Number of tenants with waiting submissions.
    tenant_count: usize,
    /// What the first has used of its turn: items, and bytes of records.
    turn_used: (usize, usize),
    items: usize,
    bytes: usize,
    /// The latest tenant, and when a tenant last came after another one.
    last_tenant: u32,
    contested_at: Option<Instant>,
}

/// Whether a key of the queue stands for a tenant.
fn is_of_tenant(line: u32) -> bool {
    !matches!(line, NO_TENANT | JOB_TURN)
}

/// How long tenants that take turns count as active together.
const CONTENTION_WINDOW: Duration = Duration::from_millis(100);

impl FairQueue {
    /// Whether several tenants are active: turns are short then, as each waits for those of the
    /// others.
    pub(crate) fn is_contested(&self) -> bool {
        let is_recent = || self.contested_at.is_some_and(|at| at.elapsed() < CONTENTION_WINDOW);
        self.tenant_count > 1 || is_recent()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tenant_order.is_empty()
    }

    pub(crate) fn push(&mut self, submission: Submission) {
        let line = submission.turn_owner();
        let is_tenant = is_of_tenant(line);
        if is_tenant && line != self.last_tenant {
            self.contested_at = (self.last_tenant != NO_TENANT).then(Instant::now);
            self.last_tenant = line;
        }
        self.items += 1;
        self.bytes += submission.memory_bytes();
        let submissions = self.by_tenant.entry(line).or_default();
        if submissions.is_empty() {
            self.tenant_order.push_back(line);
            self.tenant_count += usize::from(is_tenant);
        }
        submissions.push_back(submission);
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
        self.by_tenant.get(self.tenant_order.front()?)?.front()
    }

    pub(crate) fn pop(&mut self) -> Option<Submission> {
        let tenant = *self.tenant_order.front()?;
        let submissions = self.by_tenant.get_mut(&tenant)?;
        let submission = submissions.pop_front()?;
        self.turn_used.0 += submission.weight();
        self.turn_used.1 += submission.record_bytes();
        self.items -= 1;
        self.bytes -= submission.memory_bytes();
        if submissions.is_empty() {
            self.by_tenant.remove(&tenant);
            self.tenant_count -= usize::from(is_of_tenant(tenant));
            self.tenant_order.pop_front();
            self.turn_used = (0, 0);
        } else if self.turn_used.0 >= QUANTUM_ITEMS || self.turn_used.1 >= QUANTUM_BYTES {
            self.tenant_order.rotate_left(1);
            self.turn_used = (0, 0);
        }
        Some(submission)
    }
}

#[cfg(test)]
mod tests;
