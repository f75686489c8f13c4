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
    let home = DataDir::open(directory)?;
    let mut report = examine(&home);
    if let Some(part) = part {
        report.select(part)?;
    }
    if is_confirmed {
        mend_found(&home, &mut report);
    }
    if output.is_json() {
        output.json(&report.to_json(is_confirmed))?;
    } else {
        output.text(&report.text(is_confirmed))?;
    }
    report.finish()
}

fn examine(home: &DataDir) -> RepairReport {
    let mut report = RepairReport {
        findings: lists::examine(home),
        failures: Vec::new(),
    };
    let is_readable = |engine: &str| {
        let list = lists::part_in(engine);
        !report.findings.iter().any(|finding| finding.part == list)
    };
    let (of_queue, of_series) = (is_readable("queue"), is_readable("series"));
    if of_queue {
        report.add(egret_queue::repair::examine(&queue(home)));
    }
    if of_series {
        report.add(egret_series::repair::examine(&series(home)));
    }
    for (engine, problem) in home.missing_engines() {
        // An engine of which parts are there is not begun anew.
        if !report.concerns(engine) {
            report.findings.push(begin_anew(engine, problem));
        }
    }
    let source = home.data_dir().join("volume").join("source");
    // An image that is not mounted shows nothing of what is in it.
    if !home.data_dir().join("volume.img").exists() {
        let missing = home
            .missing_database(&source)
            .map(|problem| begin_anew("postgres", problem));
        report.findings.extend(missing);
    }
    match state::examine(home) {
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
fn mend_found(home: &DataDir, report: &mut RepairReport) {
    let stamp = stamp();
    for finding in &report.findings {
        if let Err(failure) = mend(home, &finding.part, &stamp) {
            report.failures.push(PartFailure {
                part: finding.part.clone(),
                action: "mend",
                failure,
            });
        }
    }
}

fn mend(home: &DataDir, part: &str, stamp: &str) -> Result<(), Failure> {
    match part.split_once('/') {
        _ if lists::is_part(part) => lists::mend(home, part, stamp)?,
        Some(("queue", name)) => {
            egret_queue::repair::repair(&queue(home), name, stamp).map_err(failure)?;
        }
        Some(("series", name)) => {
            egret_series::repair::repair(&series(home), name, stamp).map_err(failure)?;
        }
        _ if state::is_part(part) => state::mend(&home.state_db(), part, stamp)?,
        _ => home.forget(part, stamp)?,
    }
    Ok(())
}

fn begin_anew(part: &str, problem: String) -> Finding {
    Finding {
        part: part.to_owned(),
        problem,
        action: "create it empty at the next start".to_owned(),
        loss: "everything in it".to_owned(),
    }
}

fn queue(home: &DataDir) -> PathBuf {
    home.data_dir().join("queue")
}

fn series(home: &DataDir) -> PathBuf {
    home.data_dir().join("series")
}

fn failure(error: egret_log::LogError) -> Failure {
    Failure::failed(egret_base::CodedError::code(&error), error.to_string())
}

/// The time, as it can stand in a file's name.
fn stamp() -> String {
    let now = SystemClock.now().to_string();
    let seconds = now.split('.').next().unwrap_or_default();
    seconds
        .replace(['-', ':'], "")
        .trim_end_matches('Z')
        .to_owned()
        + "Z"
}
