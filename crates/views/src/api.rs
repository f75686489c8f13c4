//! The engine's handle: what the doors call.

mod advice;
mod change;
mod find;
mod follow;
mod make;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use egret_base::Clock;
use egret_base::lifecycle::{BoxFuture, Readiness, Service, StartError};
use egret_postgres::Databases;
use egret_postgres::databases::SessionPermit;
use prometheus_client::registry::Registry;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;

use crate::config::ViewsConfig;
use crate::error::ViewsError;
use crate::metrics::Metrics;
use crate::model::{
    Explanation, NewView, ReadableViews, RefreshReport, Verification, ViewName, ViewReport,
};
use crate::store::refresh::{Besides, Compares};
use crate::store::registry;
use crate::store::requests;
use crate::store::{explain, history, install, remove, report};
pub use crate::worker::feed::TasksTo;
use crate::worker::keeper::{Keeper, Shared, lock};
use crate::worker::watch_over;
use advice::advised;
pub(crate) use follow::usual;
pub use follow::{Begins, Follower};
pub(crate) use make::{fill, make, refreshed, withdraw};

/// Views are in the databases of one server, which are this tenant's.
const TENANT: &str = "default";

/// What the engine is made of.
pub struct Options {
    /// The settings.
    pub config: ViewsConfig,
    /// Where views may be.
    pub databases: Databases,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// Who makes tasks of changes; none: nobody does.
    pub tasks: Option<TasksTo>,
}

/// Which view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The database that it is in; none: the only one with a view of this name.
    pub database: Option<String>,
    /// Its name.
    pub name: ViewName,
}

/// The views of a server. Cheap to clone.
#[derive(Clone)]
pub struct Views {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub shared: Arc<Shared>,
    keepers: Mutex<BTreeMap<String, Arc<Keeper>>>,
    /// A database may have its first view.
    pub changed: Notify,
    /// Places for those who follow views.
    pub followers: Arc<Semaphore>,
    pub stopping: watch::Sender<bool>,
    watcher: Mutex<Option<JoinHandle<()>>>,
}

impl Views {
    /// The views in these databases.
    pub fn new(options: Options, registry: &mut Registry) -> Self {
        let followers = Semaphore::new(options.config.followers_max as usize);
        let shared = Shared {
            config: options.config,
            databases: options.databases,
            clock: options.clock,
            metrics: Metrics::new(registry),
            tasks: options.tasks,
        };
        Self {
            inner: Arc::new(Inner {
                shared: Arc::new(shared),
                keepers: Mutex::default(),
                changed: Notify::new(),
                followers: Arc::new(followers),
                stopping: watch::Sender::new(false),
                watcher: Mutex::default(),
            }),
        }
    }

    /// Lets a request work in sessions.
    async fn admit(&self) -> Result<SessionPermit, ViewsError> {
        Ok(self.inner.shared.databases.admit(TENANT).await?)
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
        let database = self.inner.shared.databases.choose(database).await?;
        let keeper = self.keeper(&database);
        let mut session = keeper.session().await?;
        install::install(&mut session.client).await?;
        keeper.set_installed();
        let made = make(&keeper, &mut session, &view, None).await?;
        keeper.give_back(session);
        let filled = permit.yield_during(fill(&keeper, &made)).await;
        if let Err(unfilled) = filled {
            return Err(withdraw(&keeper, &made, unfilled).await?);
        }
        keeper.tell();
        self.inner.changed.notify_one();
        let report = self.show_of(&keeper, &view.name).await?;
        Ok(advised(&keeper, report).await)
    }

