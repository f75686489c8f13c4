//! What a repair finds in a part, and the error of a file that it cannot use.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::LogError;

/// What is wrong with a part, and what its repair would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The part, such as `queue/001`.
    pub part: String,
    /// What is wrong, as text for the operator.
    pub problem: String,
    /// What a repair does.
    pub action: String,
    /// What would be lost by it.
    pub loss: String,
}

pub(super) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LogError {
    let file = path.display().to_string();
    move |source| LogError::Io { action, file, source: Arc::new(source) }
}
