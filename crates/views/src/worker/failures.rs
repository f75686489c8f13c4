//! What becomes of the views of a component, those that could not be refreshed among them.

use std::sync::Arc;

use egret_base::condition::ConditionSet;
use egret_postgres::tokio_postgres::Client;
use egret_postgres::tokio_postgres::error::SqlState;

use super::keeper::{Keeper, Reports, lock};
use super::session::Session;
use crate::error::ViewsError;
use crate::metrics::Outcome;
use crate::model::{RefreshReport, State, ViewName};
use crate::store::history;
use crate::store::refresh::{Outcomes, Refreshable, Refreshed};
use crate::store::registry::{self, Record};

/// Faults of single views that last, by [`Keeper::subject`].
pub(super) struct ViewFaults {
    refresh: ConditionSet,
    compare: ConditionSet,
}

impl ViewFaults {
    pub fn new() -> Self {
        Self {
            refresh: ConditionSet::new("views_refresh_failing"),
            compare: ConditionSet::new("views_compare_failing"),
        }
    }

    /// Forgets the faults of views that are no more.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.refresh.retain(&is_there);
        self.compare.retain(&is_there);
    }
}

impl Keeper {
    /// What became of each view of a component.
    pub(super) async fn outcomes(
        self: &Arc<Self>,
        client: &Client,
        (views, outcomes): (&[&Refreshable], Outcomes),
        (at_ms, is_last): (i64, bool),
    ) -> Result<Reports, ViewsError> {
        let mut reports = Reports::new();
        let mut passing = None;
        for (view, (id, outcome)) in views.iter().zip(outcomes) {
            let report = match outcome {
                Ok(refreshed) => {
                    self.done(client, view, &refreshed).await;
                    self.note_success(&view.record, &refreshed);
                    let report = refreshed.report(at_ms);
                    if refreshed.way().is_some() {
                        lock(&self.latest).insert(id, report.clone());
                    }
                    (report, refreshed.compared)
                }
                Err(error) if error.is_passing() && !is_last => {
                    self.pass(client, &error).await?;
                    passing = Some(error);
                    continue;
                }
                // It is tried again with the one that it reads.
                Err(ViewsError::SourceFailed { .. }) if passing.is_some() => continue,
                Err(error) => {
                    let error = self.named(error);
                    let report = self.gave_up(client, &view.record, at_ms, &error).await?;
                    (report, None)
                }
            };
            reports.insert(id, report);
        }
        match passing {
            Some(error) => Err(error),
            None => Ok(reports),
        }
    }

    fn note_success(&self, record: &Record, refreshed: &Refreshed) {
        let subject = self.subject(record);
        self.faults
            .refresh
            .recover(&subject, "a view is refreshed again");
        let compare = &self.faults.compare;
        if let Some(error) = &refreshed.compare_error {
            compare.fail(
                &subject,
                error,
                "a view could not be compared with its query; retrying",
            );
        } else if refreshed.compared.is_some() {
            compare.recover(&subject, "a view is compared with its query again");
        }
    }

    /// What a view is called where it has a fault.
    pub(super) fn subject(&self, record: &Record) -> String {
        format!("{}: {}", self.database, record.name)
    }

    /// The error with the limit that it comes from, where it is one of time.
    pub(super) fn named(&self, error: ViewsError) -> ViewsError {
        match error {
            ViewsError::Statement(error) if error.code() == Some(&SqlState::QUERY_CANCELED) => {
                ViewsError::TooLong {
                    seconds: self.shared.config.refresh_timeout.duration().as_secs(),
                }
            }
            error => error,
        }
    }

    /// Suspends a view, or tries again later, as it may be that what is wrong passes.
    pub(super) async fn gave_up(
        &self,
        client: &Client,
        record: &Record,
        at_ms: i64,
        error: &ViewsError,
    ) -> Result<RefreshReport, ViewsError> {
        match error.is_lasting() {
            true => self.suspend(client, record, at_ms, error).await,
            false => self.failed(client, record, at_ms, error).await,
        }
    }

    /// Whether the number of a view is no longer that of the one with this name.
    pub(super) async fn is_another(
        &self,
        session: &mut Session,
        view: i64,
        name: Option<&ViewName>,
    ) -> Result<bool, ViewsError> {
        // What somebody else has put in its place is not read.
        if self.known.table_now(&session.client).await?.is_none() {
            return Ok(true);
        }
        let views = self.known.views(session).await?;
        let now = views.iter().find(|record| record.id == view);
        Ok(now.is_none_or(|record| name.is_some_and(|name| record.name != *name)))
    }

    /// Remembers that a view could not be refreshed, and suspends it after too often.
    async fn failed(
        &self,
        client: &Client,
        record: &Record,
        at_ms: i64,
        error: &ViewsError,
    ) -> Result<RefreshReport, ViewsError> {
        if matches!(error, ViewsError::TooLong { .. }) {
            lock(&self.costs).entry(record.id).or_default().fail();
        }
        let current = registry::record_of(client, record.id).await?;
        let is_own = !matches!(error, ViewsError::SourceFailed { .. });
        let is_last = current.failures + 1 >= self.shared.config.failures_max;
        let state = match is_last && is_own {
            true => State::Suspended,
            false => State::Failing,
        };
        self.remember_failure(client, record, at_ms, (state, error))
            .await
    }

    pub(super) async fn suspend(
        &self,
        client: &Client,
        record: &Record,
        at_ms: i64,
        error: &ViewsError,
    ) -> Result<RefreshReport, ViewsError> {
        self.remember_failure(client, record, at_ms, (State::Suspended, error))
            .await
    }

    async fn remember_failure(
        &self,
        client: &Client,
        record: &Record,
        at_ms: i64,
        (state, error): (State, &ViewsError),
    ) -> Result<RefreshReport, ViewsError> {
        let reason = error.to_string();
        let subject = self.subject(record);
        if state == State::Suspended {
            // It is not tried again.
            self.faults.refresh.end(&subject);
            tracing::warn!(view = subject, reason, "a view is suspended");
        } else {
            let message = "a view could not be refreshed; retrying";
            self.faults.refresh.fail(&subject, &reason, message);
        }
        let is_own = !matches!(error, ViewsError::SourceFailed { .. });
        registry::failed(client, record.id, (state, &reason), is_own).await?;
        let report = failure(at_ms, &reason);
        let outcome = "failed";
        let metrics = &self.shared.metrics;
        metrics.refreshes.get_or_create(&Outcome { outcome }).inc();
        self.known.give_up();
        let kept_max = self.shared.config.history_max;
        history::remember(client, record.id, &report, kept_max).await?;
        Ok(report)
    }
}

fn failure(at_ms: i64, reason: &str) -> RefreshReport {
    RefreshReport {
        at_ms,
        outcome: "failed".to_owned(),
        error: Some(reason.to_owned()),
        ..RefreshReport::default()
    }
}
