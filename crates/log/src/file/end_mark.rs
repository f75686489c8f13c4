//! The end mark: how far the log is known to be durable, kept in a file beside the segments.
//!
//! A frame says what was durable before it was written, so that nothing in the segments speaks for
//! the last frame. The mark does: recovery takes a bad frame below it for corruption, and one at or
//! above it for a write that a crash interrupted. It is written after each sync without being
//! synced itself, which a crash of the process keeps; when the log is closed it is synced too.
//!
//! The file `end` has three slots of 512 bytes. The first is written when the log is closed and
//! synced apart from the others, which are written in turn, so that one of the three is always
//! whole:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic, `EGRETEND` |
//! | 8 | 4 | CRC32C of bytes 12 to 23 |
//! | 12 | 4 | format version, 1 |
//! | 16 | 8 | every record below this sequence number is durable |
//! | 24 | 488 | zeros |

use std::io;

use super::file_error::io_error;
use crate::disk::{Disk, DiskFile, is_full, read_exactly, write_all};
use crate::format::{u32_at, u64_at};
use crate::{LogError, Seq};

pub(crate) const END_NAME: &str = "end";
/// Temporary name until all slots are synced.
pub(super) const NEW_END_NAME: &str = "end.new";

const MAGIC: [u8; 8] = *b"EGRETEND";
const VERSION: u32 = 1;
const SLOT_BYTES: usize = 512;
const MARK_BYTES: usize = 24;
const SLOT_COUNT: usize = 3;

/// The end mark of an open log.
pub(super) struct EndMark<F> {
    file: F,
    /// Which of the slots written in turn is next: 1 or 2.
    next_slot: usize,
}

/// What the file says, if there is one.
///
/// # Errors
/// [`LogError::Corrupt`] when no slot is whole, [`LogError::UnknownVersion`], [`LogError::Io`].
pub(super) fn read<D: Disk>(
    disk: &D,
    place: &str,
    names: &[String],
) -> Result<Option<Seq>, LogError> {
    if !names.iter().any(|name| name == END_NAME) {
        return Ok(None);
    }
    let path = format!("{place}/{END_NAME}");
    let content = disk
        .open(END_NAME)
        .and_then(|file| read_exactly(&file, 0, SLOT_BYTES * SLOT_COUNT))
        .map_err(|error| io_error(&path, "read", error))?;
    let mut durable_below = None;
    for slot in content.chunks(SLOT_BYTES) {
        match decode(slot) {
            Some((VERSION, seq)) => durable_below = durable_below.max(Some(seq)),
            Some((version, _)) => {
                return Err(LogError::UnknownVersion { file: path, version, known: VERSION });
            }
            None => {}
        }
    }
    match durable_below {
        Some(seq) => Ok(Some(seq)),
        None => Err(LogError::Corrupt {
            file: path,
            offset: 0,
            seq: Seq::FIRST,
            what: "no slot of the end mark is intact",
        }),
    }
}

/// The error of a log that had a mark and has none.
pub(super) fn missing_mark_error(place: &str) -> LogError {
    LogError::Corrupt {
        file: format!("{place}/{END_NAME}"),
        offset: 0,
        seq: Seq::FIRST,
        what: "the end mark, which the log had, is missing",
    }
}

/// Opens the file for writing, which is made if there is none. A full disk leaves the log without a
/// mark until it is opened again.
///
/// # Errors
/// [`LogError::Io`].
pub(super) fn open<D: Disk>(
    disk: &D,
    place: &str,
    durable_below: Seq,
    exists: bool,
) -> Result<Option<EndMark<D::File>>, LogError> {
    let result = if exists {
        disk.open(END_NAME).and_then(|file| {
            // A crash may have left all slots unsynced.
            file.sync_data()?;
            Ok(file)
        })
    } else {
        create(disk, durable_below)
    };
    match result {
        Ok(file) => Ok(Some(EndMark { file, next_slot: 1 })),
        Err(error) if is_full(&error) => Ok(None),
        Err(error) => {
            let path = format!("{place}/{END_NAME}");
            Err(io_error(&path, "open", error))
        }
    }
}

fn create<D: Disk>(disk: &D, durable_below: Seq) -> io::Result<D::File> {
    match disk.remove(NEW_END_NAME) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(NEW_END_NAME)?;
    let mut slots = [0; SLOT_COUNT * SLOT_BYTES];
    for slot in slots.chunks_mut(SLOT_BYTES) {
        slot[..MARK_BYTES].copy_from_slice(&encode(durable_below));
    }
    write_all(&file, &slots, 0)?;
    file.sync_data()?;
    disk.rename(NEW_END_NAME, END_NAME)?;
    disk.sync_directory()?;
    Ok(file)
}

impl<F: DiskFile> EndMark<F> {
    /// Notes that every record below `durable_below` is durable. A mark that cannot be written
    /// proves less at the next start, which is no reason to refuse what is durable.
    pub(crate) fn update(&mut self, durable_below: Seq) {
        if self.write(self.next_slot, durable_below).is_ok() {
            self.next_slot = SLOT_COUNT - self.next_slot;
        }
    }

    /// Makes the mark itself durable, in every slot.
    pub(crate) fn seal(&mut self, durable_below: Seq) -> io::Result<()> {
        self.write(1, durable_below)?;
        self.write(2, durable_below)?;
        self.file.sync_data()?;
        self.write(0, durable_below)?;
        self.file.sync_data()
    }

    fn write(&self, slot: usize, durable_below: Seq) -> io::Result<()> {
        let offset = (slot * SLOT_BYTES) as u64;
        write_all(&self.file, &encode(durable_below), offset)
    }
}

fn encode(durable_below: Seq) -> [u8; MARK_BYTES] {
    let mut mark = [0; MARK_BYTES];
    mark[..8].copy_from_slice(&MAGIC);
    mark[12..16].copy_from_slice(&VERSION.to_le_bytes());
    mark[16..].copy_from_slice(&durable_below.0.to_le_bytes());
    let crc = crc32c::crc32c(&mark[12..]);
    mark[8..12].copy_from_slice(&crc.to_le_bytes());
    mark
}

fn decode(slot: &[u8]) -> Option<(u32, Seq)> {
    let mark = slot.get(..MARK_BYTES)?;
    let is_whole = mark[..8] == MAGIC && crc32c::crc32c(&mark[12..]) == u32_at(mark, 8);
    is_whole.then(|| (u32_at(mark, 12), Seq(u64_at(mark, 16))))
}
