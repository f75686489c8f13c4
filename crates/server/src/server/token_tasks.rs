//! Background tasks of the token store.

use std::sync::Arc;
use std::time::Duration;

use egret_base::Condition;
use tokio_util::sync::CancellationToken;

use crate::tokens::Tokens;

/// How often times of last use go from memory to `state.db`.
const LAST_USED_INTERVAL: Duration = Duration::from_secs(60);

/// How often it is looked whether tokens have expired.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(500);

/// Writes times of last use in the background, and once more at the end.
pub(super) async fn write_last_used(tokens: Arc<Tokens>, stopping: CancellationToken) {
    let unwritable = Condition::new("state_unwritable", "times of last use");
    loop {
        let is_last = tokio::select! {
            () = stopping.cancelled() => true,
            () = tokio::time::sleep(LAST_USED_INTERVAL) => false,
        };
        let tokens = tokens.clone();
        let result = tokio::task::spawn_blocking(move || tokens.write_last_used()).await;
        match result {
            Ok(Ok(())) => unwritable.recover("writing times of last use works again"),
            Ok(Err(error)) => {
                unwritable.fail(&error, "cannot write times of last use of tokens; retrying")
            }
            Err(error) => tracing::error!(%error, "the writer of times of last use panicked"),
        }
        if is_last {
            return;
        }
    }
}

/// Ends tokens whose time has come, so that what they hold open ends with them.
pub(super) async fn end_expired_tokens(tokens: Arc<Tokens>, stopping: CancellationToken) {
    let unwritable = Condition::new("state_unwritable", "expired tokens");
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(EXPIRY_INTERVAL) => {}
        }
        if !tokens.end_expired() {
            // What could not be written is not to be written any more, such as of a revoked token.
            unwritable.end();
            continue;
        }
        let tokens = tokens.clone();
        let result = tokio::task::spawn_blocking(move || tokens.write_expirations()).await;
        match result {
            Ok(Ok(())) => unwritable.recover("writing expired tokens works again"),
            // The tokens have ended in memory nevertheless.
            Ok(Err(error)) => unwritable.fail(&error, "cannot write expired tokens; retrying"),
            Err(error) => tracing::error!(%error, "the writer of expired tokens panicked"),
        }
    }
}
