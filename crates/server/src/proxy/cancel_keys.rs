//! Maps cancel requests to the branches of their sessions.
//!
//! A cancel request is a connection of its own that names a backend only by its process id and
//! secret, as the client was given them. Process ids are unique on the machine, so the keys of
//! different branches do not collide.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use egret_base::sync::lock;
use egret_postgres::wire::{self, BackendKey};

/// How long a request that matches no session keeps its connection, which counts as one that is not
/// authenticated: with 256 of these for an address, guessing the 32 bits of a known process's
/// secret takes half a year.
const MISMATCH_DELAY: Duration = Duration::from_secs(1);

/// Where a session's server listens.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub socket_dir: PathBuf,
    pub port: u16,
}

#[derive(Default)]
pub(super) struct CancelKeys(Mutex<HashMap<BackendKey, Target>>);

/// Keeps a session's key registered until dropped.
pub(super) struct CancelKeyGuard {
    cancel_keys: Arc<CancelKeys>,
    key: BackendKey,
}

impl CancelKeys {
    pub(super) fn register(self: &Arc<Self>, key: BackendKey, target: Target) -> CancelKeyGuard {
        let mut targets = lock(&self.0);
        targets.insert(key, target);
        CancelKeyGuard { cancel_keys: self.clone(), key }
    }

    /// Passes a request on and returns when the server has acted on it. As in PostgreSQL, the
    /// client is told nothing, not even that the key is wrong.
    pub(super) async fn forward_request(&self, key: BackendKey) {
        let target = {
            let targets = lock(&self.0);
            targets.get(&key).cloned()
        };
        let Some(target) = target else {
            tracing::debug!(pid = key.pid, "a cancel request matches no session");
            // Connections that wait are bounded by address, so guesses are as well.
            tokio::time::sleep(MISMATCH_DELAY).await;
            return;
        };
        if let Err(error) = wire::cancel(&target.socket_dir, target.port, key).await {
            tracing::info!(pid = key.pid, %error, "cannot forward a cancel request");
        }
    }
}

impl Drop for CancelKeyGuard {
    fn drop(&mut self) {
        let mut targets = lock(&self.cancel_keys.0);
        targets.remove(&self.key);
    }
}
