//! Retries over a restart or a failover of the server.

use std::time::Duration;

use egret_base::CodedError;
use tokio_postgres::error::SqlState;

use crate::tls_error;

/// Whether an error says that the connection or the server went away, so that the same work on a
/// new connection may succeed.
///
/// A connection lost in the middle of a commit leaves its outcome unknown: only work that may be
/// repeated (reads, upserts, work guarded by a key) is to be retried on it.
pub fn is_transient(error: &tokio_postgres::Error) -> bool {
    if error.is_closed() {
        return true;
    }
    match error.code() {
        Some(code) => is_transient_code(code),
        // Without an answer of the server it is the connection that failed, unless the driver
        // could not encode or decode a value, or a certificate is refused.
        None => std::error::Error::source(error)
            .and_then(|cause| cause.downcast_ref::<std::io::Error>())
            .is_some_and(|cause| !tls_error::is_refused_certificate(cause)),
    }
}

/// Restarting, shutting down, unreachable, or a standby that was the primary a moment ago.
fn is_transient_code(code: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::TOO_MANY_CONNECTIONS,
    ]
    .contains(code)
        || (code.code().starts_with("08") && *code != SqlState::PROTOCOL_VIOLATION)
}

/// Number of attempts and waits between them.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// The wait after the first attempt; it doubles each time.
    pub first_wait: Duration,
    /// The longest wait between two attempts.
    pub longest_wait: Duration,
}

impl Default for Policy {
    /// Nine attempts over about thirteen seconds: longer than a restart, as long as a failover.
    fn default() -> Self {
        Self {
            attempts: 9,
            first_wait: Duration::from_millis(50),
            longest_wait: Duration::from_secs(5),
        }
    }
}

impl Policy {
    /// The wait after attempt number `attempt`, counted from 1.
    pub fn wait_after(&self, attempt: u32) -> Duration {
        let doublings = attempt.saturating_sub(1).min(20);
        (self.first_wait * 2_u32.pow(doublings)).min(self.longest_wait)
    }
}

/// Runs `work` until it succeeds, fails for good, or the attempts are used up.
///
/// # Errors
/// The last error.
pub async fn retry_transient<T, E: CodedError>(
    policy: Policy,
    mut work: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    for attempt in 1.. {
        match work().await {
            Err(error) if error.retryable() && attempt < policy.attempts => {
                tracing::debug!(%error, attempt, "trying again");
                tokio::time::sleep(policy.wait_after(attempt)).await;
            }
            result => return result,
        }
    }
    unreachable!("the last attempt returns")
}

#[cfg(test)]
mod tests;
