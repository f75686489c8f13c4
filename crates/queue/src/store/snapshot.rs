//! A partition's state in a file, so that a start need not read its whole log.
//!
//! A file begins with 8 bytes of magic and the version (u32), then come blocks: length (u32),
//! CRC-32C of the bytes (u32), the bytes. A block of length zero ends the file. What is in the
//! blocks is a sequence of items, none of which crosses from one block to the next; `rows` has
//! their layout. Little endian.
//!
//! Most items begin with their length. A later version adds to an item at its end, and adds items
//! after all others: a reader that does not know them skips them, and one that misses them takes
//! what they describe to be absent. A change that does not keep to this gets a new version number.

mod rows;
mod state_items;

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use egret_base::durable;
use egret_log::Seq;

use crate::core::state::{State, StateSnapshot};
use crate::error::{QueueError, io_error};
use egret_base::codec::{DecodeError, Reader, put_bytes};

const MAGIC: &[u8; 8] = b"EGRETQSN";
const VERSION: u32 = 1;

/// A block is closed at this size, in bytes.
const BLOCK_BYTES: usize = 128 << 10;

/// Maximum size of a block, in bytes.
const BLOCK_BYTES_MAX: usize = 64 << 20;

const WHAT: &str = "a snapshot of the queue";

const PREFIX: &str = "snapshot-";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotFile {
    /// The first record after it.
    pub seq: Seq,
    /// Size of the file.
    pub file_bytes: u64,
}

/// Writes items in blocks.
struct BlockWriter<W> {
    output: W,
    block: Vec<u8>,
    /// Buffer for an item whose length is not known yet.
    item: Vec<u8>,
    bytes_written: u64,
}

