//! Refreshes the component of a view: the views that read each other, in one transaction.
//!
//! The steps, in order:
//!
//! 1. [`ViewRefreshWorker::refresh`] waits for a permit, takes a session, and repeats an attempt
//!    that failed with a transient error.
//! 2. `component` finds the records of the component in the catalog cache.
//! 3. `load_component` loads its views; one that cannot be loaded is suspended.
//! 4. A [`RefreshRequest`] for these views goes to [`refresh::refresh`], which returns an outcome
//!    for each of them.
//! 5. `follow_up` turns outcomes into results: it notes costs, metrics and failures, and wakes
//!    followers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use egret_base::sync::lock;

use super::refresh_result::{RefreshResult, RefreshResults};
use super::refresh_worker::ViewRefreshWorker;
use super::session::Session;
use crate::core::scheduling::{Member, components};
use crate::core::strategy::CostModel;
use crate::error::ViewsError;
use crate::model::State;
use crate::store::record::Record;
use crate::store::refresh::request::{RefreshOptions, RefreshRequest, VerifyTrigger};
use crate::store::refreshable::Refreshable;
use crate::store::{refresh, registry};

/// Maximum number of attempts at a refresh that fails with a transient error.
const ATTEMPTS: u32 = 4;

impl ViewRefreshWorker {
    /// Refreshes a component that is due. Every `verify_every`th refresh compares one of its views
    /// with its query.
    ///
    /// # Errors
    /// Those of [`Self::refresh`].
    pub(crate) async fn refresh_due(
        self: &Arc<Self>,
        views: &[i64],
        number: u64,
    ) -> Result<RefreshResults, ViewsError> {
        let every = u64::from(self.context.config.verify_every);
        let turn = number.checked_div(every).unwrap_or(0) as usize;
        let is_turn = every > 0 && number.is_multiple_of(every);
        let compared = views.get(turn % views.len().max(1)).copied();
        let first = views.first().copied().unwrap_or_default();
        let compared = compared
            .filter(|_| is_turn)
            .map(|view| (view, VerifyTrigger::Sampled));
        let options = RefreshOptions {
            compared,
            is_explained: false,
        };
        let results = self.refresh(first, options).await?;
        for (view, result) in &results {
            let differing = result
                .comparison
                .map_or(0, |rows| rows.missing + rows.extra);
            if differing > 0 {
                let session = self.session().await?;
                registry::request_rebuild(&session.client, *view).await?;
                self.return_session(session);
                self.context.metrics.drifts.inc();
                let database = &self.database;
                tracing::error!(
                    database,
                    view,
                    differing,
                    "a view differs from its query: rebuilding it"
                );
            }
        }
        Ok(results)
    }

    /// Refreshes a view on request, with its component.
    ///
    /// # Errors
    /// [`ViewsError::Failed`] and [`ViewsError::Suspended`].
    pub(crate) async fn refresh_record(
        self: &Arc<Self>,
        record: &Record,
        options: RefreshOptions,
    ) -> Result<RefreshResult, ViewsError> {
        let name = record.name.to_string();
        if record.state == State::Suspended {
            return Err(ViewsError::Suspended {
                name,
                reason: record.reason.clone().unwrap_or_default(),
            });
        }
        let mut results = self.refresh(record.id, options).await?;
        let Some(result) = results.remove(&record.id) else {
            return Err(ViewsError::Suspended {
                name,
                reason: "a view that it reads is suspended".to_owned(),
            });
        };
        match result.report.error {
            Some(reason) => Err(ViewsError::Failed {
                name,
                reason,
                is_suspended: self.is_suspended(record.id).await,
            }),
            None => Ok(result),
        }
    }

    /// Whether a view is suspended by now; false if the registry cannot be read.
    async fn is_suspended(&self, view: i64) -> bool {
        let Ok(session) = self.session().await else {
            return false;
        };
        let Ok(record) = registry::record_of(&session.client, view).await else {
            return false;
        };
        self.return_session(session);
        record.state == State::Suspended
    }

    /// Refreshes the component of a view, with the options in the same transaction.
    ///
    /// # Errors
    /// [`ViewsError`] if none of them could be refreshed.
    pub async fn refresh(
        self: &Arc<Self>,
        view: i64,
        options: RefreshOptions,
    ) -> Result<RefreshResults, ViewsError> {
        let _permit = self.parallel.acquire().await;
        let mut session = self.session().await?;
        let mut retries = self.lock_retry_policy();
        let name = lock(&self.loaded)
            .get(&view)
            .map(|loaded| loaded.record.name.clone());
        for attempt in 1.. {
            let is_last = attempt >= ATTEMPTS;
            match self.attempt(&mut session, view, options, is_last).await {
                Err(error) if !is_last && (error.is_passing() || error.may_be_of_another()) => {
                    self.prepare_retry(&session.client, &error).await?;
                    if error.may_be_of_another()
                        && self.is_another(&mut session, view, name.as_ref()).await?
                    {
                        return Err(error);
                    }
                }
                Err(error) if retries.may_retry(&error).await => {}
                Err(error) => return Err(self.with_limit(error)),
                Ok(results) => {
                    self.return_session(session);
                    return Ok(results);
                }
            }
        }
        Err(ViewsError::SourceChanged)
    }

