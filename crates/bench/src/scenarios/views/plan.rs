//! What a measurement of views does: its arguments, with what holds where they say nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use egret_bench_cli::{QUERIES_MAX, ViewsArgs, ViewsPart, ViewsScenario, ViewsShape};
use serde_json::Value;

use super::refreshes::Block;

#[derive(Clone, Debug)]
pub(super) struct ViewsPlan {
    pub(super) scenario: ViewsScenario,
    /// Of each table that views read.
    pub(super) rows: u32,
    /// How many rows change before each refresh, in percent.
    pub(super) rates: Vec<f64>,
    pub(super) shapes: Vec<ViewsShape>,
    /// Parts of the matrix.
    pub(super) parts: Vec<ViewsPart>,
    pub(super) cycles: u32,
    pub(super) commit_rate: f64,
    pub(super) seconds: Duration,
    /// The scale factor of TPC-H.
    pub(super) scale: f64,
    /// Numbers of the TPC-H queries.
    pub(super) queries: Vec<u32>,
    /// Views beside each other.
    pub(super) views: u32,
}

impl ViewsPlan {
    pub(super) fn from_args(args: &ViewsArgs) -> Self {
        let scenario = args.scenario;
        let (rows, views) = match scenario {
            ViewsScenario::Fan => (10_000, 60),
            ViewsScenario::Idle => (1_000, 200),
            _ => (100_000, 0),
        };
        let (rates, shapes): (&[f64], _) = match scenario {
            ViewsScenario::Wide => (&[1.0], &[ViewsShape::Wide][..]),
            _ => (&[0.0, 1.0, 10.0, 50.0], &args.shapes[..]),
        };
        Self {
            scenario,
            rows: args.rows.unwrap_or(rows),
            // Twice the same would be one metric.
            rates: deduplicate(or(&args.rates, rates)),
            shapes: deduplicate(shapes),
            parts: deduplicate(&args.parts),
            cycles: args.cycles,
            commit_rate: args.commit_rate,
            seconds: args.seconds,
            scale: args.scale,
            queries: deduplicate(or(&args.queries, &(1..=QUERIES_MAX).collect::<Vec<_>>())),
            views: args.views.unwrap_or(views),
        }
    }

    /// What must be equal for results to be compared.
    pub(super) fn parameters(&self) -> BTreeMap<String, Value> {
        let lag = self.parts.contains(&ViewsPart::Lag);
        let scenario = ("scenario", self.scenario.name().into());
        let (rows, cycles) = (("rows", self.rows.into()), ("cycles", self.cycles.into()));
        let rates = ("rates", self.rates.clone().into());
        let commit_rate = ("commit_rate", self.commit_rate.into());
        let seconds = ("seconds", self.seconds.as_secs_f64().into());
        let views = ("views", self.views.into());
        let all: Vec<(&str, Value)> = match self.scenario {
            ViewsScenario::Matrix => {
                let shapes: Vec<&str> = self.shapes.iter().map(|shape| shape.name()).collect();
                let parts: Vec<&str> = self.parts.iter().map(|part| part.name()).collect();
                let mut matrix_parameters = vec![rows, rates, cycles];
                matrix_parameters.extend([("shapes", shapes.into()), ("parts", parts.into())]);
                matrix_parameters.extend([commit_rate, seconds].into_iter().filter(|_| lag));
                matrix_parameters
            }
            ViewsScenario::Tpch => {
                let queries = ("queries", self.queries.clone().into());
                vec![scenario, ("scale", self.scale.into()), queries, cycles]
            }
            ViewsScenario::Chain | ViewsScenario::Overhead => vec![scenario, rows, cycles],
            ViewsScenario::Fan => vec![scenario, views, rows, cycles],
            ViewsScenario::Idle => vec![scenario, views, rows, seconds],
            ViewsScenario::Lag => vec![scenario, commit_rate, seconds],
            ViewsScenario::Wide => vec![scenario, rows, rates, cycles],
        };
        let named = all.into_iter();
        named.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The metric by which runs are ranked.
    pub(super) fn ranking_metric(&self) -> String {
        match self.scenario {
            ViewsScenario::Matrix | ViewsScenario::Wide => self.refresh_ranking_metric(),
            ViewsScenario::Tpch => "tpch.faster_than_full".to_owned(),
            ViewsScenario::Chain => super::chain::REFRESH.to_owned(),
            ViewsScenario::Fan => super::fan_out::REFRESH.to_owned(),
            ViewsScenario::Idle => super::idle::CPU.to_owned(),
            ViewsScenario::Lag => "lag".to_owned(),
            ViewsScenario::Overhead => "overhead.bulk_insert".to_owned(),
        }
    }

    /// A refresh after something has changed, where there is one.
    fn refresh_ranking_metric(&self) -> String {
        let rate = self.rates.iter().find(|rate| **rate > 0.0).or(self.rates.first());
        match (self.parts.first(), self.shapes.first(), rate) {
            (Some(ViewsPart::Refresh), Some(shape), Some(rate)) => {
                Block::metric_name(*shape, *rate, "incremental")
            }
            (Some(ViewsPart::Lag), ..) => "lag".to_owned(),
            _ => "write_overhead_bulk".to_owned(),
        }
    }

    /// Description of the data: its kind and size.
    pub(super) fn data_set(&self) -> String {
        match self.scenario {
            ViewsScenario::Tpch => format!("TPC-H, scale {}", self.scale),
            _ => format!("{} rows, five regions", self.rows),
        }
    }
}

/// What is given, or else something.
fn or<'a, T>(values: &'a [T], or: &'a [T]) -> &'a [T] {
    if values.is_empty() { or } else { values }
}

/// Without what is there already.
fn deduplicate<T: Copy + PartialEq>(values: &[T]) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(value) {
            distinct.push(*value);
        }
    }
    distinct
}

#[cfg(test)]
mod tests;
