//! Repair of lists of what there was at an earlier start that cannot be read: a directory in the
//! place of one.

use std::path::Path;

use egret_base::durable;
use egret_base::parts::{KNOWN_PARTS, KnownParts};
use egret_log::repair::Finding;

use crate::failure::Failure;
use crate::serve::DataDir;

/// Where there are lists, below the data directory.
const LIST_DIRECTORIES: [&str; 3] = ["", "queue", "series"];

/// The part that the list of an engine is.
pub(super) fn list_part(engine: &str) -> String {
    if engine.is_empty() { KNOWN_PARTS.to_owned() } else { format!("{engine}/{KNOWN_PARTS}") }
}

/// Whether a part is a list.
pub(super) fn is_list(part: &str) -> bool {
    LIST_DIRECTORIES.iter().any(|directory| list_part(directory) == part)
}

/// The lists that cannot be read.
pub(super) fn examine(data_dir: &DataDir) -> Vec<Finding> {
    let unreadable = LIST_DIRECTORIES.iter().filter_map(|directory| {
        let error = KnownParts::read(&data_dir.data_dir().join(directory)).err()?;
        Some(Finding {
            part: list_part(directory),
            problem: format!("it cannot be read: {error}"),
            action: "move it aside; the next start writes a new one".to_owned(),
            loss: "the list of existing parts: a part that is missing now is not reported at the next start"
                .to_owned(),
        })
    });
    unreadable.collect()
}

/// Moves a list aside.
pub(super) fn set_aside(data_dir: &DataDir, part: &str, stamp: &str) -> Result<(), Failure> {
    let path = data_dir.data_dir().join(part);
    let damaged_path = path.with_file_name(format!("{KNOWN_PARTS}.damaged-{stamp}"));
    let directory = path.parent().unwrap_or(Path::new("."));
    let moved =
        std::fs::rename(&path, &damaged_path).and_then(|()| durable::sync_directory(directory));
    moved.map_err(|error| {
        Failure::failed("part_not_moved", format!("move {} aside: {error}", path.display()))
    })
}
