//! Executes requests that roles have made from SQL.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::create::{create_view, fill_view, remove_unfilled};
use super::refresh_worker::ViewRefreshWorker;
use super::session::Session;
use crate::error::ViewsError;
use crate::store::refresh::request::RefreshOptions;
use crate::store::requests::{Request, RequestOp, finish_request, list_open_requests};
use crate::store::{registry, remove};

/// How often requests are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Pause after an error.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Executes the requests of a database until the engine stops.
pub async fn run(worker: Arc<ViewRefreshWorker>, mut stopping: watch::Receiver<bool>) {
    while !*stopping.borrow() {
        let wait = match execute_open_requests(&worker).await {
            Ok(()) => POLL_INTERVAL,
            Err(error) => {
                let database = &worker.database;
                tracing::debug!(%error, database, "cannot read the requests for views");
                RETRY_DELAY
            }
        };
        tokio::select! {
            _ = stopping.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Executes the waiting requests. The error of a request is stored with it.
async fn execute_open_requests(worker: &Arc<ViewRefreshWorker>) -> Result<(), ViewsError> {
    let mut session = worker.session().await?;
    let requests = list_open_requests(&session.client, &mut session.statements).await?;
    for request in &requests {
        let outcome = execute_request(worker, &mut session, request).await;
        let error = outcome.err().map(|error| error.to_string());
        finish_request(&session.client, request.id, error.as_deref()).await?;
        worker.announce_change();
    }
    worker.return_session(session);
    Ok(())
}

async fn execute_request(
    worker: &Arc<ViewRefreshWorker>,
    session: &mut Session,
    request: &Request,
) -> Result<(), ViewsError> {
    let name = match &request.op {
        RequestOp::Create(view, resolved) => {
            let record = create_view(worker, session, view, Some(resolved)).await?;
            return match fill_view(worker, &record).await {
                Ok(()) => Ok(()),
                Err(error) => Err(remove_unfilled(worker, &record, error).await?),
            };
        }
        RequestOp::Invalid(reason) => {
            return Err(ViewsError::Invalid { what: "view", reason: reason.clone() });
        }
        RequestOp::Drop(name) | RequestOp::Refresh(name) => name,
    };
    let Session { client, statements } = &mut *session;
    let record = registry::find_record(client, statements, name)
        .await?
        .ok_or_else(|| ViewsError::NotFound { name: name.to_string() })?;
    let id = record.id;
    match &request.op {
        RequestOp::Drop(_) => {
            remove::remove_view(&mut session.client, &record, worker.lock_retry_policy()).await?;
            worker.unload(id);
            worker.discard_costs(id);
        }
        _ => _ = worker.refresh_record(&record, RefreshOptions::default()).await?,
    }
    Ok(())
}
