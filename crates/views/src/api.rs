//! The engine's handle, which the HTTP and gRPC frontends and the command line call.

mod advice;
mod change;
mod find;
mod follow;

use std::sync::{Arc, Mutex};

use egret_base::Clock;
use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_base::sync::lock;
use egret_postgres::Databases;
use egret_postgres::databases::SessionPermit;
use prometheus_client::registry::Registry;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::config::ViewsConfig;
use crate::error::ViewsError;
use crate::metrics::Metrics;
use crate::model::{
    Explanation, NewView, ReadableViews, RefreshReport, Verification, ViewName, ViewReport,
};
use crate::store::refresh::outcome::Comparison;
use crate::store::refresh::request::{RefreshOptions, VerifyTrigger};
use crate::store::{explain, history, install, registry, remove, report, requests};
pub use crate::worker::context::TaskPublisher;
use crate::worker::context::ViewsContext;
use crate::worker::create::{create_view, fill_view, remove_unfilled};
use crate::worker::refresh_worker::ViewRefreshWorker;
use crate::worker::refresh_workers::RefreshWorkers;
use crate::worker::watch::watch_databases;
use advice::with_advice;
pub use follow::{FollowMode, Follower};

/// Views are in the databases of one server, which are this tenant's.
const TENANT: &str = "default";

/// Settings and parts that the engine is made of.
pub struct Options {
    /// Settings of the views engine.
    pub config: ViewsConfig,
    /// Databases in which views may be, and their sessions.
    pub databases: Databases,
    /// Source of wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Turns change sets into tasks; none: no change sets become tasks.
    pub task_publisher: Option<TaskPublisher>,
}

/// A view, by its name and database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewRef {
    /// The database that it is in; none: the only one with a view of this name.
    pub database: Option<String>,
    /// Schema and name of the view.
    pub name: ViewName,
}

/// The views of a server. Cheap to clone.
#[derive(Clone)]
pub struct Views {
    pub(crate) inner: Arc<ViewsInner>,
}

pub(crate) struct ViewsInner {
    pub workers: Arc<RefreshWorkers>,
    /// One permit for each follower, `views.followers_max` in all.
    pub followers: Arc<Semaphore>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

impl Views {
    /// An engine for the views in the databases of `options`; registers its metrics.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        let followers = Semaphore::new(options.config.followers_max as usize);
        let context = ViewsContext {
            config: options.config,
            databases: options.databases,
            clock: options.clock,
            metrics: Metrics::new(registry),
            task_publisher: options.task_publisher,
        };
        Self {
            inner: Arc::new(ViewsInner {
                workers: Arc::new(RefreshWorkers::new(context)),
                followers: Arc::new(followers),
                watcher: Mutex::default(),
            }),
        }
    }

    pub(crate) fn context(&self) -> &ViewsContext {
        &self.inner.workers.context
    }

    pub(crate) fn worker(&self, database: &str) -> Arc<ViewRefreshWorker> {
        self.inner.workers.worker(database)
    }

    /// Waits for a permit to work in sessions.
    async fn admit(&self) -> Result<SessionPermit, ViewsError> {
        Ok(self.context().databases.admit(TENANT).await?)
    }

    /// Makes a view and fills it.
    ///
    /// # Errors
    /// [`ViewsError`]: nothing is left then.
    pub async fn create(
        &self,
        database: Option<&str>,
        view: NewView,
    ) -> Result<ViewReport, ViewsError> {
        let mut permit = self.admit().await?;
        let database = self.context().databases.choose(database).await?;
        let worker = self.worker(&database);
        let mut session = worker.session().await?;
        install::install(&mut session.client).await?;
        worker.set_installed();
        let record = create_view(&worker, &mut session, &view, None).await?;
        worker.return_session(session);
        let filled = permit.yield_during(fill_view(&worker, &record)).await;
        if let Err(error) = filled {
            return Err(remove_unfilled(&worker, &record, error).await?);
        }
        worker.announce_change();
        self.inner.workers.databases_changed.notify_one();
        let report = self.report_view(&worker, &view.name).await?;
        Ok(with_advice(&worker, report).await)
    }

