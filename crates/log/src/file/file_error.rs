//! The error of an operation on a file of the log.

use std::io;
use std::sync::Arc;

use crate::LogError;

pub(super) fn io_error(place: &str, action: &'static str, source: io::Error) -> LogError {
    LogError::Io { action, file: place.to_owned(), source: Arc::new(source) }
}
