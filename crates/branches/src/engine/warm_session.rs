//! A session that was connected before a client asked for it.

use std::path::Path;
use std::time::{Duration, Instant};

use egret_postgres::wire::{Session, Startup, WireError};

use crate::store::files::SOCKET_PORT;
use crate::store::source::SESSION_DEFAULTS;

/// The most rows that one of Egret's own queries may return.
pub(crate) const ROWS_MAX: u64 = 10_000;
/// The most bytes that these rows may have together.
pub(crate) const BYTES_MAX: u64 = 4 << 20;

/// The kind of use that a warm session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A query through the API.
    Query,
    /// A client of the proxy.
    Client,
}

/// A connected session that is not in use.
pub(crate) struct WarmSession {
    pub(crate) purpose: Purpose,
    pub(crate) startup: Startup,
    pub(crate) session: Session,
    /// Defaults of role and database when it was connected.
    defaults: Vec<Vec<Option<String>>>,
    /// The slot's count of uses before it was connected: as long as it is unchanged, no other
    /// session has changed anything in the branch. The use that it was connected for counts as one
    /// that may have.
    pub(crate) uses_at_connect: u64,
    /// The tenant whose client its parameters were learned from; others are not to see them.
    pub(crate) learned_from: Option<String>,
    has_served: bool,
    pub(crate) idle_since: Instant,
}

impl WarmSession {
    /// Connects; `uses` counts those that began before.
    pub(crate) async fn connect(
        socket_dir: &Path,
        uses: u64,
        purpose: Purpose,
        startup: Startup,
    ) -> Result<Self, WireError> {
        let mut session = Session::connect(socket_dir, SOCKET_PORT, &startup).await?;
        Ok(Self {
            purpose,
            defaults: read_defaults(&mut session).await?,
            startup,
            session,
            uses_at_connect: uses,
            learned_from: None,
            has_served: false,
            idle_since: Instant::now(),
        })
    }

    /// Time since it began to wait.
    pub(crate) fn idle_for(&self) -> Duration {
        self.idle_since.elapsed()
    }

    /// Makes it like a fresh session; `false` when it cannot be.
    pub(crate) async fn try_reset(&mut self, uses: u64) -> Result<bool, WireError> {
        if !self.session.is_quiet() {
            return Ok(false);
        }
        // No session has been in the branch since this one was connected.
        if uses == self.uses_at_connect {
            return Ok(true);
        }
        let statements: &[&str] =
            if self.has_served { &["DISCARD ALL", SESSION_DEFAULTS] } else { &[SESSION_DEFAULTS] };
        let mut answers = self.session.batch(statements, ROWS_MAX, BYTES_MAX).await?;
        let defaults = answers.pop().unwrap_or_default();
        Ok(defaults.rows == self.defaults)
    }

    /// Runs a statement for a user.
    pub(crate) fn session(&mut self) -> &mut Session {
        self.has_served = true;
        &mut self.session
    }

    pub(crate) async fn close(self) {
        self.session.close().await;
    }
}

async fn read_defaults(session: &mut Session) -> Result<Vec<Vec<Option<String>>>, WireError> {
    let mut answers = session.batch(&[SESSION_DEFAULTS], ROWS_MAX, BYTES_MAX).await?;
    Ok(answers.pop().unwrap_or_default().rows)
}
