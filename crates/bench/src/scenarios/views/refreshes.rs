//! What a refresh takes: one shape at one rate of changes.
//!
//! ```text
//! tables and views made ── cycle ── cycle ── … ── each view compared with its query ── dropped
//!
//! cycle   changes, the same in each table ── net changes worked out ── in turn:
//!             refresh incremental, refresh full, refresh auto, the floor by hand
//! ```
//!
//! Each view has tables of its own, with the same rows: what waits for one and has to be put away
//! after its refresh is no other's. The order changes in each cycle. Between turns there is
//! a pause, for what a refresh leaves to be done behind it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use egret_bench_cli::ViewsShape;
use tokio_postgres::Client;

use super::api::NewView;
use super::findings::Findings;
use super::schema::ScenarioSchema;
use super::shape::Definition;
use super::tables::{Changes, Tables};
use super::timed_refresh::{self, FULL, INCREMENTAL, MODES, PAUSE, WARMUP};
use super::write_floor::Floor;
use crate::record::millis;
use crate::result::Better;

/// One shape at one rate.
pub(super) struct Block<'a> {
    pub(super) site: &'a ScenarioSchema,
    pub(super) client: &'a Client,
    pub(super) shape: ViewsShape,
    /// How many rows change before each refresh, in percent.
    pub(super) rate: f64,
    /// Rows of a source.
    pub(super) rows: u32,
    pub(super) cycles: u32,
    /// Salt of the random values.
    pub(super) salt: u32,
    /// Its number among all, from 1 on.
    pub(super) number: u64,
}

/// A view and what it reads.
struct Arm {
    mode: &'static str,
    view: String,
    tables: Tables,
    definition: Definition,
}

impl Block<'_> {
    /// The name of a metric.
    pub(super) fn metric(shape: ViewsShape, rate: f64, what: &str) -> String {
        format!("{}.{rate}.{what}", shape.name())
    }

    fn named(&self, what: &str) -> String {
        Self::metric(self.shape, self.rate, what)
    }

    /// Measures refreshes of one shape.
    pub(super) async fn run(&self, findings: &mut Findings) -> Result<()> {
        let mut arms = Vec::new();
        for mode in MODES {
            arms.push(self.make(mode).await?);
        }
        // All tables have the same rows: those of the first arm do for what is done by hand.
        let definition = &arms[0].definition;
        let floor = Floor::make(self.site, self.client, definition).await?;
        let tables: Vec<&str> = arms
            .iter()
            .map(|arm| arm.tables.source.as_str())
            .chain([floor.table()])
            .collect();
        self.site.settle(self.client, &tables).await?;
        for number in 0..WARMUP + self.cycles {
            self.cycle(&arms, &floor, number, findings).await?;
        }
        for arm in &arms {
            let query = &arm.definition.query;
            findings
                .compare(self.site, self.client, &arm.view, query)
                .await?;
        }
        for _ in 0..self.cycles {
            floor.prepare_recomputation().await?;
            let begun = Instant::now();
            floor.recompute().await?;
            findings.took(&self.named("recompute"), begun, begun.elapsed());
        }
        floor.finish().await?;
        for arm in &arms {
            self.site.api.drop(&arm.view).await?;
            arm.tables.drop(self.client).await?;
        }
        let [speedup, above, below] = ["speedup", FULL, INCREMENTAL].map(|what| self.named(what));
        findings.ratio(speedup, above, below, Better::Higher);
        Ok(())
    }

    async fn make(&self, mode: &'static str) -> Result<Arm> {
        let others = Definition::others(self.shape);
        let tables =
            Tables::make_wider(self.site, self.client, mode, self.rows, others, self.salt).await?;
        let definition = Definition::of(self.shape, &tables.source, &tables.dimension);
        let view = self.site.named(&format!("view_{mode}"));
        let new = NewView {
            name: &view,
            query: &definition.query,
            mode,
            schedule: "manual",
        };
        self.site
            .settle(self.client, &[&tables.source, &tables.dimension])
            .await?;
        self.site.api.create(&new).await?;
        Ok(Arm {
            mode,
            view,
            tables,
            definition,
        })
    }

    async fn cycle(
        &self,
        arms: &[Arm],
        floor: &Floor<'_>,
        number: u32,
        findings: &mut Findings,
    ) -> Result<()> {
        let changes = Changes::of(self.rows, self.rate);
        let salt = self.salt.wrapping_add(1 + number);
        for arm in arms {
            arm.tables.change(self.client, changes, salt).await?;
        }
        floor.prepare().await?;
        let counts = number >= WARMUP;
        let (first, mut latencies_ms) = (Instant::now(), BTreeMap::new());
        let places = arms.len() + 1;
        for turn in 0..places {
            // The place behind the views is the floor's.
            let arm = arms.get((turn + number as usize) % places);
            let operation = self.named(arm.map_or("floor", |arm| arm.mode));
            let begun = Instant::now();
            let took = match arm {
                Some(arm) => {
                    timed_refresh::refresh(self.site, &arm.view, &operation, counts, findings)
                        .await?
                        .took
                }
                None => self.by_hand(floor, &operation, counts, findings).await?,
            };
            let is_incremental = arm.is_some_and(|arm| arm.mode == INCREMENTAL);
            if counts && changes.are_none() && is_incremental {
                findings.took("noop", begun, took);
            }
            latencies_ms.insert(operation, millis(took));
        }
        let group = if counts { self.number } else { 0 };
        findings.cycle(number, group, first, latencies_ms);
        Ok(())
    }

    /// The turn of the floor.
    async fn by_hand(
        &self,
        floor: &Floor<'_>,
        operation: &str,
        counts: bool,
        findings: &mut Findings,
    ) -> Result<Duration> {
        let begun = Instant::now();
        floor.write().await?;
        let took = begun.elapsed();
        tokio::time::sleep(PAUSE).await;
        if counts {
            findings.took(operation, begun, took);
        }
        Ok(took)
    }
}
