//! Databases in which nothing is written.
//!
//! A snapshot says which transactions have ended. While it stays the same nobody has committed anything, on the whole server: no row, no table
//! and no view is another than it was. Many views of which nothing changes cost no more than one then.

use std::time::{Duration, Instant};

use super::session::Session;
use crate::error::ViewsError;

/// What has been seen of a server.
const SEEN: &str = "SELECT pg_catalog.concat_ws(' ', pg_catalog.pg_current_snapshot(), pg_catalog.pg_postmaster_start_time(), pg_catalog.pg_is_in_recovery())";

/// See the module.
pub struct Quiet {
    since: Option<String>,
    /// From when on moments are counted that come again.
    origin: Instant,
}

impl Default for Quiet {
    fn default() -> Self {
        Self {
            since: None,
            origin: Instant::now(),
        }
    }
}

/// What is seen of the server now.
///
/// # Errors
/// What the server says.
pub async fn seen(session: &mut Session) -> Result<String, ViewsError> {
    let Session { client, statements } = session;
    let row = statements.query_one(client, SEEN, &[]).await?;
    Ok(row.get(0))
}

impl Quiet {
    /// There was nothing to be done when this was seen.
    pub fn begin(&mut self, seen: String) {
        self.since = Some(seen);
    }

    /// Whether there is still nothing to be done.
    pub fn is_since(&self, seen: &str) -> bool {
        self.since.as_deref() == Some(seen)
    }

    /// A moment that is no later than the one at which something is due, and the same for all that wait as long.
    pub fn together(&self, now: Instant, due: Instant) -> Instant {
        let wait = due.saturating_duration_since(now).as_micros();
        let passed = now.duration_since(self.origin).as_micros();
        let behind = passed.checked_rem(wait).unwrap_or(0);
        let left = u64::try_from(wait - behind).unwrap_or(u64::MAX);
        now + Duration::from_micros(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_as_long_is_due_together() {
        let quiet = Quiet::default();
        let at = |ms| quiet.origin + Duration::from_millis(ms);
        assert_eq!(quiet.together(at(0), at(800)), at(800));
        assert_eq!(quiet.together(at(300), at(1_100)), at(800));
        assert_eq!(quiet.together(at(800), at(1_600)), at(1_600));
        assert_eq!(quiet.together(at(300), at(300)), at(300));
    }
}
