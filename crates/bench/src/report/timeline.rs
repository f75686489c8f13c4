//! What happened when: each second of the window, and every single cycle.

use std::collections::BTreeSet;

use super::input::{ReportInput, class_of, legend_entries};
use super::plot::{Axis, Frame, LegendEntry, Numbers, Plot};
use super::scale::Scale;
use crate::compare::median;
use crate::quantity::{format_number, format_quantity};
use crate::result::{Second, SecondOfOperation};

/// More dots than this hide each other; of those that share a place the slowest is drawn.
const DOTS_MAX: usize = 800;

/// Rate and latency of every operation, second by second.
pub fn plots(files: &[ReportInput]) -> Vec<Plot> {
    let operations: BTreeSet<&String> = files
        .iter()
        .flat_map(|file| &file.result.timeline)
        .flat_map(|second| second.operations.keys())
        .collect();
    operations
        .into_iter()
        .flat_map(|operation| [rate_plot(operation, files), latency_plot(operation, files)])
        .collect()
}

/// The course of one quantity of an operation: points of second and value.
fn operation_curve(
    file: &ReportInput,
    operation: &str,
    value: impl Fn(&SecondOfOperation) -> f64,
) -> Vec<(f64, f64)> {
    let to_point = |second: &Second| {
        let operation_second = second.operations.get(operation)?;
        Some((second.second as f64, value(operation_second)))
    };
    file.result.timeline.iter().filter_map(to_point).collect()
}

fn files_with_operation<'a>(files: &'a [ReportInput], operation: &str) -> Vec<&'a ReportInput> {
    let has_operation = |file: &&ReportInput| {
        let mut seconds = file.result.timeline.iter();
        seconds.any(|second| second.operations.contains_key(operation))
    };
    files.iter().filter(has_operation).collect()
}

fn seconds_axis(files: &[&ReportInput]) -> Axis {
    let seconds = files.iter().filter_map(|file| file.result.timeline.last());
    let last = seconds.map(|second| second.second).max();
    let scale = Scale::from_zero(last.unwrap_or_default() as f64);
    Axis::new(scale, "seconds since the window began", "count")
}

fn rate_plot(operation: &str, files: &[ReportInput]) -> Plot {
    let files = files_with_operation(files, operation);
    let curves: Vec<_> = files
        .iter()
        .map(|file| operation_curve(file, operation, |second| second.count as f64))
        .collect();
    let y = Axis::new(Scale::from_zero(largest(&curves)), "operations per second", "count");
    let title = format!("{operation}: rate");
    let legend = legend_entries(files.iter().copied(), "line");
    let mut frame = Frame::new(&title, &legend, &seconds_axis(&files), &y, 150.0);
    let mut numbers = Numbers::new(&["file", "seconds", "lowest", "median", "highest"]);
    for (file, curve) in files.iter().zip(&curves) {
        draw_curve(&mut frame, "line", file, curve);
        numbers.rows.push(summary(file, curve, format_number));
    }
    let description = "Operations that completed in each second.";
    frame.finish(&format!("rate-{operation}"), &title, description, numbers)
}

fn latency_plot(operation: &str, files: &[ReportInput]) -> Plot {
    let files = files_with_operation(files, operation);
    let curves_of = |value: fn(&SecondOfOperation) -> f64| -> Vec<Vec<(f64, f64)>> {
        let curves = files.iter().map(|file| operation_curve(file, operation, value));
        curves.collect()
    };
    // With too few samples for them, the largest: what is slow must show.
    let p50_curves = curves_of(|second| second.p50.unwrap_or(second.max));
    let p95_curves = curves_of(|second| second.p95.unwrap_or(second.max));
    let y = Axis::new(Scale::from_zero(largest(&p95_curves)), "latency (ms)", "ms");
    let title = format!("{operation}: latency over time");
    let legend: Vec<LegendEntry> = files
        .iter()
        .flat_map(|file| {
            ["p50", "p95"].map(|statistic| LegendEntry {
                class: class_of(if statistic == "p50" { "solid" } else { "thin" }, file),
                text: format!("{statistic} {}", file.label),
            })
        })
        .collect();
    let mut frame = Frame::new(&title, &legend, &seconds_axis(&files), &y, 170.0);
    let mut numbers = Numbers::new(&["file", "seconds", "lowest", "median", "highest"]);
    for (index, file) in files.iter().enumerate() {
        draw_curve(&mut frame, "thin", file, &p95_curves[index]);
        draw_curve(&mut frame, "solid", file, &p50_curves[index]);
        for (statistic, curve) in [("p50", &p50_curves[index]), ("p95", &p95_curves[index])] {
            let mut row = summary(file, curve, |value| format_quantity(value, "ms"));
            row[0] = format!("{statistic} {}", row[0]);
            numbers.rows.push(row);
        }
    }
    let description = "Median (solid line) and 95th percentile (dashed line) of each second; the \
                       maximum where a second has too few operations.";
    frame.finish(&format!("latency-{operation}"), &title, description, numbers)
}

