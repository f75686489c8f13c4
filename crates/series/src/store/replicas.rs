//! Which replica of each cluster is elected: the file `replicas`, an object of JSON with the replica by cluster. It is
//! written when another is elected, so that a restart does not change whom is listened to.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use egret_base::durable;

use crate::error::SeriesError;

const NAME: &str = "replicas";

/// Replicas by cluster.
pub type ByCluster = BTreeMap<Box<str>, Box<str>>;

/// What was elected when the file was written; nothing when there is none. One that cannot be understood is told of
/// and counts for nothing: all that is lost is who was elected.
///
/// # Errors
/// [`SeriesError::Io`].
pub fn read(directory: &Path) -> Result<ByCluster, SeriesError> {
    let path = directory.join(NAME);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ByCluster::new()),
        Err(error) => return Err(SeriesError::io("reading", &path, error)),
    };
    Ok(serde_json::from_slice(&text).unwrap_or_else(|error| {
        tracing::warn!(%error, path = %path.display(), "who is elected cannot be read: replicas are elected anew");
        ByCluster::new()
    }))
}

/// Writes who is elected, durably.
///
/// # Errors
/// [`SeriesError::Io`].
pub fn write(directory: &Path, elected: &ByCluster) -> Result<(), SeriesError> {
    let path = directory.join(NAME);
    let text = serde_json::to_vec(elected).expect("texts are JSON");
    durable::write_file(&path, &text, 0o600)
        .map_err(|error| SeriesError::io("writing", &path, error))
}
