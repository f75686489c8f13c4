//! Where the time of an operation went: its phases side by side.

use std::collections::{BTreeMap, BTreeSet};

use super::input::{ReportInput, class_of, legend_entries};
use super::plot::{Axis, Frame, Numbers, Plot};
use super::scale::Scale;
use super::svg::{Anchor, SvgPoint};
use crate::quantity::{format_number, format_quantity, truncate};
use crate::result::Phase;

const BAR_HEIGHT: f64 = 12.0;
const GROUP_GAP: f64 = 12.0;
const NAMES_WIDTH: f64 = 140.0;
const NAME_LENGTH_MAX: usize = 19;

/// One plot per operation that has phases.
pub fn plots(files: &[ReportInput]) -> Vec<Plot> {
    let mut operations: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for file in files {
        for (name, phase) in &file.result.phases {
            operations.entry(&phase.operation).or_default().insert(name);
        }
    }
    operations.into_iter().map(|(operation, names)| plot(operation, &names, files)).collect()
}

/// The phase of this name, where it belongs to the operation.
fn phase<'a>(file: &'a ReportInput, operation: &str, name: &str) -> Option<&'a Phase> {
    let phase = file.result.phases.get(name)?;
    (phase.operation == operation).then_some(phase)
}

fn plot(operation: &str, names: &BTreeSet<&String>, files: &[ReportInput]) -> Plot {
    let all_phases = || {
        let of_file = |file| names.iter().filter_map(move |name| phase(file, operation, name));
        files.iter().flat_map(of_file)
    };
    let largest = all_phases()
        .map(|phase| phase.p95.unwrap_or(bar_ms(phase)).max(bar_ms(phase)))
        .fold(0.0, f64::max);
    let x = Axis::new(Scale::from_zero(largest), "milliseconds", "ms");
    let title = format!("{operation}: phases");
    let group_height = BAR_HEIGHT * files.len() as f64 + GROUP_GAP;
    let plot_height = group_height * names.len() as f64;
    let legend = legend_entries(files.iter(), "bar");
    let mut frame = Frame::without_y_axis(&title, &legend, &x, NAMES_WIDTH, plot_height);
    let mut numbers = Numbers::new(&["phase", "file", "p50", "p95", "sum", "share", "times"]);
    let mut y = frame.top() + GROUP_GAP / 2.0;
    for name in names {
        let middle = y + BAR_HEIGHT * files.len() as f64 / 2.0 + 4.0;
        let text = truncate(name, NAME_LENGTH_MAX);
        let position = SvgPoint::new(NAMES_WIDTH - 7.0, middle);
        frame.drawing.text("tick", position, Anchor::End, &text);
        for (row, file) in files.iter().enumerate() {
            let Some(phase) = phase(file, operation, name) else {
                continue;
            };
            let top = y + BAR_HEIGHT * row as f64;
            let corner = SvgPoint::new(frame.x(0.0), top);
            let width = frame.x(bar_ms(phase)) - corner.x;
            frame.drawing.rectangle(&class_of("bar", file), corner, width, BAR_HEIGHT - 2.0);
            if let Some(p95) = phase.p95 {
                let line = top + BAR_HEIGHT / 2.0 - 1.0;
                let from = SvgPoint::new(frame.x(bar_ms(phase)), line);
                let to = SvgPoint::new(frame.x(p95), line);
                frame.drawing.line(&class_of("whisker", file), from, to);
            }
            numbers.rows.push(table_row(name, file, phase, operation));
        }
        y += group_height;
    }
    let description = "Each bar is the median of a phase, or its only value; the line beyond it ends at the 95th percentile.";
    frame.finish(&format!("phases-{operation}"), &title, description, numbers)
}

/// How long a phase's bar is: its median, and where there is none, it was measured once.
fn bar_ms(phase: &Phase) -> f64 {
    phase.p50.unwrap_or_else(|| phase.mean_ms())
}

fn format_percentile(percentile: Option<f64>) -> String {
    percentile.map_or("–".to_owned(), |value| format_quantity(value, "ms"))
}

fn table_row(name: &str, file: &ReportInput, phase: &Phase, operation: &str) -> Vec<String> {
    let phases = file.result.phases.values();
    let total: f64 =
        phases.filter(|other| other.operation == operation).map(|other| other.total_ms).sum();
    let share = if total > 0.0 { phase.total_ms / total } else { 0.0 };
    vec![
        name.to_owned(),
        file.label.clone(),
        format_percentile(phase.p50),
        format_percentile(phase.p95),
        format_quantity(phase.total_ms, "ms"),
        format!("{:.0}%", share * 100.0),
        format_number(phase.count as f64),
    ]
}
