//! Finds views: in which database one is, and what is there.

use std::sync::Arc;

use egret_base::condition;
use egret_postgres::PostgresError;
use egret_postgres::databases::is_database_missing;

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
    pub(super) async fn report_changed(
        &self,
        handle: ViewHandle,
    ) -> Result<ViewReport, ViewsError> {
        handle.worker.return_session(handle.session);
        self.report_changed_view(&handle.worker, &handle.record).await
    }

    /// Reports a view whose session was given back already; like [`Self::report_changed`].
    pub(super) async fn report_changed_view(
        &self,
        worker: &ViewRefreshWorker,
        record: &Record,
    ) -> Result<ViewReport, ViewsError> {
        worker.unload(record.id);
        worker.announce_change();
        self.report_view(worker, &record.name).await
    }

    /// The views of a database, or of all databases in which sessions can be opened, in order.
    pub async fn list(&self, database: Option<&str>) -> Result<Vec<ViewReport>, ViewsError> {
        Ok(self.list_with_completeness(database).await?.0)
    }

    /// The views as [`Self::list`] has them, and whether every database could be looked into.
    ///
    /// # Errors
    /// Those of [`Self::list`].
    pub async fn list_with_completeness(
        &self,
        database: Option<&str>,
    ) -> Result<(Vec<ViewReport>, bool), ViewsError> {
        let _permit = self.admit().await?;
        let mut reports = Vec::new();
        let (workers, is_complete) = self.list_installed_workers(database).await?;
        for worker in workers {
            let session = worker.session().await?;
            reports.extend(
                report::list_reports(&session.client, &worker.database, |view| {
                    worker.latest_report(view)
                })
                .await?,
            );
            worker.return_session(session);
        }
        Ok((reports, is_complete))
    }

    /// The workers of databases with views, or of the named one, and whether every database could
    /// be looked into.
    pub(super) async fn list_installed_workers(
        &self,
        database: Option<&str>,
    ) -> Result<(Vec<Arc<ViewRefreshWorker>>, bool), ViewsError> {
        let databases = &self.context().databases;
        let names = match database {
            Some(name) => vec![databases.choose(Some(name)).await?],
            None => databases.names().await?,
        };
        let mut is_complete = database.is_some() || databases.closed_names().await?.is_empty();
        let mut all = Vec::new();
        for name in names {
            let worker = self.worker(&name);
            match worker.inspect().await {
                Ok(true) => all.push(worker),
                Ok(false) => {}
                Err(ViewsError::Postgres(error)) if is_database_missing(&error) => {}
                Err(ViewsError::Postgres(PostgresError::NoSession { .. }))
                    if database.is_none() =>
                {
                    is_complete = false;
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
        Ok((all, is_complete))
    }

    /// The cached record of a view; none unless exactly one installed database comes into question.
    pub(super) fn cached_record(
        &self,
        view_ref: &ViewRef,
    ) -> Option<(Arc<ViewRefreshWorker>, Record)> {
        let workers = self.inner.workers.installed_workers(view_ref.database.as_deref());
        let [worker] = &workers[..] else {
            return None;
        };
        let record = worker.catalog.cached_view(&view_ref.name)?;
        Some((worker.clone(), record))
    }

    pub(super) async fn find(&self, view_ref: &ViewRef) -> Result<ViewHandle, ViewsError> {
        // Databases that are known to have views come first: their sessions are open.
        let known_workers = self.inner.workers.installed_workers(view_ref.database.as_deref());
        let is_named = view_ref.database.is_some();
        let (mut handles, mut is_complete) =
            find_in_databases(known_workers, &view_ref.name, is_named).await?;
        if handles.is_empty() {
            // A database in which no session can be opened may have a view of this name.
            let (installed, are_all_inspected) =
                self.list_installed_workers(view_ref.database.as_deref()).await?;
            let (found_handles, are_all_searched) =
                find_in_databases(installed, &view_ref.name, is_named).await?;
            (handles, is_complete) =
                (found_handles, is_complete && are_all_inspected && are_all_searched);
        }
        let name = view_ref.name.to_string();
        match (handles.pop(), handles.is_empty()) {
            (Some(found), true) => Ok(found),
            (Some(last), false) => {
                let all = handles.iter().chain([&last]);
                let databases = all.map(|handle| handle.worker.database.clone()).collect();
                Err(ViewsError::Ambiguous { name, databases })
            }
            (None, _) if is_complete => Err(ViewsError::NotFound { name }),
            (None, _) => Err(ViewsError::DatabaseUnreachable { name }),
        }
    }
}

/// The views of this name in databases, and whether all of these could be looked into. An error of
/// a database that `is_named` is returned.
async fn find_in_databases(
    workers: Vec<Arc<ViewRefreshWorker>>,
    name: &ViewName,
    is_named: bool,
) -> Result<(Vec<ViewHandle>, bool), ViewsError> {
    let mut handles = Vec::new();
    let mut is_complete = true;
    for worker in workers {
        let mut session = match worker.session().await {
            Err(ViewsError::Postgres(error)) if is_database_missing(&error) => {
                worker.close().await;
                continue;
            }
            // The view may be in another database.
            Err(ViewsError::Postgres(PostgresError::NoSession { .. })) if !is_named => {
                is_complete = false;
                continue;
            }
            session => session?,
        };
        let cached_record = match worker.catalog.cached_registry_oid() {
            Some(table) => {
                let Session { client, statements } = &mut session;
                let result = registry::find_record_in_table(client, statements, table, name).await;
                // An error means that the table is gone, which the inspection below establishes.
                result.ok().flatten()
            }
            None => None,
        };
        let found = match cached_record {
            Some(found) => found,
            None if worker.catalog.check_registry(&session.client).await?.is_none() => {
                worker.close().await;
                continue;
            }
            None => {
                let Session { client, statements } = &mut session;
                registry::find_record(client, statements, name).await?
            }
        };
        match found {
            Some(record) => handles.push(ViewHandle { worker, session, record }),
            None => worker.return_session(session),
        }
    }
    Ok((handles, is_complete))
}