impl<W: Write> BlockWriter<W> {
    fn write_item(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> std::io::Result<()> {
        put(&mut self.block);
        if self.block.len() >= BLOCK_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes an item after its length.
    fn write_sized_item(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> std::io::Result<()> {
        let mut item = std::mem::take(&mut self.item);
        put(&mut item);
        self.write_item(|out| put_bytes(out, &item))?;
        item.clear();
        self.item = item;
        Ok(())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let length = u32::try_from(self.block.len()).expect("a block is smaller");
        self.output.write_all(&length.to_le_bytes())?;
        self.output.write_all(&crc32c::crc32c(&self.block).to_le_bytes())?;
        self.output.write_all(&self.block)?;
        self.bytes_written += 8 + u64::from(length);
        self.block.clear();
        Ok(())
    }
}

/// Reads items from blocks.
struct BlockReader<R> {
    input: R,
    block: Vec<u8>,
    /// Offset of the next item in the block.
    offset: usize,
    path: PathBuf,
}

impl<R: Read> BlockReader<R> {
    /// Reads the next item.
    fn read_item<T>(
        &mut self,
        take: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, QueueError> {
        if self.offset == self.block.len() {
            self.next_block()?;
        }
        let mut reader = Reader::new(&self.block[self.offset..], WHAT);
        let item = take(&mut reader)?;
        self.offset = self.block.len() - reader.rest().len();
        Ok(item)
    }

    /// Reads the next item that begins with its length.
    fn read_sized_item<T>(
        &mut self,
        take: impl FnOnce(&mut Reader<'_>) -> Result<T, DecodeError>,
    ) -> Result<T, QueueError> {
        self.read_item(|reader| take(&mut reader.part()?))
    }

    /// Whether there is no further item. Later versions add items at the end.
    fn is_at_end(&mut self) -> Result<bool, QueueError> {
        if self.offset == self.block.len() {
            self.next_block()?;
        }
        Ok(self.block.is_empty())
    }

    fn next_block(&mut self) -> Result<(), QueueError> {
        let mut head = [0; 8];
        let read = self.input.read_exact(&mut head);
        read.map_err(map_read_error(&self.path))?;
        let mut from = Reader::new(&head, WHAT);
        let (length, crc) = (from.u32()? as usize, from.u32()?);
        if length > BLOCK_BYTES_MAX {
            return Err(from.malformed().into());
        }
        self.block.resize(length, 0);
        self.offset = 0;
        let read = self.input.read_exact(&mut self.block);
        read.map_err(map_read_error(&self.path))?;
        if crc32c::crc32c(&self.block) != crc {
            return Err(from.malformed().into());
        }
        Ok(())
    }
}

fn snapshot_path(directory: &Path, seq: Seq) -> PathBuf {
    directory.join(format!("{PREFIX}{:016x}", seq.0))
}

/// Writes a snapshot of everything before record `seq` and makes it durable; older ones are deleted
/// then. `on_record` is called with every record that the snapshot refers to.
///
/// # Errors
/// [`QueueError::Io`]; what was there before is still there.
pub(crate) fn write(
    directory: &Path,
    seq: Seq,
    image: &StateSnapshot,
    on_record: &mut dyn FnMut(Seq),
) -> Result<SnapshotFile, QueueError> {
    let temporary = directory.join("snapshot.new");
    let written = write_file(&temporary, seq, image, on_record).map_err(|error| {
        // A partial file takes space that may be missing. If it cannot be removed, the next
        // snapshot replaces it.
        let _ = std::fs::remove_file(&temporary);
        io_error("writing", &temporary)(error)
    })?;
    let path = snapshot_path(directory, seq);
    std::fs::rename(&temporary, &path).map_err(io_error("renaming", &temporary))?;
    durable::sync_directory(directory).map_err(io_error("syncing", directory))?;
    for (older, path) in list(directory)? {
        if older < seq {
            std::fs::remove_file(&path).map_err(io_error("deleting", &path))?;
        }
    }
    Ok(SnapshotFile { seq, file_bytes: written })
}

fn write_file(
    path: &Path,
    seq: Seq,
    snapshot: &StateSnapshot,
    on_record: &mut dyn FnMut(Seq),
) -> std::io::Result<u64> {
    let file = File::create(path)?;
    let file_bytes = write_to(IncrementallySyncedFile(&file), seq, snapshot, on_record)?;
    file.sync_all()?;
    Ok(file_bytes)
}

/// A file that is synced after every block: one sync at the end would delay those of the log for as
/// long as the disk takes to write a snapshot.
struct IncrementallySyncedFile<'file>(&'file File);

impl Write for IncrementallySyncedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.0.write(bytes)?;
        if written >= BLOCK_BYTES {
            self.0.sync_data()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

/// Writes a snapshot; returns its size in bytes.
///
/// # Errors
/// Those of the writer.
pub fn write_to(
    mut to: impl Write,
    seq: Seq,
    snapshot: &StateSnapshot,
    on_record: &mut dyn FnMut(Seq),
) -> std::io::Result<u64> {
    to.write_all(MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())?;
    let mut to = BlockWriter {
        output: to,
        block: Vec::with_capacity(BLOCK_BYTES * 2),
        item: Vec::new(),
        bytes_written: 12,
    };
    to.write_item(|out| out.extend_from_slice(&seq.0.to_le_bytes()))?;
    state_items::write_state(&mut to, snapshot, on_record)?;
    to.flush()?;
    to.output.write_all(&[0; 8])?;
    Ok(to.bytes_written + 8)
}

/// Every snapshot in a directory.
pub(crate) fn list(directory: &Path) -> Result<Vec<(Seq, PathBuf)>, QueueError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(io_error("reading", directory))? {
        let path = entry.map_err(io_error("reading", directory))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let seq = name.and_then(|name| name.strip_prefix(PREFIX));
        if let Some(Ok(seq)) = seq.map(|seq| u64::from_str_radix(seq, 16)) {
            found.push((Seq(seq), path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Reads the newest snapshot of a directory: the state before the record it is returned with.
///
/// # Errors
/// [`QueueError::Io`] and [`QueueError::SnapshotDamaged`].
pub(crate) fn read(directory: &Path) -> Result<Option<(Seq, State, u64)>, QueueError> {
    let Some((_, path)) = list(directory)?.pop() else {
        return Ok(None);
    };
    let (seq, snapshot, file_bytes) = read_file(&path)?;
    Ok(Some((seq, State::restore(snapshot), file_bytes)))
}

/// Reads one snapshot: the state before the record it is returned with, and the size of the file.
///
/// # Errors
/// As those of [`read`].
pub(crate) fn read_file(path: &Path) -> Result<(Seq, StateSnapshot, u64), QueueError> {
    let file = File::open(path).map_err(io_error("opening", path))?;
    let file_bytes = file.metadata().map_err(io_error("examining", path))?.len();
    let from = BufReader::with_capacity(BLOCK_BYTES, file);
    match read_from(from, path.to_owned()) {
        Ok((seq, snapshot)) => Ok((seq, snapshot, file_bytes)),
        Err(QueueError::Malformed(error)) => Err(QueueError::SnapshotDamaged {
            path: path.display().to_string(),
            reason: error.to_string(),
        }),
        Err(error) => Err(error),
    }
}

/// Maps the error of a read: a snapshot is damaged where it ends too early, or where the disk has
/// lost a part of it.
fn map_read_error(path: &Path) -> impl FnOnce(std::io::Error) -> QueueError {
    let path = path.to_owned();
    move |error| {
        if error.kind() != ErrorKind::UnexpectedEof && !egret_log::is_media_error(&error) {
            return io_error("reading", &path)(error);
        }
        QueueError::SnapshotDamaged { path: path.display().to_string(), reason: error.to_string() }
    }
}

/// Reads a snapshot; `path` is its file, for errors.
///
/// # Errors
/// As those of [`read`], and [`QueueError::DecodeError`] for bytes that are not what was written.
pub fn read_from(from: impl Read, path: PathBuf) -> Result<(Seq, StateSnapshot), QueueError> {
    let mut from = BlockReader { input: from, block: Vec::new(), offset: 0, path };
    let mut head = [0; 12];
    let read = from.input.read_exact(&mut head);
    read.map_err(map_read_error(&from.path))?;
    if head[..8] != *MAGIC {
        return Err(DecodeError { what: WHAT }.into());
    }
    let version = Reader::new(&head[8..], WHAT).u32()?;
    if version != VERSION {
        return Err(QueueError::Io {
            doing: "reading",
            path: from.path.display().to_string(),
            reason: format!(
                "it has version {version}, this program reads {VERSION}: use a newer one"
            ),
        });
    }
    let seq = from.read_item(|reader| reader.u64())?;
    Ok((Seq(seq), state_items::read_state(&mut from)?))
}

#[cfg(test)]
mod tests;
