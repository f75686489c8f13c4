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
const CYCLES_MAX: Duration = Duration::from_secs(300);

/// The arm without a view.
const RECOMPUTE: &str = "recompute";

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
    site: &'a ScenarioSchema,
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
    site: &ScenarioSchema,
    client: &Client,
    run: &TpchRun<'_>,
    findings: &mut Findings,
) -> Result<()> {
    run.progress
        .say(format!("filling the tables of TPC-H, scale {}", run.scale));
    let mut data = TpchTables::make(site, client, run.scale, run.seed).await?;
    let (mut exact, mut unchanged) = (0, 0);
    for &number in run.queries {
        run.progress
            .say(format!("refreshing: query {number} of TPC-H"));
        let mut query = TpchQuery {
            site,
            client,
            number,
            sql: data.sql(&queries::query(number, run.scale)),
            modes: Vec::new(),
            has_changed: false,
        };
        query.make(findings).await?;
        query.cycles(run, &mut data, findings).await?;
        exact += u64::from(query.is_exact(findings).await?);
        query.drop().await?;
        unchanged += u64::from(query.is_unchanged());
        query.ratios(findings);
    }
    let queries = run.queries.len() as u64;
    let count = |better, value: u64| scalar("count", better, value as f64, queries);
    findings.metric("tpch.exact", count(Better::Higher, exact));
    findings.metric("tpch.unchanged", count(Better::Neither, unchanged));
    findings.faster("tpch.faster_than_full", ".speedup", queries);
    findings.faster("tpch.faster_than_recompute", ".recompute_speedup", queries);
    data.drop(client).await
}

impl TpchQuery<'_> {
    fn named(&self, what: &str) -> String {
        format!("tpch.q{:02}.{what}", self.number)
    }

    fn view(&self, mode: &str) -> String {
        self.site.named(&format!("q{:02}_{mode}", self.number))
    }

    async fn make(&mut self, findings: &mut Findings) -> Result<()> {
        for mode in MODES {
            let view = self.view(mode);
            let new = NewView {
                name: &view,
                query: &self.sql,
                mode,
                schedule: "manual",
            };
            match self.site.api.create(&new).await {
                Ok(()) => self.modes.push(mode),
                Err(error) => self.found(mode, error, findings)?,
            }
        }
        Ok(())
    }

    /// Notes why there is no view of a mode, or none any more.
    fn found(&self, mode: &str, error: Error, findings: &mut Findings) -> Result<()> {
        // Wrong usage or an unreachable server is an error of the run, not a finding.
        if error.is::<Refusal>() {
            return Err(error);
        }
        findings.warn(format!("{}: {error:#}", self.named(mode)));
        Ok(())
    }

    async fn cycles(
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
            if begun.elapsed() > CYCLES_MAX {
                findings.warn(format!(
                    "{}: ended after {number} cycles, which took {} s",
                    self.named("cycles"),
                    begun.elapsed().as_secs()
                ));
                break;
            }
            data.change(self.client).await?;
            self.cycle(number, findings).await?;
        }
        Ok(())
    }

    async fn cycle(&mut self, number: u32, findings: &mut Findings) -> Result<()> {
        let counts = number >= WARMUP;
        let (first, mut latencies_ms) = (Instant::now(), BTreeMap::new());
        let mut turns = self.modes.clone();
        turns.push(RECOMPUTE);
        let places = turns.len();
        turns.rotate_left(number as usize % places);
        for arm in turns {
            let took = match arm {
                RECOMPUTE => Some(self.recompute(counts, findings).await?),
                mode => self.refresh(mode, counts, findings).await?,
            };
            latencies_ms.extend(took.map(|took| (self.named(arm), millis(took))));
        }
        let group = if counts { u64::from(self.number) } else { 0 };
        findings.cycle(number, group, first, latencies_ms);
        Ok(())
    }

    /// The turn of a view; one that cannot be refreshed is dropped.
    async fn refresh(
        &mut self,
        mode: &'static str,
        counts: bool,
        findings: &mut Findings,
    ) -> Result<Option<Duration>> {
        let (view, operation) = (self.view(mode), self.named(mode));
        match timed_refresh::refresh(self.site, &view, &operation, counts, findings).await {
            Ok(turn) => {
                self.has_changed |= !turn.was_idle;
                Ok(Some(turn.took))
            }
            Err(error) => {
                self.found(mode, error, findings)?;
                self.site.api.drop(&view).await?;
                self.modes.retain(|other| *other != mode);
                Ok(None)
            }
        }
    }

    /// The turn of the query itself.
    async fn recompute(&self, counts: bool, findings: &mut Findings) -> Result<Duration> {
        let table = self.site.named("by_hand");
        let sql = format!("CREATE TABLE {table} AS {}", self.sql);
        let begun = Instant::now();
        self.client.batch_execute(&sql).await?;
        let took = begun.elapsed();
        if counts {
            findings.took(&self.named(RECOMPUTE), begun, took);
        }
        self.client
            .batch_execute(&format!("DROP TABLE {table}"))
            .await?;
        Ok(took)
    }

    /// Whether it reads nothing that changes, as far as its views can tell.
    fn is_unchanged(&self) -> bool {
        !self.modes.is_empty() && !self.has_changed
    }

    /// How much longer other arms took than the incremental one, where that has come to its end.
    fn ratios(&self, findings: &mut Findings) {
        if !self.modes.contains(&INCREMENTAL) {
            return;
        }
        let whole = if self.is_unchanged() { RECOMPUTE } else { FULL };
        for (name, above) in [("speedup", whole), ("recompute_speedup", RECOMPUTE)] {
            let [name, above, below] = [name, above, INCREMENTAL].map(|what| self.named(what));
            findings.ratio(name, above, below, Better::Higher);
        }
    }

    /// Whether every view is there and is what the query gives.
    async fn is_exact(&self, findings: &mut Findings) -> Result<bool> {
        let mut is_exact = self.modes.len() == MODES.len();
        for mode in &self.modes {
            let view = self.view(mode);
            let differing = findings
                .compare(self.site, self.client, &view, &self.sql)
                .await?;
            is_exact &= differing == 0;
        }
        Ok(is_exact)
    }

    async fn drop(&self) -> Result<()> {
        for mode in &self.modes {
            self.site.api.drop(&self.view(mode)).await?;
        }
        Ok(())
    }
}
