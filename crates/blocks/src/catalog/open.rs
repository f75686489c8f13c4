//! Opening a directory of blocks, in whatever state it was left.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use egret_log::Disk;

use super::files::Files;
use super::names::{self, FileKind};
use super::replacement::Replacement;
use super::{Catalog, Changes, QuarantinedFile, Snapshot};
use crate::block::{Block, BlockCache, BlockError};
use crate::core::BlockId;
use crate::core::frame::open_frame;
use crate::core::tombstones::Tombstones;

pub(super) fn open<D: Disk>(disk: D, cache: Arc<BlockCache>) -> Result<Catalog<D>, BlockError> {
    let files = Files(disk);
    let mut quarantined = Vec::new();
    finish_replacements(&files, &mut quarantined)?;
    let mut blocks = Vec::new();
    let mut highest_id = 0;
    let mut tombstones = BTreeMap::new();
    for name in files.list()? {
        let Some(kind) = names::parse(&name) else {
            continue;
        };
        let id = match kind {
            FileKind::Block(id) => {
                match Block::open(&files.0, id, &name, &cache) {
                    Ok(block) => blocks.push(block),
                    Err(error @ BlockError::Corrupt { .. }) => {
                        quarantined.push(quarantine(&files, &name, error.to_string())?);
                    }
                    Err(error) => return Err(error),
                }
                id
            }
            FileKind::Tombstones(id) => {
                tombstones.insert(id, name);
                id
            }
            FileKind::New(id) => {
                files.remove(&name)?;
                id
            }
            FileKind::Quarantined(id) => {
                quarantined.push(QuarantinedFile { name, reason: None, span: None });
                id
            }
            FileKind::Replacement(id) => id,
        };
        highest_id = highest_id.max(id.0);
    }
    let sources = blocks.iter().flat_map(|block| &block.meta().sources);
    highest_id = sources.map(|id| id.0).fold(highest_id, u64::max);
    load_tombstones(&files, tombstones, &mut blocks, &mut quarantined)?;
    files.sync()?;
    blocks.sort_unstable_by_key(|block| (block.meta().min_ms, block.id()));
    Ok(Catalog {
        replaced_snapshots: Mutex::default(),
        files,
        cache,
        change_state: Mutex::new(Changes { quarantined, ..Changes::default() }),
        snapshot: Mutex::new(Arc::new(Snapshot { blocks })),
        next_id: AtomicU64::new(highest_id + 1),
    })
}

/// Finishes every replacement that was begun.
fn finish_replacements<D: Disk>(
    files: &Files<D>,
    quarantined: &mut Vec<QuarantinedFile>,
) -> Result<(), BlockError> {
    for name in files.list()? {
        if !matches!(names::parse(&name), Some(FileKind::Replacement(_))) {
            continue;
        }
        match Replacement::decode(&files.read(&name)?) {
            Ok(replacement) => finish_replacement(files, &name, &replacement)?,
            // Sources and results may both exist then, which is harmless: equal samples
            // count once.
            Err(error) => quarantined.push(quarantine(files, &name, error.to_string())?),
        }
    }
    Ok(())
}

/// Carries out the remaining steps of a replacement.
pub(super) fn finish_replacement<D: Disk>(
    files: &Files<D>,
    name: &str,
    replacement: &Replacement,
) -> Result<(), BlockError> {
    let existing = files.list()?;
    let exists = |name: &String| existing.binary_search(name).is_ok();
    let mut results = replacement.results.iter().copied();
    let all_results_exist =
        results.all(|id| exists(&names::block(id)) || exists(&names::new_block(id)));
    let any_source_exists = replacement.sources.iter().any(|id| exists(&names::block(*id)));
    // Otherwise the replacement was not durable at the loss of power: it was found, but a result
    // was not. If no source exists, it was finished before, and results have been replaced since.
    if all_results_exist || !any_source_exists {
        for id in &replacement.results {
            if exists(&names::new_block(*id)) {
                files.rename(&names::new_block(*id), &names::block(*id))?;
            }
        }
        for id in &replacement.sources {
            for name in [names::block(*id), names::tombstones(*id)] {
                if exists(&name) {
                    files.remove(&name)?;
                }
            }
        }
        // Only now may the record of the replacement be removed.
        files.sync()?;
    }
    files.remove(name)
}

/// Attaches tombstones to blocks. A block whose tombstones are damaged is quarantined, because
/// its deleted samples would come back.
fn load_tombstones<D: Disk>(
    files: &Files<D>,
    tombstones: BTreeMap<BlockId, String>,
    blocks: &mut Vec<Block>,
    quarantined: &mut Vec<QuarantinedFile>,
) -> Result<(), BlockError> {
    for (id, name) in tombstones {
        let Some(index) = blocks.iter().position(|block| block.id() == id) else {
            let quarantined_block = names::with_quarantine_prefix(&names::block(id));
            if quarantined.iter().any(|other| other.name == quarantined_block) {
                files.rename(&name, &names::with_quarantine_prefix(&name))?
            } else {
                files.remove(&name)?
            }
            continue;
        };
        let bytes = files.read(&name)?;
        let decoded = open_frame(&bytes, "tombstones")
            .and_then(|bytes| Tombstones::decode(&bytes, blocks[index].series()));
        match decoded {
            Ok(tombstones) => blocks[index] = blocks[index].with_tombstones(tombstones),
            Err(error) => {
                blocks.remove(index);
                quarantined.push(quarantine(files, &name, error.to_string())?);
                let reason = format!("its tombstones are damaged: {error}");
                quarantined.push(quarantine(files, &names::block(id), reason)?);
            }
        }
    }
    Ok(())
}

/// Renames a damaged file, and logs it.
pub(super) fn quarantine<D: Disk>(
    files: &Files<D>,
    name: &str,
    reason: String,
) -> Result<QuarantinedFile, BlockError> {
    let quarantined_name = names::with_quarantine_prefix(name);
    files.rename(name, &quarantined_name)?;
    tracing::warn!(
        file = files.full_name(&quarantined_name),
        reason,
        "a damaged file of the series was set aside"
    );
    Ok(QuarantinedFile { name: quarantined_name, reason: Some(reason), span: None })
}
