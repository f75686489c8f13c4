//! Progress of an import: `FILE.progress`, which exists while the import is not done.
//!
//! Its first line says what is imported, and to where. After it, each checkpoint appends one line
//! for every refused line with the reason, and then the position that the import has reached. What
//! follows the last position was being written when the import was broken off, and is ignored.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::cli::ImportDocuments;
use crate::commands::document::reasons::{DocumentProblem, Reasons};
use crate::commands::document::request::file_failure;
use crate::failure::Failure;

/// Identity of an import: what is imported, and to where. The progress of another import does not
/// apply.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct ImportIdentity {
    server: String,
    database: Option<String>,
    collection: String,
    file_bytes: u64,
    /// When the file was changed last, in seconds and nanoseconds.
    file_changed_at: (i64, i64),
}

/// Number of lines by outcome.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct LineCounts {
    pub(super) lines: u64,
    pub(super) created: u64,
    pub(super) changed: u64,
    pub(super) unchanged: u64,
    pub(super) refused: u64,
}

/// Checkpoint of an import.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Checkpoint {
    /// End of the lines with a final outcome, as an offset in the file, in bytes.
    pub(super) offset: u64,
    pub(super) counts: LineCounts,
    /// The file of rejected lines, if there is one.
    pub(super) refusals: Option<Refusals>,
}

/// The file of refused lines.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Refusals {
    pub(super) path: String,
    /// Its length with the lines that are counted, in bytes.
    pub(super) bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProgressRecord {
    Refused(DocumentProblem),
    Reached(Checkpoint),
}

/// State that an import resumes from.
#[derive(Default)]
pub(super) struct ResumeState {
    pub(super) checkpoint: Checkpoint,
    pub(super) reasons: Reasons,
    /// Offset of the end of this checkpoint in the progress file, in bytes.
    end_offset: u64,
}

/// What the progress file of an earlier run holds.
pub(super) enum PriorProgress {
    Nothing,
    /// The progress of this import.
    SameImport(ResumeState),
    /// The progress of another import, with the difference in words.
    OtherImport(String),
}

/// When records are written to the progress file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushMode {
    Immediate,
    /// With the next record: until then a crash of PostgreSQL may lose what they count.
    Deferred,
}

/// The progress file of an import.
pub(super) struct ProgressFile {
    path: PathBuf,
    identity: ImportIdentity,
    flush_mode: FlushMode,
    /// Open from the first write on.
    file: Option<File>,
    /// Why lines were refused since it was noted how far it is, as lines of the file.
    reasons: Vec<u8>,
    /// What is written later, as lines of the file.
    deferred: Vec<u8>,
}

impl ImportIdentity {
    /// The identity of an import of a file with these metadata, by this command, to this server.
    pub(super) fn new(server: &Url, command: &ImportDocuments, file: &Metadata) -> Self {
        // Without user and password, which have no place in files.
        let origin = server.origin().ascii_serialization();
        let server = format!("{origin}{}", server.path());
        Self {
            server: server.trim_end_matches('/').to_owned(),
            database: command.place.database.clone(),
            collection: command.collection.clone(),
            file_bytes: file.size(),
            file_changed_at: (file.mtime(), file.mtime_nsec()),
        }
    }

    /// The first difference to another import, in words.
    fn describe_difference(&self, earlier: &Self) -> Option<String> {
        if earlier.server != self.server {
            return Some(format!("an import to {} was interrupted", earlier.server));
        }
        if earlier.database != self.database {
            return Some(match &earlier.database {
                Some(database) => format!("an import to database {database} was interrupted"),
                None => "an import without --database was interrupted".to_owned(),
            });
        }
        if earlier.collection != self.collection {
            let collection = &earlier.collection;
            return Some(format!("an import to collection {collection} was interrupted"));
        }
        let is_same = earlier.file_bytes == self.file_bytes
            && earlier.file_changed_at == self.file_changed_at;
        (!is_same).then(|| "the file has changed since its import was interrupted".to_owned())
    }
}

impl ProgressFile {
    pub(super) fn new(path: PathBuf, identity: ImportIdentity, flush_mode: FlushMode) -> Self {
        Self { path, identity, flush_mode, file: None, reasons: Vec::new(), deferred: Vec::new() }
    }

    /// Reads the progress file, if there is one.
    ///
    /// # Errors
    /// [`Failure`]: it cannot be read, or is no progress file of an import.
    pub(super) fn read_prior(&self) -> Result<PriorProgress, Failure> {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(PriorProgress::Nothing);
            }
            Err(error) => return Err(file_failure(&self.path, &error)),
        };
        // A line without its end is not all of it.
        let mut lines =
            text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
        let first = match lines.next() {
            Some(first) => first,
            None if text.is_empty() => return Ok(PriorProgress::Nothing),
            None => &text[..],
        };
        let identity: ImportIdentity = serde_json::from_slice(first).map_err(|_| {
            let path = self.path.display();
            Failure::usage(format!("{path}: this is not the progress file of an import"))
                .with_hint("--anew starts at the first line and overwrites this file")
        })?;
        if let Some(difference) = self.identity.describe_difference(&identity) {
            return Ok(PriorProgress::OtherImport(difference));
        }
        let mut last_checkpoint = None;
        let mut reasons = Reasons::default();
        let (mut offset, mut refused) = (first.len() as u64, Vec::new());
        for line in lines {
            offset += line.len() as u64;
            match serde_json::from_slice(line) {
                Ok(ProgressRecord::Refused(problem)) => refused.push(problem),
                Ok(ProgressRecord::Reached(checkpoint)) => {
                    refused.drain(..).for_each(|problem| reasons.add(&problem));
                    last_checkpoint = Some((checkpoint, offset));
                }
                Err(_) => break,
            }
        }
        Ok(match last_checkpoint {
            Some((mark, bytes)) => PriorProgress::SameImport(ResumeState {
                checkpoint: mark,
                reasons,
                end_offset: bytes,
            }),
            None => PriorProgress::Nothing,
        })
    }

    /// What is noted from here on comes after what is there.
    pub(super) fn resume(&mut self, state: &ResumeState) -> Result<(), Failure> {
        let reopen = || {
            let mut file = File::options().write(true).open(&self.path)?;
            file.set_len(state.end_offset)?;
            file.seek(SeekFrom::Start(state.end_offset))?;
            Ok(file)
        };
        let file = reopen().map_err(|error| file_failure(&self.path, &error))?;
        self.file = Some(file);
        Ok(())
    }

    /// A line is refused; that is noted with how far it is.
    pub(super) fn add_refusal(&mut self, problem: &DocumentProblem) {
        let record = json!({"refused": problem.to_record()});
        self.reasons.extend(record_line(&record));
    }

    /// Notes how far it is.
    pub(super) fn write_checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<(), Failure> {
        let written = self.append(checkpoint);
        written.map_err(|error| file_failure(&self.path, &error))
    }

    fn append(&mut self, checkpoint: &Checkpoint) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.reasons);
        text.extend(record_line(&json!({"reached": checkpoint})));
        if self.flush_mode == FlushMode::Deferred {
            std::mem::swap(&mut text, &mut self.deferred);
        }
        if text.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            text.splice(..0, record_line(&json!(self.identity)));
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create(&self.path)?),
        };
        file.write_all(&text)
    }

    /// Removes the progress file: its records do not hold any more.
    pub(super) fn remove(&self) {
        // Mostly nothing was.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn record_line(record: &Json) -> Vec<u8> {
    format!("{record}\n").into_bytes()
}

#[cfg(test)]
mod tests;