    async fn attempt(
        self: &Arc<Self>,
        session: &mut Session,
        view: i64,
        options: RefreshOptions,
        is_last: bool,
    ) -> Result<RefreshResults, ViewsError> {
        let at_ms = self.context.clock.now().as_millis_unsigned() as i64;
        let begun = Instant::now();
        let table = self.catalog.table_now(&session.client).await?;
        self.note_table(table);
        let records = self.component(session, view).await?;
        let (loaded, mut results) = self.load_component(session, &records, at_ms).await?;
        if loaded.is_empty() {
            return Ok(results);
        }
        let views: Vec<&Refreshable> = loaded.iter().map(AsRef::as_ref).collect();
        let costs = self.take_costs(&views);
        let expects_changes =
            |view: &&Refreshable| costs.get(&view.record.id).is_some_and(CostModel::expects);
        let request = RefreshRequest {
            views: &views,
            options: RefreshOptions {
                compared: options
                    .compared
                    .filter(|(view, trigger)| may_compare(&views, *view, *trigger)),
                ..options
            },
            costs: &costs,
            at_ms,
            begun,
            history_max: Some(self.context.config.history_max),
            limits: self.context.config.limits(),
            table,
            is_expected: views.iter().any(expects_changes),
        };
        let Session { client, statements } = session;
        let of_views = match refresh::refresh(client, statements, request).await {
            Ok(outcomes) => {
                self.follow_up(client, &views, outcomes, at_ms, is_last)
                    .await?
            }
            Err(error) => {
                self.follow_up_error(client, &views, error, at_ms, is_last)
                    .await?
            }
        };
        results.extend(of_views);
        Ok(results)
    }

    /// The component of a view in the order of refreshes, without suspended views and those that
    /// read them.
    async fn component(&self, session: &mut Session, view: i64) -> Result<Vec<Record>, ViewsError> {
        let cached = self.catalog.views_with(session, view).await?;
        let component = component_of(&cached, view);
        if component.iter().any(|record| record.id == view) {
            return Ok(component);
        }
        // Another Egret process may have resumed it.
        let current = self.catalog.views(session).await?;
        if current.iter().any(|record| record.id == view) {
            Ok(component_of(&current, view))
        } else {
            Err(ViewsError::NotFound {
                name: view.to_string(),
            })
        }
    }

    /// Loads the views, and suspends those that cannot be loaded.
    async fn load_component(
        &self,
        session: &mut Session,
        records: &[Record],
        at_ms: i64,
    ) -> Result<(Vec<Arc<Refreshable>>, RefreshResults), ViewsError> {
        let mut results = RefreshResults::new();
        let mut views: Vec<Arc<Refreshable>> = Vec::new();
        for record in records {
            let is_loaded = |read: &i64| views.iter().any(|view| view.record.id == *read);
            let mut reads = record.reads.iter().filter_map(|(_, view)| view.as_ref());
            if !reads.all(is_loaded) {
                continue;
            }
            match self.load_view(&mut session.client, record.id).await {
                Ok(view) => views.push(view),
                Err(error) if error.is_lasting() => {
                    // Code that the query calls may have prepared statements in this session: do
                    // not reuse it.
                    session.statements.spoil();
                    let client = &session.client;
                    let result = RefreshResult {
                        report: self.suspend(client, record, at_ms, &error).await?,
                        comparison: None,
                    };
                    results.insert(record.id, result);
                }
                Err(error) => return Err(error),
            }
        }
        Ok((views, results))
    }

    /// The costs that the attempt goes by. A bar on incremental refreshes holds for one attempt.
    fn take_costs(&self, views: &[&Refreshable]) -> BTreeMap<i64, CostModel> {
        let mut learned = lock(&self.costs);
        let costs = learned.clone();
        for view in views {
            if let Some(costs) = learned.get_mut(&view.record.id) {
                costs.is_barred = false;
            }
        }
        costs
    }
}

/// Whether a view is among these, and a comparison with its query would be meaningful.
fn may_compare(views: &[&Refreshable], view: i64, trigger: VerifyTrigger) -> bool {
    views.iter().any(|other| {
        let is_sure = trigger == VerifyTrigger::Requested || other.is_reproducible();
        other.record.id == view && other.can_be_compared() && is_sure
    })
}

/// Selects the component of a view from a list of views: see [`ViewRefreshWorker::component`].
fn component_of(records: &[Record], view: i64) -> Vec<Record> {
    let members: Vec<Member> = records.iter().map(Record::member).collect();
    let mut components = components(&members).into_iter();
    let found = components.find(|component| component.iter().any(|member| member.view == view));
    let mut component: Vec<Record> = Vec::new();
    for member in found.into_iter().flatten() {
        let record = records.iter().find(|record| record.id == member.view);
        let is_selected = |view: &i64| component.iter().any(|record| record.id == *view);
        if let Some(record) = record
            && record.state != State::Suspended
            && member.reads.iter().all(is_selected)
        {
            component.push(record.clone());
        }
    }
    component
}
