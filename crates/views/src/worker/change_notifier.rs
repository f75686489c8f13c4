//! Notification of the followers of a database's views, and the session in which they read.

use std::time::{Duration, Instant};

use tokio::sync::{Mutex, watch};

use super::session::Session;

/// How often followers look for change sets unasked: another Egret process may have written them.
pub const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Wakes the followers of a database's views.
pub struct ChangeNotifier {
    change_signal: watch::Sender<()>,
    /// Shared by all followers: each read is short.
    pub(super) session: Mutex<Option<Session>>,
    /// When change sets past their retention were removed last.
    pub(super) expired_deleted_at: std::sync::Mutex<Instant>,
}

impl Default for ChangeNotifier {
    fn default() -> Self {
        Self {
            change_signal: watch::Sender::new(()),
            session: Mutex::default(),
            expired_deleted_at: std::sync::Mutex::new(Instant::now()),
        }
    }
}

impl ChangeNotifier {
    /// Wakes the followers: there may be a new change set, or a view is gone.
    pub fn notify(&self) {
        self.change_signal.send_replace(());
    }

    /// Closes the session after a read that is under way.
    pub(super) async fn close_session(&self) {
        *self.session.lock().await = None;
    }

    /// Marked as changed whenever there may be a new change set.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.change_signal.subscribe()
    }
}
