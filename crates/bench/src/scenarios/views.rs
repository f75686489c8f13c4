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
const SALTS: u32 = 1 << 16;

/// Takes neighbouring seeds far apart.
const SPREAD: u32 = 0x9e37_79b9;

/// State of the scenario `views`.
pub struct Views {
    plan: ViewsPlan,
    is_private: bool,
    /// The database in which a running Egret keeps views.
    postgres: Option<String>,
    /// The metric by which runs are ranked.
    headline: String,
    site: Option<ScenarioSchema>,
}

impl Views {
    /// Takes the arguments.
    ///
    /// # Errors
    /// When nothing is named by them.
    pub fn new(args: &ViewsArgs) -> Result<Self> {
        let plan = ViewsPlan::of(args);
        Ok(Self {
            headline: plan.headline(),
            plan,
            is_private: args.run.private,
            postgres: args.postgres.clone(),
            site: None,
        })
    }

    /// The parts of the matrix.
    async fn matrix(
        &self,
        stage: &Stage,
        site: &ScenarioSchema,
        findings: &mut Findings,
    ) -> Result<()> {
        for part in &self.plan.parts {
            match part {
                ViewsPart::Refresh => self.refreshes(stage, site, findings).await?,
                ViewsPart::Write => {
                    stage.progress.say("writing with and without a view");
                    let (rows, rounds) = (self.plan.rows, self.plan.cycles);
                    let client = site.client().await?;
                    writes::measure(site, &client, rows, rounds, findings).await?;
                }
                ViewsPart::Lag => self.lag(stage, site, findings).await?,
            }
        }
        Ok(())
    }

    /// Every shape at every rate.
    async fn refreshes(
        &self,
        stage: &Stage,
        site: &ScenarioSchema,
        findings: &mut Findings,
    ) -> Result<()> {
        let client = site.client().await?;
        let mut number = 0;
        for shape in &self.plan.shapes {
            for rate in &self.plan.rates {
                number += 1;
                stage
                    .progress
                    .say(format!("refreshing: {} at {rate}%", shape.name()));
                let block = Block {
                    site,
                    client: &client,
                    shape: *shape,
                    rate: *rate,
                    rows: self.plan.rows,
                    cycles: self.plan.cycles,
                    salt: salt(stage.seed).wrapping_add(number as u32 * SALTS),
                    number,
                };
                block.run(findings).await?;
            }
        }
        Ok(())
    }

    async fn lag(
        &self,
        stage: &Stage,
        site: &ScenarioSchema,
        findings: &mut Findings,
    ) -> Result<()> {
        stage.progress.say("committing rows");
        let load = lag::WriteLoad {
            rate: self.plan.commit_rate,
            window: self.plan.seconds,
            seed: stage.seed,
        };
        lag::measure(site, &site.client().await?, &load, findings).await
    }

    async fn tpch(
        &self,
        stage: &Stage,
        site: &ScenarioSchema,
        findings: &mut Findings,
    ) -> Result<()> {
        let run = tpch::TpchRun {
            scale: self.plan.scale,
            queries: &self.plan.queries,
            cycles: self.plan.cycles,
            seed: stage.seed,
            progress: &stage.progress,
        };
        tpch::measure(site, &site.client().await?, &run, findings).await
    }
}

/// Salt of the values of tables.
fn salt(seed: u64) -> u32 {
    (seed as u32).wrapping_mul(SPREAD)
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

    fn headline(&self) -> &str {
        &self.headline
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        let server = stage.server()?.clone();
        let site = ScenarioSchema::open(&server, self.postgres.as_deref()).await?;
        let site = self.site.insert(site);
        let client = site.client().await?;
        stage.subject.ask(&client, site.is_local()).await?;
        stage.subject.data_set = self.plan.data_set();
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let site = self.site.as_ref().context("the scenario is not prepared")?;
        let window = stage.open_window(None)?;
        let mut findings = Findings::new(window.origin());
        let found = &mut findings;
        let client = site.client().await?;
        let (plan, salt, progress) = (&self.plan, salt(stage.seed), &stage.progress);
        match plan.scenario {
            ViewsScenario::Matrix => self.matrix(stage, site, found).await?,
            ViewsScenario::Wide => self.refreshes(stage, site, found).await?,
            ViewsScenario::Tpch => self.tpch(stage, site, found).await?,
            ViewsScenario::Chain => {
                progress.say("refreshing a chain of views");
                chain::measure(site, &client, plan, salt, found).await?;
            }
            ViewsScenario::Fan => {
                progress.say("refreshing independent views");
                fan_out::measure(site, &client, plan, salt, found).await?;
            }
            ViewsScenario::Idle => {
                progress.say("measuring idle views");
                let processes = &stage.subject.processes;
                idle::measure(site, &client, plan, processes, found).await?;
            }
            ViewsScenario::Lag => {
                self.lag(stage, site, found).await?;
                progress.say("committing rows at the maximum rate");
                throughput::measure(site, &client, plan.seconds, found).await?;
            }
            ViewsScenario::Overhead => {
                progress.say("writing with and without a view");
                overhead::measure(site, &client, plan, found).await?;
            }
        }
        Ok(findings.measurement(window.close().await?))
    }

    async fn clean(&mut self, _stage: &mut Stage) -> Result<()> {
        match self.site.take() {
            // A private server is gone with its data.
            Some(site) if !self.is_private => site.remove().await,
            _ => Ok(()),
        }
    }
}
