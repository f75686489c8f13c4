//! Finds views: in which database one is, and what is there.

use std::sync::Arc;

use egret_base::condition;
use egret_postgres::PostgresError;
use egret_postgres::databases::is_gone;

use super::{ViewRef, Views};
use crate::error::ViewsError;
use crate::model::{ViewName, ViewReport};
use crate::store::record::Record;
use crate::store::{registry, report};
use crate::worker::refresh_worker::ViewRefreshWorker;
use crate::worker::session::Session;

/// A view that was found, with a session in its database.
pub(super) struct ViewHandle {
    pub worker: Arc<ViewRefreshWorker>,
    pub session: Session,
    pub record: Record,
}

impl Views {
    /// Reports a view after an alteration, and discards what its worker has cached of it.
    pub(super) async fn report_changed(&self, found: ViewHandle) -> Result<ViewReport, ViewsError> {
        found.worker.return_session(found.session);
        self.report_changed_view(&found.worker, &found.record).await
    }

    /// Reports a view whose session was given back already; like [`Self::report_changed`].
    pub(super) async fn report_changed_view(
        &self,
        worker: &ViewRefreshWorker,
        record: &Record,
    ) -> Result<ViewReport, ViewsError> {
        worker.unload(record.id);
        worker.announce_change();
        self.show_of(worker, &record.name).await
    }

    /// The views of a database, or of all databases in which sessions can be opened, in order.
    pub async fn list(&self, database: Option<&str>) -> Result<Vec<ViewReport>, ViewsError> {
        Ok(self.list_known(database).await?.0)
    }

    /// The views as [`Self::list`] has them, and whether every database could be looked into.
    ///
    /// # Errors
    /// Those of [`Self::list`].
    pub async fn list_known(
        &self,
        database: Option<&str>,
    ) -> Result<(Vec<ViewReport>, bool), ViewsError> {
        let _permit = self.admit().await?;
        let mut all = Vec::new();
        let (workers, are_all) = self.installed(database).await?;
        for worker in workers {
            let session = worker.session().await?;
            all.extend(
                report::reports(&session.client, &worker.database, |view| {
                    worker.latest(view)
                })
                .await?,
            );
            worker.return_session(session);
        }
        Ok((all, are_all))
    }

    /// The workers of databases with views, or of the named one, and whether every database could
    /// be looked into.
    pub(super) async fn installed(
        &self,
        database: Option<&str>,
    ) -> Result<(Vec<Arc<ViewRefreshWorker>>, bool), ViewsError> {
        let databases = &self.context().databases;
        let names = match database {
            Some(name) => vec![databases.choose(Some(name)).await?],
            None => databases.names().await?,
        };
        let mut are_known = database.is_some() || databases.closed().await?.is_empty();
        let mut all = Vec::new();
        for name in names {
            let worker = self.worker(&name);
            match worker.inspect().await {
                Ok(true) => all.push(worker),
                Ok(false) => {}
                Err(ViewsError::Postgres(error)) if is_gone(&error) => {}
                Err(ViewsError::Postgres(PostgresError::NoSession { .. }))
                    if database.is_none() =>
                {
                    are_known = false;
                }
                // A schema `egret` that Egret did not create is not read: it holds no view of
                // Egret's.
                Err(ViewsError::Postgres(error @ PostgresError::ForeignSchema { .. }))
                    if database.is_none() =>
                {
                    let message = "the views of a database are ignored";
                    condition::occur("views_schema_foreign", &worker.database, &error, message);
                }
                // Other errors are returned: to skip the database would hide its views.
                Err(error) => return Err(error),
            }
        }
        Ok((all, are_known))
    }

    /// The cached record of a view; none unless exactly one installed database comes into question.
    pub(super) fn cached(&self, at: &ViewRef) -> Option<(Arc<ViewRefreshWorker>, Record)> {
        let workers = self.inner.workers.installed(at.database.as_deref());
        let [worker] = &workers[..] else {
            return None;
        };
        let record = worker.catalog.view_named(&at.name)?;
        Some((worker.clone(), record))
    }

    pub(super) async fn find(&self, at: &ViewRef) -> Result<ViewHandle, ViewsError> {
        // Databases that are known to have views come first: their sessions are open.
        let known = self.inner.workers.installed(at.database.as_deref());
        let is_named = at.database.is_some();
        let (mut all, mut are_known) = find_in(known, &at.name, is_named).await?;
        if all.is_empty() {
            // A database in which no session can be opened may have a view of this name.
            let (installed, are_all) = self.installed(at.database.as_deref()).await?;
            let (found, are_reached) = find_in(installed, &at.name, is_named).await?;
            (all, are_known) = (found, are_known && are_all && are_reached);
        }
        let name = at.name.to_string();
        match (all.pop(), all.is_empty()) {
            (Some(found), true) => Ok(found),
            (Some(last), false) => {
                let all = all.iter().chain([&last]);
                let databases = all.map(|found| found.worker.database.clone()).collect();
                Err(ViewsError::Ambiguous { name, databases })
            }
            (None, _) if are_known => Err(ViewsError::NotFound { name }),
            (None, _) => Err(ViewsError::NotKnown { name }),
        }
    }
}

/// The views of this name in databases, and whether all of these could be looked into. An error of
/// a database that `is_named` is returned.
async fn find_in(
    workers: Vec<Arc<ViewRefreshWorker>>,
    name: &ViewName,
    is_named: bool,
) -> Result<(Vec<ViewHandle>, bool), ViewsError> {
    let mut all = Vec::new();
    let mut are_reached = true;
    for worker in workers {
        let mut session = match worker.session().await {
            Err(ViewsError::Postgres(error)) if is_gone(&error) => {
                worker.close().await;
                continue;
            }
            // The view may be in another database.
            Err(ViewsError::Postgres(PostgresError::NoSession { .. })) if !is_named => {
                are_reached = false;
                continue;
            }
            session => session?,
        };
        let found = match worker.catalog.table() {
            Some(table) => {
                let Session { client, statements } = &mut session;
                let found = registry::find_in(client, statements, table, name).await;
                // An error means that the table is gone, which the inspection below establishes.
                found.ok().flatten()
            }
            None => None,
        };
        let found = match found {
            Some(found) => found,
            None if worker.catalog.inspect(&session.client).await?.is_none() => {
                worker.close().await;
                continue;
            }
            None => {
                let Session { client, statements } = &mut session;
                registry::find(client, statements, name).await?
            }
        };
        match found {
            Some(record) => all.push(ViewHandle {
                worker,
                session,
                record,
            }),
            None => worker.return_session(session),
        }
    }
    Ok((all, are_reached))
}
