//! Repair of `state.db`, and of files that a start has set aside as unreadable.

use std::path::Path;

use egret_base::CodedError;
use egret_log::repair::Finding;
use egret_state::StateError;
use egret_state::repair::{self, Damage, MIGRATION_TABLE};

use crate::failure::Failure;
use crate::serve::DataDir;

/// The file, and the beginning of the names of those that were set aside.
pub(super) const PART: &str = "state.db";

/// What alone is put back from a file that was set aside: branches have been found again by their
/// manifests.
const TOKEN_TABLE: &str = "token";

/// Whether a part is one of these files.
pub(super) fn is_state_part(part: &str) -> bool {
    part.starts_with(PART)
}

pub(super) fn examine(data_dir: &DataDir) -> Result<Vec<Finding>, Failure> {
    let path = &data_dir.state_db();
    let damage = repair::examine(path).map_err(into_failure)?;
    let mut findings: Vec<Finding> = damage.iter().map(damage_finding).collect();
    if findings.is_empty() && data_dir.had_state() {
        let missing =
            repair::examine_tables(path, &DataDir::state_tables()).map_err(into_failure)?;
        findings.extend(missing_tables_finding(&missing));
    }
    // What is put back needs a sound file.
    if findings.is_empty() {
        for aside in repair::files_set_aside(path).map_err(into_failure)? {
            findings.push(set_aside_finding(&aside, path)?);
        }
    }
    Ok(findings)
}

/// Mends one of them.
pub(super) fn repair_part(path: &Path, part: &str, stamp: &str) -> Result<(), Failure> {
    if part == PART {
        repair::repair(path, stamp).map_err(into_failure)?;
        return add_missing_tables(path);
    }
    let aside = path.with_file_name(part);
    // Files of one repair must not have one name.
    let number = part.rsplit('-').next().unwrap_or_default();
    let stamp = format!("{stamp}-{number}");
    repair::restore_rows(&aside, path, TOKEN_TABLE, &stamp).map_err(into_failure)?;
    add_missing_tables(path)
}

/// Makes tables anew that a file lacks which was made of another one.
fn add_missing_tables(path: &Path) -> Result<(), Failure> {
    if !path.exists() {
        return Ok(());
    }
    egret_state::create_missing_tables(path, &DataDir::state_tables()).map_err(into_failure)
}

/// The finding about tables that an earlier start had and that are missing now.
fn missing_tables_finding(missing: &[String]) -> Option<Finding> {
    if missing.is_empty() {
        return None;
    }
    if missing == [MIGRATION_TABLE] {
        return Some(damage_finding(&Damage {
            problem: "it is empty or belongs to another program, although it was Egret's at an \
                 earlier start"
                .to_owned(),
            tables: Vec::new(),
        }));
    }
    let names = missing.join(", ");
    Some(Finding {
        part: PART.to_owned(),
        problem: format!("tables that it had are missing: {names}"),
        action: "create the missing tables, empty".to_owned(),
        loss: format!("the content of {names}"),
    })
}

fn damage_finding(damage: &Damage) -> Finding {
    let (action, loss) = if damage.tables.is_empty() {
        (
            "create it empty at the next start; branches are restored from their manifests"
                .to_owned(),
            "all tokens; a new admin token is created".to_owned(),
        )
    } else {
        (
            format!("copy the readable rows into a new file: {}", describe_rows(damage)),
            describe_loss(damage),
        )
    };
    Finding { part: PART.to_owned(), problem: damage.problem.clone(), action, loss }
}

fn set_aside_finding(aside: &Path, path: &Path) -> Result<Finding, Failure> {
    let (damage, missing) =
        repair::examine_set_aside(aside, path, TOKEN_TABLE).map_err(into_failure)?;
    let action = if path.exists() {
        format!(
            "put {missing} of its tokens back into state.db; branches stay as restored from \
             their manifests"
        )
    } else {
        format!("create state.db from the readable rows: {}", describe_rows(&damage))
    };
    let part = aside.file_name().unwrap_or_default();
    Ok(Finding {
        part: part.to_string_lossy().into_owned(),
        problem: format!("it was set aside as unreadable at a start: {}", damage.problem),
        action,
        loss: describe_loss(&damage),
    })
}

fn describe_rows(damage: &Damage) -> String {
    let rows = damage.tables.iter().map(|table| {
        let count = table.rows;
        format!("{count} of {}", table.name)
    });
    rows.collect::<Vec<String>>().join(", ")
}

fn describe_loss(damage: &Damage) -> String {
    if damage.tables.is_empty() {
        return "everything in it".to_owned();
    }
    let partial: Vec<&str> = damage
        .tables
        .iter()
        .filter(|table| !table.is_whole)
        .map(|table| table.name.as_str())
        .collect();
    if partial.is_empty() {
        "nothing".to_owned()
    } else {
        format!("the rows on damaged pages of {}", partial.join(", "))
    }
}

fn into_failure(error: StateError) -> Failure {
    Failure::failed(error.code(), error.to_string())
}
