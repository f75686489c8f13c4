//! Does what was asked for from SQL.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::keeper::Keeper;
use super::session::Session;
use crate::api::{fill, make, refreshed, withdraw};
use crate::error::ViewsError;
use crate::store::refresh::Besides;
use crate::store::requests::{Asked, Request, done, waiting};
use crate::store::{registry, remove};

/// How often it is looked for what was asked for.
const EVERY: Duration = Duration::from_millis(250);

/// How long it is waited after an interruption.
const AGAIN: Duration = Duration::from_secs(2);

/// Does what is asked for in a database, until everything stops.
pub async fn serve(keeper: Arc<Keeper>, mut stopping: watch::Receiver<bool>) {
    while !*stopping.borrow() {
        let wait = match serve_waiting(&keeper).await {
            Ok(()) => EVERY,
            Err(error) => {
                let database = &keeper.database;
                tracing::debug!(%error, database, "requests for views could not be looked for");
                AGAIN
            }
        };
        tokio::select! {
            _ = stopping.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Does what waits. What a request fails of is remembered with it.
async fn serve_waiting(keeper: &Arc<Keeper>) -> Result<(), ViewsError> {
    let mut session = keeper.session().await?;
    let requests = waiting(&session.client, &mut session.statements).await?;
    for request in &requests {
        let outcome = answer(keeper, &mut session, request).await;
        let error = outcome.err().map(|error| error.to_string());
        done(&session.client, request.id, error.as_deref()).await?;
        keeper.tell();
    }
    keeper.give_back(session);
    Ok(())
}

async fn answer(
    keeper: &Arc<Keeper>,
    session: &mut Session,
    request: &Request,
) -> Result<(), ViewsError> {
    let name = match &request.what {
        Asked::Create(view, resolved) => {
            let made = make(keeper, session, view, Some(resolved)).await?;
            return match fill(keeper, &made).await {
                Ok(()) => Ok(()),
                Err(unfilled) => Err(withdraw(keeper, &made, unfilled).await?),
            };
        }
        Asked::Invalid(reason) => {
            return Err(ViewsError::Invalid {
                what: "view",
                reason: reason.clone(),
            });
        }
        Asked::Drop(name) | Asked::Refresh(name) => name,
    };
    let Session { client, statements } = &mut *session;
    let record = registry::find(client, statements, name).await?;
    let record = record.ok_or_else(|| ViewsError::NotFound {
        name: name.to_string(),
    })?;
    let id = record.id;
    match &request.what {
        Asked::Drop(_) => {
            remove::remove(&mut session.client, &record, keeper.patience()).await?;
            keeper.unload(id);
            keeper.forget_costs(id);
        }
        _ => _ = refreshed(keeper, &record, Besides::default()).await?,
    }
    Ok(())
}
