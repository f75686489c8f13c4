//! What a repair says of a log that it cuts or replays, and what it writes.

use std::path::Path;

use super::older_state::OlderState;
use crate::file::salvage::{Cut, FileChange};
use crate::{LogConfig, Seq};

impl OlderState {
    /// What is done where the log ends before record `next`.
    pub(super) fn action(&self, next: Seq) -> String {
        let left_out = self.left_out.join(", ");
        let content = if next < self.reached {
            format!("its content before record {next}")
        } else {
            "its whole content".to_owned()
        };
        match self.replay_from {
            Seq::FIRST => format!("leave out {left_out}: the log has {content}"),
            from => format!(
                "leave out {left_out}: the snapshot before record {from} and the log have {content}"
            ),
        }
    }

    /// What is lost where the log ends before record `next`. It had reached what a snapshot has
    /// before the snapshot was written.
    pub(super) fn loss(&self, next: Seq, record_content: &str) -> String {
        let lost = lost_records(next, self.reached, record_content);
        lost.unwrap_or_else(|| "nothing".to_owned())
    }
}

/// The records from `from` to the one before `below`, if there are any.
fn lost_records(from: Seq, below: Seq, record_content: &str) -> Option<String> {
    match below.0.saturating_sub(from.0) {
        0 => None,
        1 => Some(format!("1 record ({record_content}), number {from}")),
        count => Some(format!(
            "{count} records ({record_content}), numbers {from} to {}",
            below.previous()
        )),
    }
}

impl Cut {
    /// The names of the segments that are written to.
    pub(crate) fn written_segments(&self) -> Vec<String> {
        let last = self
            .file
            .as_ref()
            .and_then(|file| Path::new(file).file_name())
            .map(|name| name.to_string_lossy().into_owned());
        let changed = self.changes.iter().map(|change| change.name.clone());
        let mut names: Vec<String> = changed.chain(last).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Bytes by which files become longer, new ones included.
    pub(crate) fn growth_bytes(&self) -> u64 {
        let changes = self.changes.iter();
        let growth = changes.map(|change| change.bytes.saturating_sub(change.found_bytes));
        let new_segment_bytes =
            if self.begins_segment { LogConfig::default().first_segment_bytes } else { 0 };
        growth.sum::<u64>() + new_segment_bytes
    }

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

    /// What is lost. Records hold what `record_content` says; of those that the snapshot has,
    /// `log_only_content` is in the log only.
    pub fn loss(&self, record_content: &str, log_only_content: &str) -> String {
        let end = lost_records(self.from, self.below, record_content);
        let holes = self.holes.iter().map(|hole| {
            format!(
                "data of the snapshot that only records {} to {} hold ({log_only_content})",
                hole.first, hole.last
            )
        });
        let losses: Vec<String> = end.into_iter().chain(holes).collect();
        if losses.is_empty() {
            return self.no_loss_text().to_owned();
        }
        losses.join("; ")
    }

    /// Whatever was at the end of a file that is too short may have been a record that nothing else
    /// tells of.
    fn no_loss_text(&self) -> &'static str {
        let is_too_long = |change: &FileChange| change.found_bytes > change.bytes;
        let only_too_long = !self.changes.is_empty() && self.changes.iter().all(is_too_long);
        if only_too_long && self.bytes.is_none() && self.unreadable.is_empty() {
            "nothing"
        } else {
            "nothing that is known"
        }
    }
}

impl FileChange {
    fn action(&self) -> String {
        let (path, found, bytes) = (&self.path, self.found_bytes, self.bytes);
        if self.is_closed {
            return format!("close {path} at offset {bytes}, the end of its readable part");
        }
        match found.checked_sub(bytes) {
            Some(excess) => {
                format!(
                    "cut {excess} bytes off the end of {path}, back to the {bytes} bytes that its header states"
                )
            }
            None => format!(
                "extend {path} from {found} bytes to the {bytes} bytes that its header states"
            ),
        }
    }
}
