//! How latencies are distributed: the share of operations that were at least as fast.

use std::io::Cursor;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use super::input::{ReportInput, class_of, legend_entries, metric_names};
use super::plot::{Axis, Frame, Numbers, Plot};
use super::scale::Scale;
use crate::quantity::format_quantity;
use crate::result::Metric;

/// More steps than a screen can show.
const STEPS_MAX: usize = 300;
const NINES_MAX: f64 = 4.0;
const MICROSECONDS_PER_MS: f64 = 1_000.0;

/// One plot per latency that has a histogram.
///
/// # Errors
/// When a histogram cannot be read.
pub fn plots(files: &[ReportInput]) -> Result<Vec<Plot>> {
    let mut plots = Vec::new();
    for name in metric_names(files) {
        let mut curves = Vec::new();
        for file in files {
            let Some(metric) = file.result.metrics.get(&name) else {
                continue;
            };
            if let Some(text) = &metric.histogram {
                let histogram =
                    decode(text).with_context(|| format!("{}: histogram of {name}", file.label))?;
                if !histogram.is_empty() {
                    curves.push((file, metric, histogram));
                }
            }
        }
        if !curves.is_empty() {
            plots.push(plot(&name, &curves));
        }
    }
    Ok(plots)
}

/// Reads a histogram as a result file holds it.
///
/// # Errors
/// When it is not base64 or not a histogram.
pub fn decode(text: &str) -> Result<Histogram<u64>> {
    let bytes = STANDARD.decode(text).context("not base64")?;
    Deserializer::new()
        .deserialize(&mut Cursor::new(bytes))
        .map_err(|error| anyhow::anyhow!("not an HdrHistogram: {error:?}"))
}

fn plot(name: &str, curves: &[(&ReportInput, &Metric, Histogram<u64>)]) -> Plot {
    let unit = curves[0].1.unit.as_str();
    let to_unit = |value: u64| value as f64 / MICROSECONDS_PER_MS;
    let bounds = curves
        .iter()
        .flat_map(|(_, _, histogram)| [histogram.min().max(1), histogram.max()])
        .map(to_unit);
    let samples = curves.iter().map(|(_, _, histogram)| histogram.len()).max();
    let nines = (samples.unwrap_or_default() as f64).log10();
    let x = Axis::new(Scale::log_around(bounds), &format!("latency ({unit}, logarithmic)"), unit);
    let count = nines.clamp(1.0, NINES_MAX);
    let y = Axis::new(Scale::Nines { count }, "share of operations", "");
    let title = format!("{name}: distribution");
    let legend = legend_entries(curves.iter().map(|(file, _, _)| *file), "line");
    let mut frame = Frame::new(&title, &legend, &x, &y, 210.0);
    let mut numbers =
        Numbers::new(&["file", "p50", "p90", "p95", "p99", "p99.9", "max", "samples"]);
    for (file, metric, histogram) in curves {
        let steps = steps(histogram);
        let points: Vec<_> =
            steps.iter().map(|(value, share)| frame.point(to_unit(*value), *share)).collect();
        frame.drawing.path(&class_of("line", file), &points);
        numbers.rows.push(percentile_row(file, metric));
    }
    let description = "Share of operations with at most this latency. The scale of the shares is \
                       logarithmic towards 100%: each further nine takes the same width.";
    frame.finish(&format!("distribution-{name}"), &title, description, numbers)
}

fn percentile_row(file: &ReportInput, metric: &Metric) -> Vec<String> {
    let format_cell = |value: Option<f64>| {
        value.map_or("–".to_owned(), |value| format_quantity(value, &metric.unit))
    };
    vec![
        file.label.clone(),
        format_cell(metric.p50),
        format_cell(metric.p90),
        format_cell(metric.p95),
        format_cell(metric.p99),
        format_cell(metric.p999),
        format_cell(metric.max),
        crate::quantity::format_number(metric.samples as f64),
    ]
}

/// The recorded values with the share of operations up to each, thinned evenly over the scale.
fn steps(histogram: &Histogram<u64>) -> Vec<(u64, f64)> {
    let total = histogram.len() as f64;
    let scale = Scale::Nines { count: NINES_MAX };
    let mut steps = vec![(histogram.min().max(1), 0.0)];
    let (mut cumulative_count, mut last) = (0_u64, f64::MIN);
    for step in histogram.iter_recorded() {
        cumulative_count += step.count_at_value();
        let share = cumulative_count as f64 / total;
        let position = scale.position(share);
        if position - last >= 1.0 / STEPS_MAX as f64 || cumulative_count == histogram.len() {
            steps.push((step.value_iterated_to().max(1), share));
            last = position;
        }
    }
    steps
}
