//! Brings one view up to date, within the transaction of a refresh.

use std::collections::{BTreeMap, BTreeSet};

use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Error, Row};

use super::build::{Built, sink_table};
use super::explain::{DEALLOCATE, explained_now};
use super::refresh::{Compares, Counts, Limits, Read, Refreshable, Refreshed};
use super::rights;
use super::standing::Frontier;
use super::statements::{Flight, Query, Statements};
use super::tell::tell;
use crate::core::choose::{Costs, Situation, Way, choose};
use crate::core::expression::quoted;
use crate::core::memory::{STEP_KB, work_mem_kb};
use crate::core::sql::{FRONTIERS, Generator, SourceSql, WEIGHT};
use crate::core::tree::Source;
use crate::error::ViewsError;

/// What changed in the views that were refreshed in this transaction.
#[derive(Default)]
pub struct Told {
    /// By number: a subquery with the columns that users see, and [`WEIGHT`], and about how many rows it has; none where nothing changed.
    pub views: BTreeMap<i64, Option<(String, i64)>>,
    /// The tables with what changed in stages, to be emptied.
    pub sinks: BTreeSet<String>,
    /// `work_mem` as it was set, in kB.
    pub work_mem_kb: Option<u64>,
}

/// A snapshot that sees nothing, for statements that look at no changes.
const NO_FRONTIER: Frontier<'_> = Frontier {
    snapshot: "3:3:",
    clock: None,
};

/// Brings a view up to date from how far it has come; from nothing if that is none. Where it `compares`, it is compared
/// with its query after that, at the same snapshot.
///
/// # Errors
/// [`ViewsError`]: the transaction is to be rolled back.
pub async fn bring(
    client: &Client,
    statements: &mut Statements,
    view: &Refreshable,
    (reached, counts, costs): (Option<Frontier<'_>>, &Counts, Option<&Costs>),
    (told, is_told): (&mut Told, bool),
    (limits, compares, is_explained): (Limits, Option<Compares>, bool),
) -> Result<Refreshed, ViewsError> {
    let record = &view.record;
    if record.is_of_another {
        become_owner(client, view).await?;
    }
    let mut one = Bringing {
        client,
        statements,
        view,
        settings: &view.record.settings,
        limits,
        is_explained,
        work_mem_kb: told.work_mem_kb.unwrap_or(STEP_KB),
        has_moved: false,
        done: Refreshed::default(),
    };
    let (way, sources, with) = match reached {
        None => {
            one.done.why = "it is computed for the first time, or anew".to_owned();
            (Some(Way::Full), view.built.sources.clone(), Vec::new())
        }
        Some(reached) => one.choose(reached, (counts, costs), told)?,
    };
    let sinks = match way {
        None => {
            one.done.is_nothing = true;
            BTreeMap::new()
        }
        Some(Way::Incremental) => {
            let frontier = reached.unwrap_or(NO_FRONTIER);
            let sinks = one.apply(frontier, sources, &with, is_told).await?;
            // Time alone has passed, and nothing by it.
            one.done.is_nothing = one.done.changes == 0 && !one.has_moved;
            sinks
        }
        Some(Way::Full) => one.rebuild(is_told).await?,
    };
    told.sinks.extend(sinks.values().cloned());
    match compares {
        None => {}
        Some(Compares::Asked) => one.compare().await?,
        Some(Compares::ByTheWay) => one.compare_by_the_way().await?,
    }
    if record.is_of_another {
        execute_unless_empty(client, rights::drop_runner(&record.owner)).await?;
    }
    told.work_mem_kb = Some(one.work_mem_kb);
    let last = view.built.stages.len().saturating_sub(1);
    let done = &one.done;
    let rows = done.added + 2 * done.changed + done.removed;
    let changes = sinks
        .get(&last)
        .filter(|_| rows > 0)
        .map(|sink| (shown_changes(&view.built, sink), rows));
    let mut done = one.done;
    if let (Some((changes, rows)), true) = (&changes, record.is_followed()) {
        tell(client, statements, view, (changes, *rows), limits).await?;
        done.has_told = true;
    }
    told.views.insert(record.id, changes);
    Ok(done)
}

/// Has the statements of a view run as its owner, who may read what it reads.
async fn become_owner(client: &Client, view: &Refreshable) -> Result<(), ViewsError> {
    let record = &view.record;
    for read in &view.reads {
        if let (Read::Table { oid, captured }, false) = (read, view.built.is_whole) {
            let columns = captured.columns.iter();
            let columns: Vec<&str> = columns.map(|one| one.name.as_str()).collect();
            let table = (*oid, "the table");
            rights::may_select(client, &record.owner, table, &columns).await?;
        }
    }
    execute_unless_empty(client, &rights::make_runner(&record.owner)).await
}

/// Does a statement that not every owner needs.
pub async fn execute_unless_empty(client: &Client, sql: &str) -> Result<(), ViewsError> {
    if !sql.is_empty() {
        client.batch_execute(sql).await?;
    }
    Ok(())
}

struct Bringing<'a> {
    client: &'a Client,
    statements: &'a mut Statements,
    view: &'a Refreshable,
    /// What sets those that the query is read with, until they are set.
    settings: &'a str,
    limits: Limits,
    is_explained: bool,
    /// `work_mem` as it is set, in kB.
    work_mem_kb: u64,
    /// Whether a statement has changed something.
    has_moved: bool,
    done: Refreshed,
}

