//! The 22 queries of TPC-H as views, each refreshed after batches of orders that come and go.
//!
//! ```text
//! tables filled ── query 1 ── query 2 ── … ── tables dropped
//!
//! query   three views of it made ── cycle ── cycle ── … ── each compared with the query ── dropped
//! cycle   a batch ── in turn, another one first each time: refresh incremental, full, auto;
//!         the query written into a table
//! ```
//!
//! The views of a query are beside each other over the same tables, so that every batch is applied
//! once and all refresh with the same changes; tables for each would be three times the data, most
//! of it never changed. What is recorded of a batch is put away behind the refresh that is the last
//! to read it, which is another one's in each cycle.
//!
//! Three queries read no table that changes. Nothing is computed for them in any mode, so that they
//! are held against the query as it is written into a table by hand.
//!
//! A query that Egret refuses, or cannot refresh, is a finding and not the end of the measurement.

mod data;
mod queries;
mod rows;
mod text;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use tokio_postgres::Client;

use super::api::NewView;
use super::findings::Findings;
use super::schema::ScenarioSchema;
use super::timed_refresh::{self, FULL, INCREMENTAL, MODES, WARMUP};
use crate::progress::Progress;
use crate::record::{millis, scalar};
use crate::refusal::Refusal;
use crate::result::Better;
use data::TpchTables;

/// A query's cycles end when they have taken so long together.
const CYCLES_DURATION_MAX: Duration = Duration::from_secs(300);

/// The arm without a view.
const RECOMPUTE_ARM: &str = "recompute";

pub(super) struct TpchRun<'a> {
    /// The scale factor: 6,000,000 lines of orders for each 1.
    pub(super) scale: f64,
    pub(super) queries: &'a [u32],
    pub(super) cycles: u32,
    /// Seed of the random values.
    pub(super) seed: u64,
    /// Told what is being done.
    pub(super) progress: &'a Progress,
}

/// A query and its views.
struct TpchQuery<'a> {
    schema: &'a ScenarioSchema,
    client: &'a Client,
    number: u32,
    sql: String,
    /// Modes of the views that are there.
    modes: Vec<&'static str>,
    /// A refresh has found something changed.
    has_changed: bool,
}

/// Measures it.
///
/// # Errors
/// Egret's or the server's, but not for a query.
pub(super) async fn measure(
    schema: &ScenarioSchema,
    client: &Client,
    run: &TpchRun<'_>,
    findings: &mut Findings,
) -> Result<()> {
    run.progress.show(format!("filling the tables of TPC-H, scale {}", run.scale));
    let mut data = TpchTables::create(schema, client, run.scale, run.seed).await?;
    let (mut exact_count, mut unchanged_count) = (0, 0);
    for &number in run.queries {
        run.progress.show(format!("refreshing: query {number} of TPC-H"));
        let mut query = TpchQuery {
            schema,
            client,
            number,
            sql: data.qualify(&queries::query_text(number, run.scale)),
            modes: Vec::new(),
            has_changed: false,
        };
        query.create_views(findings).await?;
        query.run_cycles(run, &mut data, findings).await?;
        exact_count += u64::from(query.compare_views(findings).await?);
        query.drop_views().await?;
        unchanged_count += u64::from(query.is_unchanged());
        query.add_ratios(findings);
    }
    let queries = run.queries.len() as u64;
    let count = |better, value: u64| scalar("count", better, value as f64, queries);
    findings.add_metric("tpch.exact", count(Better::Higher, exact_count));
    findings.add_metric("tpch.unchanged", count(Better::Neither, unchanged_count));
    findings.add_faster_count("tpch.faster_than_full", ".speedup", queries);
    findings.add_faster_count("tpch.faster_than_recompute", ".recompute_speedup", queries);
    data.drop(client).await
}

