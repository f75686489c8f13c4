//! Refreshes one view within the transaction of a batch.

use std::collections::BTreeMap;
use std::time::Instant;

use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::{Client, Error};

use super::context::RefreshContext;
use super::outcome::{Comparison, RefreshOutcome};
use super::plan::RefreshPlan;
use super::request::VerifyTrigger;
use super::statement::StatementRunner;
use crate::core::sql::FRONTIER_CTE;
use crate::core::strategy::RefreshStrategy;
use crate::error::ViewsError;
use crate::store::change_sets::{self, ViewDelta};
use crate::store::materialized_view::sink_table;
use crate::store::owner_functions::{self, execute_unless_empty};
use crate::store::refreshable::{Refreshable, ViewSource};
use crate::store::rights;
use crate::store::view_status::Frontier;

/// A refresh point that sees nothing, for statements that read no changes.
const NO_FRONTIER: Frontier<'_> = Frontier { snapshot: "3:3:", clock: None };

/// Options of the refresh of one view.
#[derive(Clone, Copy)]
pub(super) struct ViewRefreshOptions {
    /// Whether other views of the batch, or followers, read its changes.
    pub has_readers: bool,
    /// Why it is compared with its query, if it is.
    pub verify_trigger: Option<VerifyTrigger>,
    /// Whether the plans of its statements are collected.
    pub collects_plans: bool,
}

/// Refreshes a view from its refresh point, or from nothing if it has none, and compares it with
/// its query at the same snapshot if that is an option. Its changes are added to the deltas of the
/// context, and written for its followers.
///
/// # Errors
/// [`ViewsError`]: the transaction is to be rolled back.
pub(super) async fn refresh_view(
    context: &mut RefreshContext<'_>,
    view: &Refreshable,
    options: ViewRefreshOptions,
) -> Result<RefreshOutcome, ViewsError> {
    let started_at = Instant::now();
    let record = &view.record;
    if record.has_other_owner {
        create_owner_runner(context.client, view).await?;
    }
    let frontier = context.statuses[&record.id].frontier();
    let plan = RefreshPlan::new(context, view, frontier)?;
    let runner = StatementRunner {
        client: context.client,
        statements: &mut *context.statements,
        view,
        settings: &record.settings,
        memory_max: context.limits.memory_max,
        work_mem_kb: context.work_mem_kb,
        collects_plans: options.collects_plans,
        plans: None,
    };
    let mut refresh = ViewRefresh {
        runner,
        delta_rows_max: context.limits.delta_rows_max,
        has_readers: options.has_readers,
        has_changed_rows: false,
        outcome: RefreshOutcome {
            reason: plan.reason.clone(),
            changes: plan.changes,
            ..RefreshOutcome::default()
        },
    };
    let sinks = refresh.execute_plan(plan, frontier).await?;
    context.deltas.sinks.extend(sinks.values().cloned());
    refresh.verify(options.verify_trigger).await?;
    let ViewRefresh { runner, mut outcome, .. } = refresh;
    outcome.plans = runner.plans;
    context.work_mem_kb = runner.work_mem_kb;
    if record.has_other_owner {
        let drop = owner_functions::drop_runner(&record.owner);
        execute_unless_empty(context.client, drop).await?;
    }
    let delta = view_delta(view, &sinks, &outcome);
    if let Some(delta) = delta.as_ref().filter(|_| record.is_followed()) {
        let (client, statements) = (context.client, &mut *context.statements);
        change_sets::write_change_set(client, statements, view, delta, context.limits).await?;
        outcome.has_change_set = true;
    }
    context.deltas.views.insert(record.id, delta);
    outcome.applied_ms = started_at.elapsed().as_secs_f64() * 1e3;
    Ok(outcome)
}

/// Refreshes a view in a savepoint, so that an error does not abort the batch.
///
/// # Errors
/// [`ViewsError`]: nothing has changed in it.
pub(super) async fn refresh_view_in_savepoint(
    context: &mut RefreshContext<'_>,
    view: &Refreshable,
    options: ViewRefreshOptions,
) -> Result<RefreshOutcome, ViewsError> {
    let is_failed = |source: &i64| !context.deltas.views.contains_key(source);
    if let Some(view) = view.source_views().find(is_failed) {
        return Err(ViewsError::SourceFailed { view });
    }
    let client = context.client;
    client.batch_execute("SAVEPOINT egret_view").await?;
    match refresh_view(context, view, options).await {
        Ok(outcome) => {
            client.batch_execute("RELEASE SAVEPOINT egret_view").await?;
            Ok(outcome)
        }
        Err(error) => {
            let undo = "ROLLBACK TO SAVEPOINT egret_view; RELEASE SAVEPOINT egret_view";
            client.batch_execute(undo).await?;
            context.deltas.views.remove(&view.record.id);
            Err(error)
        }
    }
}

