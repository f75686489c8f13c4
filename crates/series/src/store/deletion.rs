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

const NAME: &str = "deletion";
const NEW: &str = "deletion.new";
const WHAT: &str = "an unfinished deletion";

/// A deletion and the blocks that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// The deletion under way.
    pub deletion: Deletion,
    /// The blocks that there were when it began.
    pub blocks: Vec<BlockId>,
}

/// Writes a deletion to its file, durably, before anything is deleted.
///
/// # Errors
/// [`SeriesError::Io`] and [`SeriesError::DiskFull`].
pub fn begin<D: Disk>(disk: &D, under_way: &UnderWay) -> Result<(), SeriesError> {
    let mut body = Vec::new();
    put_varint(&mut body, under_way.blocks.len() as u64);
    for block in &under_way.blocks {
        put_varint(&mut body, block.0);
    }
    record::put_deletion(&mut body, &under_way.deletion);
    let mut bytes = Vec::new();
    put_frame(&mut bytes, &body);
    let write = || -> io::Result<()> {
        // One that is left of an attempt that failed.
        let _ = disk.remove(NEW);
        let file = disk.create(NEW)?;
        write_all(&file, &bytes, 0)?;
        file.sync_data()?;
        disk.rename(NEW, NAME)?;
        disk.sync_directory()
    };
    write().map_err(file_error(disk, "writing", NAME))
}

/// The deletion that is under way, if there is one.
///
/// # Errors
/// [`SeriesError::Io`] and [`SeriesError::Malformed`].
pub fn under_way<D: Disk>(disk: &D) -> Result<Option<UnderWay>, SeriesError> {
    let read = || -> io::Result<Option<Vec<u8>>> {
        if !disk.list()?.iter().any(|name| name == NAME) {
            return Ok(None);
        }
        let file = disk.open(NAME)?;
        let size_bytes = file.size_bytes()? as usize;
        read_exactly(&file, 0, size_bytes).map(Some)
    };
    let Some(bytes) = read().map_err(file_error(disk, "reading", NAME))? else {
        return Ok(None);
    };
    let decoded = open_frame(&bytes, WHAT).and_then(|body| decode(&body));
    let place = format!("{}/{NAME}", disk.place());
    decoded
        .map(Some)
        .map_err(|malformed| SeriesError::Malformed { place, malformed })
}

fn decode(body: &[u8]) -> Result<UnderWay, DecodeError> {
    let mut reader = Reader::new(body, WHAT);
    let mut blocks = Vec::new();
    for _ in 0..reader.varint()? {
        blocks.push(BlockId(reader.varint()?));
    }
    match record::take(reader.rest(), &mut SampleBatch::default())? {
        Record::Deletion(deletion) => Ok(UnderWay { deletion, blocks }),
        _ => Err(DecodeError { what: WHAT }),
    }
}

/// Removes the file of a finished deletion.
///
/// # Errors
/// [`SeriesError::Io`].
pub fn end<D: Disk>(disk: &D) -> Result<(), SeriesError> {
    disk.remove(NAME)
        .and_then(|()| disk.sync_directory())
        .map_err(file_error(disk, "removing", NAME))
}
