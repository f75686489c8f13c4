//! Deletes samples from heads and blocks, exactly once across failures and restarts.

use std::sync::Arc;

use egret_blocks::catalog::Catalog;
use egret_log::Disk;
use egret_metrics_model::LabelMatcher;

use super::flush::CoreRunner;
use crate::core::record::Deletion;
use crate::error::SeriesError;
use crate::store::deletion::{self, UnfinishedDeletion};

/// A deletion in all shards and blocks. Nothing is written to blocks, and no blocks are merged,
/// meanwhile.
pub(crate) struct Delete<'a, D: Disk> {
    /// For each shard: runs a closure on its thread.
    pub core_runners: &'a [CoreRunner<'a>],
    /// For each shard: writes a deletion to its log and does it.
    pub submit: &'a dyn Fn(usize, Arc<Deletion>) -> Result<(), SeriesError>,
    pub catalog: &'a Catalog<D>,
    /// Disk of the file that records the deletion.
    pub disk: &'a D,
}

impl<D: Disk> Delete<'_, D> {
    /// Deletes samples.
    ///
    /// # Errors
    /// [`SeriesError`]: what was not done is done by [`Delete::resume`].
    pub(crate) fn run(&self, deletion: Deletion) -> Result<(), SeriesError> {
        let snapshot = self.catalog.snapshot();
        let overlapping_blocks = snapshot.blocks_overlapping(deletion.start, deletion.end);
        let unfinished = UnfinishedDeletion {
            blocks: overlapping_blocks.map(|block| block.id()).collect(),
            deletion,
        };
        deletion::write_unfinished(self.disk, &unfinished)?;
        self.finish(unfinished)
    }

    /// Finishes a deletion that was begun, if there is one.
    ///
    /// # Errors
    /// As of [`Delete::run`].
    pub(crate) fn resume(&self) -> Result<(), SeriesError> {
        match deletion::read_unfinished(self.disk)? {
            Some(unfinished) => self.finish(unfinished),
            None => Ok(()),
        }
    }

    fn finish(
        &self,
        UnfinishedDeletion { deletion, blocks }: UnfinishedDeletion,
    ) -> Result<(), SeriesError> {
        let deletion = Arc::new(deletion);
        let id = deletion.id;
        for (shard, core_runner) in self.core_runners.iter().enumerate() {
            // Done twice, it would take out what came since.
            let is_logged =
                super::flush::run_on_core(*core_runner, move |core| core.has_deletion(id))?;
            if !is_logged {
                (self.submit)(shard, deletion.clone())?;
            }
        }
        let matchers = deletion
            .matchers
            .iter()
            .cloned()
            .map(LabelMatcher::new)
            .collect::<Result<Vec<_>, _>>()?;
        let snapshot = self.catalog.snapshot();
        for block in blocks.into_iter().filter_map(|id| snapshot.block(id)) {
            let series = match block.select(&matchers) {
                Ok(series) => series,
                Err(error) => {
                    // A corrupt block is set aside and no longer read, so nothing of it need be
                    // deleted.
                    self.catalog.record_read_error(&error)?;
                    match self.catalog.snapshot().block(block.id()) {
                        None => continue,
                        Some(_) => return Err(error.into()),
                    }
                }
            };
            if !series.is_empty() {
                let series = series.into_iter().collect();
                self.catalog.delete(block.id(), series, deletion.start, deletion.end)?;
            }
        }
        deletion::remove_unfinished(self.disk)
    }
}
