//! Whether a server opens sessions for an engine. The first refusal starts a probe, which ends when
//! a session is opened again.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use egret_base::sync::lock;
use tokio_postgres::Config;
use tokio_postgres::error::SqlState;

use crate::error::PostgresError;
use crate::pool;

/// How soon a session is tried again that the server has refused.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Result of the latest attempts to open a session.
#[derive(Default)]
pub(super) struct SessionHealth {
    state: Mutex<HealthState>,
}

#[derive(Default)]
struct HealthState {
    /// A task opens sessions until one of them is not refused.
    is_probing: bool,
    /// Why the probe was refused a session.
    refusal: Option<String>,
}

impl SessionHealth {
    /// Why the server opens no session, where it has refused more than one in a row.
    pub(super) fn refusal(&self) -> Option<String> {
        self.state().refusal.clone()
    }

    fn state(&self) -> MutexGuard<'_, HealthState> {
        lock(&self.state)
    }
}

/// Starts the probe after a refused session. `connection` returns the connection settings, or
/// `None` while the server is known not to be ready.
pub(super) fn start_probe(
    health: &Arc<SessionHealth>,
    connection: impl Fn() -> Option<Config> + Send + 'static,
) {
    let was_probing = std::mem::replace(&mut health.state().is_probing, true);
    if !was_probing {
        tokio::spawn(probe(Arc::downgrade(health), connection));
    }
}

/// Opens sessions, one after the other, until one is not refused or the engine is gone.
async fn probe(health: Weak<SessionHealth>, connection: impl Fn() -> Option<Config> + Send) {
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        if health.strong_count() == 0 {
            return;
        }
        let Some(connection) = connection() else {
            continue;
        };
        let opened = pool::connect(&connection).await;
        let Some(health) = health.upgrade() else {
            return;
        };
        let mut state = health.state();
        match opened {
            Ok(_) => {
                *state = HealthState::default();
                return;
            }
            Err(error) => state.refusal = Some(describe_refusal(&error)),
        }
    }
}

/// An error without the server's own words, which name databases and roles: readiness is shown to
/// all.
fn describe_refusal(error: &PostgresError) -> String {
    let (PostgresError::Server { error, .. }
    | PostgresError::NoHost { error, .. }
    | PostgresError::NoSession { error, .. }) = error
    else {
        return error.to_string();
    };
    match error.code() {
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
            "too many connections, of all or of Egret's role (SQLSTATE 53300)".to_owned()
        }
        Some(code) => format!("the server refuses it (SQLSTATE {})", code.code()),
        None => "the server cannot be reached".to_owned(),
    }
}
