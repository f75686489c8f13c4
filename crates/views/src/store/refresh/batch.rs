//! The transaction in which the views of a component are refreshed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Row};

use super::context::{ChangeCounts, RefreshContext, TableChanges, ViewDeltas};
use super::outcome::{Outcomes, RefreshOutcome, RefreshPoint};
use super::request::RefreshRequest;
use super::view_refresh::{ViewRefreshOptions, refresh_view, refresh_view_in_savepoint};
use crate::core::immediate::lock_table;
use crate::core::memory::STEP_MEMORY_KB;
use crate::error::ViewsError;
use crate::store::catalog_fingerprint::{CatalogFingerprint, ROW_VERSIONS};
use crate::store::locks::{LOCK_VIEWS, UNLOCK_VIEWS, VIEW_LOCK_KEY_BASE};
use crate::store::read_guard::set_read_guard;
use crate::store::refreshable::{Refreshable, ViewSource};
use crate::store::source_captures::install_triggers;
use crate::store::statements::{Answers, Pipeline, Query, Statements};
use crate::store::status::{
    STATUS, check_loaded, parse_statuses, read_statuses, store_fingerprint,
};
use crate::store::transaction_settings::{ASYNC_COMMIT, BRIEF_LOCK_TIMEOUT, SEARCH_PATH};
use crate::store::view_status::ViewStatus;
use crate::store::{immediate, registry};

/// Views that are refreshed together, and the session that does so.
pub(super) struct RefreshBatch<'a> {
    client: &'a mut Client,
    statements: &'a mut Statements,
    request: RefreshRequest<'a>,
    /// Advisory lock keys that exclude other refreshes of these views.
    lock_keys: Vec<i64>,
    /// Whether the advisory locks are held.
    is_locked: bool,
    /// Time spent waiting for locks, in milliseconds.
    waited_ms: f64,
}

/// Result of an attempt at the transaction.
enum TransactionOutcome<'a> {
    Committed(Outcomes),
    /// These views must be rebuilt, and be claimed before that.
    ClaimRequired(Vec<&'a Refreshable>),
}

/// Status of views by their numbers.
type Statuses = BTreeMap<i64, ViewStatus>;

impl<'a> RefreshBatch<'a> {
    pub(super) fn new(
        client: &'a mut Client,
        statements: &'a mut Statements,
        request: RefreshRequest<'a>,
    ) -> Self {
        let keys = request.views.iter().map(|view| VIEW_LOCK_KEY_BASE ^ view.record.id);
        Self {
            client,
            statements,
            lock_keys: keys.collect(),
            request,
            is_locked: false,
            waited_ms: 0.0,
        }
    }

    /// Refreshes all views to the same snapshot.
    ///
    /// # Errors
    /// [`ViewsError`]: nothing has changed in any of them.
    pub(super) async fn refresh(&mut self) -> Result<Outcomes, ViewsError> {
        let views = self.request.views;
        let mut claimed = Vec::new();
        // A view that depends on the clock always has something to do.
        let expects_changes = self.request.expects_changes
            || views.iter().any(|view| view.materialized_view.has_clock);
        if !expects_changes && let Some(statuses) = self.lock_and_check_unchanged().await? {
            claimed = views_to_rebuild(views, &statuses);
            if claimed.is_empty() && self.request.options.verified_view.is_none() {
                return Ok(self.unchanged_outcomes(&statuses));
            }
            self.claim_changes(&claimed).await?;
        }
        // A second attempt follows if only the locked state shows which views must be rebuilt.
        loop {
            let result = self.run_transaction(&claimed).await;
            if !matches!(result, Ok(TransactionOutcome::Committed(_))) {
                // The first error is the cause, whatever the rollback returns.
                _ = self.client.batch_execute("ROLLBACK").await;
            }
            match result? {
                TransactionOutcome::Committed(outcomes) => return Ok(outcomes),
                // A view was altered, or is to be rebuilt, since locks were waited for.
                TransactionOutcome::ClaimRequired(_) if !claimed.is_empty() => {
                    return Err(ViewsError::SourceChanged);
                }
                TransactionOutcome::ClaimRequired(views) => {
                    self.claim_changes(&views).await?;
                    claimed = views;
                }
            }
        }
    }

