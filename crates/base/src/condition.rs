//! Conditions: faults that last, such as a full disk or a server that cannot be reached.
//!
//! Whatever tries again and again would log each failed attempt. A [`Condition`] says which attempt begins the fault and
//! which one ends it, so that each is one log line; in between the fault is in a list, which `/readyz`, `egret status`
//! and the metric `egret_condition_active` show. The list is one for the process, as its log is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The conditions that last at this moment, by the number of the holder.
static ACTIVE: Mutex<BTreeMap<u64, ActiveCondition>> = Mutex::new(BTreeMap::new());

static NEXT_HOLDER: AtomicU64 = AtomicU64::new(0);

/// A fault that lasts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActiveCondition {
    /// What kind of fault it is, such as `queue_log_full`.
    pub name: &'static str,
    /// What has it, such as `partition 3`.
    pub subject: String,
    /// The latest failure.
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
    pub fn begin(&self, reason: impl std::fmt::Display) -> bool {
        let active = ActiveCondition {
            name: self.name,
            subject: self.subject.clone(),
            reason: reason.to_string(),
        };
        let mut list = list();
        list.insert(self.holder, active);
        !self.is_active.swap(true, Ordering::AcqRel)
    }

    /// Notes a success. Returns whether the condition ends with it, which is to be logged. Takes no lock while there
    /// is no fault.
    pub fn end(&self) -> bool {
        if !self.is_active() {
            return false;
        }
        let mut list = list();
        list.remove(&self.holder);
        self.is_active.swap(false, Ordering::AcqRel)
    }

    /// Whether it holds.
    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }
}

impl Drop for Condition {
    fn drop(&mut self) {
        self.end();
    }
}

/// The conditions that last at this moment, sorted, without repetitions.
pub fn active() -> Vec<ActiveCondition> {
    let mut active: Vec<ActiveCondition> = list().values().cloned().collect();
    active.sort_unstable();
    active
        .dedup_by(|later, earlier| later.name == earlier.name && later.subject == earlier.subject);
    active
}

fn list() -> MutexGuard<'static, BTreeMap<u64, ActiveCondition>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons(name: &str) -> Vec<String> {
        let active = active().into_iter();
        let of_name = active.filter(|condition| condition.name == name);
        of_name.map(|condition| condition.reason).collect()
    }

    #[test]
    fn a_fault_begins_once_and_ends_once() {
        let condition = Condition::new("test_once", "disk");
        assert!(!condition.end());
        assert!(condition.begin("full"));
        assert!(!condition.begin("still full"));
        assert_eq!(reasons("test_once"), ["still full"]);
        assert!(condition.end());
        assert!(!condition.end());
        assert!(reasons("test_once").is_empty());
        assert!(condition.begin("full again"));
    }

    #[test]
    fn a_holder_that_goes_away_takes_its_fault_along() {
        let (first, second) = (
            Condition::new("test_drop", "a"),
            Condition::new("test_drop", "a"),
        );
        first.begin("one");
        second.begin("two");
        // Two holders of one subject are one line of the list.
        assert_eq!(reasons("test_drop"), ["one"]);
        drop(first);
        assert_eq!(reasons("test_drop"), ["two"]);
        drop(second);
        assert!(reasons("test_drop").is_empty());
    }
}
