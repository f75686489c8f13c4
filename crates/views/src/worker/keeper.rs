//! The views of one database: loaded, refreshed together with those that read them, and what became of that.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use egret_base::Clock;
use egret_postgres::Databases;
use egret_postgres::tokio_postgres::Client;
use tokio::sync::{Notify, Semaphore};

use crate::config::ViewsConfig;
use crate::core::choose::Costs;
use crate::core::pace::{Member, components};
use crate::error::ViewsError;
use crate::metrics::{Metrics, Outcome};
use crate::model::{RefreshReport, State};
use crate::store::immediate;
use crate::store::load::load;
use crate::store::patience::Patience;
use crate::store::refresh::{self, Besides, Compares, Order, Refreshable, Refreshed};
use crate::store::registry::{self, Record};
use crate::store::restored;
use crate::worker::failures::ViewFaults;
use crate::worker::feed::{Feed, TasksTo};
use crate::worker::known::Known;
use crate::worker::session::Session;
use crate::worker::tidy::Backlog;

/// How often what passes by itself is tried again at once.
const ATTEMPTS: u32 = 4;

/// What all keepers share.
pub struct Shared {
    /// The settings.
    pub config: ViewsConfig,
    /// Where views may be.
    pub databases: Databases,
    /// Wall-clock time.
    pub clock: Arc<dyn Clock>,
    /// What is counted.
    pub metrics: Metrics,
    /// Who makes tasks of changes, where there are queues.
    pub tasks: Option<TasksTo>,
}

/// See the module.
pub struct Keeper {
    /// The database.
    pub database: String,
    /// What all keepers share.
    pub shared: Arc<Shared>,
    /// There may be a new view, or another schedule.
    pub changed: Notify,
    /// Tables of which changes have been read, to be removed where nobody needs them any more.
    pub backlog: Backlog,
    /// Those who follow its views.
    pub feed: Feed,
    /// Whether the database is known to have views.
    pub(super) installed: AtomicBool,
    /// What is known of it for a moment.
    pub known: Known,
    /// Sessions that nobody uses.
    pub(super) idle: Mutex<Vec<Session>>,
    pub(super) loaded: Mutex<BTreeMap<i64, Arc<Refreshable>>>,
    pub(super) costs: Mutex<BTreeMap<i64, Costs>>,
    pub(super) latest: Mutex<BTreeMap<i64, RefreshReport>>,
    /// Components that may be refreshed at a time.
    parallel: Semaphore,
    pub(super) faults: ViewFaults,
}

/// A lock whose holder died is still a lock.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What became of the views of a component.
pub type Reports = BTreeMap<i64, (RefreshReport, Option<(i64, i64, i64)>)>;

impl Keeper {
    /// For a database.
    pub fn new(database: &str, shared: Arc<Shared>) -> Self {
        let parallel = shared.config.refresh_parallel_max.max(1) as usize;
        Self {
            database: database.to_owned(),
            faults: ViewFaults::new(),
            shared,
            changed: Notify::new(),
            backlog: Backlog::default(),
            feed: Feed::default(),
            installed: AtomicBool::new(false),
            known: Known::default(),
            idle: Mutex::default(),
            loaded: Mutex::default(),
            costs: Mutex::default(),
            latest: Mutex::default(),
            parallel: Semaphore::new(parallel),
        }
    }

    /// How long is tried to have locks on tables.
    pub fn patience(&self) -> Patience {
        Patience::new(self.shared.config.lock_timeout.duration())
    }

    /// Whether the database is known to have views.
    pub fn is_installed(&self) -> bool {
        self.installed.load(Ordering::Relaxed)
    }

    /// Notes that the database has the engine's part of schema `egret`.
    pub fn set_installed(&self) {
        self.installed.store(true, Ordering::Relaxed);
    }

    /// Tells that there may be a new view, or another schedule.
    pub fn tell(&self) {
        self.known.give_up();
        self.changed.notify_one();
    }

