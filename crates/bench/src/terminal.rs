//! Results and comparisons as text for a terminal of 80 columns, and of more where names are long.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};

use crate::compare::{Comparison, Row, Verdict};
use crate::quantity::{format_change, format_quantity, printable, truncate};
use crate::result::{Environment, Metric, ResultFile};

const NAME_WIDTH: usize = 40;
const SPARKLINE_WIDTH: usize = 12;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A result: latencies with their percentiles and course, values, errors, warnings.
pub fn format_result(file: &ResultFile) -> String {
    let mut text = heading(file);
    let is_latency = |metric: &Metric| metric.p50.is_some() || metric.max.is_some();
    let (latencies, values): (Vec<_>, Vec<_>) =
        file.metrics.iter().partition(|(_, metric)| is_latency(metric));
    if !latencies.is_empty() {
        let head = ["latency", "p50", "p95", "p99", "max", "samples", "course"];
        let rows = latencies.iter().map(|(name, metric)| {
            let format_cell = |value: Option<f64>| {
                value.map_or("–".to_owned(), |v| format_quantity(v, &metric.unit))
            };
            vec![
                truncate(name, NAME_WIDTH),
                format_cell(metric.p50),
                format_cell(metric.p95),
                format_cell(metric.p99),
                format_cell(metric.max),
                metric.samples.to_string(),
                sparkline(&sparkline_values(file, name), SPARKLINE_WIDTH),
            ]
        });
        text.push_str(&format_table(&head, rows, 6));
        text.push('\n');
    }
    if !values.is_empty() {
        let head = ["figure", "value", "samples", "course"];
        let rows = values.iter().map(|(name, metric)| {
            vec![
                truncate(name, NAME_WIDTH),
                format_quantity(metric.value, &metric.unit),
                metric.samples.to_string(),
                sparkline(&run_values(file, name), SPARKLINE_WIDTH),
            ]
        });
        text.push_str(&format_table(&head, rows, 3));
        text.push('\n');
    }
    if !file.runs.is_empty() {
        text.push_str(&format_runs(file));
    }
    text.push_str(&format_remarks(file));
    text
}

fn heading(file: &ResultFile) -> String {
    let environment = &file.environment;
    let parameters: Vec<String> = file
        .parameters
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| match value {
            serde_json::Value::String(value) => format!("{name} {value}"),
            other => format!("{name} {other}"),
        })
        .collect();
    format!(
        "{} · {}\n{}\n\n",
        printable(&file.scenario),
        truncate(&parameters.join(", "), 90),
        truncate(&machine_summary(environment), 110)
    )
}

/// The machine and the programs in one line.
pub(crate) fn machine_summary(environment: &Environment) -> String {
    let mut parts = vec![
        format!("{} × {}", environment.cpus, environment.cpu_model),
        format_quantity(environment.memory_bytes as f64, "bytes"),
        environment.file_system.clone(),
    ];
    if let Some(version) = &environment.postgres_version {
        parts.push(format!("PostgreSQL {version}"));
    }
    parts.push(format!(
        "egret {} ({})",
        environment.egret_version,
        truncate(&environment.egret_commit, 18)
    ));
    parts.join(" · ")
}