/// Points joined where seconds follow each other: a second without any is a gap, not a slope.
fn draw_curve(frame: &mut Frame, mark: &str, file: &ReportInput, curve: &[(f64, f64)]) {
    for segment in curve.chunk_by(|previous, next| next.0 - previous.0 <= 1.0) {
        if let [(second, value)] = segment {
            let point = frame.point(*second, *value);
            frame.drawing.dot(&class_of("dot", file), point, 2.0);
        }
        let places = segment.iter().map(|(second, value)| frame.point(*second, *value));
        let points: Vec<_> = places.collect();
        frame.drawing.path(&class_of(mark, file), &points);
    }
}

fn largest(curves: &[Vec<(f64, f64)>]) -> f64 {
    let values = curves.iter().flatten().map(|(_, value)| *value);
    values.fold(0.0, f64::max)
}

fn summary(file: &ReportInput, curve: &[(f64, f64)], show: impl Fn(f64) -> String) -> Vec<String> {
    let values: Vec<f64> = curve.iter().map(|(_, value)| *value).collect();
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(0.0, f64::max);
    vec![
        file.label.clone(),
        values.len().to_string(),
        show(lowest),
        show(median(&values)),
        show(highest),
    ]
}

/// Every single operation of the cycles, one plot per operation.
pub(crate) fn cycle_plots(files: &[ReportInput]) -> Vec<Plot> {
    let operations: BTreeSet<&String> = files
        .iter()
        .flat_map(|file| &file.result.cycles)
        .flat_map(|cycle| cycle.latencies_ms.keys())
        .collect();
    operations.into_iter().map(|operation| cycle_plot(operation, files)).collect()
}

fn cycle_plot(operation: &str, files: &[ReportInput]) -> Plot {
    let curves: Vec<(&ReportInput, Vec<(f64, f64)>)> = files
        .iter()
        .map(|file| {
            let latencies = file.result.cycles.iter().enumerate();
            let curve = latencies
                .filter_map(|(number, cycle)| {
                    let latency = cycle.latencies_ms.get(operation)?;
                    Some((number as f64 + 1.0, *latency))
                })
                .collect();
            (file, curve)
        })
        .filter(|(_, course): &(_, Vec<_>)| !course.is_empty())
        .collect();
    let points = || curves.iter().flat_map(|(_, course)| course);
    let last = points().map(|(number, _)| *number).fold(0.0, f64::max);
    let x = Axis::new(Scale::from_zero(last), "cycle", "count");
    let scale = Scale::log_around(points().map(|(_, latency)| *latency));
    let y = Axis::new(scale, "latency (ms, log.)", "ms");
    let title = format!("{operation}: every cycle");
    let legend = legend_entries(curves.iter().map(|(file, _)| *file), "dot");
    let mut frame = Frame::new(&title, &legend, &x, &y, 190.0);
    let mut numbers = Numbers::new(&["file", "cycles", "lowest", "median", "highest"]);
    for (file, course) in &curves {
        for (number, latency) in thin_out(course) {
            let point = frame.point(number, latency);
            frame.drawing.dot(&class_of("dot", file), point, 2.2);
        }
        numbers.rows.push(summary(file, course, |value| format_quantity(value, "ms")));
    }
    let description = "Each cycle as one dot, in the order of their start, including those \
                       before the window was steady.";
    frame.finish(&format!("cycles-{operation}"), &title, description, numbers)
}

/// At most [`DOTS_MAX`] points: of neighbours the slowest.
fn thin_out(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let chunk_size = curve.len().div_ceil(DOTS_MAX).max(1);
    curve
        .chunks(chunk_size)
        .filter_map(|part| part.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1)))
        .collect()
}
