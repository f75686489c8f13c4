//! What the server does to its tokens beside requests.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::tokens::Tokens;

/// How often times of last use go from memory to `state.db`.
const LAST_USED_INTERVAL: Duration = Duration::from_secs(60);

/// How often it is looked whether tokens have expired.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);

/// Writes times of last use behind the requests' backs, and once more at the end.
pub(super) async fn write_last_used(tokens: Arc<Tokens>, stopping: CancellationToken) {
    loop {
        let last = tokio::select! {
            () = stopping.cancelled() => true,
            () = tokio::time::sleep(LAST_USED_INTERVAL) => false,
        };
        let tokens = tokens.clone();
        let written = tokio::task::spawn_blocking(move || tokens.write_last_used()).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, "times of last use are not written; will try again")
            }
            Err(error) => tracing::error!(%error, "writing times of last use failed"),
        }
        if last {
            return;
        }
    }
}

/// Ends tokens whose time has come, so that what they hold open ends with them.
pub(super) async fn end_expired_tokens(tokens: Arc<Tokens>, stopping: CancellationToken) {
    let mut is_failing = false;
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(EXPIRY_INTERVAL) => {}
        }
        if !tokens.end_expired() {
            continue;
        }
        let tokens = tokens.clone();
        let written = tokio::task::spawn_blocking(move || tokens.write_ends()).await;
        match written {
            Ok(Ok(())) => is_failing = false,
            // One line at the start of the condition: they have ended in memory all the same.
            Ok(Err(error)) if !is_failing => {
                is_failing = true;
                tracing::warn!(%error, "cannot write which tokens have expired; retrying");
            }
            Ok(Err(_)) => {}
            Err(error) => tracing::error!(%error, "writing which tokens have expired panicked"),
        }
    }
}