    /// Has what has been read of the tables of these views removed, soon.
    pub fn tidy_after(self: &Arc<Self>, views: &[i64]) {
        let loaded: Vec<Arc<Refreshable>> = {
            let loaded = lock(&self.loaded);
            views
                .iter()
                .filter_map(|view| loaded.get(view).cloned())
                .collect()
        };
        self.tidy(loaded.iter().flat_map(|view| view.captured()));
    }

    /// The refresh of a view that was done last by this Egret: what is remembered of it may not be there yet.
    pub fn latest(&self, view: i64) -> Option<RefreshReport> {
        lock(&self.latest).get(&view).cloned()
    }

    /// Has a view loaded again when it is next refreshed.
    pub fn unload(&self, view: i64) {
        self.known.give_up();
        lock(&self.loaded).remove(&view);
    }

    /// What refreshes of a view have taken is of no use any more.
    pub fn forget_costs(&self, view: i64) {
        lock(&self.costs).remove(&view);
        lock(&self.latest).remove(&view);
    }

    /// A view as it is refreshed.
    ///
    /// # Errors
    /// [`ViewsError`].
    pub async fn loaded(
        &self,
        client: &mut Client,
        view: i64,
    ) -> Result<Arc<Refreshable>, ViewsError> {
        let known = lock(&self.loaded).get(&view).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        self.settle(client).await?;
        let found = Arc::new(load(client, view).await?);
        lock(&self.loaded).insert(view, found.clone());
        Ok(found)
    }

    /// Makes views of a restored database those of this one.
    ///
    /// # Errors
    /// What the server says.
    pub async fn settle(&self, client: &mut Client) -> Result<(), ViewsError> {
        let recording = self.shared.config.recording();
        if restored::settle(client, recording).await? {
            let database = &self.database;
            tracing::info!(
                database,
                "the database was restored: its views are computed anew"
            );
            lock(&self.loaded).clear();
        }
        Ok(())
    }

    /// Refreshes the component of a view, with what is to be done besides in the same transaction.
    ///
    /// # Errors
    /// [`ViewsError`] when none of them could be refreshed.
    pub async fn refresh(
        self: &Arc<Self>,
        view: i64,
        besides: Besides,
    ) -> Result<Reports, ViewsError> {
        let _permit = self.parallel.acquire().await;
        let mut session = self.session().await?;
        let mut patience = self.patience();
        let name = lock(&self.loaded)
            .get(&view)
            .map(|one| one.record.name.clone());
        for attempt in 1.. {
            let is_last = attempt >= ATTEMPTS;
            match self.attempt(&mut session, view, (besides, is_last)).await {
                Err(error) if !is_last && (error.is_passing() || error.may_be_of_another()) => {
                    self.pass(&session.client, &error).await?;
                    if error.may_be_of_another()
                        && self.is_another(&mut session, view, name.as_ref()).await?
                    {
                        return Err(error);
                    }
                }
                Err(error) if patience.has_more_for(&error).await => {}
                Err(error) => return Err(self.named(error)),
                Ok(reports) => {
                    self.give_back(session);
                    return Ok(reports);
                }
            }
        }
        Err(ViewsError::SourceChanged)
    }

