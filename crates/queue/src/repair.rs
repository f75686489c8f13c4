//! Finding and mending damage while no Egret runs.

use std::path::Path;

use egret_log::repair::{CountFile, Finding, Parts};
use egret_log::{LogError, Seq};

use crate::store::snapshot;

/// What is wrong with the partitions of a queue directory. Nothing is changed.
///
/// # Errors
/// What keeps a partition from being examined: another process has it, or a file cannot be read.
pub fn examine(directory: &Path) -> Result<Vec<Finding>, LogError> {
    partitions(directory).examine()
}

/// Mends one partition, or the file that says how many there are. A partition's directory as it was
/// is kept beside it, with `stamp` in the name.
///
/// # Errors
/// As [`examine`].
pub fn repair(directory: &Path, name: &str, stamp: &str) -> Result<Option<Finding>, LogError> {
    partitions(directory).repair(name, stamp)
}

fn partitions(directory: &Path) -> Parts<'_> {
    Parts {
        count_file: CountFile {
            engine: "queue",
            directory,
            name: "partitions",
        },
        holds: "changes to tasks",
        holds_before: "payloads and results of tasks",
        reads_all: false,
        replay_from,
    }
}

/// The first record that the snapshot does not have.
fn replay_from(directory: &Path) -> Result<Seq, String> {
    match snapshot::read(directory) {
        Ok(known) => Ok(known.map_or(Seq::FIRST, |(from, ..)| from)),
        Err(error) => Err(error.to_string()),
    }
}
