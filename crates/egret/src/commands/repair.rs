//! `egret repair`: what of the data is damaged or missing, and mending it. The server must not run.

mod lists;
mod state;

use std::path::PathBuf;

use egret_base::{Clock, SystemClock};
use egret_log::repair::Finding;
use serde_json::json;

use crate::configuration::Configuration;
use crate::failure::Failure;
use crate::output::Output;
use crate::serve::Home;

pub(crate) fn run(
    part: Option<&str>,
    is_confirmed: bool,
    configuration: &Configuration,
    output: Output,
) -> Result<(), Failure> {
    let directory = configuration.data_dir()?;
    if !directory.is_dir() {
        let message = format!("there is no data directory {}", directory.display());
        return Err(Failure::failed("data_dir_missing", message));
    }
    let home = Home::open(directory)?;
    let mut findings = examine(&home)?;
    if let Some(part) = part {
        if !findings.iter().any(|finding| finding.part == part) {
            return Err(not_damaged(part, &findings));
        }
        findings.retain(|finding| finding.part == part);
    }
    if is_confirmed {
        let stamp = stamp();
        for finding in &findings {
            mend(&home, &finding.part, &stamp)?;
        }
    }
    if output.is_json() {
        let items: Vec<_> = findings
            .iter()
            .map(|finding| item(finding, is_confirmed))
            .collect();
        return output.json(&json!({ "items": items }));
    }
    output.text(&text(&findings, is_confirmed))
}

/// The part that was named is not among the damaged ones: it is whole, or there is none of that name.
fn not_damaged(part: &str, findings: &[Finding]) -> Failure {
    let damaged: Vec<&str> = findings
        .iter()
        .map(|finding| finding.part.as_str())
        .collect();
    let damaged = if damaged.is_empty() {
        "nothing is damaged or missing".to_owned()
    } else {
        format!("damaged or missing: {}", damaged.join(", "))
    };
    let message = format!("no part `{part}` is damaged or missing; {damaged}");
    Failure::failed("part_not_damaged", message)
}

fn examine(home: &Home) -> Result<Vec<Finding>, Failure> {
    let mut findings = lists::examine(home);
    let is_readable = |engine: &str| {
        let list = lists::part_in(engine);
        !findings.iter().any(|finding| finding.part == list)
    };
    let (of_queue, of_series) = (is_readable("queue"), is_readable("series"));
    if of_queue {
        findings.extend(egret_queue::repair::examine(&queue(home)).map_err(failure)?);
    }
    if of_series {
        findings.extend(egret_series::repair::examine(&series(home)).map_err(failure)?);
    }
    for (engine, problem) in home.missing_engines() {
        // An engine of which parts are there is not begun anew.
        if !findings
            .iter()
            .any(|finding| finding.part.starts_with(engine))
        {
            findings.push(begin_anew(engine, problem));
        }
    }
    let source = home.data_dir().join("volume").join("source");
    // An image that is not mounted shows nothing of what is in it.
    if !home.data_dir().join("volume.img").exists() {
        let missing = home.missing_database(&source);
        findings.extend(missing.map(|problem| begin_anew("postgres", problem)));
    }
    findings.extend(state::examine(home)?);
    Ok(findings)
}

fn mend(home: &Home, part: &str, stamp: &str) -> Result<(), Failure> {
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
        action: "begin it empty at the next start".to_owned(),
        loss: "everything in it".to_owned(),
    }
}

fn queue(home: &Home) -> PathBuf {
    home.data_dir().join("queue")
}

fn series(home: &Home) -> PathBuf {
    home.data_dir().join("series")
}

fn failure(error: egret_log::LogError) -> Failure {
    Failure::failed(egret_base::Coded::code(&error), error.to_string())
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

fn item(finding: &Finding, is_done: bool) -> serde_json::Value {
    json!({
        "part": finding.part,
        "problem": finding.problem,
        "action": finding.action,
        "loss": finding.loss,
        "done": is_done,
    })
}

fn text(findings: &[Finding], is_done: bool) -> String {
    if findings.is_empty() {
        return "nothing is damaged or missing\n".to_owned();
    }
    let mut text = String::new();
    for finding in findings {
        let Finding {
            part,
            problem,
            action,
            loss,
        } = finding;
        let (act, lose) = if is_done {
            ("done", "lost")
        } else {
            ("would be done", "would be lost")
        };
        text.push_str(&format!(
            "{part}\n  problem  {problem}\n  {act}: {action}\n  {lose}: {loss}\n"
        ));
    }
    text.push_str(if is_done {
        "what was there before is kept beside it, under a name with `.damaged-` in it\n"
    } else {
        "nothing was changed; to do it: egret repair [PART] --yes\n"
    });
    text
}
