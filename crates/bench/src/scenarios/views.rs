//! `egret bench views`: what it takes to keep the results of queries fresh, with Egret and by hand.
//!
//! ```text
//! shape × rate: cycles of changes and refreshes ── …
//!               ── writes of tables with a view and without ── lag of a view
//! ```
//!
//! That is the matrix; other scenarios measure one thing each, in a file of their own. Views are
//! made, refreshed and dropped over HTTP, tables are written by a session of PostgreSQL, as users
//! do. After each part every view is compared with its query, row by row.

mod api;
mod chain;
mod fan_out;
mod findings;
mod idle;
mod lag;
mod many_views;
mod overhead;
mod plan;
mod refreshes;
mod schema;
mod shape;
mod tables;
mod throughput;
mod timed_refresh;
mod tpch;
mod write_floor;
mod writes;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use egret_bench_cli::{ViewsArgs, ViewsPart, ViewsScenario};
use serde_json::Value;

use crate::scenario::{Measurement, Scenario};
use crate::stage::Stage;
use findings::Findings;
use plan::ViewsPlan;
use refreshes::Block;
use schema::ScenarioSchema;

/// Salts of a block: one for each of its cycles, and more than there can be cycles.
const SALTS_PER_BLOCK: u32 = 1 << 16;

/// Takes neighbouring seeds far apart.
const SALT_MULTIPLIER: u32 = 0x9e37_79b9;

/// State of the scenario `views`.
pub struct Views {
    plan: ViewsPlan,
    is_private: bool,
    /// The database in which a running Egret keeps views.
    postgres: Option<String>,
    /// The metric by which runs are ranked.
    ranking_metric: String,
    schema: Option<ScenarioSchema>,
}

impl Views {
    /// Takes the arguments.
    ///
    /// # Errors
    /// When nothing is named by them.
    pub fn new(args: &ViewsArgs) -> Result<Self> {
        let plan = ViewsPlan::from_args(args);
        Ok(Self {
            ranking_metric: plan.ranking_metric(),
            plan,
            is_private: args.run.private,
            postgres: args.postgres.clone(),
            schema: None,
        })
    }

    /// The parts of the matrix.
    async fn measure_matrix(
        &self,
        stage: &Stage,
        schema: &ScenarioSchema,
        findings: &mut Findings,
    ) -> Result<()> {
        for part in &self.plan.parts {
            match part {
                ViewsPart::Refresh => self.measure_refreshes(stage, schema, findings).await?,
                ViewsPart::Write => {
                    stage.progress.show("writing with and without a view");
                    let (rows, rounds) = (self.plan.rows, self.plan.cycles);
                    let client = schema.connect().await?;
                    writes::measure(schema, &client, rows, rounds, findings).await?;
                }
                ViewsPart::Lag => self.measure_lag(stage, schema, findings).await?,
            }
        }
        Ok(())
    }

    /// Every shape at every rate.
    async fn measure_refreshes(
        &self,
        stage: &Stage,
        schema: &ScenarioSchema,
        findings: &mut Findings,
    ) -> Result<()> {
        let client = schema.connect().await?;
        let mut number = 0;
        for shape in &self.plan.shapes {
            for rate in &self.plan.rates {
                number += 1;
                stage.progress.show(format!("refreshing: {} at {rate}%", shape.name()));
                let block = Block {
                    schema,
                    client: &client,
                    shape: *shape,
                    rate: *rate,
                    rows: self.plan.rows,
                    cycles: self.plan.cycles,
                    salt: salt_of(stage.seed).wrapping_add(number as u32 * SALTS_PER_BLOCK),
                    number,
                };
                block.run(findings).await?;
            }
        }
        Ok(())
    }

    async fn measure_lag(
        &self,
        stage: &Stage,
        schema: &ScenarioSchema,
        findings: &mut Findings,
    ) -> Result<()> {
        stage.progress.show("committing rows");
        let load = lag::WriteLoad {
            rate: self.plan.commit_rate,
            window: self.plan.seconds,
            seed: stage.seed,
        };
        lag::measure(schema, &schema.connect().await?, &load, findings).await
    }

    async fn measure_tpch(
        &self,
        stage: &Stage,
        schema: &ScenarioSchema,
        findings: &mut Findings,
    ) -> Result<()> {
        let run = tpch::TpchRun {
            scale: self.plan.scale,
            queries: &self.plan.queries,
            cycles: self.plan.cycles,
            seed: stage.seed,
            progress: &stage.progress,
        };
        tpch::measure(schema, &schema.connect().await?, &run, findings).await
    }
}

/// Salt of the values of tables.
fn salt_of(seed: u64) -> u32 {
    (seed as u32).wrapping_mul(SALT_MULTIPLIER)
}

impl Scenario for Views {
    const NAME: &'static str = "views";

    fn parameters(&self) -> BTreeMap<String, Value> {
        self.plan.parameters()
    }

    fn private_settings(&self) -> Vec<(String, String)> {
        // This scenario makes no branches, so no volume for them is made either.
        vec![("branches.volume".to_owned(), "copy".to_owned())]
    }

    fn ranking_metric(&self) -> &str {
        &self.ranking_metric
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        let server = stage.server()?.clone();
        let schema = ScenarioSchema::open(&server, self.postgres.as_deref()).await?;
        let site = self.schema.insert(schema);
        let client = site.connect().await?;
        stage.subject.add_postgres_facts(&client, site.is_local()).await?;
        stage.subject.data_set = self.plan.data_set();
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let schema = self.schema.as_ref().context("the scenario is not prepared")?;
        let window = stage.open_window(None)?;
        let mut findings = Findings::new(window.origin());
        let results = &mut findings;
        let client = schema.connect().await?;
        let (plan, salt, progress) = (&self.plan, salt_of(stage.seed), &stage.progress);
        match plan.scenario {
            ViewsScenario::Matrix => self.measure_matrix(stage, schema, results).await?,
            ViewsScenario::Wide => self.measure_refreshes(stage, schema, results).await?,
            ViewsScenario::Tpch => self.measure_tpch(stage, schema, results).await?,
            ViewsScenario::Chain => {
                progress.show("refreshing a chain of views");
                chain::measure(schema, &client, plan, salt, results).await?;
            }
            ViewsScenario::Fan => {
                progress.show("refreshing independent views");
                fan_out::measure(schema, &client, plan, salt, results).await?;
            }
            ViewsScenario::Idle => {
                progress.show("measuring idle views");
                let processes = &stage.subject.processes;
                idle::measure(schema, &client, plan, processes, results).await?;
            }
            ViewsScenario::Lag => {
                self.measure_lag(stage, schema, results).await?;
                progress.show("committing rows at the maximum rate");
                throughput::measure(schema, &client, plan.seconds, results).await?;
            }
            ViewsScenario::Overhead => {
                progress.show("writing with and without a view");
                overhead::measure(schema, &client, plan, results).await?;
            }
        }
        Ok(findings.into_measurement(window.close().await?))
    }

    async fn clean(&mut self, _stage: &mut Stage) -> Result<()> {
        match self.schema.take() {
            // A private server is gone with its data.
            Some(schema) if !self.is_private => schema.remove().await,
            _ => Ok(()),
        }
    }
}
