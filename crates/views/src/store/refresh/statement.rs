//! Executes the statements of a view's refresh: with the rights of its owner, with enough memory,
//! and with their plans if these are collected.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Row};

use crate::core::memory::work_mem_kb;
use crate::error::ViewsError;
use crate::store::explain::{DEALLOCATE, explain_statement};
use crate::store::owner_functions;
use crate::store::refreshable::Refreshable;
use crate::store::statements::{Pipeline, Query, Statements};
use crate::store::view_status::Frontier;

/// Executes statements of one view, each of which returns one row of four numbers.
pub(super) struct StatementRunner<'a> {
    pub client: &'a Client,
    pub statements: &'a mut Statements,
    pub view: &'a Refreshable,
    /// Statements that apply the view's settings, until they are executed.
    pub settings: &'a str,
    /// Bytes of memory for sorts and hashes of a statement.
    pub memory_max: u64,
    /// Current `work_mem` in kB.
    pub work_mem_kb: u64,
    /// Whether the plans of statements are collected.
    pub collects_plans: bool,
    /// Plans of the statements that were executed, if they are collected.
    pub plans: Option<String>,
}

impl StatementRunner<'_> {
    /// Executes a statement. `changes` is the number of changes that it reads; none if it reads all
    /// rows of its sources.
    pub(super) async fn query_row(
        &mut self,
        sql: &str,
        frontier: Frontier<'_>,
        changes: Option<u64>,
    ) -> Result<Row, ViewsError> {
        let mut settings = self.take_settings(sql, changes);
        if self.collects_plans {
            let settings = std::mem::take(&mut settings);
            self.client.batch_execute(&settings).await?;
            self.collect_plan(sql, frontier).await?;
        }
        let record = &self.view.record;
        let Frontier { snapshot, clock } = frontier;
        let own_values: [&(dyn ToSql + Sync); 2] = [&snapshot, &clock];
        let owner_values: [&(dyn ToSql + Sync); 3] = [&sql, &snapshot, &clock];
        let query: Query<'_> = if record.has_other_owner {
            (owner_functions::call_runner(&record.owner), &owner_values)
        } else {
            (sql, &own_values)
        };
        let pipeline =
            Pipeline { unprepared_sql: &settings, queries: &[query], ..Pipeline::default() };
        let answers = self.statements.execute_pipeline(self.client, pipeline).await;
        let rows = answers.and_then(|answers| answers.into_iter().collect());
        if rows.is_err() && record.has_other_owner {
            // Code that the query calls may have prepared statements in this session: do not reuse
            // it.
            self.statements.mark_spoiled();
        }
        let rows: Vec<Vec<Row>> = rows?;
        let row = rows.into_iter().flatten().next();
        Ok(row.expect("it has one row"))
    }

    /// Statements that set what a statement needs, and has not been set before.
    fn take_settings(&mut self, sql: &str, changes: Option<u64>) -> String {
        let work_mem = work_mem_kb(self.memory_max, sql, changes);
        let mut settings = std::mem::take(&mut self.settings).to_owned();
        if work_mem != self.work_mem_kb {
            self.work_mem_kb = work_mem;
            settings = format!("SET LOCAL work_mem = '{work_mem}kB'; {settings}");
        }
        settings
    }

    /// Adds the plan of a statement with its actual figures: executes it, and undoes that.
    async fn collect_plan(&mut self, sql: &str, frontier: Frontier<'_>) -> Result<(), ViewsError> {
        self.client.batch_execute("SAVEPOINT egret_explain").await?;
        let record = &self.view.record;
        let owner = Some(record.owner.as_str()).filter(|_| record.has_other_owner);
        let plan = match explain_statement(self.client, owner, sql, frontier).await {
            Ok(lines) => lines.join("\n"),
            Err(error) => {
                // A statement that is left prepared would be in the way of the next one. If it
                // could not be prepared, there is none to remove.
                let undo = "ROLLBACK TO SAVEPOINT egret_explain";
                self.client.batch_execute(undo).await?;
                _ = self.client.batch_execute(DEALLOCATE).await;
                return Err(error);
            }
        };
        let undo = "ROLLBACK TO SAVEPOINT egret_explain; RELEASE SAVEPOINT egret_explain";
        self.client.batch_execute(undo).await?;
        let plans = self.plans.get_or_insert_default();
        if !plans.is_empty() {
            plans.push_str("\n\n");
        }
        plans.push_str(&plan);
        Ok(())
    }
}
