//! The file of an engine that says how many parts its data has.

use std::io;
use std::path::{Path, PathBuf};

use egret_base::parts::{self, KNOWN_PARTS};

use super::finding::{Finding, failed};
use crate::LogError;

/// The file of an engine that says how many parts its data has.
pub struct CountFile<'a> {
    /// The engine's name: `queue`.
    pub engine: &'a str,
    /// Path of the engine's directory.
    pub directory: &'a Path,
    /// The file's name in it.
    pub name: &'a str,
}

impl CountFile<'_> {
    /// What is wrong with the file, if anything is and it is known otherwise how many parts there
    /// are.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn examine(&self) -> Result<Option<Finding>, LogError> {
        let (stored, problem) = match parts::stored_count(self.directory, self.name) {
            Ok(Some(stored)) => (stored, format!("it says {stored}, which is wrong")),
            Ok(None) => (0, "it is missing".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => (0, error.to_string()),
            Err(error) => return Err(failed("read", &self.path())(error)),
        };
        let count = self.count()?;
        Ok((count != stored).then(|| Finding {
            part: format!("{}/{}", self.engine, self.name),
            problem: format!("{}: {problem}", self.path().display()),
            action: format!("write the number {count}, which follows from the existing parts"),
            loss: "nothing".to_owned(),
        }))
    }

    /// Writes the file anew, if anything is wrong with it.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn repair(&self) -> Result<Option<Finding>, LogError> {
        let Some(finding) = self.examine()? else {
            return Ok(None);
        };
        let result = parts::write_count(self.directory, self.name, self.count()?);
        result.map_err(failed("write", &self.path()))?;
        Ok(Some(finding))
    }

    /// The number of parts: what is known of it, whatever the file says.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn count(&self) -> Result<usize, LogError> {
        let stored = parts::stored_count(self.directory, self.name);
        let right = parts::expected_count(self.directory, self.name, stored.ok().flatten());
        right.map_err(failed("read", &self.directory.join(KNOWN_PARTS)))
    }

    fn path(&self) -> PathBuf {
        self.directory.join(self.name)
    }
}
