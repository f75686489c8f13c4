//! The only place that touches disk or SQL.

pub mod checkpoint;
pub mod deletion;
pub mod files;
pub(crate) mod ha_tracker;
pub mod replicas;
pub mod statistics;

use std::io;
use std::sync::Arc;

use egret_log::Disk;

use crate::error::SeriesError;

/// The error of an operation on a file of a directory.
fn file_error<D: Disk>(
    disk: &D,
    action: &'static str,
    name: &str,
) -> impl FnOnce(io::Error) -> SeriesError {
    let path = format!("{}/{name}", disk.display_path());
    move |error| {
        if egret_log::is_full(&error) {
            SeriesError::DiskFull { place: path }
        } else {
            SeriesError::Io { action, path: path.into(), source: Arc::new(error) }
        }
    }
}