    /// Lets roles ask for views from SQL, by `egret.create_view` and the like (`public`: everybody). Returns the database.
    ///
    /// # Errors
    /// [`ViewsError::Invalid`] for a role that is not there, of which nothing is changed; the server's.
    pub async fn allow(
        &self,
        database: Option<&str>,
        roles: &[String],
    ) -> Result<String, ViewsError> {
        let _permit = self.admit().await?;
        let database = self.inner.shared.databases.choose(database).await?;
        let keeper = self.keeper(&database);
        let mut session = keeper.session().await?;
        requests::check_roles(&session.client, roles).await?;
        install::install(&mut session.client).await?;
        keeper.set_installed();
        requests::grant(&mut session.client, roles).await?;
        keeper.give_back(session);
        tracing::info!(database, ?roles, "views may be asked for from SQL");
        self.inner.changed.notify_one();
        Ok(database)
    }

    /// What a view of a query would be. Nothing is left of it.
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
        let database = self.inner.shared.databases.choose(database).await?;
        let keeper = self.keeper(&database);
        let mut session = keeper.session().await?;
        install::install(&mut session.client).await?;
        keeper.set_installed();
        let explanation = explain::of_query(&mut session.client, query, readable).await?;
        keeper.give_back(session);
        Ok(explanation)
    }

    /// One view.
    ///
    /// # Errors
    /// [`ViewsError::NotFound`] and [`ViewsError::Ambiguous`]; the server's.
    pub async fn show(&self, at: &Address) -> Result<ViewReport, ViewsError> {
        let _permit = self.admit().await?;
        let found = self.find(at).await?;
        found.keeper.give_back(found.session);
        let report = self.show_of(&found.keeper, &found.record.name).await?;
        Ok(advised(&found.keeper, report).await)
    }

    async fn show_of(&self, keeper: &Keeper, name: &ViewName) -> Result<ViewReport, ViewsError> {
        let session = keeper.session().await?;
        let all = report::reports(&session.client, &keeper.database, |view| {
            keeper.latest(view)
        })
        .await?;
        keeper.give_back(session);
        let mut all = all.into_iter();
        let found = all.find(|report| report.name == *name);
        found.ok_or_else(|| ViewsError::NotFound {
            name: name.to_string(),
        })
    }

    /// How a view is maintained.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::SourceGone`].
    pub async fn explain(&self, at: &Address) -> Result<Explanation, ViewsError> {
        let _permit = self.admit().await?;
        let mut found = self.find(at).await?;
        let client = &mut found.session.client;
        let view = found.keeper.loaded(client, found.record.id).await?;
        let explanation = explain::of_view(client, &view).await?;
        found.keeper.give_back(found.session);
        Ok(explanation)
    }

    /// Brings a view up to date, and those that are refreshed with it.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::Failed`] when it could not be.
    pub async fn refresh(&self, at: &Address) -> Result<RefreshReport, ViewsError> {
        self.refresh_and(at, Besides::default()).await
    }

    /// The same, with the plans of its statements, each of which is done twice for that.
    ///
    /// # Errors
    /// Those of [`Self::refresh`].
    pub async fn refresh_explained(&self, at: &Address) -> Result<RefreshReport, ViewsError> {
        let besides = Besides {
            is_explained: true,
            ..Besides::default()
        };
        self.refresh_and(at, besides).await
    }

    async fn refresh_and(
        &self,
        at: &Address,
        besides: Besides,
    ) -> Result<RefreshReport, ViewsError> {
        if let Some((keeper, record)) = self.known(at) {
            match refreshed(&keeper, &record, besides).await {
                // It may be another by now, or going on.
                Err(error) if error.may_be_of_another() => {}
                done => return Ok(done?.0),
            }
        }
        let permit = self.admit().await?;
        let found = self.find(at).await?;
        found.keeper.give_back(found.session);
        // Few refreshes run at a time as it is; those that wait for one have no session.
        drop(permit);
        let (report, _) = refreshed(&found.keeper, &found.record, besides).await?;
        Ok(report)
    }

    /// Brings a view up to date and compares it with its query.
    ///
    /// # Errors
    /// Those of [`Self::refresh`].
    pub async fn verify(&self, at: &Address) -> Result<Verification, ViewsError> {
        let permit = self.admit().await?;
        let found = self.find(at).await?;
        found.keeper.give_back(found.session);
        drop(permit);
        let id = found.record.id;
        let besides = Besides {
            compared: Some((id, Compares::Asked)),
            ..Besides::default()
        };
        let (report, compared) = refreshed(&found.keeper, &found.record, besides).await?;
        let Some((same, missing, extra)) = compared else {
            return Err(ViewsError::Unsupported {
                what: "a comparison of a view of another role that reads views".to_owned(),
                advice: "compare the views that it reads".to_owned(),
            });
        };
        Ok(Verification {
            snapshot: report.snapshot,
            same,
            missing,
            extra,
        })
    }

    /// The latest refreshes of a view that did something, the last first.
    ///
    /// # Errors
    /// Those of [`Self::show`].
    pub async fn history(
        &self,
        at: &Address,
        limit: u32,
    ) -> Result<Vec<RefreshReport>, ViewsError> {
        let _permit = self.admit().await?;
        let found = self.find(at).await?;
        let history = history::history(&found.session.client, found.record.id, limit).await?;
        found.keeper.give_back(found.session);
        let latest = found.keeper.latest(found.record.id);
        Ok(history::with_latest(history, latest, limit))
    }

    /// Removes a view.
    ///
    /// # Errors
    /// Those of [`Self::show`]; [`ViewsError::InUse`].
    pub async fn drop(&self, at: &Address) -> Result<(), ViewsError> {
        let _permit = self.admit().await?;
        let mut found = self.find(at).await?;
        let patience = found.keeper.patience();
        remove::remove(&mut found.session.client, &found.record, patience).await?;
        tracing::info!(database = found.keeper.database, view = %found.record.name, "a view is dropped");
        found.keeper.unload(found.record.id);
        found.keeper.forget_costs(found.record.id);
        found.keeper.give_back(found.session);
        found.keeper.tell();
        Ok(())
    }

    /// Removes all that the engine keeps in a database, its views with `force` only. Returns the database, and how many
    /// views went.
    ///
    /// # Errors
    /// [`ViewsError::Installed`]; the server's.
    pub async fn uninstall(
        &self,
        database: Option<&str>,
        force: bool,
    ) -> Result<(String, u64), ViewsError> {
        let _permit = self.admit().await?;
        let database = self.inner.shared.databases.choose(database).await?;
        let keeper = self.keeper(&database);
        let mut session = keeper.session().await?;
        if install::is_installed(&session.client).await?.is_none() {
            keeper.leave().await;
            return Ok((database, 0));
        }
        let records = registry::records(&session.client).await?;
        if !force && !records.is_empty() {
            return Err(ViewsError::Installed {
                database,
                views: records.len() as i64,
            });
        }
        let views = remove::remove_all(&mut session.client, &records, || keeper.patience()).await?;
        install::uninstall(&mut session.client).await?;
        keeper.leave().await;
        // Its loop finds nothing to keep, and ends.
        keeper.tell();
        Ok((database, views))
    }
}

impl Service for Views {
    fn name(&self) -> &'static str {
        "views"
    }

    /// Views are looked for and kept behind; nothing waits for them.
    fn start(&self) -> BoxFuture<'_, Result<(), StartError>> {
        Box::pin(async move {
            let watcher = tokio::spawn(watch_over(self.clone()));
            *lock(&self.inner.watcher) = Some(watcher);
            Ok(())
        })
    }

    /// The list of views says what one of them lacks; without the server none can be looked at.
    fn ready(&self) -> Readiness {
        self.inner.shared.databases.readiness()
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.inner.stopping.send_replace(true);
            let watcher = lock(&self.inner.watcher).take();
            if let Some(watcher) = watcher
                && let Err(error) = watcher.await
            {
                tracing::error!(%error, "the watch over views ended badly");
            }
        })
    }
}
