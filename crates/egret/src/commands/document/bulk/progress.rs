//! How far an import is: `FILE.progress`, which is there while the import is not done.
//!
//! Its first line says what is imported, and to where. Behind it is noted from time to time why lines were refused, a line for each, and then how far
//! the import is. What comes after the last of these was being written when the import was broken off, and does not count.

use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::unusable;
use crate::cli::ImportDocuments;
use crate::commands::document::reasons::{Problem, Reasons};
use crate::failure::Failure;

/// What is imported, and to where: how far another import is says nothing of this one.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Source {
    server: String,
    database: Option<String>,
    collection: String,
    file_bytes: u64,
    /// When the file was changed last, in seconds and nanoseconds.
    file_changed_at: (i64, i64),
}

/// What became of all lines so far.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Counts {
    pub(super) lines: u64,
    pub(super) created: u64,
    pub(super) changed: u64,
    pub(super) unchanged: u64,
    pub(super) refused: u64,
}

/// How far an import is.
#[derive(Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Mark {
    /// Up to here each line of the file is answered for good, in bytes.
    pub(super) offset: u64,
    pub(super) counts: Counts,
    /// Where all refused lines are, if they are written to a file.
    pub(super) refusals: Option<Refusals>,
}

/// The file of refused lines.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Refusals {
    pub(super) path: String,
    /// Up to here it is of those that are counted, in bytes.
    pub(super) bytes: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Note {
    Refused(Problem),
    Reached(Mark),
}

/// What an import begins with.
#[derive(Default)]
pub(super) struct Left {
    pub(super) mark: Mark,
    pub(super) reasons: Reasons,
    /// Up to here the progress says so, in bytes.
    bytes: u64,
}

/// What is noted already.
pub(super) enum Earlier {
    /// Nothing.
    Nothing,
    /// How far this import is.
    This(Left),
    /// How far another one is: what is another there, in words.
    Another(String),
}

/// When is written what is noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// At once.
    AtOnce,
    /// When the next is noted: until then a crash of the server may take it back.
    Later,
}

/// The file in which is noted how far an import is.
pub(super) struct Progress {
    path: PathBuf,
    source: Source,
    noted: Noted,
    /// Open as soon as something is written.
    file: Option<File>,
    /// Why lines were refused since it was noted how far it is, as lines of the file.
    reasons: Vec<u8>,
    /// What is written later, as lines of the file.
    later: Vec<u8>,
}

impl Source {
    /// What a command imports from a file of which this is known, and to which server.
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

    /// What is another now than it was.
    fn change_since(&self, earlier: &Self) -> Option<String> {
        if earlier.server != self.server {
            return Some(format!("an import to {} was broken off", earlier.server));
        }
        if earlier.database != self.database {
            return Some(match &earlier.database {
                Some(database) => format!("an import to database {database} was broken off"),
                None => "an import without --database was broken off".to_owned(),
            });
        }
        if earlier.collection != self.collection {
            let collection = &earlier.collection;
            return Some(format!(
                "an import to collection {collection} was broken off"
            ));
        }
        let is_same = earlier.file_bytes == self.file_bytes
            && earlier.file_changed_at == self.file_changed_at;
        (!is_same).then(|| "the file has changed since its import was broken off".to_owned())
    }
}

impl Progress {
    pub(super) fn new(path: PathBuf, source: Source, noted: Noted) -> Self {
        Self {
            path,
            source,
            noted,
            file: None,
            reasons: Vec::new(),
            later: Vec::new(),
        }
    }

    /// What is noted in a file of this name.
    ///
    /// # Errors
    /// [`Failure`]: it cannot be read, or somebody else wrote it.
    pub(super) fn earlier(&self) -> Result<Earlier, Failure> {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Earlier::Nothing),
            Err(error) => return Err(unusable(&self.path, &error)),
        };
        // A line without its end is not all of it.
        let mut lines = text
            .split_inclusive(|byte| *byte == b'\n')
            .filter(|line| line.ends_with(b"\n"));
        let first = match lines.next() {
            Some(first) => first,
            None if text.is_empty() => return Ok(Earlier::Nothing),
            None => &text[..],
        };
        let source: Source = serde_json::from_slice(first).map_err(|_| {
            let path = self.path.display();
            Failure::usage(format!("{path}: this does not say how far an import is"))
                .with_hint("--anew begins at the first line, and writes over this file")
        })?;
        if let Some(what) = self.source.change_since(&source) {
            return Ok(Earlier::Another(what));
        }
        let mut left = None;
        let mut reasons = Reasons::default();
        let (mut bytes, mut refused) = (first.len() as u64, Vec::new());
        for line in lines {
            bytes += line.len() as u64;
            match serde_json::from_slice(line) {
                Ok(Note::Refused(problem)) => refused.push(problem),
                Ok(Note::Reached(mark)) => {
                    refused.drain(..).for_each(|problem| reasons.add(&problem));
                    left = Some((mark, bytes));
                }
                Err(_) => break,
            }
        }
        Ok(match left {
            Some((mark, bytes)) => Earlier::This(Left {
                mark,
                reasons,
                bytes,
            }),
            None => Earlier::Nothing,
        })
    }

    /// What is noted from here on comes after what is there.
    ///
    /// # Errors
    /// [`Failure`]: the file cannot be written.
    pub(super) fn go_on(&mut self, left: &Left) -> Result<(), Failure> {
        let opened = || {
            let mut file = File::options().write(true).open(&self.path)?;
            file.set_len(left.bytes)?;
            file.seek(SeekFrom::Start(left.bytes))?;
            Ok(file)
        };
        let file = opened().map_err(|error| unusable(&self.path, &error))?;
        self.file = Some(file);
        Ok(())
    }

    /// A line is refused; that is noted with how far it is.
    pub(super) fn refuse(&mut self, problem: &Problem) {
        let note = json!({"refused": problem.reason()});
        self.reasons.extend(line(&note));
    }

    /// Notes how far it is.
    ///
    /// # Errors
    /// [`Failure`]: the file cannot be written.
    pub(super) fn note(&mut self, mark: &Mark) -> Result<(), Failure> {
        let written = self.write(mark);
        written.map_err(|error| unusable(&self.path, &error))
    }

    fn write(&mut self, mark: &Mark) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.reasons);
        text.extend(line(&json!({"reached": mark})));
        if self.noted == Noted::Later {
            std::mem::swap(&mut text, &mut self.later);
        }
        if text.is_empty() {
            return Ok(());
        }
        if self.file.is_none() {
            text.splice(..0, line(&json!(self.source)));
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(File::create(&self.path)?),
        };
        file.write_all(&text)
    }

    /// What was noted does not hold any more.
    pub(super) fn forget(&self) {
        // Mostly nothing was.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn line(note: &Json) -> Vec<u8> {
    format!("{note}\n").into_bytes()
}

#[cfg(test)]
mod tests;
