//! Detects that nothing has been committed on a server.
//!
//! `pg_current_snapshot()` says which transactions have ended. While it stays the same, nothing has
//! been committed on the whole server: no row, table or view has changed. So any number of views
//! costs one query a turn while nothing is written.

use std::time::{Duration, Instant};

use super::session::Session;
use crate::error::ViewsError;

/// State of the server: its snapshot, when it was started, and whether it is a standby.
const SERVER_STATE_SQL: &str = "SELECT pg_catalog.concat_ws(' ', pg_catalog.pg_current_snapshot(), pg_catalog.pg_postmaster_start_time(), pg_catalog.pg_is_in_recovery())";

/// The server's state when no work was left, and the origin of a grid of wake-up times.
pub(crate) struct IdleDetector {
    idle_state: Option<String>,
    /// Origin of the grid to which wake-up times are aligned.
    origin: Instant,
}

impl Default for IdleDetector {
    fn default() -> Self {
        Self { idle_state: None, origin: Instant::now() }
    }
}

/// Reads the server's state.
pub(crate) async fn read_server_state(session: &mut Session) -> Result<String, ViewsError> {
    let Session { client, statements } = session;
    let row = statements.query_one(client, SERVER_STATE_SQL, &[]).await?;
    Ok(row.get(0))
}

impl IdleDetector {
    /// Remembers the server's state at which there was nothing to do.
    pub(crate) fn note_idle(&mut self, state: String) {
        self.idle_state = Some(state);
    }

    /// Whether the server's state is still the one at which there was nothing to do.
    pub(crate) fn is_idle_since(&self, state: &str) -> bool {
        self.idle_state.as_deref() == Some(state)
    }

    /// Aligns `due` down to a multiple of its wait after the origin: all components with the same
    /// wait are woken at the same moment, and none later than due.
    pub(crate) fn align_wake(&self, now: Instant, due: Instant) -> Instant {
        let wait_us = due.saturating_duration_since(now).as_micros();
        let elapsed_us = now.duration_since(self.origin).as_micros();
        let past_grid_us = elapsed_us.checked_rem(wait_us).unwrap_or(0);
        let remaining_us = u64::try_from(wait_us - past_grid_us).unwrap_or(u64::MAX);
        now + Duration::from_micros(remaining_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_with_equal_waits_are_woken_together() {
        let detector = IdleDetector::default();
        let at = |ms| detector.origin + Duration::from_millis(ms);
        assert_eq!(detector.align_wake(at(0), at(800)), at(800));
        assert_eq!(detector.align_wake(at(300), at(1_100)), at(800));
        assert_eq!(detector.align_wake(at(800), at(1_600)), at(1_600));
        assert_eq!(detector.align_wake(at(300), at(300)), at(300));
    }
}