    /// Lets roles ask for views from SQL, by `egret.create_view` and the like (`public`: all
    /// roles). Returns the database.
    ///
    /// # Errors
    /// [`ViewsError::Invalid`] for a role that does not exist: nothing is changed then.
    pub async fn allow(
        &self,
        database: Option<&str>,
        roles: &[String],
    ) -> Result<String, ViewsError> {
        let _permit = self.admit().await?;
        let database = self.context().databases.choose(database).await?;
        let worker = self.worker(&database);
        let mut session = worker.session().await?;
        requests::check_roles(&session.client, roles).await?;
        install::install(&mut session.client).await?;
        worker.set_installed();
        requests::grant_requests(&mut session.client, roles).await?;
        worker.return_session(session);
        tracing::info!(database, ?roles, "roles may request views from SQL");
        self.inner.workers.databases_changed.notify_one();
        Ok(database)
    }

    /// Explains the view that a query would make. Creates nothing.
    ///
    /// # Errors
    /// [`ViewsError::Refused`] and the like: why there can be none.
    pub async fn validate(
        &self,
        database: Option<&str>,
        query: &str,
        readable: &ReadableViews,
    ) -> Result<Explanation, ViewsError> {
        let _permit = self.admit().await?;
        let database = self.context().databases.choose(database).await?;
        let worker = self.worker(&database);
        let mut session = worker.session().await?;
        install::install(&mut session.client).await?;
        worker.set_installed();
        let explanation = explain::explain_new_query(&mut session.client, query, readable).await?;
        worker.return_session(session);
        Ok(explanation)
    }

    /// Reports a view, with the indexes that it lacks.
    ///
    /// # Errors
    /// [`ViewsError::NotFound`] and [`ViewsError::Ambiguous`].
    pub async fn show(&self, view_ref: &ViewRef) -> Result<ViewReport, ViewsError> {
        let _permit = self.admit().await?;
        let handle = self.find(view_ref).await?;
        handle.worker.return_session(handle.session);
        let report = self.report_view(&handle.worker, &handle.record.name).await?;
        Ok(with_advice(&handle.worker, report).await)
    }

    async fn report_view(
        &self,
        worker: &ViewRefreshWorker,
        name: &ViewName,
    ) -> Result<ViewReport, ViewsError> {
        let session = worker.session().await?;
        let reports = report::list_reports(&session.client, &worker.database, |view| {
            worker.latest_report(view)
        })
        .await?;
        worker.return_session(session);
        let mut all = reports.into_iter();
        let found = all.find(|report| report.name == *name);
        found.ok_or_else(|| ViewsError::NotFound { name: name.to_string() })
    }

    /// Explains how a view is maintained, stage by stage.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::SourceGone`].
    pub async fn explain(&self, view_ref: &ViewRef) -> Result<Explanation, ViewsError> {
        let _permit = self.admit().await?;
        let mut handle = self.find(view_ref).await?;
        let client = &mut handle.session.client;
        let view = handle.worker.load_view(client, handle.record.id).await?;
        let explanation = explain::explain_view(client, &view).await?;
        handle.worker.return_session(handle.session);
        Ok(explanation)
    }

    /// Refreshes a view, and the other views of its component.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::Failed`] and [`ViewsError::Suspended`].
    pub async fn refresh(&self, view_ref: &ViewRef) -> Result<RefreshReport, ViewsError> {
        self.refresh_with_options(view_ref, RefreshOptions::default()).await
    }

    /// Refreshes a view and reports the plans of the statements, each of which runs twice for that.
    ///
    /// # Errors
    /// Those of [`Self::refresh`].
    pub async fn refresh_explained(&self, view_ref: &ViewRef) -> Result<RefreshReport, ViewsError> {
        let options = RefreshOptions { collects_plans: true, ..RefreshOptions::default() };
        self.refresh_with_options(view_ref, options).await
    }

    async fn refresh_with_options(
        &self,
        view_ref: &ViewRef,
        options: RefreshOptions,
    ) -> Result<RefreshReport, ViewsError> {
        if let Some((worker, record)) = self.cached_record(view_ref) {
            match worker.refresh_record(&record, options).await {
                // The cached view may have been dropped or changed meanwhile: find it again.
                Err(error) if error.can_mean_stale_record() => {}
                result => return Ok(result?.report),
            }
        }
        let permit = self.admit().await?;
        let handle = self.find(view_ref).await?;
        handle.worker.return_session(handle.session);
        // The number of refreshes at a time is bounded, and one that waits for its turn has no
        // session.
        drop(permit);
        let result = handle.worker.refresh_record(&handle.record, options).await?;
        Ok(result.report)
    }

