//! What can be wrong with a part, and what of it a repair keeps.

use std::path::PathBuf;

use super::older_state::OlderState;
use crate::Seq;
use crate::file::salvage::{Cut, WholeLog};

/// What is wrong with a part.
pub(super) enum Damage {
    /// Its snapshot is damaged, and the log does not stand for it.
    Snapshot(String),
    /// Its snapshot is damaged, and the log has everything since an earlier state up to where it
    /// ends.
    Replayable {
        /// What is wrong with the snapshot.
        problem: String,
        older: OlderState,
        log: WholeLog,
    },
    /// Its directory is not there.
    Missing(PathBuf),
    /// Its directory is that of another part.
    Misplaced {
        path: PathBuf,
        /// The part that it says it is.
        stated: String,
    },
    /// It has a snapshot, but no log.
    LogMissing(PathBuf),
    /// Its log cannot be opened.
    Log(Cut),
    /// The end mark of its log, which it had.
    MarkMissing(PathBuf),
}

impl Damage {
    pub(super) fn problem(&self) -> String {
        match self {
            Self::Snapshot(problem) | Self::Replayable { problem, .. } => problem.clone(),
            Self::Missing(path) | Self::LogMissing(path) | Self::MarkMissing(path) => {
                format!("{} is missing", path.display())
            }
            Self::Misplaced { path, stated } => {
                format!("{} is the directory of {stated}", path.display())
            }
            Self::Log(cut) => cut.error.to_string(),
        }
    }

    /// The first record that the log must have, where anything can be kept.
    pub(super) fn first_kept(&self, replay_from: &Result<Seq, String>) -> Option<Seq> {
        match self {
            Self::Snapshot(_)
            | Self::Missing(_)
            | Self::Misplaced { .. }
            | Self::MarkMissing(_) => None,
            Self::Replayable { older, .. } => Some(older.replay_from),
            Self::LogMissing(_) | Self::Log(_) => replay_from.as_ref().ok().copied(),
        }
    }

    /// The names of the segments that are written to.
    pub(super) fn written_segments(&self) -> Vec<String> {
        match self {
            Self::Log(cut) => cut.written_segments(),
            Self::Replayable { log, .. } => vec![log.segment.clone()],
            _ => Vec::new(),
        }
    }

    /// The names of the snapshots that are left out.
    pub(super) fn left_out(&self) -> &[String] {
        match self {
            Self::Replayable { older, .. } => &older.left_out,
            _ => &[],
        }
    }
}
