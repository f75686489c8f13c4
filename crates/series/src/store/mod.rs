//! The only place that touches disk or SQL.

pub mod block;
pub mod catalog;
pub mod checkpoint;
pub mod deletion;
pub mod files;
pub mod replicas;
pub mod statistics;

use std::io;
use std::sync::Arc;

use egret_log::Disk;

use crate::error::SeriesError;

/// The error of something that was tried with a file of a directory.
fn file_error<D: Disk>(
    disk: &D,
    action: &'static str,
    name: &str,
) -> impl FnOnce(io::Error) -> SeriesError {
    let path = format!("{}/{name}", disk.place());
    move |error| match egret_log::is_full(&error) {
        true => SeriesError::DiskFull { place: path },
        false => SeriesError::Io {
            action,
            path: path.into(),
            source: Arc::new(error),
        },
    }
}
