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
const ATTEMPTS_MAX: u32 = 4;

impl ViewRefreshWorker {
    /// Refreshes a component that is due. Every `verify_every`th refresh compares one of its views
    /// with its query.
    ///
    /// # Errors
    /// Those of [`Self::refresh`].
    pub(crate) async fn refresh_due_component(
        self: &Arc<Self>,
        views: &[i64],
        refresh_number: u64,
    ) -> Result<RefreshResults, ViewsError> {
        let verify_every = u64::from(self.context.config.verify_every);
        let verify_index = refresh_number.checked_div(verify_every).unwrap_or(0) as usize;
        let needs_verification = verify_every > 0 && refresh_number.is_multiple_of(verify_every);
        let verified_view = views.get(verify_index % views.len().max(1)).copied();
        let first_view = views.first().copied().unwrap_or_default();
        let compared =
            verified_view.filter(|_| needs_verification).map(|view| (view, VerifyTrigger::Sampled));
        let options = RefreshOptions { verified_view: compared, collects_plans: false };
        let results = self.refresh(first_view, options).await?;
        for (view, result) in &results {
            let differing = result.comparison.map_or(0, |rows| rows.missing + rows.extra);
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
        let Ok(record) = registry::read_record(&session.client, view).await else {
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
        let _permit = self.refresh_permits.acquire().await;
        let mut session = self.session().await?;
        let mut retries = self.lock_retry_policy();
        let name = lock(&self.loaded_views).get(&view).map(|loaded| loaded.record.name.clone());
        for attempt in 1.. {
            let is_last_attempt = attempt >= ATTEMPTS_MAX;
            match self.attempt_refresh(&mut session, view, options, is_last_attempt).await {
                Err(error)
                    if !is_last_attempt
                        && (error.is_transient() || error.can_mean_stale_record()) =>
                {
                    self.prepare_retry(&session.client, &error).await?;
                    if error.can_mean_stale_record()
                        && self.is_view_replaced(&mut session, view, name.as_ref()).await?
                    {
                        return Err(error);
                    }
                }
                Err(error) if retries.wait_for_retry(&error).await => {}
                Err(error) => return Err(self.map_cancellation(error)),
                Ok(results) => {
                    self.return_session(session);
                    return Ok(results);
                }
            }
        }
        Err(ViewsError::SourceChanged)
    }

    async fn attempt_refresh(
        self: &Arc<Self>,
        session: &mut Session,
        view: i64,
        options: RefreshOptions,
        is_last_attempt: bool,
    ) -> Result<RefreshResults, ViewsError> {
        let at_ms = self.context.clock.now().as_millis_unsigned() as i64;
        let started_at = Instant::now();
        let registry_oid = self.catalog.registry_oid(&session.client).await?;
        self.note_table(registry_oid);
        let records = self.find_component(session, view).await?;
        let (loaded, mut results) = self.load_component(session, &records, at_ms).await?;
        if loaded.is_empty() {
            return Ok(results);
        }
        let views: Vec<&Refreshable> = loaded.iter().map(AsRef::as_ref).collect();
        let costs = self.take_costs(&views);
        let expects_changes = |view: &&Refreshable| {
            costs.get(&view.record.id).is_some_and(CostModel::expects_changes)
        };
        let request = RefreshRequest {
            views: &views,
            options: RefreshOptions {
                verified_view: options
                    .verified_view
                    .filter(|(view, trigger)| can_compare(&views, *view, *trigger)),
                ..options
            },
            costs: &costs,
            at_ms,
            started_at,
            history_max: Some(self.context.config.history_max),
            limits: self.context.config.limits(),
            registry_oid,
            expects_changes: views.iter().any(expects_changes),
        };
        let Session { client, statements } = session;
        let refresh_results = match refresh::refresh(client, statements, request).await {
            Ok(outcomes) => {
                self.process_outcomes(client, &views, outcomes, at_ms, is_last_attempt).await?
            }
            Err(error) => {
                self.process_batch_error(client, &views, error, at_ms, is_last_attempt).await?
            }
        };
        results.extend(refresh_results);
        Ok(results)
    }

    /// The component of a view in the order of refreshes, without suspended views and those that
    /// read them.
    async fn find_component(
        &self,
        session: &mut Session,
        view: i64,
    ) -> Result<Vec<Record>, ViewsError> {
        let cached = self.catalog.views_including(session, view).await?;
        let component = select_component(&cached, view);
        if component.iter().any(|record| record.id == view) {
            return Ok(component);
        }
        // Another Egret process may have resumed it.
        let current = self.catalog.read_views(session).await?;
        if current.iter().any(|record| record.id == view) {
            Ok(select_component(&current, view))
        } else {
            Err(ViewsError::NotFound { name: view.to_string() })
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
                Err(error) if error.is_permanent() => {
                    // Code that the query calls may have prepared statements in this session: do
                    // not reuse it.
                    session.statements.mark_spoiled();
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

    /// Copies the cost models, and clears the views' bars on incremental refresh, which hold for
    /// one attempt.
    fn take_costs(&self, views: &[&Refreshable]) -> BTreeMap<i64, CostModel> {
        let mut cost_models = lock(&self.costs);
        let costs = cost_models.clone();
        for view in views {
            if let Some(costs) = cost_models.get_mut(&view.record.id) {
                costs.is_incremental_barred = false;
            }
        }
        costs
    }
}

/// Whether a view is among these, and a comparison with its query would be meaningful.
fn can_compare(views: &[&Refreshable], view: i64, trigger: VerifyTrigger) -> bool {
    views.iter().any(|other| {
        let is_meaningful = trigger == VerifyTrigger::Requested || other.is_reproducible();
        other.record.id == view && other.can_be_compared() && is_meaningful
    })
}

/// Selects the component of a view from a list of views: see [`ViewRefreshWorker::find_component`].
fn select_component(records: &[Record], view: i64) -> Vec<Record> {
    let members: Vec<Member> = records.iter().map(Record::component_member).collect();
    let mut components = components(&members).into_iter();
    let selected = components.find(|component| component.iter().any(|member| member.view == view));
    let mut component: Vec<Record> = Vec::new();
    for member in selected.into_iter().flatten() {
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
