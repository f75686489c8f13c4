//! The names that clients give their sessions, as a label: any client can make up any number of
//! them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a name is remembered that no session has any more.
const KEPT: Duration = Duration::from_secs(3_600);

/// Names that are shown, so that one keeps its series while others come and go. New ones take the
/// place of those that have not been seen for an hour.
#[derive(Default)]
pub(super) struct ApplicationNames {
    seen: HashMap<String, Instant>,
}

impl ApplicationNames {
    /// The names that are shown in any case.
    pub(crate) fn shown(&mut self, now: Instant) -> Vec<&str> {
        let is_recent = |seen: &Instant| now.saturating_duration_since(*seen) < KEPT;
        self.seen.retain(|_, seen| is_recent(seen));
        self.seen.keys().map(String::as_str).collect()
    }

    /// A name is shown.
    pub(crate) fn note(&mut self, name: &str, now: Instant) {
        match self.seen.get_mut(name) {
            Some(seen) => *seen = now,
            None => drop(self.seen.insert(name.to_owned(), now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_seen_for_an_hour_is_forgotten() {
        let mut names = ApplicationNames::default();
        let begin = Instant::now();
        names.note("old", begin);
        names.note("app", begin);
        names.note("app", begin + KEPT / 2);
        assert_eq!(names.shown(begin + KEPT), ["app"]);
        assert!(names.shown(begin + KEPT * 2).is_empty());
    }
}
