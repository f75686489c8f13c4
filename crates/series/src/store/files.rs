//! Files that people write: rules, jobs, lists of targets, secrets. They are read, never written.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// One setting matches at most so many files.
const FILES_MAX: usize = 10_000;
/// A file with a secret is at most so long, in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// Why files cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    /// The pattern is none.
    #[error("{pattern:?} is not a path pattern: {reason}")]
    Pattern {
        /// Pattern of paths, as given.
        pattern: String,
        /// Why it is no pattern.
        reason: String,
    },
    /// The pattern matches too many files.
    #[error("{pattern:?} matches more than {FILES_MAX} files: use a narrower pattern")]
    TooMany {
        /// Pattern of paths, as given.
        pattern: String,
    },
    /// The file exists and cannot be read.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// Path of the file.
        path: String,
        /// Why it cannot be read.
        source: io::Error,
    },
    /// The file is too long.
    #[error("{path} is longer than {max} bytes: split it")]
    TooLong {
        /// Path of the file.
        path: String,
        /// The most it may have.
        max: u64,
    },
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Path of the file.
    pub path: String,
    /// Contents of the file.
    pub text: String,
}

/// The files that patterns match, each once, in the order of their paths. A pattern without `*`,
/// `?` or `[` names a file that must be there.
///
/// # Errors
/// [`FileError`] of the first invalid pattern or unreadable file.
pub(crate) fn read_matching(
    patterns: &[String],
    bytes_max: u64,
) -> Result<Vec<Document>, FileError> {
    let mut paths = std::collections::BTreeSet::new();
    for pattern in patterns {
        if !pattern.contains(['*', '?', '[']) {
            paths.insert(pattern.into());
            continue;
        }
        let pattern_error =
            |reason: String| FileError::Pattern { pattern: pattern.clone(), reason };
        let matches = glob::glob(pattern).map_err(|error| pattern_error(error.to_string()))?;
        for path in matches {
            paths.insert(path.map_err(|error| pattern_error(error.to_string()))?);
            if paths.len() > FILES_MAX {
                let pattern = pattern.clone();
                return Err(FileError::TooMany { pattern });
            }
        }
    }
    let documents = paths.iter().map(|path| {
        let text = read_text(path, bytes_max)?;
        let path = path.display().to_string();
        Ok(Document { path, text })
    });
    documents.collect()
}

fn read_text(path: &Path, bytes_max: u64) -> Result<String, FileError> {
    let display_path = || path.display().to_string();
    let unreadable = |source| FileError::Unreadable { path: display_path(), source };
    let mut text = String::new();
    // Opening a pipe would wait for its writer.
    if !path.metadata().map_err(unreadable)?.is_file() {
        let reason = "it is not a regular file";
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidInput, reason)));
    }
    let file = File::open(path).map_err(unreadable)?;
    // One byte more says that it is too long.
    let mut limited = file.take(bytes_max + 1);
    limited.read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > bytes_max {
        Err(FileError::TooLong { path: display_path(), max: bytes_max })
    } else {
        Ok(text)
    }
}

/// What a file holds, without the blanks around it.
///
/// # Errors
/// When it cannot be read or is too long.
pub(crate) fn read_secret(path: &str) -> Result<String, FileError> {
    Ok(read_text(Path::new(path), SECRET_BYTES_MAX)?.trim().to_owned())
}

#[cfg(test)]
mod tests;
