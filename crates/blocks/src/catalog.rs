//! All blocks of a directory: listing, publishing, replacing them, and deleting samples from them.
//!
//! Changes are made one at a time and are durable when they return; readers take a [`Snapshot`] and
//! block nothing. After a power failure at any moment, each change is found made or not made.

mod files;
pub(crate) mod names;
mod open;
mod replacement;
mod rewrite;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use egret_base::sync::lock;
use egret_log::Disk;
use egret_metrics_model::{TimeMs, TimeSpan};
use roaring::RoaringBitmap;

use self::files::Files;
pub use self::names::QUARANTINE;
use self::replacement::Replacement;
pub use self::rewrite::BlockLimits;
use super::block::{
    Block, BlockCache, BlockError, BlockWriter, DamageExtent, NewBlock, WriterOptions,
};
use crate::core::BlockId;
use crate::core::frame::put_frame;
use crate::core::tombstones::{Tombstone, Tombstones};

/// All blocks as of one moment. Blocks replaced or removed since can still be read.
#[derive(Debug, Default)]
pub struct Snapshot {
    blocks: Vec<Block>,
}

impl Snapshot {
    /// The blocks, ascending by earliest sample, then by id. Of two samples of a series at
    /// one time, the one in the block with the higher id wins.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// Blocks that may have samples from `start_ms` to `end_ms`, both included, in the same order.
    pub fn blocks_overlapping(
        &self,
        start_ms: TimeMs,
        end_ms: TimeMs,
    ) -> impl Iterator<Item = &Block> {
        let end = self.blocks.partition_point(|block| block.meta().min_ms <= end_ms);
        self.blocks[..end].iter().filter(move |block| block.meta().max_ms >= start_ms)
    }

    /// A block by its id.
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.iter().find(|block| block.id() == id)
    }

    /// Total size of all files, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.blocks.iter().map(Block::size_bytes).sum()
    }
}

/// A damaged file that was renamed, so that it is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedFile {
    /// Name of the quarantined file.
    pub name: String,
    /// Why, if that was since the catalog was opened.
    pub reason: Option<String>,
    /// The times of its samples, if they were known before it was found to be damaged.
    pub span: Option<TimeSpan>,
}

/// All blocks of a directory, with the cache that they share.
pub struct Catalog<D: Disk> {
    files: Files<D>,
    cache: Arc<BlockCache>,
    /// Held during a change.
    change_state: Mutex<Changes>,
    snapshot: Mutex<Arc<Snapshot>>,
    /// Replaced snapshots that may still have readers.
    replaced_snapshots: Mutex<Vec<Weak<Snapshot>>>,
    next_id: AtomicU64,
}

#[derive(Debug, Default)]
struct Changes {
    quarantined: Vec<QuarantinedFile>,
    damaged: BTreeSet<BlockId>,
    stop_reason: Option<Arc<str>>,
}

impl<D: Disk> Catalog<D> {
    /// Opens a directory: finishes replacements that were begun, removes what was not finished, and
    /// sets aside what cannot be read.
    ///
    /// # Errors
    /// [`BlockError::Io`], [`BlockError::Full`], [`BlockError::UnknownVersion`].
    pub fn open(disk: D, cache: Arc<BlockCache>) -> Result<Self, BlockError> {
        open::open(disk, cache)
    }

