//! Blocks that are found damaged while they are read: the catalog is told, so that the rest goes on being read.

use std::sync::Arc;

use egret_base::condition;
use egret_log::Directory;

use super::Inner;
use crate::error::SeriesError;
use crate::metrics::Metrics;
use crate::store::block::BlockError;
use crate::store::catalog::Catalog;

/// Whom damage is told to.
#[derive(Clone)]
pub(crate) struct Damage {
    catalog: Arc<Catalog<Directory>>,
    metrics: Arc<Metrics>,
}

impl Damage {
    /// Whoever reads blocks of this catalog.
    pub fn of(catalog: Arc<Catalog<Directory>>, metrics: Arc<Metrics>) -> Self {
        Self { catalog, metrics }
    }

    /// What was read, or why nothing was, which is taken note of: a block that cannot be relied on is set aside, and
    /// whoever asks again is answered from the others.
    ///
    /// # Errors
    /// The one that it is given.
    pub fn noted<T>(&self, read: Result<T, BlockError>) -> Result<T, BlockError> {
        if let Err(error) = &read {
            self.note(error);
        }
        read
    }

    /// Takes note of why a block could not be read.
    pub fn note(&self, error: &BlockError) {
        if !matches!(error, BlockError::Corrupt { .. }) {
            return;
        }
        self.metrics.damage.inc();
        let before = self.catalog.quarantined().len();
        if let Err(failed) = self.catalog.note(error) {
            let reason = format_args!("{error}; {failed}");
            let message = "a damaged block of series could not be set aside";
            condition::occur("series_blocks_damaged", "series", reason, message);
        }
        if self.catalog.quarantined().len() > before {
            tracing::error!(%error, "a block of series is damaged and was set aside");
        }
    }
}

impl Inner {
    /// As [`Damage::noted`].
    ///
    /// # Errors
    /// [`SeriesError::Block`], the one that it is given, and [`SeriesError::Stopping`].
    pub fn noted<T>(&self, read: Result<T, BlockError>) -> Result<T, SeriesError> {
        Ok(self.damage()?.noted(read)?)
    }

    /// Whom damage is told to.
    ///
    /// # Errors
    /// [`SeriesError::Stopping`].
    pub fn damage(&self) -> Result<Damage, SeriesError> {
        let catalog = self.catalog()?.clone();
        Ok(Damage::of(catalog, self.metrics.clone()))
    }
}
