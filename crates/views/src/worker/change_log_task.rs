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
    pub(crate) fn start_gc_of_views(self: &Arc<Self>, views: &[i64]) {
        let loaded: Vec<Arc<Refreshable>> = {
            let loaded = lock(&self.loaded_views);
            views.iter().filter_map(|view| loaded.get(view).cloned()).collect()
        };
        self.start_gc(loaded.iter().flat_map(|view| view.captures()));
    }

    /// Removes the applied changes of these tables in the background.
    pub(crate) fn start_gc<'a>(self: &Arc<Self>, tables: impl Iterator<Item = &'a TableCapture>) {
        if self.change_log.add(tables) {
            tokio::spawn(run_gc(self.clone()));
        }
    }

    /// Retries locked tables whose next attempt is due.
    pub(crate) fn retry_locked_tables(self: &Arc<Self>) {
        let due = self.change_log.take_due(Instant::now());
        if !due.is_empty() {
            self.start_gc(due.iter());
        }
    }
}

async fn run_gc(worker: Arc<ViewRefreshWorker>) {
    let mut kept_session = None;
    while let Some((tables, session)) = worker.change_log.take_next(kept_session) {
        kept_session = match delete_applied_changes(&worker, &tables, session).await {
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

async fn delete_applied_changes(
    worker: &ViewRefreshWorker,
    tables: &[TableCapture],
    session: Option<Session>,
) -> Result<Session, ViewsError> {
    let mut session = match session.filter(|session| !session.client.is_closed()) {
        Some(session) => session,
        None => worker.session().await?,
    };
    let capture_options = worker.context.config.capture_options();
    let Session { client, statements } = &mut session;
    let mut result = Ok(());
    for capture in tables {
        let lock_wait = worker.change_log.lock_wait(capture.id);
        let deleted =
            captures::delete_applied(client, statements, capture, capture_options, lock_wait).await;
        // An error of one table, such as a dropped one, does not keep the others from being
        // processed.
        match deleted {
            Ok(outcome) => worker.change_log.record_outcome(capture, outcome, Instant::now()),
            Err(error) => result = Err(error),
        }
    }
    result.map(|()| session)
}
