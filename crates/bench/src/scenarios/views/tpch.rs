//! The 22 queries of TPC-H as views, each refreshed after batches of orders that come and go.
//!
//! ```text
//! tables filled ── query 1 ── query 2 ── … ── tables dropped
//!
//! query   three views of it made ── cycle ── cycle ── … ── each compared with the query ── dropped
//! cycle   a batch ── in turn, another one first each time: refresh incremental, full, auto
//! ```
//!
//! The views of a query are beside each other over the same tables, so that every batch is applied once and all refresh with
//! the same changes; tables for each would be three times the data, most of it never changed. What is recorded of a batch is put
//! away behind the refresh that is the last to read it, which is another one's in each cycle.
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
use super::site::Site;
use super::turn::{self, FULL, INCREMENTAL, MODES, WARMUP};
use crate::progress::Progress;
use crate::record::{millis, scalar};
use crate::refusal::Refusal;
use crate::result::{Better, Cycle};
use data::Data;

/// A query's cycles end when they have taken so long together.
const CYCLES_MAX: Duration = Duration::from_secs(300);

/// What is measured.
pub(super) struct Plan<'a> {
    /// The scale factor: 6,000,000 lines of orders for each 1.
    pub(super) scale: f64,
    /// Numbers of queries.
    pub(super) queries: &'a [u32],
    /// Cycles that count.
    pub(super) cycles: u32,
    /// Where values come from.
    pub(super) seed: u64,
    /// Told what is being done.
    pub(super) progress: &'a Progress,
}

/// A query and its views.
struct Query<'a> {
    site: &'a Site,
    client: &'a Client,
    number: u32,
    sql: String,
    /// Modes of the views that are there.
    modes: Vec<&'static str>,
}

/// Measures it.
///
/// # Errors
/// Egret's or the server's, but not for a query.
pub(super) async fn measure(
    site: &Site,
    client: &Client,
    plan: &Plan<'_>,
    findings: &mut Findings,
) -> Result<()> {
    plan.progress
        .say(format!("filling the tables of TPC-H, scale {}", plan.scale));
    let mut data = Data::make(site, client, plan.scale, plan.seed).await?;
    let mut exact = 0;
    for &number in plan.queries {
        plan.progress
            .say(format!("refreshing: query {number} of TPC-H"));
        let mut query = Query {
            site,
            client,
            number,
            sql: data.sql(&queries::query(number, plan.scale)),
            modes: Vec::new(),
        };
        query.make(findings).await?;
        query.cycles(plan, &mut data, findings).await?;
        exact += u64::from(query.is_exact(findings).await?);
        query.drop().await?;
        let [above, below] = [FULL, INCREMENTAL].map(|mode| query.named(mode));
        findings.ratio(query.named("speedup"), above, below, Better::Higher);
    }
    let queries = plan.queries.len() as u64;
    let exact = scalar("count", Better::Higher, exact as f64, queries);
    findings.metric("tpch.exact", exact);
    findings.faster("tpch.faster_than_full", ".speedup", queries);
    data.drop(client).await
}

impl Query<'_> {
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
        // That nobody answers is no finding.
        if error.is::<Refusal>() {
            return Err(error);
        }
        findings.warn(format!("{}: {error:#}", self.named(mode)));
        Ok(())
    }

    async fn cycles(
        &mut self,
        plan: &Plan<'_>,
        data: &mut Data<'_>,
        findings: &mut Findings,
    ) -> Result<()> {
        let begun = Instant::now();
        for number in 0..WARMUP + plan.cycles {
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
        turns.rotate_left(number as usize % self.modes.len());
        for mode in turns {
            let (view, operation) = (self.view(mode), self.named(mode));
            match turn::refresh(self.site, &view, &operation, counts, findings).await {
                Ok(took) => {
                    latencies_ms.insert(operation, millis(took));
                }
                Err(error) => {
                    self.found(mode, error, findings)?;
                    self.site.api.drop(&view).await?;
                    self.modes.retain(|other| *other != mode);
                }
            }
        }
        findings.cycle(Cycle {
            index: u64::from(number),
            // Of those that do not count the group is none.
            group: if counts { u64::from(self.number) } else { 0 },
            at_ms: millis(findings.at(first)),
            latencies_ms,
            error: None,
        });
        Ok(())
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
