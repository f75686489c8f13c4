//! `egret bench views`: what it takes to keep the results of queries fresh, with Egret and by hand.
//!
//! ```text
//! shape × rate: cycles of changes and refreshes ── … ── writes of tables with a view and without ── lag of a view
//! ```
//!
//! Views are made, refreshed and dropped over HTTP, tables are written by a session of PostgreSQL, as users do. After each part
//! every view is compared with its query, row by row.

mod api;
mod findings;
mod floor;
mod lag;
mod refreshes;
mod shape;
mod site;
mod tables;
mod tpch;
mod turn;
mod writes;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cli::{QUERIES_MAX, ViewsArgs, ViewsPart, ViewsScenario, ViewsShape};
use crate::scenario::{Measurement, Scenario};
use crate::stage::Stage;
use findings::Findings;
use refreshes::Block;
use site::Site;

/// Salts of a block: one for each of its cycles, and more than there can be cycles.
const SALTS: u32 = 1 << 16;

/// Takes neighbouring seeds far apart.
const SPREAD: u32 = 0x9e37_79b9;

/// The scenario.
pub struct Views {
    args: ViewsArgs,
    /// The metric by which runs are ranked.
    headline: String,
    site: Option<Site>,
}

impl Views {
    /// Takes the arguments.
    ///
    /// # Errors
    /// When nothing is named by them.
    pub fn new(args: &ViewsArgs) -> Result<Self> {
        let mut args = args.clone();
        // Twice the same would be one metric.
        args.shapes = distinct(&args.shapes);
        args.rates = distinct(&args.rates);
        args.parts = distinct(&args.parts);
        args.queries = distinct(&args.queries);
        if args.queries.is_empty() {
            args.queries = (1..=QUERIES_MAX).collect();
        }
        Ok(Self {
            headline: headline(&args),
            args,
            site: None,
        })
    }

    /// The parts of the matrix.
    async fn matrix(&self, stage: &Stage, site: &Site, findings: &mut Findings) -> Result<()> {
        for part in &self.args.parts {
            let client = site.client().await?;
            match part {
                ViewsPart::Refresh => self.refreshes(stage, site, findings).await?,
                ViewsPart::Write => {
                    stage.progress.say("writing with a view and without");
                    let (rows, rounds) = (self.args.rows, self.args.cycles);
                    writes::measure(site, &client, rows, rounds, findings).await?;
                }
                ViewsPart::Lag => {
                    stage.progress.say("committing rows");
                    let load = lag::Load {
                        rate: self.args.commit_rate,
                        window: self.args.seconds,
                        seed: stage.seed,
                    };
                    lag::measure(site, &client, &load, findings).await?;
                }
            }
        }
        Ok(())
    }

    /// Every shape at every rate.
    async fn refreshes(&self, stage: &Stage, site: &Site, findings: &mut Findings) -> Result<()> {
        let client = site.client().await?;
        let mut number = 0;
        for shape in &self.args.shapes {
            for rate in &self.args.rates {
                number += 1;
                stage
                    .progress
                    .say(format!("refreshing: {} at {rate}%", shape.name()));
                let block = Block {
                    site,
                    client: &client,
                    shape: *shape,
                    rate: *rate,
                    rows: self.args.rows,
                    cycles: self.args.cycles,
                    salt: (stage.seed as u32)
                        .wrapping_mul(SPREAD)
                        .wrapping_add(number as u32 * SALTS),
                    number,
                };
                block.run(findings).await?;
            }
        }
        Ok(())
    }
}

/// Without what is there already.
fn distinct<T: Copy + PartialEq>(all: &[T]) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(one) {
            distinct.push(*one);
        }
    }
    distinct
}

/// A refresh after something has changed, where there is one.
fn headline(args: &ViewsArgs) -> String {
    if args.scenario == ViewsScenario::Tpch {
        return "tpch.faster_than_full".to_owned();
    }
    let rate = args.rates.iter().find(|rate| **rate > 0.0);
    let rate = rate.or(args.rates.first());
    match (args.parts.first(), args.shapes.first(), rate) {
        (Some(ViewsPart::Refresh), Some(shape), Some(rate)) => {
            Block::metric(*shape, *rate, "incremental")
        }
        (Some(ViewsPart::Lag), ..) => "lag".to_owned(),
        _ => "write_overhead_bulk".to_owned(),
    }
}

/// What of the matrix must be equal for results to be compared.
fn parameters_of_matrix(args: &ViewsArgs) -> Vec<(&'static str, Value)> {
    let lag = args.parts.contains(&ViewsPart::Lag);
    let shapes: Vec<&str> = args.shapes.iter().copied().map(ViewsShape::name).collect();
    let parts: Vec<&str> = args.parts.iter().copied().map(ViewsPart::name).collect();
    vec![
        ("rows", args.rows.into()),
        ("rates", args.rates.clone().into()),
        ("shapes", shapes.into()),
        ("cycles", args.cycles.into()),
        ("parts", parts.into()),
        ("commit_rate", lag.then_some(args.commit_rate).into()),
        ("seconds", lag.then_some(args.seconds.as_secs_f64()).into()),
    ]
}

impl Scenario for Views {
    const NAME: &'static str = "views";

    fn parameters(&self) -> BTreeMap<String, Value> {
        let args = &self.args;
        let all: Vec<(&str, Value)> = match args.scenario {
            ViewsScenario::Matrix => parameters_of_matrix(args),
            ViewsScenario::Tpch => vec![
                ("scenario", args.scenario.name().into()),
                ("scale", args.scale.into()),
                ("queries", args.queries.clone().into()),
                ("cycles", args.cycles.into()),
            ],
        };
        all.into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    fn private_settings(&self) -> Vec<(String, String)> {
        // Nobody makes branches here, so no volume for them is made either.
        vec![("branches.volume".to_owned(), "copy".to_owned())]
    }

    fn headline(&self) -> &str {
        &self.headline
    }

    async fn prepare(&mut self, stage: &mut Stage) -> Result<()> {
        let server = stage.server()?.clone();
        let site = Site::open(&server, self.args.postgres.as_deref()).await?;
        let site = self.site.insert(site);
        let client = site.client().await?;
        stage.subject.ask(&client, site.is_local()).await?;
        stage.subject.data_set = match self.args.scenario {
            ViewsScenario::Matrix => format!("{} rows, five regions", self.args.rows),
            ViewsScenario::Tpch => format!("TPC-H, scale {}", self.args.scale),
        };
        Ok(())
    }

    async fn measure(&mut self, stage: &mut Stage) -> Result<Measurement> {
        let site = self.site.as_ref().context("the scenario is not prepared")?;
        let window = stage.open_window(None)?;
        let mut findings = Findings::new(window.origin());
        match self.args.scenario {
            ViewsScenario::Matrix => self.matrix(stage, site, &mut findings).await?,
            ViewsScenario::Tpch => {
                let plan = tpch::Plan {
                    scale: self.args.scale,
                    queries: &self.args.queries,
                    cycles: self.args.cycles,
                    seed: stage.seed,
                    progress: &stage.progress,
                };
                tpch::measure(site, &site.client().await?, &plan, &mut findings).await?;
            }
        }
        Ok(findings.measurement(window.close().await?))
    }

    async fn clean(&mut self, _stage: &mut Stage) -> Result<()> {
        match self.site.take() {
            // A private server is gone with its data.
            Some(site) if !self.args.run.private => site.remove().await,
            _ => Ok(()),
        }
    }
}
