//! Which figures are compared: `NAME` or `NAME.STATISTIC`, one value per run.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, bail, ensure};

use crate::result::{Better, Metric, ResultFile};

/// A statistic of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// The value of a scalar, the mean of a latency.
    Value,
    /// The median of a latency.
    P50,
    /// The 90th percentile of a latency.
    P90,
    /// The 95th percentile of a latency.
    P95,
    /// The 99th percentile of a latency.
    P99,
    /// The 99.9th percentile of a latency.
    P999,
    /// The largest value of a latency.
    Max,
}

const STATISTICS: [(&str, Statistic); 9] = [
    ("value", Statistic::Value),
    ("mean", Statistic::Value),
    ("p50", Statistic::P50),
    ("p90", Statistic::P90),
    ("p95", Statistic::P95),
    ("p99", Statistic::P99),
    ("p999", Statistic::P999),
    ("p99.9", Statistic::P999),
    ("max", Statistic::Max),
];

impl Statistic {
    /// The metric and the statistic of `create.p95`. Names of metrics may have points too, as one
    /// statistic has.
    fn split_statistic(text: &str) -> Option<(&str, Self)> {
        STATISTICS.iter().find_map(|(name, statistic)| {
            let metric = text.strip_suffix(name)?.strip_suffix('.')?;
            Some((metric, *statistic))
        })
    }

    /// The metric's value of this statistic, where it has one.
    pub fn value_of(self, metric: &Metric) -> Option<f64> {
        match self {
            Self::Value => Some(metric.value),
            Self::P50 => metric.p50,
            Self::P90 => metric.p90,
            Self::P95 => metric.p95,
            Self::P99 => metric.p99,
            Self::P999 => metric.p999,
            Self::Max => metric.max,
        }
    }
}

/// A metric and the statistic of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Name of the metric.
    pub metric: String,
    /// Statistic of the metric.
    pub statistic: Statistic,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = STATISTICS.iter().find(|(_, statistic)| *statistic == self.statistic);
        match name {
            Some((name, statistic)) if *statistic != Statistic::Value => {
                write!(f, "{}.{name}", self.metric)
            }
            _ => f.write_str(&self.metric),
        }
    }
}

impl Figure {
    /// `create`, `create.p95`, `create.mean`. Without a statistic the one that a latency is usually
    /// told by, the median, and of a scalar its value.
    ///
    /// # Errors
    /// When the statistic is not known.
    pub fn parse(text: &str, metrics: &BTreeMap<String, Metric>) -> Result<Self> {
        let dotted_suffix = text.rsplit_once('.');
        let (metric, statistic) = match (
            metrics.get(text),
            Statistic::split_statistic(text),
            dotted_suffix,
        ) {
            (Some(known_metric), ..) => (text, default_statistic(known_metric)),
            (None, Some(named), _) => named,
            (None, None, None) => (text, Statistic::Value),
            (None, None, Some((_, name))) => bail!(
                "metric {text}: {name} is not a statistic: use p50, p90, p95, p99, p999, max or \
                 mean"
            ),
        };
        Ok(Self { metric: metric.to_owned(), statistic })
    }

    /// The figure in a set of metrics.
    pub(crate) fn value_in(&self, metrics: &BTreeMap<String, Metric>) -> Option<f64> {
        metrics.get(&self.metric).and_then(|metric| self.statistic.value_of(metric))
    }
}

/// The statistic of a metric that was named without one.
pub(crate) fn default_statistic(metric: &Metric) -> Statistic {
    if metric.p50.is_some() { Statistic::P50 } else { Statistic::Value }
}

/// The runs of a side, each with its metrics.
pub type Runs<'a> = Vec<&'a BTreeMap<String, Metric>>;

/// The runs of one file: itself when it holds no others.
pub fn runs(file: &ResultFile) -> Runs<'_> {
    if file.runs.is_empty() {
        vec![&file.metrics]
    } else {
        file.runs.iter().map(|run| &run.metrics).collect()
    }
}

/// The figures to compare: those named, else all that have a direction and that every run has.
///
/// # Errors
/// When a named one cannot be compared, or nothing is left to compare.
pub fn figures(named: &[String], a: &Runs<'_>, b: &Runs<'_>) -> Result<Vec<Figure>> {
    let (Some(first_a), Some(first_b)) = (a.first(), b.first()) else {
        bail!("there are no runs to compare");
    };
    if named.is_empty() {
        return default_figures(a, b, first_a);
    }
    let mut figures: Vec<Figure> = Vec::new();
    for text in named {
        let figure = Figure::parse(text, first_a)?;
        let (metric_a, metric_b) = (first_a.get(&figure.metric), first_b.get(&figure.metric));
        let (Some(of_a), Some(of_b)) = (metric_a, metric_b) else {
            let side = if metric_a.is_none() { "A" } else { "B" };
            let names = first_a.keys().map(String::as_str).collect::<Vec<&str>>().join(", ");
            bail!("{side} has no metric {}; A has {names}", figure.metric);
        };
        ensure_same_metric(&figure.metric, of_a, of_b)?;
        ensure!(
            of_a.better != Better::Neither,
            "{}: it is neither better higher nor better lower, so there is no verdict on it",
            figure.metric
        );
        for (side, runs) in [("A", a), ("B", b)] {
            let missing = runs.iter().position(|metrics| figure.value_in(metrics).is_none());
            if let Some(position) = missing {
                let run = position + 1;
                bail!(
                    "run {run} of {side} has no {figure}: too few samples, or all operations failed"
                );
            }
        }
        if !figures.contains(&figure) {
            figures.push(figure);
        }
    }
    Ok(figures)
}

fn default_figures(
    a: &Runs<'_>,
    b: &Runs<'_>,
    first: &BTreeMap<String, Metric>,
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, metric) in first {
        let is_in_all_runs = |figure: &Figure| {
            let mut runs = a.iter().chain(b);
            runs.all(|metrics| figure.value_in(metrics).is_some())
        };
        let mut candidates = [default_statistic(metric), Statistic::Value]
            .map(|statistic| Figure { metric: name.clone(), statistic });
        let Some(figure) = candidates.iter_mut().find(|figure| is_in_all_runs(figure)) else {
            continue;
        };
        if metric.better == Better::Neither {
            continue;
        }
        if let Some(metric_b) = b.first().and_then(|metrics| metrics.get(name)) {
            ensure_same_metric(name, metric, metric_b)?;
        }
        figures.push(figure.clone());
    }
    ensure!(!figures.is_empty(), "A and B have no metric in common that could be better or worse");
    Ok(figures)
}

fn ensure_same_metric(name: &str, a: &Metric, b: &Metric) -> Result<()> {
    ensure!(
        a.unit == b.unit && a.better == b.better,
        "{name} is not the same metric in both: {} ({:?} is better) in A, {} ({:?} is better) in B",
        a.unit,
        a.better,
        b.unit,
        b.better
    );
    Ok(())
}

#[cfg(test)]
mod tests;
