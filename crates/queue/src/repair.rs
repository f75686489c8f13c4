//! Finding and mending damage while no Egret runs.

use std::path::Path;

use egret_log::repair::{CountFile, Finding, Part};
use egret_log::{LogError, Seq};

use crate::store::snapshot;

/// What is wrong with the partitions of a queue directory. Nothing is changed.
///
/// # Errors
/// What keeps a partition from being examined: another process has it, or a file cannot be read.
pub fn examine(directory: &Path) -> Result<Vec<Finding>, LogError> {
    let mut found: Vec<Finding> = count_file(directory).examine()?.into_iter().collect();
    for part in parts(directory)? {
        found.extend(part.examine()?);
    }
    Ok(found)
}

/// Mends one partition, or the file that says how many there are. A partition's directory as it was is kept beside it, with `stamp` in the name.
///
/// # Errors
/// As [`examine`].
pub fn repair(directory: &Path, name: &str, stamp: &str) -> Result<Option<Finding>, LogError> {
    if name == COUNT_FILE {
        return count_file(directory).repair();
    }
    match parts(directory)?.into_iter().find(|part| part.name == name) {
        Some(part) => part.repair(stamp),
        None => Ok(None),
    }
}

/// The file that says how many partitions there are.
const COUNT_FILE: &str = "partitions";

fn count_file(directory: &Path) -> CountFile<'_> {
    CountFile {
        engine: "queue",
        directory,
        name: COUNT_FILE,
    }
}

fn parts(directory: &Path) -> Result<Vec<Part<'_>>, LogError> {
    let parts = (0..count_file(directory).count()?)
        .map(|number| {
            let name = format!("{number:03}");
            let replay_from = match snapshot::read(&directory.join(&name)) {
                Ok(known) => Ok(known.map_or(Seq::FIRST, |(from, ..)| from)),
                Err(error) => Err(error.to_string()),
            };
            Part {
                engine: "queue",
                directory,
                name,
                holds: "changes to tasks",
                replay_from,
            }
        })
        .collect();
    Ok(parts)
}
