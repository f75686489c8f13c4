//! The names that clients give their sessions, as a label: any client can make up any number of
//! them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a name is remembered that no session has any more.
const RETENTION: Duration = Duration::from_secs(3_600);

/// Names that are shown, so that one keeps its series while others come and go. New ones take the
/// place of those that have not been seen for an hour.
#[derive(Default)]
pub(super) struct ApplicationNames {
    last_seen: HashMap<String, Instant>,
}

impl ApplicationNames {
    /// The names that are shown in any case.
    pub(crate) fn recent_names(&mut self, now: Instant) -> Vec<&str> {
        let is_recent = |seen: &Instant| now.saturating_duration_since(*seen) < RETENTION;
        self.last_seen.retain(|_, seen| is_recent(seen));
        self.last_seen.keys().map(String::as_str).collect()
    }

    /// A name is shown.
    pub(crate) fn record(&mut self, name: &str, now: Instant) {
        match self.last_seen.get_mut(name) {
            Some(seen) => *seen = now,
            None => drop(self.last_seen.insert(name.to_owned(), now)),
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
        names.record("old", begin);
        names.record("app", begin);
        names.record("app", begin + RETENTION / 2);
        assert_eq!(names.recent_names(begin + RETENTION), ["app"]);
        assert!(names.recent_names(begin + RETENTION * 2).is_empty());
    }
}
