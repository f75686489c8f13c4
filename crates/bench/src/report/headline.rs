//! The table that comes first: every metric of every file.

use super::input::{ReportInput, metric_names};
use super::plot::Numbers;
use crate::quantity::{format_number, format_quantity};
use crate::result::Metric;

/// Latencies with their percentiles.
pub fn latencies(files: &[ReportInput]) -> Numbers {
    let mut numbers = Numbers::new(&[
        "metric", "file", "mean", "p50", "p90", "p95", "p99", "p99.9", "max", "samples",
    ]);
    numbers.rows = rows(files, is_latency, |metric| {
        let mut cells = vec![format_quantity(metric.value, &metric.unit)];
        for value in [metric.p50, metric.p90, metric.p95, metric.p99, metric.p999, metric.max] {
            cells.push(value.map_or("–".to_owned(), |value| format_quantity(value, &metric.unit)));
        }
        cells.push(format_number(metric.samples as f64));
        cells
    });
    numbers
}

/// Table of the metrics that are not latencies.
pub fn values(files: &[ReportInput]) -> Numbers {
    let mut numbers = Numbers::new(&["metric", "file", "value", "samples"]);
    numbers.rows = rows(
        files,
        |metric| !is_latency(metric),
        |metric| {
            vec![format_quantity(metric.value, &metric.unit), format_number(metric.samples as f64)]
        },
    );
    numbers
}

fn is_latency(metric: &Metric) -> bool {
    metric.p50.is_some() || metric.max.is_some() || metric.histogram.is_some()
}

fn rows(
    files: &[ReportInput],
    is_included: impl Fn(&Metric) -> bool,
    cells: impl Fn(&Metric) -> Vec<String>,
) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for name in metric_names(files) {
        for file in files {
            if let Some(metric) =
                file.result.metrics.get(&name).filter(|metric| is_included(metric))
            {
                let mut row = vec![name.clone(), file.label.clone()];
                row.extend(cells(metric));
                rows.push(row);
            }
        }
    }
    rows
}