/// Creates the function by which the statements of a view run as its owner. Refuses sources that
/// the owner may not read.
async fn create_owner_runner(client: &Client, view: &Refreshable) -> Result<(), ViewsError> {
    let record = &view.record;
    for view_source in &view.sources {
        if let (ViewSource::Table { oid, capture: captured }, false) =
            (view_source, view.materialized_view.is_full_only)
        {
            let columns = captured.columns.iter();
            let columns: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
            rights::check_column_privileges(client, &record.owner, *oid, "the table", &columns)
                .await?;
        }
    }
    execute_unless_empty(client, &owner_functions::create_runner(&record.owner)).await
}

/// The changes of a view as users see them; none if nothing has changed, or nothing reads them.
fn view_delta(
    view: &Refreshable,
    sinks: &BTreeMap<usize, String>,
    outcome: &RefreshOutcome,
) -> Option<ViewDelta> {
    let rows = outcome.added + 2 * outcome.changed + outcome.removed;
    let last_stage = view.materialized_view.stages.len().saturating_sub(1);
    let sink = sinks.get(&last_stage).filter(|_| rows > 0)?;
    Some(ViewDelta { sql: view.materialized_view.user_changes_sql(sink), rows })
}

/// A view that is being refreshed.
struct ViewRefresh<'a> {
    runner: StatementRunner<'a>,
    delta_rows_max: u64,
    has_readers: bool,
    /// Whether a statement has changed rows.
    has_changed_rows: bool,
    outcome: RefreshOutcome,
}

