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
    pub(super) schema: &'a ScenarioSchema,
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
    pub(super) fn metric_name(shape: ViewsShape, rate: f64, what: &str) -> String {
        format!("{}.{rate}.{what}", shape.name())
    }

    fn own_metric_name(&self, what: &str) -> String {
        Self::metric_name(self.shape, self.rate, what)
    }

    /// Measures refreshes of one shape.
    pub(super) async fn run(&self, findings: &mut Findings) -> Result<()> {
        let mut arms = Vec::new();
        for mode in MODES {
            arms.push(self.create_arm(mode).await?);
        }
        // All tables have the same rows: those of the first arm do for what is done by hand.
        let definition = &arms[0].definition;
        let floor = Floor::create(self.schema, self.client, definition).await?;
        let tables: Vec<&str> =
            arms.iter().map(|arm| arm.tables.source.as_str()).chain([floor.table()]).collect();
        self.schema.vacuum_and_checkpoint(self.client, &tables).await?;
        for number in 0..WARMUP + self.cycles {
            self.run_cycle(&arms, &floor, number, findings).await?;
        }
        for arm in &arms {
            let query = &arm.definition.query;
            findings.compare_view(self.schema, self.client, &arm.view, query).await?;
        }
        for _ in 0..self.cycles {
            floor.create_recompute_table().await?;
            let begun = Instant::now();
            floor.recompute().await?;
            findings.record(&self.own_metric_name("recompute"), begun, begun.elapsed());
        }
        floor.verify_and_drop().await?;
        for arm in &arms {
            self.schema.api.drop(&arm.view).await?;
            arm.tables.drop(self.client).await?;
        }
        let [speedup, numerator, denominator] =
            ["speedup", FULL, INCREMENTAL].map(|what| self.own_metric_name(what));
        findings.add_ratio(speedup, numerator, denominator, Better::Higher);
        Ok(())
    }

    async fn create_arm(&self, mode: &'static str) -> Result<Arm> {
        let extra_columns = Definition::extra_columns(self.shape);
        let tables = Tables::create_with_extra_columns(
            self.schema,
            self.client,
            mode,
            self.rows,
            extra_columns,
            self.salt,
        )
        .await?;
        let definition = Definition::for_shape(self.shape, &tables.source, &tables.dimension);
        let view = self.schema.qualified_name(&format!("view_{mode}"));
        let new = NewView { name: &view, query: &definition.query, mode, schedule: "manual" };
        self.schema
            .vacuum_and_checkpoint(self.client, &[&tables.source, &tables.dimension])
            .await?;
        self.schema.api.create(&new).await?;
        Ok(Arm { mode, view, tables, definition })
    }

    async fn run_cycle(
        &self,
        arms: &[Arm],
        floor: &Floor<'_>,
        number: u32,
        findings: &mut Findings,
    ) -> Result<()> {
        let changes = Changes::from_percent(self.rows, self.rate);
        let salt = self.salt.wrapping_add(1 + number);
        for arm in arms {
            arm.tables.change(self.client, changes, salt).await?;
        }
        floor.compute_net_changes().await?;
        let is_measured = number >= WARMUP;
        let (cycle_start, mut latencies_ms) = (Instant::now(), BTreeMap::new());
        let arm_count = arms.len() + 1;
        for index in 0..arm_count {
            // The place behind the views is the floor's.
            let arm = arms.get((index + number as usize) % arm_count);
            let operation = self.own_metric_name(arm.map_or("floor", |arm| arm.mode));
            let begun = Instant::now();
            let duration = match arm {
                Some(arm) => {
                    timed_refresh::refresh(
                        self.schema,
                        &arm.view,
                        &operation,
                        is_measured,
                        findings,
                    )
                    .await?
                    .duration
                }
                None => self.write_floor(floor, &operation, is_measured, findings).await?,
            };
            let is_incremental = arm.is_some_and(|arm| arm.mode == INCREMENTAL);
            if is_measured && changes.is_empty() && is_incremental {
                findings.record("noop", begun, duration);
            }
            latencies_ms.insert(operation, millis(duration));
        }
        let group = if is_measured { self.number } else { 0 };
        findings.add_cycle(number, group, cycle_start, latencies_ms);
        Ok(())
    }

    /// The turn of the floor.
    async fn write_floor(
        &self,
        floor: &Floor<'_>,
        operation: &str,
        is_measured: bool,
        findings: &mut Findings,
    ) -> Result<Duration> {
        let begun = Instant::now();
        floor.apply_net_changes().await?;
        let duration = begun.elapsed();
        tokio::time::sleep(PAUSE).await;
        if is_measured {
            findings.record(operation, begun, duration);
        }
        Ok(duration)
    }
}
