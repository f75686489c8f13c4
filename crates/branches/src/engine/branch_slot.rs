//! State of one branch that lives only in this process: locks, postmaster, sessions.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

use egret_base::Timestamp;
use egret_base::sync::lock;
use egret_postgres::postmaster::Postmaster;
use egret_postgres::supervise::RestartHistory;
use tokio::sync::watch;

use super::pending_undo::PendingUndo;
use super::warm_session::WarmSession;

/// State of one branch in this process: locks, postmaster, sessions.
pub(crate) struct BranchSlot {
    /// Held while the branch's files or postmaster are changed.
    pub(crate) lock: tokio::sync::Mutex<()>,
    /// Held while a template of the branch is built.
    pub(crate) build_lock: tokio::sync::Mutex<()>,
    pub(crate) postmaster: Mutex<Option<Arc<Postmaster>>>,
    /// The postmaster of a tombstone, to be stopped when its files are deleted.
    pub(crate) postmaster_to_stop: Mutex<Option<Arc<Postmaster>>>,
    /// Connected sessions that wait for a client or a query.
    pub(crate) warm_sessions: Mutex<Vec<WarmSession>>,
    /// How many requests have begun to work in the branch.
    pub(crate) uses: AtomicU64,
    pub(crate) sessions: AtomicU32,
    /// The database of each of them, where it is known.
    pub(crate) databases: Mutex<Vec<String>>,
    pub(crate) idle_since: Mutex<Option<Timestamp>>,
    /// Ends of the postmaster that Egret did not ask for.
    pub(crate) restarts: Mutex<RestartHistory>,
    /// Counts the ends of its postmasters; sessions watch it.
    pub(crate) postmaster_ends: watch::Sender<u64>,
    /// Processes of its postmaster that the kernel had killed for memory when they were last
    /// counted.
    pub(crate) memory_kills: AtomicU64,
    /// What Egret has done to the branch without a request, and why; shown with the branch.
    pub(crate) notice: Mutex<Option<String>>,
    /// A reset that failed and is not undone yet.
    pub(crate) pending_undo: Mutex<Option<PendingUndo>>,
}

impl BranchSlot {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            lock: tokio::sync::Mutex::new(()),
            build_lock: tokio::sync::Mutex::new(()),
            postmaster: Mutex::new(None),
            postmaster_to_stop: Mutex::new(None),
            warm_sessions: Mutex::default(),
            uses: AtomicU64::new(0),
            sessions: AtomicU32::new(0),
            databases: Mutex::default(),
            idle_since: Mutex::new(Some(now)),
            restarts: Mutex::default(),
            postmaster_ends: watch::Sender::new(0),
            memory_kills: AtomicU64::new(0),
            notice: Mutex::default(),
            pending_undo: Mutex::default(),
        }
    }

    pub(crate) fn postmaster(&self) -> Option<Arc<Postmaster>> {
        lock(&self.postmaster).clone()
    }

    /// The postmaster, if it has not ended this very moment.
    pub(crate) fn running_postmaster(&self) -> Option<Arc<Postmaster>> {
        self.postmaster().filter(|postmaster| !postmaster.has_ended())
    }

    pub(crate) fn set_postmaster(&self, postmaster: Arc<Postmaster>) {
        *lock(&self.postmaster) = Some(postmaster);
    }

    /// Sets the notice that is shown with the branch.
    pub(crate) fn set_notice(&self, notice: String) {
        *lock(&self.notice) = Some(notice);
    }

    pub(crate) fn notice(&self) -> Option<String> {
        lock(&self.notice).clone()
    }

    /// Drops the notice: a user has started or reset the branch.
    pub(crate) fn clear_notice(&self) {
        *lock(&self.notice) = None;
    }

    /// Takes the postmaster out and notifies its sessions; its end is then not counted as a crash.
    pub(crate) fn take_postmaster(&self) -> Option<Arc<Postmaster>> {
        let taken = lock(&self.postmaster).take();
        if taken.is_some() {
            self.postmaster_ends.send_modify(|ends| *ends += 1);
        }
        taken
    }

    /// Drops the sessions that wait; their server is gone or about to go.
    pub(crate) fn drop_warm_sessions(&self) {
        lock(&self.warm_sessions).clear();
    }
}
