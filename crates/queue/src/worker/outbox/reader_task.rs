//! The task that reads one outbox, and the status that it reports.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use tokio::task::JoinHandle;

/// The reader of one database.
pub(crate) struct ReaderTask {
    pub task: JoinHandle<()>,
    pub(super) status: Arc<Mutex<ReaderStatus>>,
}

/// Status that a reader reports of itself.
pub(super) struct ReaderStatus {
    pub doing: String,
    pub held: BTreeMap<String, String>,
}

impl ReaderTask {
    /// What the reader does, and the queues that it holds with the reasons.
    pub(crate) fn status(&self) -> (String, BTreeMap<String, String>) {
        let status = lock(&self.status);
        (status.doing.clone(), status.held.clone())
    }
}
