//! Processes the outcomes of a refresh: results for callers, costs, metrics, wakes of followers.

use std::sync::Arc;

use egret_base::sync::lock;
use egret_postgres::tokio_postgres::Client;

use super::refresh_result::{RefreshResult, RefreshResults};
use super::refresh_worker::ViewRefreshWorker;
use crate::error::ViewsError;
use crate::metrics::OutcomeLabels;
use crate::store::immediate;
use crate::store::record::Record;
use crate::store::refresh::outcome::{Outcomes, RefreshOutcome};
use crate::store::refreshable::Refreshable;

impl ViewRefreshWorker {
    /// Turns the outcome of each view into its result.
    ///
    /// # Errors
    /// The error of a view that is to be retried, if there is one.
    pub(super) async fn process_outcomes(
        self: &Arc<Self>,
        client: &Client,
        views: &[&Refreshable],
        outcomes: Outcomes,
        at_ms: i64,
        is_last_attempt: bool,
    ) -> Result<RefreshResults, ViewsError> {
        let mut results = RefreshResults::new();
        let mut transient_error = None;
        for (view, (id, outcome)) in views.iter().zip(outcomes) {
            let result = match outcome {
                Ok(outcome) => {
                    self.apply_outcome(client, view, &outcome).await;
                    self.update_faults(&view.record, &outcome);
                    let report = outcome.report(at_ms);
                    if outcome.strategy().is_some() {
                        lock(&self.latest_reports).insert(id, report.clone());
                    }
                    RefreshResult { report, comparison: outcome.comparison }
                }
                Err(error) if error.is_transient() && !is_last_attempt => {
                    self.prepare_retry(client, &error).await?;
                    transient_error = Some(error);
                    continue;
                }
                // It is retried together with the view that it reads.
                Err(ViewsError::SourceFailed { .. }) if transient_error.is_some() => continue,
                Err(error) => {
                    let error = self.map_cancellation(error);
                    self.handle_failure(client, &view.record, at_ms, &error).await?
                }
            };
            results.insert(id, result);
        }
        match transient_error {
            Some(error) => Err(error),
            None => Ok(results),
        }
    }

    /// Turns an error of the whole batch into results of its views.
    ///
    /// # Errors
    /// The error itself, if the refresh is to be retried.
    pub(super) async fn process_batch_error(
        &self,
        client: &Client,
        views: &[&Refreshable],
        error: ViewsError,
        at_ms: i64,
        is_last_attempt: bool,
    ) -> Result<RefreshResults, ViewsError> {
        if error.is_transient() {
            return Err(error);
        }
        // One of the views is gone.
        if !is_last_attempt && error.can_mean_stale_record() {
            for view in views {
                self.unload(view.record.id);
            }
            return Err(error);
        }
        // Another refresh is running, or a session has locked a table.
        if error.is_lock_not_available() || client.is_closed() {
            return Err(error);
        }
        let error = self.map_cancellation(error);
        let mut results = RefreshResults::new();
        for view in views {
            let result = self.handle_failure(client, &view.record, at_ms, &error).await?;
            results.insert(view.record.id, result);
        }
        Ok(results)
    }

    /// Notes the outcome of a successful refresh: costs, metrics, followers, applied changes.
    async fn apply_outcome(
        self: &Arc<Self>,
        client: &Client,
        view: &Refreshable,
        outcome: &RefreshOutcome,
    ) {
        if view.record.immediate_view().is_some()
            && let Err(error) = immediate::delete_steps(client).await
        {
            tracing::debug!(%error, "cannot delete statement steps; retrying later");
        }
        {
            let mut costs = lock(&self.costs);
            let costs = costs.entry(view.record.id).or_default();
            match outcome.strategy() {
                // With plans each statement runs twice: the duration teaches nothing.
                Some(_) if outcome.plans.is_some() => {}
                Some(strategy) => {
                    costs.record_duration(strategy, outcome.changes, outcome.applied_ms)
                }
                None => costs.record_idle(),
            }
        }
        let Some(strategy) = outcome.strategy() else {
            return;
        };
        let metrics = &self.context.metrics;
        let labels = OutcomeLabels { outcome: strategy.as_str() };
        metrics.refreshes.get_or_create(&labels).inc();
        metrics.refresh_seconds.observe(outcome.took_ms / 1e3);
        metrics.wait_seconds.observe(outcome.waited_ms / 1e3);
        metrics.changes.inc_by(outcome.changes as u64);
        let rows = outcome.added + outcome.changed + outcome.removed;
        metrics.rows.inc_by(rows.unsigned_abs());
        if outcome.has_change_set {
            metrics.change_sets.inc();
            self.notifier.notify();
        }
        self.start_gc(view.captures());
    }

    /// Notes in the faults of a view that it was refreshed, and compared if it was.
    fn update_faults(&self, record: &Record, outcome: &RefreshOutcome) {
        let subject = self.condition_subject(record);
        self.faults.refresh.recover(&subject, "a view is refreshed again");
        let compare = &self.faults.compare;
        if let Some(error) = &outcome.verify_error {
            compare.fail(&subject, error, "cannot compare a view with its query; retrying");
        } else if outcome.comparison.is_some() {
            compare.recover(&subject, "a view is compared with its query again");
        }
    }
}