    /// Refreshes a view and compares it with its query.
    ///
    /// # Errors
    /// Those of [`Self::refresh`].
    pub async fn verify(&self, view_ref: &ViewRef) -> Result<Verification, ViewsError> {
        let permit = self.admit().await?;
        let handle = self.find(view_ref).await?;
        handle.worker.return_session(handle.session);
        drop(permit);
        let id = handle.record.id;
        let options = RefreshOptions {
            verified_view: Some((id, VerifyTrigger::Requested)),
            ..RefreshOptions::default()
        };
        let result = handle.worker.refresh_record(&handle.record, options).await?;
        let Some(Comparison { same, missing, extra }) = result.comparison else {
            return Err(ViewsError::Unsupported {
                what: "comparing a view of another role that reads views".to_owned(),
                advice: "compare the views that it reads".to_owned(),
            });
        };
        Ok(Verification { snapshot: result.report.snapshot, same, missing, extra })
    }

    /// The latest refreshes of a view that changed something or failed, newest first.
    ///
    /// # Errors
    /// Those of [`Self::show`].
    pub async fn history(
        &self,
        view_ref: &ViewRef,
        limit: u32,
    ) -> Result<Vec<RefreshReport>, ViewsError> {
        let _permit = self.admit().await?;
        let handle = self.find(view_ref).await?;
        let history =
            history::read_history(&handle.session.client, handle.record.id, limit).await?;
        handle.worker.return_session(handle.session);
        let latest = handle.worker.latest_report(handle.record.id);
        Ok(history::merge_latest(history, latest, limit))
    }

    /// Removes a view.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::InUse`].
    pub async fn drop(&self, view_ref: &ViewRef) -> Result<(), ViewsError> {
        let _permit = self.admit().await?;
        let mut handle = self.find(view_ref).await?;
        let retries = handle.worker.lock_retry_policy();
        remove::remove_view(&mut handle.session.client, &handle.record, retries).await?;
        tracing::info!(database = handle.worker.database, view = %handle.record.name, "dropped a view");
        handle.worker.unload(handle.record.id);
        handle.worker.discard_costs(handle.record.id);
        handle.worker.return_session(handle.session);
        handle.worker.announce_change();
        Ok(())
    }

    /// Removes all that the engine keeps in a database; its views only with `force`. Returns the
    /// database and the number of views that were removed.
    ///
    /// # Errors
    /// [`ViewsError::ViewsRemain`].
    pub async fn uninstall(
        &self,
        database: Option<&str>,
        force: bool,
    ) -> Result<(String, u64), ViewsError> {
        let _permit = self.admit().await?;
        let database = self.context().databases.choose(database).await?;
        let worker = self.worker(&database);
        let mut session = worker.session().await?;
        if install::find_registry_oid(&session.client).await?.is_none() {
            worker.close().await;
            return Ok((database, 0));
        }
        let records = registry::list_records(&session.client).await?;
        if !force && !records.is_empty() {
            return Err(ViewsError::ViewsRemain { database, views: records.len() as i64 });
        }
        let views =
            remove::remove_all_views(&mut session.client, &records, || worker.lock_retry_policy())
                .await?;
        install::uninstall(&mut session.client).await?;
        worker.close().await;
        // The refresh loop of this database finds no views, and ends.
        worker.announce_change();
        Ok((database, views))
    }
}

impl Service for Views {
    fn name(&self) -> &'static str {
        "views"
    }

    /// Starts the watch over databases in the background; the start waits for no view.
    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            let watcher = tokio::spawn(watch_databases(self.inner.workers.clone()));
            *lock(&self.inner.watcher) = Some(watcher);
            Ok(())
        })
    }

    /// Ready when the databases are: the state of single views is in their reports.
    fn ready(&self) -> Readiness {
        self.context().databases.readiness()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.workers.stopping.send_replace(true);
            let watcher = lock(&self.inner.watcher).take();
            if let Some(watcher) = watcher
                && let Err(error) = watcher.await
            {
                tracing::error!(%error, "view watcher stopped with an error");
            }
        })
    }
}
