//! Finding and mending damage while no Egret runs.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use egret_base::durable;
use egret_log::repair::{CountFile, Finding, Parts};
use egret_log::{Directory, LogError, Seq};

use crate::store::catalog::names::QUARANTINE;
use crate::store::checkpoint::Checkpoint;

/// What is wrong with the shards and blocks of a series directory. Nothing is changed.
///
/// # Errors
/// What keeps a part from being examined: another process has it, or a file cannot be read.
pub fn examine(directory: &Path) -> Result<Vec<Finding>, LogError> {
    let mut found = shards(directory).examine()?;
    let blocks = set_aside(directory).map_err(|error| failed("read", directory, error))?;
    found.extend(blocks.into_iter().map(|name| block_finding(&name)));
    Ok(found)
}

/// Mends one shard, or puts a block that was set aside out of the way. What was there is kept, with `stamp` in the
/// name.
///
/// # Errors
/// As [`examine`].
pub fn repair(directory: &Path, name: &str, stamp: &str) -> Result<Option<Finding>, LogError> {
    if let Some(file) = name.strip_prefix("blocks/") {
        let blocks = set_aside(directory).map_err(|error| failed("read", directory, error))?;
        if !blocks.iter().any(|known| known == file) {
            return Ok(None);
        }
        let aside = directory.join(format!("blocks.damaged-{stamp}"));
        let moved = durable::make_directory(&aside).and_then(|()| {
            fs::rename(directory.join("blocks").join(file), aside.join(file))?;
            durable::sync_directory(&aside)?;
            durable::sync_directory(&directory.join("blocks"))
        });
        moved.map_err(|error| failed("move a block to", &aside, error))?;
        return Ok(Some(block_finding(file)));
    }
    shards(directory).repair(name, stamp)
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> LogError {
    LogError::Io {
        action,
        file: path.display().to_string(),
        source: Arc::new(source),
    }
}

fn shards(directory: &Path) -> Parts<'_> {
    Parts {
        count_file: CountFile {
            engine: "series",
            directory,
            name: "shards",
        },
        holds: "samples that are in no block yet",
        holds_before: "samples that are in no block yet",
        reads_all: true,
        replay_from,
    }
}

/// The first record that neither the checkpoint nor a block has.
fn replay_from(directory: &Path) -> Result<Seq, String> {
    if !directory.is_dir() {
        return Ok(Seq::FIRST);
    }
    let disk = Directory::open(directory).map_err(|error| error.to_string())?;
    let checkpoint = Checkpoint::read(&disk).map_err(|error| error.to_string())?;
    Ok(checkpoint.map_or(Seq::FIRST, |checkpoint| {
        checkpoint.at.max(checkpoint.in_blocks.seq)
    }))
}

/// The files of blocks that were set aside.
fn set_aside(directory: &Path) -> io::Result<Vec<String>> {
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