/// How far the runs lie apart, by their medians.
fn format_runs(file: &ResultFile) -> String {
    let head = ["of all runs", "lowest", "median", "highest", "runs"];
    let mut rows = Vec::new();
    for (name, metric) in &file.metrics {
        let mut values = run_values(file, name);
        if values.is_empty() || values.iter().all(|value| *value == values[0]) {
            continue;
        }
        let course = sparkline(&values, SPARKLINE_WIDTH);
        values.sort_by(f64::total_cmp);
        let format_cell = |value: f64| format_quantity(value, &metric.unit);
        let figure = if metric.p50.is_some() { ".p50" } else { "" };
        rows.push(vec![
            truncate(&format!("{name}{figure}"), NAME_WIDTH),
            format_cell(values[0]),
            format_cell(crate::compare::median(&values)),
            format_cell(values[values.len() - 1]),
            course,
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    format!("{}\n", format_table(&head, rows, 4))
}

fn format_remarks(file: &ResultFile) -> String {
    let mut text = String::new();
    if let Some(warmup) = &file.warmup {
        let (seconds, end) = (warmup.seconds, warmup.end_text());
        text.push_str(&format!("warm-up: {seconds:.1} s, {end}\n"));
    }
    for (cause, count) in &file.errors {
        text.push_str(&format!("errors: {count} × {}\n", printable(cause)));
    }
    for warning in &file.warnings {
        text.push_str(&format!("warning: {}\n", printable(warning)));
    }
    for (kind, attachment) in &file.attachments {
        text.push_str(&format!("{}: {}\n", printable(kind), printable(attachment)));
    }
    text
}

/// What an operation's latency did: its seconds, else its single cycles, else its runs.
fn sparkline_values(file: &ResultFile, operation: &str) -> Vec<f64> {
    let seconds: Vec<f64> = file
        .timeline
        .iter()
        .filter_map(|second| second.operations.get(operation))
        // Of few operations the slowest, so that no stall is lost.
        .map(|second_latencies| second_latencies.p95.unwrap_or(second_latencies.max))
        .collect();
    if seconds.len() > 1 {
        return seconds;
    }
    let cycles: Vec<f64> =
        file.cycles.iter().filter_map(|cycle| cycle.latencies_ms.get(operation).copied()).collect();
    if cycles.len() > 1 {
        return cycles;
    }
    run_values(file, operation)
}

fn run_values(file: &ResultFile, name: &str) -> Vec<f64> {
    file.runs
        .iter()
        .filter_map(|run| run.metrics.get(name))
        .map(|metric| metric.p50.unwrap_or(metric.value))
        .collect()
}

/// Values as a row of blocks, at most `width` of them. Heights begin at zero, so that noise looks
/// small; of values that share a block the largest shows, so that no stall is lost.
pub(crate) fn sparkline(values: &[f64], width: usize) -> String {
    let largest = values.iter().copied().fold(0.0, f64::max);
    if values.len() < 2 || largest <= 0.0 || !largest.is_finite() {
        return String::new();
    }
    let columns = values.len().min(width);
    (0..columns)
        .map(|column| {
            let from = column * values.len() / columns;
            let to = (column + 1) * values.len() / columns;
            let height = values[from..to].iter().copied().fold(0.0, f64::max) / largest;
            let step = (height * BLOCKS.len() as f64).ceil() as usize;
            BLOCKS[step.clamp(1, BLOCKS.len()) - 1]
        })
        .collect()
}

/// A comparison: one line per figure, the verdict, what would decide it.
pub(crate) fn format_comparison(comparison: &Comparison) -> String {
    let (a, b) = (&comparison.a, &comparison.b);
    let unit = if comparison.paired { "pairs" } else { "runs" };
    let mut text = format!(
        "{}\nA  {} ({})\nB  {} ({})\n\n",
        printable(&comparison.scenario),
        truncate(&a.label, 90),
        truncate(&a.commit, 18),
        truncate(&b.label, 90),
        truncate(&b.commit, 18)
    );
    let head = ["metric", "A", "B", "B/A", "95% interval", "verdict"];
    let rows = comparison.rows.iter().map(|row| {
        vec![
            truncate(&row.figure, NAME_WIDTH),
            format_quantity(row.a, &row.unit),
            format_quantity(row.b, &row.unit),
            row.ratio.map_or("–".to_owned(), format_change),
            row.interval.map_or("–".to_owned(), |(low, high)| {
                format!("{} to {}", format_change(low), format_change(high))
            }),
            row.verdict.as_str().to_owned(),
        ]
    });
    text.push_str(&format_table(&head, rows, 5));
    let count =
        if a.runs == b.runs { a.runs.to_string() } else { format!("{} and {}", a.runs, b.runs) };
    text.push_str(
        &format!(
            "\n{}: margin {:.3}%, {count} {unit}\n",
            comparison.verdict.as_str(),
            comparison.margin * 100.0
        )
        .replace(".000%", "%"),
    );
    for row in comparison.rows.iter().filter(|row| row.verdict == Verdict::Inconclusive) {
        text.push_str(&format!("hint: {}\n", hint(row, comparison)));
    }
    for difference in &comparison.allowed {
        text.push_str(&format!(
            "allowed to differ: {}: {} in A, {} in B\n",
            printable(&difference.name),
            printable(&difference.a),
            printable(&difference.b)
        ));
    }
    for note in &comparison.notes {
        text.push_str(&format!("note: {}\n", printable(note)));
    }
    text
}

/// Hint at what would decide an open row.
fn hint(row: &Row, comparison: &Comparison) -> String {
    let figure = printable(&row.figure);
    let (unit, how) =
        if comparison.paired { ("pairs", "--pairs") } else { ("runs of each side", "--repeat") };
    match (&row.note, row.runs_needed) {
        (Some(note), Some(needed)) => {
            format!("{figure}: {note}; measure again with {how} {needed} or more")
        }
        (Some(note), None) => format!("{figure}: {note}"),
        (None, Some(needed)) => {
            format!("{figure}: about {needed} {unit} would probably decide it ({how} {needed})")
        }
        (None, None) => {
            format!("{figure}: the difference is too close to the margin for any number of {unit}")
        }
    }
}

/// Columns apart by two spaces; all but the first and those from `left_from` on to the right.
fn format_table(
    head: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    left_from: usize,
) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(head.iter().map(|name| (*name).to_owned()));
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index > 0 && index < left_from {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests;