    /// All blocks as they are now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        lock(&self.snapshot).clone()
    }

    /// The snapshots that were replaced. One that can still be upgraded has a reader.
    pub fn replaced_snapshots(&self) -> Vec<Weak<Snapshot>> {
        lock(&self.replaced_snapshots).clone()
    }

    /// Names of the files of all blocks and their tombstones: the files that a copy needs.
    pub fn file_names(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        let mut all = Vec::new();
        for block in snapshot.blocks() {
            all.push(names::block(block.id()));
            if !block.tombstones().is_empty() {
                all.push(names::tombstones(block.id()));
            }
        }
        all
    }

    /// Cache that all blocks share.
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Quarantined files that are still in the directory.
    pub fn quarantined(&self) -> Vec<QuarantinedFile> {
        self.lock_changes().quarantined.clone()
    }

    /// Begins a new block with the next id. It is not part of the catalog until it is
    /// published.
    ///
    /// # Errors
    /// [`BlockError::Full`] or [`BlockError::Io`].
    pub fn writer(&self, options: WriterOptions) -> Result<BlockWriter<D>, BlockError> {
        self.create_writer(self.allocate_id(), options)
    }

    fn create_writer(
        &self,
        id: BlockId,
        options: WriterOptions,
    ) -> Result<BlockWriter<D>, BlockError> {
        BlockWriter::create(&self.files.0, id, options)
    }

    fn allocate_id(&self) -> BlockId {
        BlockId(self.allocate_ids(1).start)
    }

    fn allocate_ids(&self, count: u64) -> Range<u64> {
        let first = self.next_id.fetch_add(count, Ordering::Relaxed);
        first..first + count
    }

    /// Adds a new block to the catalog.
    ///
    /// # Errors
    /// [`BlockError::Io`]: it is not taken in; [`BlockError::Stopped`]: it may be found when the
    /// directory is opened again, as may happen to any change that ends so.
    pub fn publish(&self, new_block: NewBlock<D>) -> Result<Block, BlockError> {
        let mut changes = self.begin_change()?;
        let id = new_block.meta.id;
        self.files.rename(&names::new_block(id), &names::block(id))?;
        new_block.output.keep_file();
        let block = self.stop_on_failure(&mut changes, |files| {
            files.sync()?;
            Block::open(&files.0, id, &names::block(id), &self.cache)
        })?;
        self.update_snapshot(|blocks| blocks.push(block.clone()));
        Ok(block)
    }

    /// Puts blocks in the place of others, all at once. `sources` are as they were when the work on
    /// them began.
    ///
    /// # Errors
    /// [`BlockError::Changed`] when one of them has other tombstones now or is gone; else like
    /// [`Catalog::publish`].
    pub fn replace(
        &self,
        sources: &[Block],
        results: Vec<NewBlock<D>>,
    ) -> Result<Vec<Block>, BlockError> {
        let mut changes = self.begin_change()?;
        let snapshot = self.snapshot();
        for source in sources {
            let current = snapshot.block(source.id());
            if current.is_none_or(|now| now.tombstones() != source.tombstones()) {
                return Err(BlockError::Changed { block: source.id() });
            }
        }
        let replacement = Replacement {
            results: results.iter().map(|written| written.meta.id).collect(),
            sources: sources.iter().map(Block::id).collect(),
        };
        let name = names::replacement(self.allocate_id());
        self.files.write_new(&name, &replacement.encode())?;
        self.files.rename(&names::with_new_suffix(&name), &name)?;
        // From here on it may be found, and then the results have to be there.
        results.into_iter().for_each(|written| written.output.keep_file());
        let blocks = self.stop_on_failure(&mut changes, |files| {
            files.sync()?;
            open::finish_replacement(files, &name, &replacement)?;
            let open_block =
                |id: &BlockId| Block::open(&files.0, *id, &names::block(*id), &self.cache);
            replacement.results.iter().map(open_block).collect::<Result<Vec<_>, _>>()
        })?;
        self.update_snapshot(|all| {
            all.retain(|block| !replacement.sources.contains(&block.id()));
            all.extend_from_slice(&blocks);
        });
        Ok(blocks)
    }

    /// Deletes the samples of some series of a block from `start_ms` to `end_ms`, both included: no
    /// reader that takes a snapshot later sees them. Their space is given back when the block is
    /// rewritten.
    ///
    /// # Errors
    /// [`BlockError::Changed`] when the block is gone; else like [`Catalog::publish`].
    pub fn delete(
        &self,
        id: BlockId,
        series: RoaringBitmap,
        start_ms: TimeMs,
        end_ms: TimeMs,
    ) -> Result<(), BlockError> {
        let mut changes = self.begin_change()?;
        let snapshot = self.snapshot();
        let block = snapshot.block(id).ok_or(BlockError::Changed { block: id })?;
        assert!(series.max().is_none_or(|last| last < block.series()), "series of block {id}");
        let mut entries = block.tombstones().0.clone();
        entries.push(Tombstone { series, start_ms, end_ms });
        let tombstones = Tombstones(entries);
        let name = names::tombstones(id);
        let mut bytes = Vec::new();
        put_frame(&mut bytes, &tombstones.encode());
        self.files.write_new(&name, &bytes)?;
        self.files.rename(&names::with_new_suffix(&name), &name)?;
        self.stop_on_failure(&mut changes, Files::sync)?;
        let deleted = block.with_tombstones(tombstones);
        self.update_snapshot(|blocks| {
            let slot = blocks.iter_mut().find(|block| block.id() == id);
            *slot.expect("only this thread changes the snapshot") = deleted;
        });
        Ok(())
    }

    /// Records an error from reading a block: if its index is damaged, the block is quarantined;
    /// if some of its samples are, it is not rewritten, so that the others can still be
    /// read. Other errors are ignored.
    ///
    /// # Errors
    /// Like [`Catalog::publish`].
    pub fn record_read_error(&self, error: &BlockError) -> Result<(), BlockError> {
        match error {
            BlockError::Corrupt { block, damage: DamageExtent::Index, .. } => {
                self.quarantine(*block, error)
            }
            BlockError::Corrupt { block, damage: DamageExtent::Samples, .. } => {
                if self.lock_changes().damaged.insert(*block) {
                    tracing::warn!(block = %block, %error, "cannot read some samples of a block");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Blocks with samples that turned out to be unreadable since the catalog was opened.
    pub fn damaged(&self) -> BTreeSet<BlockId> {
        self.lock_changes().damaged.clone()
    }

    /// Renames a block, so that it is no longer read. Does nothing if it does not exist.
    fn quarantine(&self, id: BlockId, reason: &BlockError) -> Result<(), BlockError> {
        let mut changes = self.begin_change()?;
        let snapshot = self.snapshot();
        let Some(block) = snapshot.block(id) else {
            return Ok(());
        };
        let (start, end) = (block.meta().min_ms, block.meta().max_ms);
        let quarantined = QuarantinedFile {
            span: Some(TimeSpan { start, end }),
            ..open::quarantine(&self.files, &names::block(id), reason.to_string())?
        };
        let has_tombstones = !block.tombstones().is_empty();
        self.stop_on_failure(&mut changes, |files| {
            if has_tombstones {
                let name = names::tombstones(id);
                files.rename(&name, &names::with_quarantine_prefix(&name))?;
            }
            files.sync()
        })?;
        changes.quarantined.push(quarantined);
        self.update_snapshot(|blocks| blocks.retain(|block| block.id() != id));
        Ok(())
    }

    fn lock_changes(&self) -> MutexGuard<'_, Changes> {
        lock(&self.change_state)
    }

    /// Locks the catalog for a change.
    fn begin_change(&self) -> Result<MutexGuard<'_, Changes>, BlockError> {
        let changes = self.lock_changes();
        match &changes.stop_reason {
            None => Ok(changes),
            Some(reason) => Err(self.stopped_error(reason)),
        }
    }

    fn stopped_error(&self, reason: &Arc<str>) -> BlockError {
        BlockError::Stopped { place: self.files.0.display_path(), reason: reason.clone() }
    }

    /// Executes an action after whose failure the state of the disk is unknown. If it fails, no
    /// more changes are accepted, so that no acknowledged deletion can be undone.
    fn stop_on_failure<T>(
        &self,
        changes: &mut Changes,
        work: impl FnOnce(&Files<D>) -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        work(&self.files).map_err(|error| {
            let reason: Arc<str> = error.to_string().into();
            changes.stop_reason = Some(reason.clone());
            self.stopped_error(&reason)
        })
    }

    fn update_snapshot(&self, change: impl FnOnce(&mut Vec<Block>)) {
        let mut snapshot = lock(&self.snapshot);
        let mut blocks = snapshot.blocks.clone();
        change(&mut blocks);
        blocks.sort_unstable_by_key(|block| (block.meta().min_ms, block.id()));
        let previous = std::mem::replace(&mut *snapshot, Arc::new(Snapshot { blocks }));
        let replaced = self.replaced_snapshots.lock();
        let mut replaced = replaced.expect("no holder of this lock can panic");
        replaced.retain(|earlier| earlier.strong_count() > 0);
        replaced.push(Arc::downgrade(&previous));
    }
}

#[cfg(test)]
mod tests;
