//! What a repair says of a log that it cuts, and what it writes.

use std::path::Path;

use crate::LogConfig;
use crate::file::salvage::{Cut, FileChange};

impl Cut {
    /// The names of the segments that are written to.
    pub fn written_segments(&self) -> Vec<String> {
        let last = self
            .file
            .as_ref()
            .and_then(|file| Path::new(file).file_name());
        let last = last.map(|name| name.to_string_lossy().into_owned());
        let changed = self.changes.iter().map(|change| change.name.clone());
        let mut names: Vec<String> = changed.chain(last).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Bytes by which files become longer, new ones included.
    pub fn growth_bytes(&self) -> u64 {
        let changes = self.changes.iter();
        let longer = changes.map(|change| change.bytes.saturating_sub(change.found_bytes));
        let begun = match self.begins_segment {
            true => LogConfig::default().first_segment_bytes,
            false => 0,
        };
        longer.sum::<u64>() + begun
    }

    /// What is done.
    pub fn action(&self) -> String {
        let unreadable = self.unreadable.iter();
        let left_out = unreadable.map(|file| format!("leave out {file}"));
        let changed = self.changes.iter().map(FileChange::action);
        let mut actions: Vec<String> = left_out.chain(changed).collect();
        let is_known_lost = self.from < self.below;
        match (&self.file, self.bytes) {
            (None, _) => actions.push("begin a new log".to_owned()),
            (Some(file), Some(bytes)) => actions.push(format!(
                "cut {file} off at offset {}: {bytes} bytes, with all that follows",
                self.offset
            )),
            (Some(file), None) if is_known_lost || actions.is_empty() => {
                actions.push(format!("end the log in {file} at offset {}", self.offset));
            }
            (Some(_), None) => {}
        }
        actions.join("; ")
    }

    /// What is lost. Records hold what `holds` says; of those that the snapshot has, `holds_before` is in the log only.
    pub fn loss(&self, holds: &str, holds_before: &str) -> String {
        let (first, last) = (self.from, self.below.before());
        let end = match self.below.0 - self.from.0 {
            0 => None,
            1 => Some(format!("1 record ({holds}), number {first}")),
            count => Some(format!(
                "{count} records ({holds}), numbers {first} to {last}"
            )),
        };
        let holes = self.holes.iter().map(|hole| {
            format!(
                "what records {} to {} still held of what the snapshot has ({holds_before})",
                hole.first, hole.last
            )
        });
        let losses: Vec<String> = end.into_iter().chain(holes).collect();
        if losses.is_empty() {
            return self.no_loss().to_owned();
        }
        losses.join("; ")
    }

    /// Whatever was at the end of a file that is too short may have been a record that nothing else tells of.
    fn no_loss(&self) -> &'static str {
        let is_too_long = |change: &FileChange| change.found_bytes > change.bytes;
        let only_too_long = !self.changes.is_empty() && self.changes.iter().all(is_too_long);
        match only_too_long && self.bytes.is_none() && self.unreadable.is_empty() {
            true => "nothing",
            false => "nothing that is known of",
        }
    }
}

impl FileChange {
    fn action(&self) -> String {
        let (path, found, bytes) = (&self.path, self.found_bytes, self.bytes);
        if self.is_closed {
            return format!("close {path} at offset {bytes}, where what can be read of it ends");
        }
        match found.checked_sub(bytes) {
            Some(more) => {
                format!("cut {more} bytes off {path} that follow the {bytes} of its header")
            }
            None => format!("lengthen {path} from {found} bytes to the {bytes} of its header"),
        }
    }
}
