//! Finding and mending damage while no Egret runs.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use egret_base::durable;
use egret_blocks::catalog::QUARANTINE;
use egret_log::repair::{CountFile, Examination, Finding, Parts, Snapshots};
use egret_log::{Directory, LogError, Seq};

use crate::error::SeriesError;
use crate::store::checkpoint::{Checkpoint, is_damage};

/// What is wrong with the shards and blocks of a series directory, and what of it cannot be
/// examined. Nothing is changed.
pub fn examine(directory: &Path) -> Examination {
    let mut examination = shards(directory).examine();
    let blocks =
        list_quarantined_files(directory).map_err(|error| io_error("read", directory, error));
    let findings = blocks.map(|names| names.into_iter().map(|name| block_finding(&name)));
    examination.add("series/blocks".to_owned(), findings);
    examination
}

/// Mends one shard, or puts a block that was set aside out of the way. What was there is kept, with
/// `stamp` in the name.
///
/// # Errors
/// What keeps the part from being repaired: another process has it, a file cannot be read, or there
/// is no room.
pub fn repair(directory: &Path, name: &str, stamp: &str) -> Result<Option<Finding>, LogError> {
    if let Some(file) = name.strip_prefix("blocks/") {
        let blocks = list_quarantined_files(directory)
            .map_err(|error| io_error("read", directory, error))?;
        if !blocks.iter().any(|known| known == file) {
            return Ok(None);
        }
        let damaged_directory = directory.join(format!("blocks.damaged-{stamp}"));
        let moved = durable::create_directory(&damaged_directory).and_then(|()| {
            fs::rename(directory.join("blocks").join(file), damaged_directory.join(file))?;
            durable::sync_directory(&damaged_directory)?;
            durable::sync_directory(&directory.join("blocks"))
        });
        moved.map_err(|error| io_error("move a block to", &damaged_directory, error))?;
        return Ok(Some(block_finding(file)));
    }
    shards(directory).repair(name, stamp)
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> LogError {
    LogError::Io { action, file: path.display().to_string(), source: Arc::new(source) }
}

fn shards(directory: &Path) -> Parts<'_> {
    Parts {
        count_file: CountFile { engine: "series", directory, name: "shards" },
        record_content: "samples that are not in a block yet",
        log_only_content: "samples that are not in a block yet",
        reads_all: true,
        part_content: "its latest series and samples",
        snapshots: read_snapshots,
    }
}

/// What the checkpoint in a shard's directory says. An older one is not used: the log lets go of
/// what is in blocks.
fn read_snapshots(directory: &Path) -> Result<Snapshots, LogError> {
    let checkpoint = if directory.is_dir() {
        let disk =
            Directory::open(directory).map_err(|error| io_error("open", directory, error))?;
        Checkpoint::read(&disk)
    } else {
        Ok(None)
    };
    let replay_from = match checkpoint {
        Ok(checkpoint) => Ok(checkpoint.as_ref().map_or(Seq::FIRST, replay_from)),
        Err(error) if is_damage(&error) => Err(error.to_string()),
        Err(error) => return Err(into_log_error(error)),
    };
    Ok(Snapshots { replay_from, older: None })
}

/// The first record that neither the checkpoint nor a block has.
fn replay_from(checkpoint: &Checkpoint) -> Seq {
    checkpoint.next_seq.max(checkpoint.flush_watermark.seq)
}

/// What cannot be read now, or by this version, may be whole: nothing is begun anew in its place.
fn into_log_error(error: SeriesError) -> LogError {
    match error {
        SeriesError::Io { path, source, .. } => {
            LogError::Io { action: "read", file: path.display().to_string(), source }
        }
        other => LogError::Io {
            action: "read",
            file: "a checkpoint of series".to_owned(),
            source: Arc::new(io::Error::other(other.to_string())),
        },
    }
}

/// The files of blocks that were set aside.
fn list_quarantined_files(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory.join("blocks")) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(QUARANTINE) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn block_finding(name: &str) -> Finding {
    Finding {
        part: format!("series/blocks/{name}"),
        problem: "the block is damaged and was set aside; queries say that data is partial"
            .to_owned(),
        action: "move it out of the directory of blocks".to_owned(),
        loss: "the samples of the block, which are not read now either".to_owned(),
    }
}

#[cfg(test)]
mod tests;
