//! Inventory of an engine's logs from earlier starts: which existed, up to which record they were
//! durable, and which had an end mark. Parts are directories `000`, `001` and so on.

use std::io;
use std::path::Path;

use egret_base::parts::{self, KnownParts};

use crate::{FileLog, Log, LogConfig, LogError, Seq};

/// The list of known parts of an engine, as far as it is about their logs.
pub struct KnownLogs {
    parts: KnownParts,
    /// Whether all parts exist, though the list does not say so.
    all_existed: bool,
}

/// What is known of one log.
#[derive(Clone, Copy, Debug)]
pub struct KnownLog {
    /// Every record below was durable; `None`: there was no such log.
    durable_below: Option<Seq>,
    /// Whether it had an end mark.
    had_end_mark: bool,
}

impl KnownLogs {
    /// Reads the list of a directory with so many parts. `is_new`: it was empty before this start.
    pub fn read(directory: &Path, count: usize, is_new: bool) -> io::Result<Self> {
        let parts = KnownParts::read(directory)?;
        let is_present = |number| directory.join(part_name(number)).is_dir();
        Ok(Self {
            // An earlier version made all parts at its first start.
            all_existed: !is_new && parts.was_absent() && (0..count).any(is_present),
            parts,
        })
    }

    /// What is known of the log of a part.
    pub fn log(&self, number: usize) -> KnownLog {
        let name = part_name(number);
        let end = self.parts.number(&name);
        KnownLog {
            durable_below: end.or(self.all_existed.then_some(0)).map(Seq),
            had_end_mark: self.parts.number(&parts::end_mark_name(&name)).is_some(),
        }
    }

    /// Notes how many parts there are, by the name that the engine has for them, and the logs that
    /// were opened.
    pub fn write<'log>(
        &self,
        count_name: &str,
        count: usize,
        logs: impl Iterator<Item = (usize, &'log FileLog)>,
    ) -> io::Result<()> {
        self.parts.change(|parts| {
            parts.insert(count_name.to_owned(), count as u64);
            for (number, log) in logs {
                let name = part_name(number);
                if log.has_end_mark() {
                    parts.insert(parts::end_mark_name(&name), 1);
                }
                parts.insert(name, log.next_seq().0);
            }
        })
    }
}

impl KnownLog {
    /// Refuses a log whose directory is missing.
    ///
    /// # Errors
    /// [`LogError::Absent`].
    pub fn check_directory(self, directory: &Path) -> Result<(), LogError> {
        match self.durable_below {
            Some(end) if !directory.is_dir() => {
                Err(LogError::Absent { place: directory.display().to_string(), replay_from: end })
            }
            _ => Ok(()),
        }
    }

    /// Has a log refused that is absent, shorter than it was, or without the end mark that it had.
    #[must_use]
    pub fn apply_to(self, config: LogConfig) -> LogConfig {
        LogConfig {
            must_exist: self.durable_below.is_some(),
            durable_below: self.durable_below.unwrap_or_default(),
            end_mark_must_exist: self.had_end_mark,
            ..config
        }
    }
}

fn part_name(number: usize) -> String {
    format!("{number:03}")
}
