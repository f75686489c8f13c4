//! The elected replica of each cluster: the file `replicas`, a JSON object with the replica by
//! cluster. It is written at each election, so that a restart does not change the elected replica.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use egret_base::durable;

use crate::error::SeriesError;

const FILE_NAME: &str = "replicas";

/// Elected replica of each cluster.
pub type ByCluster = BTreeMap<Box<str>, Box<str>>;

/// The replicas that were elected when the file was written; none if there is no file. A file that
/// cannot be parsed is logged and counts as missing: replicas are then elected anew.
///
/// # Errors
/// [`SeriesError::Io`].
pub fn read(directory: &Path) -> Result<ByCluster, SeriesError> {
    let path = directory.join(FILE_NAME);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ByCluster::new()),
        Err(error) => return Err(SeriesError::io("reading", &path, error)),
    };
    Ok(serde_json::from_slice(&text).unwrap_or_else(|error| {
        tracing::warn!(%error, path = %path.display(), "cannot read the elected replicas; replicas are elected again");
        ByCluster::new()
    }))
}

/// Writes the elected replicas, durably.
///
/// # Errors
/// [`SeriesError::Io`].
pub fn write(directory: &Path, elected: &ByCluster) -> Result<(), SeriesError> {
    let path = directory.join(FILE_NAME);
    let text = serde_json::to_vec(elected).expect("texts are JSON");
    durable::write_file(&path, &text, 0o600)
        .map_err(|error| SeriesError::io("writing", &path, error))
}