/// What is to be done; sources with their changes; the common table expressions that these are.
type Chosen = (Option<Way>, BTreeMap<Source, SourceSql>, Vec<String>);

impl Bringing<'_> {
    fn choose(
        &mut self,
        reached: Frontier<'_>,
        (counts, costs): (&Counts, Option<&Costs>),
        told: &Told,
    ) -> Result<Chosen, ViewsError> {
        let id = self.view.record.id;
        let mut sources = self.view.built.sources.clone();
        let mut with = vec![FRONTIERS.to_owned()];
        if self.view.record.own_capture().is_some() {
            // It has seen everything. What is recorded is of transactions that did not end as they began.
            return Ok((None, sources, with));
        }
        let mut is_changed = self.view.built.has_clock;
        let mut has_break = false;
        for (at, read) in self.view.reads.iter().enumerate() {
            let source = Source::Table(at);
            let Some(sql) = sources.get_mut(&source) else {
                continue;
            };
            match read {
                Read::Table { captured, .. } => {
                    let (rows, breaks) = counts.get(&(id, at)).copied().unwrap_or_default();
                    self.done.changes += rows;
                    has_break |= breaks > 0;
                    if rows > 0 {
                        sql.expected = magnitude(rows);
                        sql.is_consolidated = !self.view.built.is_plain(source);
                        let from = captured.since(sql.expected);
                        let changes = match sql.is_consolidated {
                            true => captured.consolidated(&from),
                            false => captured.as_recorded(&from),
                        };
                        let name = format!("egret_changes_{at}");
                        with.push(changes_as(&name, &changes, sql.is_consolidated));
                        sql.changes = Some(name);
                    }
                }
                Read::View(view) => {
                    if let Some((changes, rows)) = told.views.get(view).cloned().flatten() {
                        self.done.changes += rows;
                        sql.expected = magnitude(rows);
                        sql.changes = Some(changes);
                    }
                }
            }
            is_changed |= sql.changes.is_some();
        }
        if !is_changed && !has_break {
            return Ok((None, sources, with));
        }
        self.limits.check(self.done.changes)?;
        if self.view.built.has_clock && reached.clock.is_none() {
            self.done.why = "when it was computed last is not known".to_owned();
            return Ok((Some(Way::Full), sources, with));
        }
        let (way, why) = self.way(has_break, costs);
        self.done.why = why;
        Ok((Some(way), sources, with))
    }

    /// Which way it goes, and why.
    fn way(&self, has_break: bool, costs: Option<&Costs>) -> (Way, String) {
        match (has_break, self.view.built.is_whole) {
            (true, _) => (
                Way::Full,
                "a table changed in a way that rows do not tell: it was truncated or altered"
                    .to_owned(),
            ),
            (false, true) => (
                Way::Full,
                "the query is only computed as a whole".to_owned(),
            ),
            (false, false) if costs.is_some_and(|costs| costs.is_barred) => (
                Way::Full,
                "what changed could not be computed by itself".to_owned(),
            ),
            (false, false) => {
                let situation = Situation {
                    mode: self.view.record.mode,
                    changes: self.done.changes,
                    rows: self.view.rows,
                };
                choose(situation, costs.unwrap_or(&Costs::default()))
            }
        }
    }

    /// Applies what changed, stage by stage; returns the tables with what changed in those where that is asked.
    async fn apply(
        &mut self,
        frontier: Frontier<'_>,
        sources: BTreeMap<Source, SourceSql>,
        with: &[String],
        is_told: bool,
    ) -> Result<BTreeMap<usize, String>, ViewsError> {
        let mut sinks = BTreeMap::new();
        for step in self.view.built.applying(
            self.view.record.id,
            sources,
            is_told,
            Some(self.limits.delta_rows_max),
        ) {
            self.run(&step.statement.sql(with), frontier).await?;
            sinks.extend(step.sink.map(|sink| (step.stage, sink)));
        }
        Ok(sinks)
    }

    async fn rebuild(&mut self, is_told: bool) -> Result<BTreeMap<usize, String>, ViewsError> {
        self.done.is_full = true;
        let built = &self.view.built;
        let last = built.stages.len().saturating_sub(1);
        let with = [FRONTIERS.to_owned()];
        let mut sinks = BTreeMap::new();
        for (at, stage) in built.stages.iter().enumerate() {
            // Stages after it are computed anew as well, and need not be told.
            let sink = (at == last && is_told).then(|| sink_table(self.view.record.id, at));
            let statement = stage.rebuild(&built.types, &built.sources, sink.as_deref());
            self.run(&statement.sql(&with), NO_FRONTIER).await?;
            sinks.extend(sink.map(|sink| (at, sink)));
        }
        Ok(sinks)
    }

    /// The same; where that fails, it is not known.
    async fn compare_by_the_way(&mut self) -> Result<(), ViewsError> {
        self.client.batch_execute("SAVEPOINT egret_compare").await?;
        let before = self.work_mem_kb;
        if let Err(error) = self.compare().await {
            self.work_mem_kb = before;
            let undo = "ROLLBACK TO SAVEPOINT egret_compare";
            self.client.batch_execute(undo).await?;
            self.done.compare_error = Some(error.to_string());
        }
        Ok(())
    }

    async fn compare(&mut self) -> Result<(), ViewsError> {
        // Not by its name: its owner may have put another view in its place.
        let shown = format!("({})", self.view.built.shown());
        let definition = &self.view.record.definition;
        // Values that are equal are one, whatever they look like; of what has no equality, as json, the text is compared.
        let has_equality = self.view.built.has_equality();
        let row = |alias: &str| match has_equality {
            true => format!("ROW({alias}.*)"),
            false => format!("{alias}::text"),
        };
        let (one, other) = (row("v"), row("q"));
        let sql = format!(
            "WITH {FRONTIERS}, both_sides AS ( \
             SELECT r, count(*) FILTER (WHERE is_shown) AS shown, count(*) FILTER (WHERE NOT is_shown) AS asked FROM ( \
             SELECT {one} AS r, true AS is_shown FROM {shown} AS v UNION ALL SELECT {other}, false FROM ({definition}) AS q \
             ) AS every GROUP BY r) \
             SELECT coalesce(sum(least(shown, asked)), 0)::bigint AS added, \
             coalesce(sum(greatest(asked - shown, 0)), 0)::bigint AS changed, \
             coalesce(sum(greatest(shown - asked, 0)), 0)::bigint AS removed, 0::bigint AS wrong FROM both_sides"
        );
        let row = self.row(&sql, NO_FRONTIER, true).await?;
        self.done.compared = Some((row.get("added"), row.get("changed"), row.get("removed")));
        Ok(())
    }

    async fn run(&mut self, sql: &str, frontier: Frontier<'_>) -> Result<(), ViewsError> {
        let row = self
            .row(sql, frontier, self.done.is_full || self.view.built.asks())
            .await;
        let view = self.view.record.id;
        let row = match row {
            Err(ViewsError::Statement(error)) if !self.done.is_full && is_of_rows(&error) => {
                return Err(ViewsError::DeltaFailed { view, error });
            }
            row => row?,
        };
        let wrong: i64 = row.get("wrong");
        if wrong < 0 {
            return Err(ViewsError::FannedOut {
                view,
                rows_max: self.limits.delta_rows_max,
            });
        }
        if wrong > 0 {
            return Err(ViewsError::Drifted { view, rows: wrong });
        }
        let done = &mut self.done;
        (done.added, done.changed, done.removed) =
            (row.get("added"), row.get("changed"), row.get("removed"));
        self.has_moved |= done.added + done.changed + done.removed > 0;
        Ok(())
    }

    /// What is to be set before a statement.
    fn settings_for(&mut self, sql: &str, is_whole: bool) -> String {
        let changes = u64::try_from(self.done.changes).unwrap_or(0);
        let changes = Some(changes).filter(|_| !is_whole);
        let work_mem = work_mem_kb(self.limits.memory_max, sql, changes);
        let mut settings = std::mem::take(&mut self.settings).to_owned();
        if work_mem != self.work_mem_kb {
            self.work_mem_kb = work_mem;
            settings = format!("SET LOCAL work_mem = '{work_mem}kB'; {settings}");
        }
        settings
    }

    /// Keeps the plan of a statement, with what it came to when it was done, which is undone.
    async fn explain(&mut self, sql: &str, frontier: Frontier<'_>) -> Result<(), ViewsError> {
        self.client.batch_execute("SAVEPOINT egret_explain").await?;
        let owner = Some(&self.view.record.owner).filter(|_| self.view.record.is_of_another);
        let lines = explained_now(self.client, owner.map(String::as_str), (sql, frontier)).await;
        let plan = match lines {
            Ok(lines) => lines.join("\n"),
            Err(error) => {
                // What is left prepared would be in the way of the next. It was not where the statement cannot be.
                let undo = "ROLLBACK TO SAVEPOINT egret_explain";
                self.client.batch_execute(undo).await?;
                _ = self.client.batch_execute(DEALLOCATE).await;
                return Err(error);
            }
        };
        let undo = "ROLLBACK TO SAVEPOINT egret_explain; RELEASE SAVEPOINT egret_explain";
        self.client.batch_execute(undo).await?;
        let plans = self.done.plans.get_or_insert_default();
        if !plans.is_empty() {
            plans.push_str("\n\n");
        }
        plans.push_str(&plan);
        Ok(())
    }

    /// The row that a statement has, of four numbers, run with the rights of the view's owner. One that `is_whole` reads everything.
    async fn row(
        &mut self,
        sql: &str,
        frontier: Frontier<'_>,
        is_whole: bool,
    ) -> Result<Row, ViewsError> {
        let mut settings = self.settings_for(sql, is_whole);
        if self.is_explained {
            let settings = std::mem::take(&mut settings);
            self.client.batch_execute(&settings).await?;
            self.explain(sql, frontier).await?;
        }
        let Frontier { snapshot, clock } = frontier;
        let of_view: [&(dyn ToSql + Sync); 2] = [&snapshot, &clock];
        let of_runner: [&(dyn ToSql + Sync); 3] = [&sql, &snapshot, &clock];
        let query: Query<'_> = match self.view.record.is_of_another {
            false => (sql, &of_view),
            true => (rights::run(&self.view.record.owner), &of_runner),
        };
        let flight = Flight {
            plain: &settings,
            queries: &[query],
            ..Flight::default()
        };
        let answers = self.statements.fly(self.client, flight).await;
        let rows = answers.and_then(|answers| answers.into_iter().collect());
        if rows.is_err() && self.view.record.is_of_another {
            // It is not known what the code of the query has prepared in this session.
            self.statements.spoil();
        }
        let rows: Vec<Vec<Row>> = rows?;
        let row = rows.into_iter().flatten().next();
        Ok(row.expect("it has one row"))
    }
}