    /// Releases the advisory locks if they are held, or may be after an error.
    pub(super) async fn unlock(&mut self, has_failed: bool) -> Result<(), ViewsError> {
        if has_failed {
            // The session may hold the locks, whichever statement failed.
            self.statements.query(self.client, UNLOCK_VIEWS, &[&self.lock_keys]).await?;
        } else if self.is_locked {
            // Sent without waiting: the next statement of this session comes after it.
            self.statements.send(self.client, UNLOCK_VIEWS, &[&self.lock_keys]).await?;
        }
        Ok(())
    }

    /// Takes the advisory locks. Returns the status of the views if none of them has changes to
    /// apply.
    async fn lock_and_check_unchanged(&mut self) -> Result<Option<Statuses>, ViewsError> {
        let started_at = Instant::now();
        let views = self.request.views.iter();
        let has_changes: Vec<String> = views.flat_map(|view| view.change_conditions()).collect();
        let (ids, server) = (self.view_ids(), self.statements.server_identity(self.client).await?);
        let fingerprint = self.statements.fingerprint(&ids);
        let (status, values) = status_query(&ids, &server, fingerprint.as_deref());
        // The status is read only if there are no changes.
        let unchanged_query = if has_changes.is_empty() {
            status.to_owned()
        } else {
            format!("{status} AND NOT ({})", has_changes.join(" OR "))
        };
        let queries: [Query<'_>; 2] =
            [(LOCK_VIEWS, &[&self.lock_keys]), (&unchanged_query, &values)];
        let answers = self.statements.query_all(self.client, &queries).await?;
        self.waited_ms = started_at.elapsed().as_secs_f64() * 1e3;
        let [lock_rows, unchanged_rows] = collect_rows(answers)?;
        self.is_locked = true;
        self.check_registry_oid(&lock_rows)?;
        if unchanged_rows.is_empty() {
            return Ok(None);
        }
        let statuses = match &fingerprint {
            // If the fingerprint differs, the refresh reads the full status.
            Some(fingerprint) => match fingerprint.statuses(&unchanged_rows) {
                Some(statuses) => statuses,
                None => return Ok(None),
            },
            None => self.learn_statuses(&unchanged_rows).await?,
        };
        check_loaded(&statuses, self.request.views)?;
        Ok(Some(statuses))
    }

    /// Checks that the table of views is still the one that these were loaded from.
    fn check_registry_oid(&self, lock_rows: &[Row]) -> Result<(), ViewsError> {
        let current: Option<u32> = lock_rows.first().and_then(|row| row.get(0));
        if self.request.registry_oid.is_none_or(|table| current == Some(table)) {
            return Ok(());
        }
        let names = self.request.views.iter();
        let names: Vec<String> = names.map(|view| view.record.name.to_string()).collect();
        Err(ViewsError::NotFound { name: names.join(", ") })
    }

    /// Claims changes for views that are about to be rebuilt, and installs triggers on new
    /// partitions.
    async fn claim_changes(&mut self, views: &[&Refreshable]) -> Result<(), ViewsError> {
        if views.is_empty() {
            return Ok(());
        }
        let ids: Vec<i64> = views.iter().map(|view| view.record.id).collect();
        registry::claim_changes(self.client, &ids).await?;
        for view in views {
            install_source_triggers(self.client, view).await?;
        }
        Ok(())
    }

    /// The whole refresh in one transaction, which the caller rolls back unless it was committed.
    async fn run_transaction(
        &mut self,
        claimed: &[&Refreshable],
    ) -> Result<TransactionOutcome<'a>, ViewsError> {
        let started_at = Instant::now();
        let (statuses, counts) = self.begin_transaction(claimed).await?;
        self.waited_ms += started_at.elapsed().as_secs_f64() * 1e3;
        let rebuilt = views_to_rebuild(self.request.views, &statuses);
        let mut claimed_statuses = claimed.iter().map(|view| &statuses[&view.record.id]);
        if rebuilt.len() != claimed.len() || !claimed_statuses.all(|status| status.is_claimed) {
            return Ok(TransactionOutcome::ClaimRequired(rebuilt));
        }
        let outcomes = self.refresh_views(&statuses, &counts).await?;
        self.commit(&outcomes, &statuses).await?;
        Ok(TransactionOutcome::Committed(outcomes))
    }

