//! A deletion that is under way: written before anything is deleted and removed when all is, so that one that was
//! begun is finished after a crash.
//!
//! The file `deletion` is a frame ([`crate::core::block::frame`]) with what the log's record has.

use std::io;

use egret_base::codec::Malformed;
use egret_log::{Disk, DiskFile, read_exactly, write_all};

use super::file_error;
use crate::core::block::frame::{open_frame, put_frame};
use crate::core::record::{self, Deletion, Record, SampleBatch};
use crate::error::SeriesError;

const NAME: &str = "deletion";
const NEW: &str = "deletion.new";
const WHAT: &str = "a deletion that was under way";

/// Remembers a deletion, durably.
///
/// # Errors
/// [`SeriesError::Io`] and [`SeriesError::DiskFull`].
pub fn begin<D: Disk>(disk: &D, deletion: &Deletion) -> Result<(), SeriesError> {
    let mut body = Vec::new();
    record::put_deletion(&mut body, deletion);
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
pub fn under_way<D: Disk>(disk: &D) -> Result<Option<Deletion>, SeriesError> {
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
    let decoded = open_frame(&bytes, WHAT).and_then(|body| {
        match record::take(&body, &mut SampleBatch::default())? {
            Record::Deletion(deletion) => Ok(deletion),
            _ => Err(Malformed { what: WHAT }),
        }
    });
    let place = format!("{}/{NAME}", disk.place());
    decoded
        .map(Some)
        .map_err(|malformed| SeriesError::Malformed { place, malformed })
}

/// It is done.
///
/// # Errors
/// [`SeriesError::Io`].
pub fn end<D: Disk>(disk: &D) -> Result<(), SeriesError> {
    disk.remove(NAME)
        .and_then(|()| disk.sync_directory())
        .map_err(file_error(disk, "removing", NAME))
}
