//! Refreshes views from one snapshot to the next.
//!
//! Views that read each other are refreshed together, in one REPEATABLE READ transaction. It reads
//! the tables in its snapshot, and the recorded changes that are visible in this snapshot and were
//! not in that of the last refresh. So a late commit is applied by exactly one refresh, whatever
//! its transaction id. The changes of a view are passed row by row to the views that read it.
//!
//! The steps, in order, of which each file has one:
//!
//! 1. [`request`]: the views of a component and the options, as the worker requests them.
//! 2. [`batch`]: takes the advisory locks; returns if nothing has changed; claims changes for views
//!    that are to be rebuilt; starts the transaction, locks the tables, and reads the status of the
//!    views and the numbers of their changes.
//! 3. [`view_refresh`]: refreshes view after view, each by a [`plan`] and its [`statement`]s, in a
//!    [`context`] that passes the changes of one to the next.
//! 4. [`batch`]: stores the new refresh points and commits.
//! 5. [`outcome`]: what was done with each view. The history gets a report of it.

mod batch;
mod context;
pub mod outcome;
mod plan;
pub mod request;
mod statement;
mod view_refresh;

use std::collections::BTreeMap;
use std::time::Instant;

use egret_postgres::tokio_postgres::Client;

use self::batch::RefreshBatch;
use self::outcome::{Outcomes, RefreshOutcome};
use self::request::{RefreshOptions, RefreshRequest};
use super::captures;
use super::history::{self, History};
use super::locks::LockWait;
use super::refreshable::Refreshable;
use super::statements::Statements;
use crate::core::capture::{CaptureOptions, TableCapture};
use crate::error::ViewsError;
use crate::model::Limits;

/// Refreshes views, each after those that it reads. A view that fails stays as it was, as do the
/// views that read it.
///
/// # Errors
/// [`ViewsError`]: nothing has changed in any of them.
pub async fn refresh(
    client: &mut Client,
    statements: &mut Statements,
    request: RefreshRequest<'_>,
) -> Result<Outcomes, ViewsError> {
    let mut batch = RefreshBatch::new(client, statements, request);
    let outcomes = batch.refresh().await;
    let unlocked = batch.unlock(outcomes.is_err()).await;
    if let Ok(outcomes) = &outcomes {
        let stored = store_reports(client, statements, &request, outcomes).await;
        statements.is_spoiled |= stored.is_err();
    }
    // An error here may leave the locks held: close the session, so that they are released.
    statements.is_spoiled |= unlocked.is_err();
    outcomes
}

/// Stores the reports of refreshes that did something, without waiting for the answer.
async fn store_reports(
    client: &Client,
    statements: &mut Statements,
    request: &RefreshRequest<'_>,
    outcomes: &Outcomes,
) -> Result<(), ViewsError> {
    let Some(history_max) = request.history_max else {
        return Ok(());
    };
    let mut history = History::default();
    for (view, outcome) in outcomes {
        if let Ok(outcome) = outcome
            && outcome.strategy().is_some()
        {
            history.add(*view, &outcome.report(request.at_ms));
        }
    }
    history::send_reports(client, statements, &history, history_max).await
}

impl Refreshable {
    /// Refreshes this view alone. Views that read it do not get its changes.
    ///
    /// # Errors
    /// [`ViewsError`]: nothing has changed then.
    pub async fn refresh(&self, client: &mut Client) -> Result<RefreshOutcome, ViewsError> {
        let mut statements = Statements::default();
        let request = RefreshRequest {
            views: &[self],
            costs: &BTreeMap::new(),
            options: RefreshOptions::default(),
            at_ms: 0,
            started_at: Instant::now(),
            history_max: None,
            limits: Limits {
                fuse_changes: 0,
                change_set_rows_max: u64::MAX,
                change_set_bytes_max: u64::MAX,
                delta_rows_max: u64::MAX,
                memory_max: 1 << 28,
            },
            registry_oid: None,
            expects_changes: false,
        };
        let mut outcomes = refresh(client, &mut statements, request).await?;
        let tables: Vec<TableCapture> = self.captures().cloned().collect();
        let capture_options =
            CaptureOptions { size_max: u64::MAX, segment_size: u64::MAX, is_unlogged: false };
        for captured in &tables {
            let lock_wait = LockWait::None;
            captures::delete_applied(client, &mut statements, captured, capture_options, lock_wait)
                .await?;
        }
        match outcomes.pop() {
            Some((_, outcome)) => outcome,
            None => Ok(RefreshOutcome::default()),
        }
    }
}