    /// What is to be done before another attempt.
    pub(super) async fn pass(&self, client: &Client, error: &ViewsError) -> Result<(), ViewsError> {
        tracing::debug!(database = self.database, %error, "a refresh is tried again");
        self.known.give_up();
        if error.may_be_of_another() {
            self.known.doubt();
        }
        match error {
            ViewsError::SourceAltered { view } => self.unload(*view),
            ViewsError::DeltaFailed { view, .. } => {
                lock(&self.costs).entry(*view).or_default().is_barred = true;
            }
            ViewsError::Drifted { view, .. } | ViewsError::FannedOut { view, .. } => {
                if matches!(error, ViewsError::FannedOut { .. }) {
                    lock(&self.costs).entry(*view).or_default().fail();
                }
                registry::compute_anew(client, *view).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// The views that are refreshed with one, in their order, without those that are suspended and those that read these.
    async fn component(&self, session: &mut Session, view: i64) -> Result<Vec<Record>, ViewsError> {
        let known = self.known.views_with(session, view).await?;
        let left = kept_with(&known, view);
        if left.iter().any(|record| record.id == view) {
            return Ok(left);
        }
        // Another Egret may have made it active a moment ago.
        let now = self.known.views(session).await?;
        match now.iter().any(|record| record.id == view) {
            true => Ok(kept_with(&now, view)),
            false => Err(ViewsError::NotFound {
                name: view.to_string(),
            }),
        }
    }

    /// Loads these views, and suspends those that cannot be.
    async fn load_all(
        &self,
        session: &mut Session,
        records: &[Record],
        at_ms: i64,
    ) -> Result<(Vec<Arc<Refreshable>>, Reports), ViewsError> {
        let mut reports = Reports::new();
        let mut views: Vec<Arc<Refreshable>> = Vec::new();
        for record in records {
            let is_there = |read: &i64| views.iter().any(|view| view.record.id == *read);
            let mut reads = record.reads.iter().filter_map(|(_, view)| view.as_ref());
            if !reads.all(is_there) {
                continue;
            }
            match self.loaded(&mut session.client, record.id).await {
                Ok(view) => views.push(view),
                Err(error) if error.is_lasting() => {
                    // It is not known what the code of the query has prepared in this session.
                    session.statements.spoil();
                    let client = &session.client;
                    let report = self.suspend(client, record, at_ms, &error).await?;
                    reports.insert(record.id, (report, None));
                }
                Err(error) => return Err(error),
            }
        }
        Ok((views, reports))
    }

    async fn attempt(
        self: &Arc<Self>,
        session: &mut Session,
        view: i64,
        (besides, is_last): (Besides, bool),
    ) -> Result<Reports, ViewsError> {
        let at_ms = self.shared.clock.now().as_millis_unsigned() as i64;
        let costs = lock(&self.costs).clone();
        let mut order = Order {
            costs: &costs,
            besides,
            at_ms,
            begun: Instant::now(),
            history_max: Some(self.shared.config.history_max),
            limits: self.shared.config.limits(),
            table: self.known.table_now(&session.client).await?,
            is_expected: false,
        };
        let records = self.component(session, view).await?;
        let (views, mut reports) = self.load_all(session, &records, at_ms).await?;
        if views.is_empty() {
            return Ok(reports);
        }
        for view in &views {
            if let Some(costs) = lock(&self.costs).get_mut(&view.record.id) {
                costs.is_barred = false;
            }
        }
        let Session { client, statements } = session;
        let borrowed: Vec<&Refreshable> = views.iter().map(AsRef::as_ref).collect();
        let expects = |view: &&Refreshable| costs.get(&view.record.id).is_some_and(Costs::expects);
        order.is_expected = borrowed.iter().any(expects);
        order.besides.compared = besides.compared.filter(|(view, compares)| {
            let mut views = borrowed.iter();
            views.any(|one| {
                let is_sure = *compares == Compares::Asked || one.is_reproducible();
                one.record.id == *view && one.can_be_compared() && is_sure
            })
        });
        let outcomes = refresh::refresh(client, statements, &borrowed, order).await;
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) if error.is_passing() => return Err(error),
            // One of them is gone.
            Err(error) if !is_last && error.may_be_of_another() => {
                for view in &borrowed {
                    self.unload(view.record.id);
                }
                return Err(error);
            }
            // Somebody else refreshes them, or has locked a table.
            Err(error) if error.is_busy() || client.is_closed() => return Err(error),
            Err(error) => {
                let error = self.named(error);
                for view in &borrowed {
                    let report = self.gave_up(client, &view.record, at_ms, &error).await?;
                    reports.insert(view.record.id, (report, None));
                }
                return Ok(reports);
            }
        };
        let of_refreshed = self
            .outcomes(client, (&borrowed, outcomes), (at_ms, is_last))
            .await?;
        reports.extend(of_refreshed);
        Ok(reports)
    }

    /// Refreshes the component of a view as it is due. With one in so many refreshes a view is compared with its query.
    ///
    /// # Errors
    /// Those of [`Self::refresh`].
    pub async fn refresh_due(
        self: &Arc<Self>,
        views: &[i64],
        number: u64,
    ) -> Result<Reports, ViewsError> {
        let every = u64::from(self.shared.config.verify_every);
        let turn = number.checked_div(every).unwrap_or(0) as usize;
        let is_turn = every > 0 && number.is_multiple_of(every);
        let compared = views.get(turn % views.len().max(1)).copied();
        let first = views.first().copied().unwrap_or_default();
        let compared = compared.filter(|_| is_turn);
        let compared = compared.map(|view| (view, Compares::ByTheWay));
        let besides = Besides {
            compared,
            is_explained: false,
        };
        let reports = self.refresh(first, besides).await?;
        for (view, (_, compared)) in &reports {
            let differing = compared.map_or(0, |(_, missing, extra)| missing + extra);
            if differing > 0 {
                let session = self.session().await?;
                registry::compute_anew(&session.client, *view).await?;
                self.give_back(session);
                self.shared.metrics.drifts.inc();
                let database = &self.database;
                tracing::error!(
                    database,
                    view,
                    differing,
                    "a view was not what its query says: it is computed anew"
                );
            }
        }
        Ok(reports)
    }

    /// What is to be done when a view was refreshed, besides.
    pub(super) async fn done(
        self: &Arc<Self>,
        client: &Client,
        view: &Refreshable,
        refreshed: &Refreshed,
    ) {
        if view.record.own_capture().is_some()
            && let Err(error) = immediate::forget_steps(client).await
        {
            tracing::debug!(%error, "steps of statements are removed later");
        }
        {
            let mut costs = lock(&self.costs);
            let costs = costs.entry(view.record.id).or_default();
            match refreshed.way() {
                // What was done twice says nothing of what it takes.
                Some(_) if refreshed.plans.is_some() => {}
                Some(way) => costs.learn(way, refreshed.changes, refreshed.applied_ms),
                None => costs.rest(),
            }
        }
        let Some(way) = refreshed.way() else { return };
        let metrics = &self.shared.metrics;
        let outcome = way.as_str();
        metrics.refreshes.get_or_create(&Outcome { outcome }).inc();
        metrics.refresh_seconds.observe(refreshed.took_ms / 1e3);
        metrics.wait_seconds.observe(refreshed.waited_ms / 1e3);
        metrics.changes.inc_by(refreshed.changes as u64);
        let rows = refreshed.added + refreshed.changed + refreshed.removed;
        metrics.rows.inc_by(rows.unsigned_abs());
        if refreshed.has_told {
            metrics.change_sets.inc();
            self.feed.tell();
        }
        self.tidy(view.captured());
    }
}

/// See [`Keeper::component`].
fn kept_with(records: &[Record], view: i64) -> Vec<Record> {
    let members: Vec<Member> = records.iter().map(member).collect();
    let mut all = components(&members).into_iter();
    let found = all.find(|component| component.iter().any(|member| member.view == view));
    let mut left: Vec<Record> = Vec::new();
    for member in found.into_iter().flatten() {
        let record = records.iter().find(|record| record.id == member.view);
        let is_there = |view: &i64| left.iter().any(|record| record.id == *view);
        if let Some(record) = record
            && record.state != State::Suspended
            && member.reads.iter().all(is_there)
        {
            left.push(record.clone());
        }
    }
    left
}

/// What of a view matters for its component.
pub fn member(record: &Record) -> Member {
    Member {
        view: record.id,
        reads: record.reads.iter().filter_map(|(_, view)| *view).collect(),
        schedule: record.schedule.clone(),
    }
}