impl TpchQuery<'_> {
    fn metric_name(&self, what: &str) -> String {
        format!("tpch.q{:02}.{what}", self.number)
    }

    fn view_name(&self, mode: &str) -> String {
        self.schema.qualified_name(&format!("q{:02}_{mode}", self.number))
    }

    async fn create_views(&mut self, findings: &mut Findings) -> Result<()> {
        for mode in MODES {
            let view = self.view_name(mode);
            let new = NewView { name: &view, query: &self.sql, mode, schedule: "manual" };
            match self.schema.api.create(&new).await {
                Ok(()) => self.modes.push(mode),
                Err(error) => self.note_failure(mode, error, findings)?,
            }
        }
        Ok(())
    }

    /// Notes why there is no view of a mode, or none any more.
    fn note_failure(&self, mode: &str, error: Error, findings: &mut Findings) -> Result<()> {
        // Wrong usage or an unreachable server is an error of the run, not a finding.
        if error.is::<Refusal>() {
            return Err(error);
        }
        findings.add_warning(format!("{}: {error:#}", self.metric_name(mode)));
        Ok(())
    }

    async fn run_cycles(
        &mut self,
        run: &TpchRun<'_>,
        data: &mut TpchTables<'_>,
        findings: &mut Findings,
    ) -> Result<()> {
        let begun = Instant::now();
        for number in 0..WARMUP + run.cycles {
            if self.modes.is_empty() {
                break;
            }
            if begun.elapsed() > CYCLES_DURATION_MAX {
                findings.add_warning(format!(
                    "{}: ended after {number} cycles, which took {} s",
                    self.metric_name("cycles"),
                    begun.elapsed().as_secs()
                ));
                break;
            }
            data.apply_batch(self.client).await?;
            self.run_cycle(number, findings).await?;
        }
        Ok(())
    }

    async fn run_cycle(&mut self, number: u32, findings: &mut Findings) -> Result<()> {
        let is_measured = number >= WARMUP;
        let (cycle_start, mut latencies_ms) = (Instant::now(), BTreeMap::new());
        let mut arms = self.modes.clone();
        arms.push(RECOMPUTE_ARM);
        let arm_count = arms.len();
        arms.rotate_left(number as usize % arm_count);
        for arm in arms {
            let duration = match arm {
                RECOMPUTE_ARM => Some(self.recompute(is_measured, findings).await?),
                mode => self.refresh_view(mode, is_measured, findings).await?,
            };
            latencies_ms.extend(duration.map(|took| (self.metric_name(arm), millis(took))));
        }
        let group = if is_measured { u64::from(self.number) } else { 0 };
        findings.add_cycle(number, group, cycle_start, latencies_ms);
        Ok(())
    }

    /// The turn of a view; one that cannot be refreshed is dropped.
    async fn refresh_view(
        &mut self,
        mode: &'static str,
        is_measured: bool,
        findings: &mut Findings,
    ) -> Result<Option<Duration>> {
        let (view, operation) = (self.view_name(mode), self.metric_name(mode));
        match timed_refresh::refresh(self.schema, &view, &operation, is_measured, findings).await {
            Ok(turn) => {
                self.has_changed |= !turn.was_idle;
                Ok(Some(turn.duration))
            }
            Err(error) => {
                self.note_failure(mode, error, findings)?;
                self.schema.api.drop(&view).await?;
                self.modes.retain(|other| *other != mode);
                Ok(None)
            }
        }
    }

    /// The turn of the query itself.
    async fn recompute(&self, is_measured: bool, findings: &mut Findings) -> Result<Duration> {
        let table = self.schema.qualified_name("by_hand");
        let sql = format!("CREATE TABLE {table} AS {}", self.sql);
        let begun = Instant::now();
        self.client.batch_execute(&sql).await?;
        let duration = begun.elapsed();
        if is_measured {
            findings.record(&self.metric_name(RECOMPUTE_ARM), begun, duration);
        }
        self.client.batch_execute(&format!("DROP TABLE {table}")).await?;
        Ok(duration)
    }

    /// Whether it reads nothing that changes, as far as its views can tell.
    fn is_unchanged(&self) -> bool {
        !self.modes.is_empty() && !self.has_changed
    }

    /// How much longer other arms took than the incremental one, where that has come to its end.
    fn add_ratios(&self, findings: &mut Findings) {
        if !self.modes.contains(&INCREMENTAL) {
            return;
        }
        let full_arm = if self.is_unchanged() { RECOMPUTE_ARM } else { FULL };
        for (name, numerator) in [("speedup", full_arm), ("recompute_speedup", RECOMPUTE_ARM)] {
            let [name, above, denominator] =
                [name, numerator, INCREMENTAL].map(|what| self.metric_name(what));
            findings.add_ratio(name, above, denominator, Better::Higher);
        }
    }

    /// Whether every view is there and is what the query gives.
    async fn compare_views(&self, findings: &mut Findings) -> Result<bool> {
        let mut is_exact = self.modes.len() == MODES.len();
        for mode in &self.modes {
            let view = self.view_name(mode);
            let differing_rows =
                findings.compare_view(self.schema, self.client, &view, &self.sql).await?;
            is_exact &= differing_rows == 0;
        }
        Ok(is_exact)
    }

    async fn drop_views(&self) -> Result<()> {
        for mode in &self.modes {
            self.schema.api.drop(&self.view_name(mode)).await?;
        }
        Ok(())
    }
}
