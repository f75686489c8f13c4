//! What is known of the logs of an engine's parts from earlier starts: which there were, how far
//! they reached, and which had an end mark. Parts are directories `000`, `001` and so on.

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
    end: Option<Seq>,
    /// Whether it had an end mark.
    had_mark: bool,
}

impl KnownLogs {
    /// Reads the list of a directory with so many parts. `is_new`: it was empty before this start.
    pub fn read(directory: &Path, count: usize, is_new: bool) -> io::Result<Self> {
        let parts = KnownParts::read(directory)?;
        let is_present = |number| directory.join(name_of(number)).is_dir();
        Ok(Self {
            // An earlier version made all parts at its first start.
            all_existed: !is_new && parts.was_absent() && (0..count).any(is_present),
            parts,
        })
    }

    /// What is known of the log of a part.
    pub fn log(&self, number: usize) -> KnownLog {
        let name = name_of(number);
        let end = self.parts.number(&name);
        KnownLog {
            end: end.or(self.all_existed.then_some(0)).map(Seq),
            had_mark: self.parts.number(&parts::name_of_mark(&name)).is_some(),
        }
    }

    /// Notes how many parts there are, by the name that the engine has for them, and the logs that
    /// were opened.
    pub fn note<'log>(
        &self,
        count_name: &str,
        count: usize,
        logs: impl Iterator<Item = (usize, &'log FileLog)>,
    ) -> io::Result<()> {
        self.parts.change(|known| {
            known.insert(count_name.to_owned(), count as u64);
            for (number, log) in logs {
                let name = name_of(number);
                if log.has_end_mark() {
                    known.insert(parts::name_of_mark(&name), 1);
                }
                known.insert(name, log.next().0);
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
        match self.end {
            Some(end) if !directory.is_dir() => Err(LogError::Absent {
                place: directory.display().to_string(),
                replay_from: end,
            }),
            _ => Ok(()),
        }
    }

    /// Has a log refused that is absent, shorter than it was, or without the end mark that it had.
    #[must_use]
    pub fn require(self, config: LogConfig) -> LogConfig {
        LogConfig {
            must_exist: self.end.is_some(),
            durable_below: self.end.unwrap_or_default(),
            mark_must_exist: self.had_mark,
            ..config
        }
    }
}

fn name_of(number: usize) -> String {
    format!("{number:03}")
}
