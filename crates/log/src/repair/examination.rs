//! What an examination of all parts found, and which of them it could not look at.

use super::finding::Finding;
use crate::LogError;

/// What an examination of an engine's data found.
#[derive(Clone, Debug, Default)]
pub struct Examination {
    /// What is wrong with the parts that could be examined.
    pub findings: Vec<Finding>,
    /// The parts that could not be examined, which says nothing of the others.
    pub unexamined: Vec<UnexaminedPart>,
}

/// A part that could not be examined.
#[derive(Clone, Debug)]
pub struct UnexaminedPart {
    /// The part, such as `queue/001`.
    pub part: String,
    /// Why it could not be examined.
    pub error: LogError,
}

impl Examination {
    /// Adds what was found of one part.
    pub fn add(
        &mut self,
        part: String,
        result: Result<impl IntoIterator<Item = Finding>, LogError>,
    ) {
        match result {
            Ok(findings) => self.findings.extend(findings),
            Err(error) => self.unexamined.push(UnexaminedPart { part, error }),
        }
    }
}
