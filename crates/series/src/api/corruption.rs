//! Reports blocks that are found corrupt while they are read: the catalog sets them aside, so that
//! queries are answered from the others.

use std::sync::Arc;

use egret_base::condition;
use egret_blocks::block::BlockError;
use egret_blocks::catalog::Catalog;
use egret_log::Directory;

use crate::engine::EngineInner;
use crate::error::SeriesError;
use crate::metrics::Metrics;

/// Reports corrupt blocks to the catalog, which sets them aside.
#[derive(Clone)]
pub(crate) struct CorruptionReporter {
    catalog: Arc<Catalog<Directory>>,
    metrics: Arc<Metrics>,
}

impl CorruptionReporter {
    /// A reporter for the blocks of `catalog`.
    pub(crate) fn new(catalog: Arc<Catalog<Directory>>, metrics: Arc<Metrics>) -> Self {
        Self { catalog, metrics }
    }

    /// Passes on the result of a read. If it is an error of a corrupt block, the block is set
    /// aside, so that the next query is answered from the others.
    ///
    /// # Errors
    /// The error of `result`, unchanged.
    pub(crate) fn check_read<T>(&self, result: Result<T, BlockError>) -> Result<T, BlockError> {
        if let Err(error) = &result {
            self.report(error);
        }
        result
    }

    /// Takes note of why a block could not be read.
    pub(crate) fn report(&self, error: &BlockError) {
        if !matches!(error, BlockError::Corrupt { .. }) {
            return;
        }
        self.metrics.block_failures.inc();
        let quarantined_before = self.catalog.quarantined().len();
        if let Err(failure) = self.catalog.record_read_error(error) {
            let reason = format_args!("{error}; {failure}");
            let message = "cannot set aside a damaged block of series";
            condition::occur("series_blocks_damaged", "series", reason, message);
        }
        if self.catalog.quarantined().len() > quarantined_before {
            tracing::error!(%error, "a block of series is damaged and was set aside");
        }
    }
}

impl EngineInner {
    /// As [`CorruptionReporter::check_read`].
    ///
    /// # Errors
    /// [`SeriesError::Block`], the one that it is given, and [`SeriesError::Stopping`].
    pub(crate) fn check_read<T>(&self, result: Result<T, BlockError>) -> Result<T, SeriesError> {
        Ok(self.corruption_reporter()?.check_read(result)?)
    }

    /// The reporter of corrupt blocks.
    ///
    /// # Errors
    /// [`SeriesError::Stopping`].
    pub(crate) fn corruption_reporter(&self) -> Result<CorruptionReporter, SeriesError> {
        let catalog = self.catalog()?.clone();
        Ok(CorruptionReporter::new(catalog, self.metrics.clone()))
    }
}

#[cfg(test)]
mod tests;
