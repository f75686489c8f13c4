//! Conditions of one name for subjects that come and go.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::Condition;
use crate::sync::lock;

/// Subjects of one set whose faults are told apart; further ones share a condition.
const SUBJECTS_MAX: usize = 1_000;

/// The subject that stands for those beyond [`SUBJECTS_MAX`].
const OTHERS: &str = "others";

/// Conditions of one name, by subject. A subject has one as long as its fault lasts.
#[derive(Debug)]
pub struct ConditionSet {
    name: &'static str,
    /// Whether any subject has a fault: without one, no lock is taken.
    has_faults: AtomicBool,
    faults: Mutex<BTreeMap<String, Condition>>,
}

impl ConditionSet {
    /// A set without faults.
    pub const fn new(name: &'static str) -> Self {
        Self { name, has_faults: AtomicBool::new(false), faults: Mutex::new(BTreeMap::new()) }
    }

    /// Notes a failure of a subject. Returns whether its condition begins with it, which is to be
    /// logged.
    pub fn begin(&self, subject: &str, reason: impl Display) -> bool {
        let mut faults = self.faults();
        let is_known = faults.contains_key(subject);
        let subject = if is_known || faults.len() < SUBJECTS_MAX { subject } else { OTHERS };
        let condition =
            faults.entry(subject.to_owned()).or_insert_with(|| Condition::new(self.name, subject));
        self.has_faults.store(true, Ordering::Release);
        condition.begin(reason)
    }

    /// Notes a success of a subject. Returns whether its condition ends with it, which is to be
    /// logged.
    pub fn end(&self, subject: &str) -> bool {
        if !self.has_faults.load(Ordering::Acquire) {
            return false;
        }
        let mut faults = self.faults();
        let removed = faults.remove(subject);
        // One of the others may have this place once it fails again.
        if removed.is_some() {
            faults.remove(OTHERS);
        }
        self.has_faults.store(!faults.is_empty(), Ordering::Release);
        removed.is_some_and(|condition| condition.end())
    }

    /// Notes a failure of a subject, and logs `message` as a warning where its condition begins
    /// with it.
    pub fn fail(&self, subject: &str, error: impl Display, message: &str) {
        if self.begin(subject, &error) {
            tracing::warn!(condition = self.name, subject, %error, "{message}");
        }
    }

    /// Notes a success of a subject, and logs `message` where its condition ends with it.
    pub fn recover(&self, subject: &str, message: &str) {
        if self.end(subject) {
            tracing::info!(condition = self.name, subject, "{message}");
        }
    }

    /// Forgets the faults of subjects that are no more.
    pub fn retain(&self, exists: impl Fn(&str) -> bool) {
        if !self.has_faults.load(Ordering::Acquire) {
            return;
        }
        let mut faults = self.faults();
        faults.retain(|subject, _| subject == OTHERS || exists(subject));
        if faults.len() < SUBJECTS_MAX {
            faults.remove(OTHERS);
        }
        self.has_faults.store(!faults.is_empty(), Ordering::Release);
    }

    /// Whether any subject has a fault.
    pub fn is_any_active(&self) -> bool {
        self.has_faults.load(Ordering::Acquire)
    }

    /// Whether a subject has a fault of its own.
    pub fn is_active(&self, subject: &str) -> bool {
        self.has_faults.load(Ordering::Acquire) && self.faults().contains_key(subject)
    }

    fn faults(&self) -> MutexGuard<'_, BTreeMap<String, Condition>> {
        lock(&self.faults)
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts;
    use super::*;

    #[test]
    fn each_subject_begins_once_and_ends_once() {
        let set = ConditionSet::new("test_set");
        assert!(!set.end("a"));
        assert!(set.begin("a", "full"));
        assert!(!set.begin("a", "full"));
        assert!(set.begin("b", "full"));
        assert_eq!(counts()["test_set"], 2);
        assert!(set.end("a"));
        assert!(!set.end("a"));
        assert!(set.is_active("b"));
        set.retain(|subject| subject != "b");
        assert!(!set.is_active("b"));
        assert!(!counts().contains_key("test_set"));
    }

    #[test]
    fn subjects_beyond_the_most_share_a_condition() {
        let set = ConditionSet::new("test_set_full");
        for number in 0..SUBJECTS_MAX {
            assert!(set.begin(&number.to_string(), "full"));
        }
        assert!(set.begin("one more", "full"));
        assert!(!set.begin("and one more", "full"));
        assert!(!set.end("one more"));
        assert_eq!(counts()["test_set_full"], SUBJECTS_MAX + 1);
        assert!(set.end("7"));
        assert_eq!(counts()["test_set_full"], SUBJECTS_MAX - 1);
        assert!(set.begin("one more", "full"));
    }
}
