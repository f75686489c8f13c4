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
    let mut highest = 0;
    let mut tombstones = BTreeMap::new();
    for name in files.list()? {
        let Some(named) = names::parse(&name) else {
            continue;
        };
        let id = match named {
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
                quarantined.push(QuarantinedFile { name, reason: None });
                id
            }
            FileKind::Replacement(id) => id,
        };
        highest = highest.max(id.0);
    }
    let sources = blocks.iter().flat_map(|block| &block.meta().sources);
    highest = sources.map(|id| id.0).fold(highest, u64::max);
    take_tombstones(&files, tombstones, &mut blocks, &mut quarantined)?;
    files.sync()?;
    blocks.sort_unstable_by_key(|block| (block.meta().min_ms, block.id()));
    Ok(Catalog {
        replaced: Mutex::default(),
        files,
        cache,
        changes: Mutex::new(Changes {
            quarantined,
            ..Changes::default()
        }),
        snapshot: Mutex::new(Arc::new(Snapshot { blocks })),
        next_id: AtomicU64::new(highest + 1),
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
            Ok(replacement) => settle(files, &name, &replacement)?,
            // Sources and results may both exist then, which is harmless: equal samples
            // count once.
            Err(error) => quarantined.push(quarantine(files, &name, error.to_string())?),
        }
    }
    Ok(())
}

/// Carries out the remaining steps of a replacement.
pub(super) fn settle<D: Disk>(
    files: &Files<D>,
    name: &str,
    replacement: &Replacement,
) -> Result<(), BlockError> {
    let there = files.list()?;
    let is_there = |name: &String| there.binary_search(name).is_ok();
    let mut results = replacement.results.iter().copied();
    let all_there =
        results.all(|id| is_there(&names::block(id)) || is_there(&names::new_block(id)));
    let source_there = replacement
        .sources
        .iter()
        .any(|id| is_there(&names::block(*id)));
    // Otherwise the replacement was not durable at the loss of power: it was found, but a result
    // was not. If no source exists, it was finished before, and results have been replaced since.
    if all_there || !source_there {
        for id in &replacement.results {
            if is_there(&names::new_block(*id)) {
                files.rename(&names::new_block(*id), &names::block(*id))?;
            }
        }
        for id in &replacement.sources {
            for name in [names::block(*id), names::tombstones(*id)] {
                if is_there(&name) {
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
fn take_tombstones<D: Disk>(
    files: &Files<D>,
    tombstones: BTreeMap<BlockId, String>,
    blocks: &mut Vec<Block>,
    quarantined: &mut Vec<QuarantinedFile>,
) -> Result<(), BlockError> {
    for (id, name) in tombstones {
        let Some(at) = blocks.iter().position(|block| block.id() == id) else {
            let is_aside = names::quarantined(&names::block(id));
            if quarantined.iter().any(|other| other.name == is_aside) {
                files.rename(&name, &names::quarantined(&name))?
            } else {
                files.remove(&name)?
            }
            continue;
        };
        let bytes = files.read(&name)?;
        let read = open_frame(&bytes, "tombstones")
            .and_then(|bytes| Tombstones::decode(&bytes, blocks[at].series()));
        match read {
            Ok(tombstones) => blocks[at] = blocks[at].with_tombstones(tombstones),
            Err(error) => {
                blocks.remove(at);
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
    let aside = names::quarantined(name);
    files.rename(name, &aside)?;
    tracing::warn!(
        file = files.full_name(&aside),
        reason,
        "a damaged file of the series was set aside"
    );
    Ok(QuarantinedFile {
        name: aside,
        reason: Some(reason),
    })
}
