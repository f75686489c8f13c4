//! Conditions: faults that last, such as a full disk or a server that cannot be reached.
//!
//! Work that is retried would log each failed attempt. A [`Condition`] says which attempt
//! begins the fault and which one ends it, so that each is one log line; in between the fault is in
//! a list, which `/readyz`, `egret status` and the metric `egret_condition_active` show. The list
//! is one for the process, as its log is.
//!
//! - A [`Condition`] is held by the code that retries, for one subject: a partition, a server.
//! - A [`ConditionSet`] holds the faults of subjects that come and go, such as branches or rules.
//! - [`occur`] records a fault that single requests run into. No code retries it, so it ends when
//!   it has not occurred for [`QUIET_AFTER`].
//!
//! Every name is in the tables of docs/reference/conditions.md. `/v1/status` shows the subject and
//! the latest failure to tokens with the scope `status:read`; callers without a token see names
//! only. The list is bounded: see [`active`].

mod requests;
mod set;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::sync::lock;

pub use requests::{QUIET_AFTER, end_quiet, occur, occurs};
pub use set::ConditionSet;

/// Subjects of one name that [`active`] returns; further ones are one entry that counts them.
pub(crate) const SUBJECTS_SHOWN_MAX: usize = 20;

/// Bytes of a failure's text that are kept.
const REASON_BYTES_MAX: usize = 500;

/// The conditions that last at this moment, by the number of the holder.
static ACTIVE: Mutex<BTreeMap<u64, ActiveCondition>> = Mutex::new(BTreeMap::new());

static NEXT_HOLDER: AtomicU64 = AtomicU64::new(0);

/// A fault that lasts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActiveCondition {
    /// What kind of fault it is, such as `queue_log_full`.
    pub name: &'static str,
    /// The thing that has the fault, such as `partition 3`.
    pub subject: String,
    /// Message of the latest failure.
    pub reason: String,
}

/// Tells the beginning and the end of a fault from its repetitions. Dropped, it ends.
#[derive(Debug)]
pub struct Condition {
    holder: u64,
    name: &'static str,
    subject: String,
    is_active: AtomicBool,
}

impl Condition {
    /// A condition that does not hold yet. `subject` tells it from others of its name.
    pub fn new(name: &'static str, subject: impl Into<String>) -> Self {
        Self {
            holder: NEXT_HOLDER.fetch_add(1, Ordering::Relaxed),
            name,
            subject: subject.into(),
            is_active: AtomicBool::new(false),
        }
    }

    /// Notes a failure. Returns whether the condition begins with it, which is to be logged.
    pub fn begin(&self, reason: impl Display) -> bool {
        let active = ActiveCondition {
            name: self.name,
            subject: self.subject.clone(),
            reason: shorten(reason.to_string()),
        };
        let mut list = list();
        list.insert(self.holder, active);
        !self.is_active.swap(true, Ordering::AcqRel)
    }

    /// Notes a success. Returns whether the condition ends with it, which is to be logged. Takes no
    /// lock while there is no fault.
    pub fn end(&self) -> bool {
        if !self.is_active() {
            return false;
        }
        let mut list = list();
        list.remove(&self.holder);
        self.is_active.swap(false, Ordering::AcqRel)
    }

    /// Notes a failure, and logs `message` as a warning where the condition begins with it.
    pub fn fail(&self, error: impl Display, message: &str) {
        if self.begin(&error) {
            let Self { name, subject, .. } = self;
            tracing::warn!(condition = name, subject, %error, "{message}");
        }
    }

    /// Notes a success, and logs `message` where the condition ends with it.
    pub fn recover(&self, message: &str) {
        if self.end() {
            let Self { name, subject, .. } = self;
            tracing::info!(condition = name, subject, "{message}");
        }
    }

    /// Whether the fault lasts at this moment.
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        self.end();
    }
}

/// The conditions that last at this moment, sorted, without repetitions. Of each name at most
/// [`SUBJECTS_SHOWN_MAX`] subjects are listed; the last entry then says how many more there are.
pub fn active() -> Vec<ActiveCondition> {
    let conditions = sorted_conditions();
    let mut shown = Vec::new();
    for group in conditions.chunk_by(|left, right| left.name == right.name) {
        let more = group.len().saturating_sub(SUBJECTS_SHOWN_MAX);
        shown.extend(group.iter().take(SUBJECTS_SHOWN_MAX).cloned());
        if more > 0 {
            shown.push(ActiveCondition {
                name: group[0].name,
                subject: format!("{more} others"),
                reason: "not listed one by one".to_owned(),
            });
        }
    }
    shown
}

/// How many subjects have each condition that lasts at this moment.
pub fn counts() -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for active in sorted_conditions() {
        *counts.entry(active.name).or_default() += 1;
    }
    counts
}

fn sorted_conditions() -> Vec<ActiveCondition> {
    let mut conditions: Vec<ActiveCondition> = list().values().cloned().collect();
    conditions.sort_unstable();
    conditions
        .dedup_by(|later, earlier| later.name == earlier.name && later.subject == earlier.subject);
    conditions
}

fn shorten(mut reason: String) -> String {
    if reason.len() > REASON_BYTES_MAX {
        reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
        reason.push('…');
    }
    reason
}

fn list() -> MutexGuard<'static, BTreeMap<u64, ActiveCondition>> {
    lock(&ACTIVE)
}

#[cfg(test)]
mod tests;
