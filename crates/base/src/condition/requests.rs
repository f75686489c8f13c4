//! Faults that single requests run into, such as a damaged file or a client that takes no answer.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::Condition;
use crate::sync::lock;

/// A fault that no request has run into for so long has ended.
pub const QUIET_AFTER: Duration = Duration::from_secs(60);

/// Subjects of one name that have a condition each; further ones share one, because requests choose
/// the subject.
const SUBJECTS_MAX: usize = 20;

/// The subject that stands for those beyond [`SUBJECTS_MAX`].
const OTHERS: &str = "others";

type Key = (&'static str, String);

/// The faults that requests have run into within [`QUIET_AFTER`].
static RECENT_FAULTS: Mutex<BTreeMap<Key, RecentFault>> = Mutex::new(BTreeMap::new());

struct RecentFault {
    condition: Condition,
    last_at: Instant,
    repetitions: u64,
}

/// Notes that a request has run into a fault. Logs `message` as a warning where it is the first one
/// in [`QUIET_AFTER`], and at level `debug` otherwise. `subject` is one of few: what a client can
/// choose freely is no subject.
pub fn occur(name: &'static str, subject: &str, error: impl Display, message: &str) {
    if occurs(name, subject, &error) {
        tracing::warn!(condition = name, subject, %error, "{message}");
    } else {
        tracing::debug!(condition = name, subject, %error, "{message}");
    }
}

/// Notes that a request has run into a fault, as [`occur`] does. Returns whether the condition
/// begins with it, which is to be logged.
pub fn occurs(name: &'static str, subject: &str, error: impl Display) -> bool {
    occur_at(name, subject, error, Instant::now())
}

fn occur_at(name: &'static str, subject: &str, error: impl Display, now: Instant) -> bool {
    let mut recent_faults = recent_faults();
    let mut key = (name, subject.to_owned());
    if !recent_faults.contains_key(&key) && count_subjects(&recent_faults, name) >= SUBJECTS_MAX {
        key.1 = OTHERS.to_owned();
    }
    let entry = recent_faults.entry(key).or_insert_with_key(|(name, subject)| RecentFault {
        condition: Condition::new(name, subject.as_str()),
        last_at: now,
        repetitions: 0,
    });
    entry.last_at = now;
    let begins = entry.condition.begin(error);
    entry.repetitions += u64::from(!begins);
    begins
}

/// Ends the faults that no request has run into for [`QUIET_AFTER`], each with a log line. To be
/// called every now and then.
pub fn end_quiet() {
    for ((name, subject), repetitions) in take_quiet(Instant::now()) {
        tracing::info!(
            condition = name,
            subject,
            repetitions,
            "the fault has not occurred for a minute"
        );
    }
}

fn take_quiet(now: Instant) -> Vec<(Key, u64)> {
    let is_quiet = |_: &Key, entry: &mut RecentFault| {
        now.saturating_duration_since(entry.last_at) >= QUIET_AFTER
    };
    recent_faults().extract_if(.., is_quiet).map(|(key, entry)| (key, entry.repetitions)).collect()
}

fn count_subjects(recent_faults: &BTreeMap<Key, RecentFault>, name: &'static str) -> usize {
    let of_name = recent_faults.range((name, String::new())..);
    of_name.take_while(|((of, _), _)| *of == name).count()
}

fn recent_faults() -> MutexGuard<'static, BTreeMap<Key, RecentFault>> {
    lock(&RECENT_FAULTS)
}

#[cfg(test)]
mod tests {
    use super::super::counts;
    use super::*;

    #[test]
    fn a_fault_of_requests_is_one_line_until_it_is_quiet() {
        let (name, start) = ("test_requests", Instant::now());
        assert!(occur_at(name, "a", "damaged", start));
        assert!(!occur_at(name, "a", "damaged", start + QUIET_AFTER / 2));
        take_quiet(start + QUIET_AFTER);
        assert_eq!(counts()[name], 1);
        let ended = take_quiet(start + QUIET_AFTER * 3 / 2);
        assert!(ended.contains(&((name, "a".to_owned()), 1)), "{ended:?}");
        assert!(!counts().contains_key(name));
        assert!(occur_at(name, "a", "damaged", start + QUIET_AFTER * 2));
    }

    #[test]
    fn subjects_that_requests_choose_are_bounded() {
        // Noted as of later, so that no other test's sweep ends them.
        let (name, now) = ("test_requests_many", Instant::now() + QUIET_AFTER * 100);
        let begun = (0..1_000).filter(|number| occur_at(name, &number.to_string(), "damaged", now));
        assert_eq!(begun.count(), SUBJECTS_MAX + 1);
        assert_eq!(counts()[name], SUBJECTS_MAX + 1);
    }
}
