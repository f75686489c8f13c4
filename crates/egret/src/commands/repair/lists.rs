//! Repair of lists of what there was at an earlier start that cannot be read: a directory in the
//! place of one.

use std::path::Path;

use egret_base::durable;
use egret_base::parts::{KNOWN_PARTS, KnownParts};
use egret_log::repair::Finding;

use crate::failure::Failure;
use crate::serve::DataDir;

/// Where there are lists, below the data directory.
const PLACES: [&str; 3] = ["", "queue", "series"];

/// The part that the list of an engine is.
pub(super) fn part_in(engine: &str) -> String {
    if engine.is_empty() {
        KNOWN_PARTS.to_owned()
    } else {
        format!("{engine}/{KNOWN_PARTS}")
    }
}

/// Whether a part is a list.
pub(super) fn is_part(part: &str) -> bool {
    PLACES.iter().any(|place| part_in(place) == part)
}

/// The lists that cannot be read.
pub(super) fn examine(home: &DataDir) -> Vec<Finding> {
    let unreadable = PLACES.iter().filter_map(|place| {
        let error = KnownParts::read(&home.data_dir().join(place)).err()?;
        Some(Finding {
            part: part_in(place),
            problem: format!("it cannot be read: {error}"),
            action: "move it aside; the next start writes a new one".to_owned(),
            loss: "the list of existing parts: a part that is missing now is not reported at the next start"
                .to_owned(),
        })
    });
    unreadable.collect()
}

/// Moves a list aside.
pub(super) fn mend(home: &DataDir, part: &str, stamp: &str) -> Result<(), Failure> {
    let path = home.data_dir().join(part);
    let aside = path.with_file_name(format!("{KNOWN_PARTS}.damaged-{stamp}"));
    let directory = path.parent().unwrap_or(Path::new("."));
    let moved = std::fs::rename(&path, &aside).and_then(|()| durable::sync_directory(directory));
    moved.map_err(|error| {
        Failure::failed(
            "part_not_moved",
            format!("move {} aside: {error}", path.display()),
        )
    })
}