/// Whether an error is about the values of rows: of its class, or raised by a function.
fn is_of_rows(error: &Error) -> bool {
    const CLASSES: [&str; 4] = ["21", "22", "23", "P0"];
    let code = error.code().map(SqlState::code).unwrap_or_default();
    CLASSES.iter().any(|class| code.starts_with(class))
}

/// Changes as a common table expression. Where they are consolidated nothing is computed of those that take each other away: the planner
/// would have conditions computed before they do.
pub fn changes_as(name: &str, changes: &str, is_consolidated: bool) -> String {
    match is_consolidated {
        true => format!("{name} AS MATERIALIZED ({changes})"),
        false => format!("{name} AS ({changes})"),
    }
}

/// About so many rows, so that statements for others are not planned anew.
fn magnitude(rows: i64) -> u64 {
    let bits = u64::BITS - u64::try_from(rows).unwrap_or(0).leading_zeros();
    1 << (bits.div_ceil(3) * 3).min(u64::BITS - 1)
}

/// What changed for users of a view, of what changed in its last stage: a subquery.
fn shown_changes(built: &Built, sink: &str) -> String {
    let last = Source::Stage(built.stages.len().saturating_sub(1));
    let mut sources = built.sources.clone();
    if let Some(source) = sources.get_mut(&last) {
        source.changes = Some(sink.to_owned());
    }
    let blocks = Generator::new(&sources).changes(&built.presentation.node);
    let selects = blocks.iter().map(|block| {
        let columns = built.presentation.columns.iter();
        let mut list: Vec<String> = columns
            .map(|(name, id)| format!("{} AS {}", block.names()[id], quoted(name)))
            .collect();
        list.push(format!("{} AS {WEIGHT}", block.weight()));
        block.select(&list)
    });
    format!("({})", selects.collect::<Vec<_>>().join(" UNION ALL "))
}
