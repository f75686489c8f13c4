//! Removes applied changes in the background, so that no refresh waits for it.

use std::sync::Arc;
use std::time::Instant;

use egret_base::sync::lock;

use super::refresh_worker::ViewRefreshWorker;
use super::session::Session;
use crate::core::capture::TableCapture;
use crate::error::ViewsError;
use crate::store::captures;
use crate::store::refreshable::Refreshable;

impl ViewRefreshWorker {
    /// Removes the applied changes of the tables of these views in the background.
    pub(crate) fn collect_after(self: &Arc<Self>, views: &[i64]) {
        let loaded: Vec<Arc<Refreshable>> = {
            let loaded = lock(&self.loaded);
            views
                .iter()
                .filter_map(|view| loaded.get(view).cloned())
                .collect()
        };
        self.collect(loaded.iter().flat_map(|view| view.captured()));
    }

    /// Removes the applied changes of these tables in the background.
    pub fn collect<'a>(self: &Arc<Self>, tables: impl Iterator<Item = &'a TableCapture>) {
        if self.change_log.add(tables) {
            tokio::spawn(collect_all(self.clone()));
        }
    }

    /// Retries locked tables whose next attempt is due.
    pub(crate) fn collect_locked(self: &Arc<Self>) {
        let due = self.change_log.take_due(Instant::now());
        if !due.is_empty() {
            self.collect(due.iter());
        }
    }
}

async fn collect_all(worker: Arc<ViewRefreshWorker>) {
    let mut returned = None;
    while let Some((tables, session)) = worker.change_log.take_next(returned) {
        returned = match collect(&worker, &tables, session).await {
            Ok(session) => Some(session),
            Err(error) => {
                let database = &worker.database;
                // The rest is removed after the next refresh, or when the timer is due.
                tracing::debug!(%error, database, "cannot delete applied changes");
                None
            }
        };
    }
    if !worker.is_installed() {
        worker.change_log.close_session();
    }
}

async fn collect(
    worker: &ViewRefreshWorker,
    tables: &[TableCapture],
    session: Option<Session>,
) -> Result<Session, ViewsError> {
    let mut session = match session.filter(|session| !session.client.is_closed()) {
        Some(session) => session,
        None => worker.session().await?,
    };
    let recording = worker.context.config.recording();
    let Session { client, statements } = &mut session;
    let mut failed = Ok(());
    for captured in tables {
        let wait = worker.change_log.lock_wait(captured.id);
        let forgotten =
            captures::delete_applied(client, statements, captured, recording, wait).await;
        // An error of one table, such as a dropped one, does not keep the others from being
        // processed.
        match forgotten {
            Ok(space) => worker
                .change_log
                .note_outcome(captured, space, Instant::now()),
            Err(error) => failed = Err(error),
        }
    }
    failed.map(|()| session)
}
