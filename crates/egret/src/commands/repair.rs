//! `egret repair`: what of the data is damaged or missing, and mending it. The server must not run.

mod lists;
mod report;
mod state;

use std::path::PathBuf;

use egret_base::{Clock, SystemClock};
use egret_log::repair::Finding;

use self::report::{PartFailure, RepairReport};
use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::output::Output;
use crate::serve::DataDir;

pub(crate) fn run(
    part: Option<&str>,
    is_confirmed: bool,
    configuration: &Configuration,
    output: Output,
) -> Result<(), Failure> {
    let directory = configuration.data_dir()?;
    if !directory.is_dir() {
        let message = format!("data directory {} does not exist", directory.display());
        return Err(Failure::failed("data_dir_missing", message));
    }
    let data_dir = DataDir::open(directory)?;
    let mut report = examine(&data_dir);
    if let Some(part) = part {
        report.select(part)?;
    }
    if is_confirmed {
        repair_findings(&data_dir, &mut report);
    }
    if output.is_json() {
        output.print_json(&report.to_json(is_confirmed))?;
    } else {
        output.print_text(&report.to_text(is_confirmed))?;
    }
    report.fail_if_incomplete()
}

fn examine(data_dir: &DataDir) -> RepairReport {
    let mut report = RepairReport { findings: lists::examine(data_dir), failures: Vec::new() };
    let is_readable = |engine: &str| {
        let list = lists::list_part(engine);
        !report.findings.iter().any(|finding| finding.part == list)
    };
    let (is_queue_readable, is_series_readable) = (is_readable("queue"), is_readable("series"));
    if is_queue_readable {
        report.add_examination(egret_queue::repair::examine(&queue_dir(data_dir)));
    }
    if is_series_readable {
        report.add_examination(egret_series::repair::examine(&series_dir(data_dir)));
    }
    for (engine, problem) in data_dir.missing_engines() {
        // An engine of which parts are there is not begun anew.
        if !report.mentions(engine) {
            report.findings.push(recreate_finding(engine, problem));
        }
    }
    let source = data_dir.data_dir().join("volume").join("source");
    // An image that is not mounted shows nothing of what is in it.
    if !data_dir.data_dir().join("volume.img").exists() {
        let missing =
            data_dir.missing_database(&source).map(|problem| recreate_finding("postgres", problem));
        report.findings.extend(missing);
    }
    match state::examine(data_dir) {
        Ok(found) => report.findings.extend(found),
        Err(failure) => report.failures.push(PartFailure {
            part: state::PART.to_owned(),
            action: "examine",
            failure,
        }),
    }
    report
}

/// Mends everything that was found. What cannot be mended keeps nothing else from it.
fn repair_findings(data_dir: &DataDir, report: &mut RepairReport) {
    let stamp = timestamp_suffix();
    for finding in &report.findings {
        if let Err(failure) = repair_part(data_dir, &finding.part, &stamp) {
            report.failures.push(PartFailure {
                part: finding.part.clone(),
                action: "mend",
                failure,
            });
        }
    }
}

fn repair_part(data_dir: &DataDir, part: &str, stamp: &str) -> Result<(), Failure> {
    match part.split_once('/') {
        _ if lists::is_list(part) => lists::set_aside(data_dir, part, stamp)?,
        Some(("queue", name)) => {
            egret_queue::repair::repair(&queue_dir(data_dir), name, stamp).map_err(into_failure)?;
        }
        Some(("series", name)) => {
            egret_series::repair::repair(&series_dir(data_dir), name, stamp)
                .map_err(into_failure)?;
        }
        _ if state::is_state_part(part) => state::repair_part(&data_dir.state_db(), part, stamp)?,
        _ => data_dir.forget_part(part, stamp)?,
    }
    Ok(())
}

fn recreate_finding(part: &str, problem: String) -> Finding {
    Finding {
        part: part.to_owned(),
        problem,
        action: "create it empty at the next start".to_owned(),
        loss: "everything in it".to_owned(),
    }
}

fn queue_dir(data_dir: &DataDir) -> PathBuf {
    data_dir.data_dir().join("queue")
}

fn series_dir(data_dir: &DataDir) -> PathBuf {
    data_dir.data_dir().join("series")
}

fn into_failure(error: egret_log::LogError) -> Failure {
    Failure::failed(egret_base::CodedError::code(&error), error.to_string())
}

/// The time, as it can stand in a file's name.
fn timestamp_suffix() -> String {
    let now = SystemClock.now().to_string();
    let seconds = now.split('.').next().unwrap_or_default();
    seconds.replace(['-', ':'], "").trim_end_matches('Z').to_owned() + "Z"
}
