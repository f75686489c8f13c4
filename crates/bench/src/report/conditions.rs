//! Under which conditions each file was measured, what went wrong, and what to know first.

use std::collections::BTreeSet;

use super::input::ReportInput;
use super::plot::Numbers;
use crate::quantity::format_quantity;
use crate::result::ResultFile;

/// Reads the value of a condition from a file.
type Value<'a> = &'a dyn Fn(&ResultFile) -> String;

/// One row per condition, one column per file; a last column marks what differs.
pub fn table(files: &[ReportInput]) -> Numbers {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    let mut add_row = |name: &str, value: Value<'_>| {
        let values = files.iter().map(|file| value(&file.result)).collect();
        rows.push((name.to_owned(), values));
    };
    add_measurement_rows(&mut add_row);
    add_machine_rows(&mut add_row);
    add_row("PostgreSQL", &|file| {
        let version = file.environment.postgres_version.clone();
        version.unwrap_or_else(|| "none".to_owned())
    });
    for name in names(files, |file| file.environment.postgres_settings.keys()) {
        add_row(&format!("setting {name}"), &|file| {
            let value = file.environment.postgres_settings.get(&name);
            value.cloned().unwrap_or_else(|| "default".to_owned())
        });
    }
    for name in names(files, |file| file.parameters.keys()) {
        add_row(&format!("parameter {name}"), &|file| match file.parameters.get(&name) {
            None => "not set".to_owned(),
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
        });
    }
    into_numbers(files, rows)
}

/// What was run, when, of which program.
fn add_measurement_rows(add_row: &mut dyn FnMut(&str, Value<'_>)) {
    add_row("scenario", &|file| file.scenario.clone());
    add_row("command", &|file| file.command.clone());
    add_row("started", &|file| file.started_at.to_string());
    add_row("runs", &|file| file.runs.len().max(1).to_string());
    add_row("warm-up", &|file| match &file.warmup {
        Some(warmup) if warmup.steady => format!("{:.1} s, steady", warmup.seconds),
        Some(warmup) => format!("{:.1} s, not steady", warmup.seconds),
        None => "none".to_owned(),
    });
    add_row("data set", &|file| file.environment.data_set.clone());
    add_row("seed", &|file| file.environment.seed.to_string());
    add_row("Egret", &|file| {
        let environment = &file.environment;
        format!("{} ({})", environment.egret_version, environment.egret_commit)
    });
    add_row("binary (SHA-256)", &|file| {
        let hash = file.environment.binary_sha256.as_deref();
        hash.unwrap_or("unknown").chars().take(16).collect()
    });
    add_row("build profile", &|file| file.environment.build_profile.clone());
    add_row("measured by", &|file| match &file.environment.generator {
        Some(generator) => format!("{} ({})", generator.version, generator.commit),
        None => "the same".to_owned(),
    });
}

/// Where it was run.
fn add_machine_rows(add_row: &mut dyn FnMut(&str, Value<'_>)) {
    add_row("processor", &|file| {
        format!("{} × {}", file.environment.cpus, file.environment.cpu_model)
    });
    add_row("memory", &|file| format_quantity(file.environment.memory_bytes as f64, "bytes"));
    add_row("system", &|file| {
        format!("{}, kernel {}", file.environment.os, file.environment.kernel)
    });
    add_row("file system", &|file| {
        let environment = &file.environment;
        format!("{} ({})", environment.file_system, environment.mount_options)
    });
    add_row("fsync", &|file| {
        let latency = file.environment.fsync_ms;
        latency.map_or_else(|| "unknown".to_owned(), |latency| format_quantity(latency, "ms"))
    });
    add_row("other processes", &|file| format!("{:.2} cores", file.environment.other_cpu));
    add_row("kernel threads", &|file| {
        let cores = file.environment.kernel_cpu;
        cores.map_or_else(|| "unknown".to_owned(), |cores| format!("{cores:.2} cores"))
    });
    add_row("load generator", &|file| format!("{:.2} cores", file.environment.generator_cpu));
}

fn names<'a, K>(files: &'a [ReportInput], keys: impl Fn(&'a ResultFile) -> K) -> BTreeSet<String>
where
    K: Iterator<Item = &'a String>,
{
    let all = files.iter().flat_map(|file| keys(&file.result));
    all.cloned().collect()
}

fn into_numbers(files: &[ReportInput], rows: Vec<(String, Vec<String>)>) -> Numbers {
    let mut numbers = Numbers::new(&["condition"]);
    numbers.head.extend(files.iter().map(|file| file.label.clone()));
    if files.len() > 1 {
        numbers.head.push("differs".to_owned());
    }
    for (name, values) in rows {
        let differs = values.iter().any(|value| *value != values[0]);
        let mut row = vec![name];
        row.extend(values);
        if files.len() > 1 {
            row.push(if differs { "≠" } else { "" }.to_owned());
        }
        numbers.rows.push(row);
    }
    numbers
}

/// Everything a reader must know before the numbers: warnings, and failures by cause.
pub(crate) fn remarks(files: &[ReportInput]) -> Vec<String> {
    let mut remarks = Vec::new();
    for file in files {
        let label = &file.label;
        let warnings = file.result.warnings.iter();
        remarks.extend(warnings.map(|warning| format!("{label}: {warning}")));
        for (cause, count) in &file.result.errors {
            remarks.push(format!("{label}: {count} operations failed: {cause}"));
        }
    }
    remarks
}
