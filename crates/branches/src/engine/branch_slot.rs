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
    pub(crate) build: tokio::sync::Mutex<()>,
    pub(crate) live: Mutex<Option<Arc<Postmaster>>>,
    /// The postmaster of a tombstone, to be stopped when its files are deleted.
    pub(crate) doomed: Mutex<Option<Arc<Postmaster>>>,
    /// Connected sessions that wait for a client or a query.
    pub(crate) residents: Mutex<Vec<WarmSession>>,
    /// How many requests have begun to work in the branch.
    pub(crate) uses: AtomicU64,
    pub(crate) sessions: AtomicU32,
    /// The database of each of them, where it is known.
    pub(crate) databases: Mutex<Vec<String>>,
    pub(crate) idle_since: Mutex<Option<Timestamp>>,
    /// Ends of the postmaster that Egret did not ask for.
    pub(crate) restarts: Mutex<RestartHistory>,
    /// Counts the ends of its postmasters; sessions watch it.
    pub(crate) ends: watch::Sender<u64>,
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
            build: tokio::sync::Mutex::new(()),
            live: Mutex::new(None),
            doomed: Mutex::new(None),
            residents: Mutex::default(),
            uses: AtomicU64::new(0),
            sessions: AtomicU32::new(0),
            databases: Mutex::default(),
            idle_since: Mutex::new(Some(now)),
            restarts: Mutex::default(),
            ends: watch::Sender::new(0),
            memory_kills: AtomicU64::new(0),
            notice: Mutex::default(),
            pending_undo: Mutex::default(),
        }
    }

    pub(crate) fn live(&self) -> Option<Arc<Postmaster>> {
        lock(&self.live).clone()
    }

    /// The postmaster, if it has not ended this very moment.
    pub(crate) fn running(&self) -> Option<Arc<Postmaster>> {
        self.live().filter(|postmaster| !postmaster.has_ended())
    }

    pub(crate) fn set_live(&self, postmaster: Arc<Postmaster>) {
        *lock(&self.live) = Some(postmaster);
    }

    /// Sets the notice that is shown with the branch.
    pub(crate) fn note(&self, notice: String) {
        *lock(&self.notice) = Some(notice);
    }

    pub(crate) fn notice(&self) -> Option<String> {
        lock(&self.notice).clone()
    }

    /// Drops the notice: a user has started or reset the branch.
    pub(crate) fn forget_notice(&self) {
        *lock(&self.notice) = None;
    }

    /// Takes the postmaster out and notifies its sessions; its end is then not counted as a crash.
    pub(crate) fn take_live(&self) -> Option<Arc<Postmaster>> {
        let taken = lock(&self.live).take();
        if taken.is_some() {
            self.ends.send_modify(|ends| *ends += 1);
        }
        taken
    }

    /// Drops the sessions that wait; their server is gone or about to go.
    pub(crate) fn forget_residents(&self) {
        lock(&self.residents).clear();
    }
}
