//! State of the engine in a few numbers that are cheap to get.

use super::Series;
use crate::error::SeriesError;

/// State of the engine in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSummary {
    /// Series that are known.
    pub series: u64,
    /// Number of shards, failed ones included.
    pub shards: usize,
    /// Of these, those that take nothing in since an error.
    pub shards_failed: usize,
    /// Files of blocks that were set aside because they are damaged.
    pub blocks_set_aside: usize,
}

impl Series {
    /// How the engine is.
    ///
    /// # Errors
    /// [`SeriesError::Stopping`] while there are no shards.
    pub fn summary(&self) -> Result<EngineSummary, SeriesError> {
        let shards = self.inner.shards()?;
        let keys = self.inner.read_series_keys();
        let failed = shards.iter().filter(|shard| shard.failure.get().is_some());
        Ok(EngineSummary {
            series: keys.len() as u64,
            shards: shards.len(),
            shards_failed: failed.count(),
            blocks_set_aside: self.inner.catalog()?.quarantined().len(),
        })
    }
}