impl ViewRefresh<'_> {
    /// Carries out a plan. Returns the tables with the changes of stages, by stage.
    async fn execute_plan(
        &mut self,
        plan: RefreshPlan,
        frontier: Option<Frontier<'_>>,
    ) -> Result<BTreeMap<usize, String>, ViewsError> {
        match plan.strategy {
            None => {
                self.outcome.is_unchanged = true;
                Ok(BTreeMap::new())
            }
            Some(RefreshStrategy::Incremental) => {
                let frontier = frontier.unwrap_or(NO_FRONTIER);
                let sinks = self.apply_changes(plan, frontier).await?;
                // Unchanged if there were no recorded changes, and the passing of time changed no
                // row.
                self.outcome.is_unchanged = self.outcome.changes == 0 && !self.has_changed_rows;
                Ok(sinks)
            }
            Some(RefreshStrategy::Full) => self.rebuild().await,
        }
    }

    /// Applies the changes stage by stage.
    async fn apply_changes(
        &mut self,
        plan: RefreshPlan,
        frontier: Frontier<'_>,
    ) -> Result<BTreeMap<usize, String>, ViewsError> {
        let view = self.runner.view;
        let rows_max = Some(self.delta_rows_max);
        let steps = view.materialized_view.apply_changes(
            view.record.id,
            plan.sources,
            self.has_readers,
            rows_max,
        );
        let mut sinks = BTreeMap::new();
        for step in steps {
            self.run_statement(&step.statement.to_sql(&plan.ctes), frontier).await?;
            sinks.extend(step.sink.map(|sink| (step.stage, sink)));
        }
        Ok(sinks)
    }

    /// Recomputes all stages. Of the last one the changes are kept if they have readers.
    async fn rebuild(&mut self) -> Result<BTreeMap<usize, String>, ViewsError> {
        self.outcome.is_full = true;
        let view = self.runner.view;
        let materialized_view = &view.materialized_view;
        let last_stage = materialized_view.stages.len().saturating_sub(1);
        let ctes = [FRONTIER_CTE.to_owned()];
        let mut sinks = BTreeMap::new();
        for (stage_index, stage) in materialized_view.stages.iter().enumerate() {
            // Later stages are rebuilt too, and need no changes.
            let sink = (stage_index == last_stage && self.has_readers)
                .then(|| sink_table(view.record.id, stage_index));
            let statement = stage.rebuild(
                &materialized_view.types,
                &materialized_view.sources,
                sink.as_deref(),
            );
            self.run_statement(&statement.to_sql(&ctes), NO_FRONTIER).await?;
            sinks.extend(sink.map(|sink| (stage_index, sink)));
        }
        Ok(sinks)
    }

    /// Executes the statement of a stage, and checks that the stored rows are consistent with the
    /// changes.
    async fn run_statement(&mut self, sql: &str, frontier: Frontier<'_>) -> Result<(), ViewsError> {
        let is_full = self.outcome.is_full;
        let reads_all_rows = is_full || self.runner.view.materialized_view.reads_whole_groups();
        let changes = u64::try_from(self.outcome.changes).unwrap_or(0);
        let changes = Some(changes).filter(|_| !reads_all_rows);
        let view = self.runner.view.record.id;
        let row = match self.runner.query_row(sql, frontier, changes).await {
            Err(ViewsError::Statement(error)) if !is_full && is_data_error(&error) => {
                return Err(ViewsError::DeltaFailed { view, error });
            }
            row => row?,
        };
        let inconsistent_rows: i64 = row.get("wrong");
        if inconsistent_rows < 0 {
            return Err(ViewsError::FannedOut { view, rows_max: self.delta_rows_max });
        }
        if inconsistent_rows > 0 {
            return Err(ViewsError::Drifted { view, rows: inconsistent_rows });
        }
        let outcome = &mut self.outcome;
        outcome.added = row.get("added");
        outcome.changed = row.get("changed");
        outcome.removed = row.get("removed");
        self.has_changed_rows |= outcome.added + outcome.changed + outcome.removed > 0;
        Ok(())
    }

    /// Compares the view with its query if there is a reason to.
    async fn verify(&mut self, trigger: Option<VerifyTrigger>) -> Result<(), ViewsError> {
        match trigger {
            None => Ok(()),
            Some(VerifyTrigger::Requested) => self.compare_with_query().await,
            Some(VerifyTrigger::Sampled) => self.compare_in_savepoint().await,
        }
    }

    /// Compares in a savepoint: an error is reported, but does not fail the refresh.
    async fn compare_in_savepoint(&mut self) -> Result<(), ViewsError> {
        let client = self.runner.client;
        client.batch_execute("SAVEPOINT egret_compare").await?;
        let work_mem_kb = self.runner.work_mem_kb;
        if let Err(error) = self.compare_with_query().await {
            self.runner.work_mem_kb = work_mem_kb;
            let undo = "ROLLBACK TO SAVEPOINT egret_compare";
            client.batch_execute(undo).await?;
            self.outcome.verify_error = Some(error.to_string());
        }
        Ok(())
    }

    async fn compare_with_query(&mut self) -> Result<(), ViewsError> {
        let view = self.runner.view;
        // Not by its name: the owner may have put another view in its place.
        let view_query = format!("({})", view.materialized_view.user_query());
        let definition = &view.record.definition;
        // Equal values count as the same, even if they look different. Types without equality, such
        // as json, are compared as text.
        let has_equality = view.materialized_view.has_equality();
        let row_expression = |alias: &str| {
            if has_equality { format!("ROW({alias}.*)") } else { format!("{alias}::text") }
        };
        let (view_row, query_row) = (row_expression("v"), row_expression("q"));
        let sql = format!(
            "WITH {FRONTIER_CTE}, both_sides AS ( \
             SELECT r, count(*) FILTER (WHERE is_shown) AS shown, count(*) FILTER (WHERE NOT is_shown) AS asked FROM ( \
             SELECT {view_row} AS r, true AS is_shown FROM {view_query} AS v UNION ALL SELECT {query_row}, false FROM ({definition}) AS q \
             ) AS every GROUP BY r) \
             SELECT coalesce(sum(least(shown, asked)), 0)::bigint AS added, \
             coalesce(sum(greatest(asked - shown, 0)), 0)::bigint AS changed, \
             coalesce(sum(greatest(shown - asked, 0)), 0)::bigint AS removed, 0::bigint AS wrong FROM both_sides"
        );
        let row = self.runner.query_row(&sql, NO_FRONTIER, None).await?;
        self.outcome.comparison = Some(Comparison {
            same: row.get("added"),
            missing: row.get("changed"),
            extra: row.get("removed"),
        });
        Ok(())
    }
}

/// Whether an error is due to values of rows: by its class, or raised by a function.
fn is_data_error(error: &Error) -> bool {
    const CLASSES: [&str; 4] = ["21", "22", "23", "P0"];
    let code = error.code().map(SqlState::code).unwrap_or_default();
    CLASSES.iter().any(|class| code.starts_with(class))
}
