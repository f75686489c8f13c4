//! Failures of refreshes: what is retried, what is counted, and which views are suspended.

use egret_base::sync::lock;
use egret_postgres::tokio_postgres::Client;
use egret_postgres::tokio_postgres::error::SqlState;

use super::refresh_result::RefreshResult;
use super::refresh_worker::ViewRefreshWorker;
use super::session::Session;
use crate::error::ViewsError;
use crate::metrics::OutcomeLabels;
use crate::model::{RefreshReport, State, ViewName};
use crate::store::record::Record;
use crate::store::{history, registry};

impl ViewRefreshWorker {
    /// Acts on the error of an attempt so that the next attempt can succeed.
    pub(super) async fn prepare_retry(
        &self,
        client: &Client,
        error: &ViewsError,
    ) -> Result<(), ViewsError> {
        tracing::debug!(database = self.database, %error, "retrying a refresh");
        self.catalog.invalidate_views();
        if error.can_mean_stale_record() {
            self.catalog.invalidate_registry_oid();
        }
        match error {
            ViewsError::SourceAltered { view } => self.unload(*view),
            ViewsError::DeltaFailed { view, .. } => {
                lock(&self.costs).entry(*view).or_default().is_incremental_barred = true;
            }
            ViewsError::Drifted { view, .. } | ViewsError::FannedOut { view, .. } => {
                if matches!(error, ViewsError::FannedOut { .. }) {
                    lock(&self.costs).entry(*view).or_default().record_failure();
                }
                registry::request_rebuild(client, *view).await?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Name of a view in conditions.
    pub(super) fn condition_subject(&self, record: &Record) -> String {
        format!("{}: {}", self.database, record.name)
    }

    /// Turns a cancelled statement into [`ViewsError::RefreshTimeout`] with the limit.
    pub(super) fn map_cancellation(&self, error: ViewsError) -> ViewsError {
        match error {
            ViewsError::Statement(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                ViewsError::RefreshTimeout {
                    seconds: self.context.config.refresh_timeout.duration().as_secs(),
                }
            }
            error => error,
        }
    }

    /// Suspends the view for a lasting error; else counts the failure, to retry later.
    pub(super) async fn handle_failure(
        &self,
        client: &Client,
        record: &Record,
        at_ms: i64,
        error: &ViewsError,
    ) -> Result<RefreshResult, ViewsError> {
        let report = if error.is_permanent() {
            self.suspend(client, record, at_ms, error).await?
        } else {
            self.count_failure(client, record, at_ms, error).await?
        };
        Ok(RefreshResult { report, comparison: None })
    }

    /// Whether the view with this number no longer exists under this name.
    pub(super) async fn is_view_replaced(
        &self,
        session: &mut Session,
        view: i64,
        name: Option<&ViewName>,
    ) -> Result<bool, ViewsError> {
        // A schema that Egret did not create is not read.
        if self.catalog.registry_oid(&session.client).await?.is_none() {
            return Ok(true);
        }
        let views = self.catalog.read_views(session).await?;
        let current = views.iter().find(|record| record.id == view);
        Ok(current.is_none_or(|record| name.is_some_and(|name| record.name != *name)))
    }

    /// Counts a failed refresh, and suspends the view after `views.failures_max`.
    async fn count_failure(
        &self,
        client: &Client,
        record: &Record,
        at_ms: i64,
        error: &ViewsError,
    ) -> Result<RefreshReport, ViewsError> {
        if matches!(error, ViewsError::RefreshTimeout { .. }) {
            lock(&self.costs).entry(record.id).or_default().record_failure();
        }
        let current = registry::read_record(client, record.id).await?;
        let is_own_error = !matches!(error, ViewsError::SourceFailed { .. });
        let has_reached_max = current.failures + 1 >= self.context.config.failures_max;
        let state = if has_reached_max && is_own_error { State::Suspended } else { State::Failing };
        self.store_failure(client, record, at_ms, state, error).await
    }

    pub(super) async fn suspend(
        &self,
        client: &Client,
        record: &Record,
        at_ms: i64,
        error: &ViewsError,
    ) -> Result<RefreshReport, ViewsError> {
        self.store_failure(client, record, at_ms, State::Suspended, error).await
    }

    async fn store_failure(
        &self,
        client: &Client,
        record: &Record,
        at_ms: i64,
        state: State,
        error: &ViewsError,
    ) -> Result<RefreshReport, ViewsError> {
        let reason = error.to_string();
        let subject = self.condition_subject(record);
        if state == State::Suspended {
            // A suspended view is not retried.
            self.faults.refresh.end(&subject);
            tracing::warn!(view = subject, reason, "a view is suspended");
        } else {
            let message = "cannot refresh a view; retrying";
            self.faults.refresh.fail(&subject, &reason, message);
        }
        let is_own_error = !matches!(error, ViewsError::SourceFailed { .. });
        registry::store_failure(client, record.id, state, &reason, is_own_error).await?;
        let report = failure_report(at_ms, &reason);
        let outcome = "failed";
        let metrics = &self.context.metrics;
        metrics.refreshes.get_or_create(&OutcomeLabels { outcome }).inc();
        self.catalog.invalidate_views();
        let history_max = self.context.config.history_max;
        history::store_report(client, record.id, &report, history_max).await?;
        Ok(report)
    }
}

fn failure_report(at_ms: i64, reason: &str) -> RefreshReport {
    RefreshReport {
        at_ms,
        outcome: "failed".to_owned(),
        error: Some(reason.to_owned()),
        ..RefreshReport::default()
    }
}