    /// Starts the transaction and locks the tables. Returns the status of the views and the numbers
    /// of their changes in the snapshot of the transaction.
    async fn begin_transaction(
        &mut self,
        claimed: &[&Refreshable],
    ) -> Result<(Statuses, ChangeCounts), ViewsError> {
        let views = self.request.views;
        let ids = self.view_ids();
        let counts: Vec<String> = views.iter().flat_map(|view| view.count_queries()).collect();
        let counts = if counts.is_empty() {
            "SELECT WHERE false".to_owned()
        } else {
            counts.join(" UNION ALL ")
        };
        let begin = self.begin_sql(claimed);
        let server = self.statements.server_identity(self.client).await?;
        let fingerprint = self.statements.fingerprint(&ids);
        let (status, values) = status_query(&ids, &server, fingerprint.as_deref());
        let lock_query: [Query<'_>; 1] = [(LOCK_VIEWS, &[&self.lock_keys])];
        let lock_queries = if self.is_locked { &lock_query[..0] } else { &lock_query[..] };
        // The first statements take no snapshot, so that waiting for locks does not age it.
        let pipeline = Pipeline {
            first_queries: lock_queries,
            unprepared_sql: &begin,
            queries: &[(status, &values), (&counts, &[])],
        };
        let mut answers = self.statements.execute_pipeline(self.client, pipeline).await?;
        let query_answers = answers.split_off(lock_queries.len().min(answers.len()));
        if !self.is_locked {
            let [lock_rows] = collect_rows(answers)?;
            self.is_locked = true;
            self.check_registry_oid(&lock_rows)?;
        }
        let [rows, counts] = collect_rows(query_answers)?;
        let statuses = match &fingerprint {
            Some(fingerprint) => match fingerprint.statuses(&rows) {
                Some(statuses) => statuses,
                None => {
                    let values: [&(dyn ToSql + Sync); 2] = [&ids, &server];
                    let rows = self.statements.query(self.client, STATUS, &values).await?;
                    self.learn_statuses(&rows).await?
                }
            },
            None => self.learn_statuses(&rows).await?,
        };
        check_loaded(&statuses, views)?;
        if statuses.values().any(|status| status.is_suspended) {
            return Err(ViewsError::SourceChanged);
        }
        Ok((statuses, counts.iter().map(table_changes).collect()))
    }

    /// The statements that start the transaction and lock the tables.
    fn begin_sql(&self, claimed: &[&Refreshable]) -> String {
        let views = self.request.views.iter();
        let tables: BTreeSet<&str> = views.flat_map(|view| view.table_names()).collect();
        let mut statements = vec![
            "START TRANSACTION ISOLATION LEVEL REPEATABLE READ".to_owned(),
            ASYNC_COMMIT.to_owned(),
            SEARCH_PATH.to_owned(),
        ];
        // Excludes writers to the tables of such a view.
        for view in claimed.iter().filter_map(|view| view.record.immediate_view()) {
            statements.push(format!("LOCK TABLE {} IN EXCLUSIVE MODE", lock_table(view)));
            statements.push(BRIEF_LOCK_TIMEOUT.to_owned());
        }
        for table in tables {
            statements.push(format!("LOCK TABLE {table} IN ACCESS SHARE MODE"));
            // Writers may wait for the first table: from here on, locks are waited for only
            // briefly.
            statements.push(BRIEF_LOCK_TIMEOUT.to_owned());
        }
        statements.join("; ")
    }

    /// Refreshes view after view. The error of one that is alone is returned; else its outcome is
    /// the error.
    async fn refresh_views(
        &mut self,
        statuses: &Statuses,
        counts: &ChangeCounts,
    ) -> Result<Outcomes, ViewsError> {
        let RefreshRequest { views, options, .. } = self.request;
        let mut context = RefreshContext {
            client: self.client,
            statements: self.statements,
            statuses,
            counts,
            costs: self.request.costs,
            limits: self.request.limits,
            deltas: ViewDeltas::default(),
            work_mem_kb: STEP_MEMORY_KB,
        };
        let mut outcomes = Outcomes::new();
        for view in views {
            let id = view.record.id;
            let reads_view = |other: &&Refreshable| other.source_views().any(|read| read == id);
            let compared = options.verified_view.filter(|(compared, _)| *compared == id);
            let view_options = ViewRefreshOptions {
                has_readers: view.record.is_followed() || views.iter().any(reads_view),
                verify_trigger: compared.map(|(_, trigger)| trigger),
                collects_plans: options.collects_plans,
            };
            let outcome = if views.len() == 1 {
                // Alone it can only be given up as a whole.
                Ok(refresh_view(&mut context, view, view_options).await?)
            } else {
                refresh_view_in_savepoint(&mut context, view, view_options).await
            };
            let outcome = outcome.map(|outcome| RefreshOutcome {
                refresh_point: refresh_point(&statuses[&id]),
                waited_ms: self.waited_ms,
                took_ms: self.request.started_at.elapsed().as_secs_f64() * 1e3,
                ..outcome
            });
            outcomes.push((id, outcome));
        }
        for sink in &context.deltas.sinks {
            let delete = format!("DELETE FROM {sink}");
            context.client.batch_execute(&delete).await?;
        }
        Ok(outcomes)
    }

    /// Stores the refresh points of the views that succeeded, commits, and releases the locks.
    async fn commit(
        &mut self,
        outcomes: &Outcomes,
        statuses_before: &Statuses,
    ) -> Result<(), ViewsError> {
        let views = self.request.views;
        let mut ids: Vec<i64> = Vec::new();
        let mut stamps: Vec<&str> = Vec::new();
        let mut snapshot = None;
        for (id, outcome) in outcomes {
            let Ok(outcome) = outcome else { continue };
            ids.push(*id);
            stamps.push(&outcome.refresh_point.stamp);
            snapshot.get_or_insert(outcome.refresh_point.snapshot.as_str());
        }
        let has_clock = |id: &i64| {
            let mut views = views.iter();
            views.any(|view| view.record.id == *id && view.materialized_view.has_clock)
        };
        let have_clocks: Vec<bool> = ids.iter().map(has_clock).collect();
        let values: [&(dyn ToSql + Sync); 4] = [&ids, &stamps, &snapshot, &have_clocks];
        let mut queries: Vec<Query<'_>> = vec![(include_str!("../sql/reached.sql"), &values)];
        let commit_queries: [Query<'_>; 2] = [("COMMIT", &[]), (UNLOCK_VIEWS, &[&self.lock_keys])];
        let has_partitions = views.iter().any(|view| view.has_partitions);
        if !has_partitions {
            queries.extend(commit_queries);
        }
        let answers = self.statements.query_all(self.client, &queries).await?;
        answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        // A partition attached during the refresh may or may not have been read. For tables without
        // partitions the locks suffice.
        if has_partitions {
            let statuses_after = read_statuses(self.client, self.statements, views).await?;
            let is_same = |view: &&Refreshable| {
                let (before, after) =
                    (&statuses_before[&view.record.id], &statuses_after[&view.record.id]);
                after.stamp == before.stamp && after.signature == before.signature
            };
            if !views.iter().all(is_same) {
                return Err(ViewsError::SourceChanged);
            }
            let answers = self.statements.query_all(self.client, &commit_queries).await?;
            answers.into_iter().collect::<Result<Vec<_>, _>>()?;
        }
        self.is_locked = false;
        Ok(())
    }

    /// The status of the views by rows of [`STATUS`], of which a fingerprint is stored.
    async fn learn_statuses(&mut self, rows: &[Row]) -> Result<Statuses, ViewsError> {
        let statuses = parse_statuses(rows)?;
        let views = self.request.views;
        store_fingerprint(self.client, self.statements, views, rows).await?;
        Ok(statuses)
    }

    /// The outcomes of views that have no changes.
    fn unchanged_outcomes(&self, statuses: &Statuses) -> Outcomes {
        let outcome = |view: &&Refreshable| RefreshOutcome {
            refresh_point: refresh_point(&statuses[&view.record.id]),
            is_unchanged: true,
            waited_ms: self.waited_ms,
            took_ms: self.request.started_at.elapsed().as_secs_f64() * 1e3,
            ..RefreshOutcome::default()
        };
        let views = self.request.views.iter();
        views.map(|view| (view.record.id, Ok(outcome(view)))).collect()
    }

    fn view_ids(&self) -> Vec<i64> {
        let views = self.request.views.iter();
        views.map(|view| view.record.id).collect()
    }
}

/// The query of the views' status with its values. If there is a fingerprint, it only reads the
/// row versions that are compared with it.
fn status_query<'a>(
    ids: &'a Vec<i64>,
    server: &'a String,
    fingerprint: Option<&'a CatalogFingerprint>,
) -> (&'static str, Vec<&'a (dyn ToSql + Sync)>) {
    match fingerprint {
        Some(known) => (ROW_VERSIONS, vec![ids, &known.tables, &known.inlined]),
        None => (STATUS, vec![ids, server]),
    }
}

/// The views that must be rebuilt.
fn views_to_rebuild<'a>(views: &[&'a Refreshable], statuses: &Statuses) -> Vec<&'a Refreshable> {
    let views = views.iter().copied();
    views.filter(|view| statuses[&view.record.id].shown_snapshot.is_none()).collect()
}

