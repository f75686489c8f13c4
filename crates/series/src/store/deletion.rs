//! A deletion that is under way: written before anything is deleted and removed when all is, so
//! that one that was begun is finished after a crash.
//!
//! The file `deletion` is a frame ([`egret_blocks::core::frame`]) with the ids of the blocks that
//! there were (how many, then each as a varint), and what the log's record has. Blocks that are
//! made later have nothing of what was deleted.

use std::io;

use egret_base::codec::{DecodeError, Reader, put_varint};
use egret_blocks::core::BlockId;
use egret_blocks::core::frame::{open_frame, put_frame};
use egret_log::{Disk, DiskFile, read_exactly, write_all};

use super::file_error;
use crate::core::record::{self, Deletion, Record, SampleBatch};
use crate::error::SeriesError;

const FILE_NAME: &str = "deletion";
const NEW_FILE_NAME: &str = "deletion.new";
const DESCRIPTION: &str = "an unfinished deletion";

/// A deletion and the blocks that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedDeletion {
    /// The deletion under way.
    pub deletion: Deletion,
    /// The blocks that there were when it began.
    pub blocks: Vec<BlockId>,
}

/// Writes a deletion to its file, durably, before anything is deleted.
///
/// # Errors
/// [`SeriesError::Io`] and [`SeriesError::DiskFull`].
pub fn write_unfinished<D: Disk>(
    disk: &D,
    unfinished: &UnfinishedDeletion,
) -> Result<(), SeriesError> {
    let mut body = Vec::new();
    put_varint(&mut body, unfinished.blocks.len() as u64);
    for block in &unfinished.blocks {
        put_varint(&mut body, block.0);
    }
    record::put_deletion(&mut body, &unfinished.deletion);
    let mut bytes = Vec::new();
    put_frame(&mut bytes, &body);
    let write = || -> io::Result<()> {
        // One that is left of an attempt that failed.
        let _ = disk.remove(NEW_FILE_NAME);
        let file = disk.create(NEW_FILE_NAME)?;
        write_all(&file, &bytes, 0)?;
        file.sync_data()?;
        disk.rename(NEW_FILE_NAME, FILE_NAME)?;
        disk.sync_directory()
    };
    write().map_err(file_error(disk, "writing", FILE_NAME))
}

/// The deletion that is under way, if there is one.
///
/// # Errors
/// [`SeriesError::Io`] and [`SeriesError::Malformed`].
pub fn read_unfinished<D: Disk>(disk: &D) -> Result<Option<UnfinishedDeletion>, SeriesError> {
    let read = || -> io::Result<Option<Vec<u8>>> {
        if !disk.list()?.iter().any(|name| name == FILE_NAME) {
            return Ok(None);
        }
        let file = disk.open(FILE_NAME)?;
        let size_bytes = file.size_bytes()? as usize;
        read_exactly(&file, 0, size_bytes).map(Some)
    };
    let Some(bytes) = read().map_err(file_error(disk, "reading", FILE_NAME))? else {
        return Ok(None);
    };
    let decoded = open_frame(&bytes, DESCRIPTION).and_then(|body| decode(&body));
    let place = format!("{}/{FILE_NAME}", disk.display_path());
    decoded.map(Some).map_err(|malformed| SeriesError::Malformed { place, malformed })
}

fn decode(body: &[u8]) -> Result<UnfinishedDeletion, DecodeError> {
    let mut reader = Reader::new(body, DESCRIPTION);
    let mut blocks = Vec::new();
    for _ in 0..reader.varint()? {
        blocks.push(BlockId(reader.varint()?));
    }
    match record::decode(reader.rest(), &mut SampleBatch::default())? {
        Record::Deletion(deletion) => Ok(UnfinishedDeletion { deletion, blocks }),
        _ => Err(DecodeError { what: DESCRIPTION }),
    }
}

/// Removes the file of a finished deletion.
///
/// # Errors
/// [`SeriesError::Io`].
pub(crate) fn remove_unfinished<D: Disk>(disk: &D) -> Result<(), SeriesError> {
    disk.remove(FILE_NAME)
        .and_then(|()| disk.sync_directory())
        .map_err(file_error(disk, "removing", FILE_NAME))
}
