//! Examination and repair of damage while no Egret runs.

use std::path::Path;
use std::sync::Arc;

use egret_log::repair::{CountFile, Examination, Finding, OlderState, Parts, Snapshots};
use egret_log::{LogError, Seq};

use crate::error::QueueError;
use crate::store::snapshot;

/// Damage of the partitions of a queue directory, and which of them cannot be examined. Nothing is
/// changed.
pub fn examine(directory: &Path) -> Examination {
    partitions(directory).examine()
}

/// Mends one partition, or the file that says how many there are. A partition's directory as it was
/// is kept beside it, with `stamp` in the name.
///
/// # Errors
/// What keeps the partition from being repaired: another process has it, a file cannot be read, or
/// there is no room.
pub fn repair(directory: &Path, name: &str, stamp: &str) -> Result<Option<Finding>, LogError> {
    partitions(directory).repair(name, stamp)
}

fn partitions(directory: &Path) -> Parts<'_> {
    Parts {
        count_file: CountFile { engine: "queue", directory, name: "partitions" },
        record_content: "changes to tasks",
        log_only_content: "payloads and results of tasks",
        reads_all: false,
        part_content: "all its tasks and schedules",
        snapshots,
    }
}

/// State of the snapshots in a partition's directory. A crash, or a disk that fails, may leave an
/// older one beside the newest.
fn snapshots(directory: &Path) -> Result<Snapshots, LogError> {
    let mut left_out = Vec::new();
    // Number and damage of the newest one, if that is damaged.
    let mut newest_damaged: Option<(Seq, String)> = None;
    let mut readable = None;
    let files = if directory.is_dir() {
        snapshot::list(directory).map_err(unavailable)?
    } else {
        Vec::new()
    };
    for (number, path) in files.into_iter().rev() {
        match snapshot::read_file(&path) {
            Ok((seq, ..)) => {
                readable = Some(seq);
                break;
            }
            Err(error @ QueueError::SnapshotDamaged { .. }) => {
                let name = path.file_name().unwrap_or_default();
                left_out.push(name.to_string_lossy().into_owned());
                newest_damaged = newest_damaged.or_else(|| Some((number, error.to_string())));
            }
            Err(error) => return Err(unavailable(error)),
        }
    }
    let replay_from = readable.unwrap_or(Seq::FIRST);
    let Some((reached, problem)) = newest_damaged else {
        return Ok(Snapshots { replay_from: Ok(replay_from), older: None });
    };
    Ok(Snapshots {
        replay_from: Err(problem),
        older: Some(OlderState { replay_from, left_out, reached }),
    })
}

/// A file that cannot be read now, or not by this version, may be undamaged: nothing is rebuilt in
/// its place.
fn unavailable(error: QueueError) -> LogError {
    let (file, reason) = match error {
        QueueError::Io { path, reason, .. } => (path, reason),
        other => ("a snapshot of the queue".to_owned(), other.to_string()),
    };
    LogError::Io { action: "read", file, source: Arc::new(std::io::Error::other(reason)) }
}
