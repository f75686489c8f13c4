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
    is_any: AtomicBool,
    failing: Mutex<BTreeMap<String, Condition>>,
}

impl ConditionSet {
    /// A set without faults.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            is_any: AtomicBool::new(false),
            failing: Mutex::new(BTreeMap::new()),
        }
    }

    /// Notes a failure of a subject. Returns whether its condition begins with it, which is to be
    /// logged.
    pub fn begin(&self, subject: &str, reason: impl Display) -> bool {
        let mut failing = self.failing();
        let is_known = failing.contains_key(subject);
        let subject = if is_known || failing.len() < SUBJECTS_MAX {
            subject
        } else {
            OTHERS
        };
        let condition = failing
            .entry(subject.to_owned())
            .or_insert_with(|| Condition::new(self.name, subject));
        self.is_any.store(true, Ordering::Release);
        condition.begin(reason)
    }

    /// Notes a success of a subject. Returns whether its condition ends with it, which is to be
    /// logged.
    pub fn end(&self, subject: &str) -> bool {
        if !self.is_any.load(Ordering::Acquire) {
            return false;
        }
        let mut failing = self.failing();
        let ended = failing.remove(subject);
        // One of the others may have this place once it fails again.
        if ended.is_some() {
            failing.remove(OTHERS);
        }
        self.is_any.store(!failing.is_empty(), Ordering::Release);
        ended.is_some_and(|condition| condition.end())
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
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        if !self.is_any.load(Ordering::Acquire) {
            return;
        }
        let mut failing = self.failing();
        failing.retain(|subject, _| subject == OTHERS || is_there(subject));
        if failing.len() < SUBJECTS_MAX {
            failing.remove(OTHERS);
        }
        self.is_any.store(!failing.is_empty(), Ordering::Release);
    }

    /// Whether any subject has a fault.
    pub fn is_any_active(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Whether a subject has a fault of its own.
    pub fn is_active(&self, subject: &str) -> bool {
        self.is_any.load(Ordering::Acquire) && self.failing().contains_key(subject)
    }

    fn failing(&self) -> MutexGuard<'_, BTreeMap<String, Condition>> {
        lock(&self.failing)
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