/// The refresh point of a view that has been refreshed to the snapshot of its status.
fn refresh_point(status: &ViewStatus) -> RefreshPoint {
    RefreshPoint { snapshot: status.current_snapshot.clone(), stamp: status.stamp.clone() }
}

/// Reads a row of [`Refreshable::count_queries`].
fn table_changes(row: &Row) -> ((i64, usize), TableChanges) {
    let source_index = row.get::<_, i64>(1) as usize;
    let changes = TableChanges { rows: row.get(2), breaks: row.get(3) };
    ((row.get(0), source_index), changes)
}

/// The rows of as many queries.
fn collect_rows<const COUNT: usize>(answers: Answers) -> Result<[Vec<Row>; COUNT], ViewsError> {
    let mut query_rows = [const { Vec::new() }; COUNT];
    for (rows, answer) in query_rows.iter_mut().zip(answers) {
        *rows = answer?;
    }
    Ok(query_rows)
}

/// Has the changes of all tables and partitions of a view captured, table after table: locks on
/// several could be waited for in a circle.
async fn install_source_triggers(
    client: &mut Client,
    view: &Refreshable,
) -> Result<(), ViewsError> {
    if view.record.immediate_view().is_some() {
        // The functions of its triggers may have been wrong.
        let transaction = client.transaction().await?;
        let (materialized_view, reads) = (&view.materialized_view, &view.sources);
        immediate::install_functions(&transaction, &view.record, materialized_view, reads).await?;
        transaction.batch_execute(BRIEF_LOCK_TIMEOUT).await?;
        set_read_guard(&transaction, &view.record, materialized_view).await?;
        transaction.commit().await?;
    }
    for view_source in &view.sources {
        if let ViewSource::Table { oid, capture: captured } = view_source {
            let transaction = client.transaction().await?;
            install_triggers(&transaction, captured, *oid).await?;
            transaction.commit().await?;
        }
    }
    Ok(())
}
