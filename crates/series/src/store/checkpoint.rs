//! Checkpoint of a shard: its series, and which part of its log blocks have already. It allows the
//! front of the log to be cut off.
//!
//! A file `checkpoint-<16 hex digits>`, of which the digits are the number of the first record that
//! is not in it. It is a sequence of frames ([`egret_blocks::core::frame`]), each after its length
//! (4 bytes, little endian): the head, series in pieces, and an empty one at the end. The head
//! holds format version, the two numbers of [`FlushWatermark`], the next number of a series
//! (varints; the time in zigzag); a piece for each series its number (the difference to the one
//! before) and its labels ([`Labels::as_key`]).

use std::io;

use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint, unzigzag, zigzag};
use egret_blocks::core::frame::{open_frame, put_frame};
use egret_log::{Disk, DiskFile, Seq, write_all};
use egret_metrics_model::{Labels, TimeMs};

use super::file_error;
use crate::error::SeriesError;

const FORMAT_VERSION: u64 = 1;
const WHAT: &str = "a checkpoint of series";
const PREFIX: &str = "checkpoint-";
const NEW: &str = "checkpoint.new";

/// What is tried when the content of a file cannot be read.
const READING: &str = "reading";

/// Series of a piece, at most.
const PIECE_SERIES: usize = 1_024;

/// A piece that has so many bytes takes no other series, whatever their labels: it is far below
/// what is read.
const PIECE_BYTES: usize = 1 << 20;

/// The largest frame that is read, in bytes.
const FRAME_BYTES_MAX: u32 = 256 << 20;

/// What blocks have already of a log: the samples before `end` of records below `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushWatermark {
    /// First record that blocks do not cover.
    pub seq: Seq,
    /// Blocks have the samples before this time.
    pub end: TimeMs,
}

impl FlushWatermark {
    /// Blocks have nothing of the log.
    pub const NOTHING: Self = Self {
        seq: Seq::FIRST,
        end: TimeMs::MIN,
    };
}

/// The series of a shard, and what of its log blocks have already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The first record that is not in it.
    pub at: Seq,
    /// What blocks have of the log.
    pub in_blocks: FlushWatermark,
    /// The number of the next new series.
    pub next_number: u64,
    /// Every series by its number, ascending.
    pub series: Vec<(u64, Labels)>,
}

fn name_of(at: Seq) -> String {
    format!("{PREFIX}{:016x}", at.0)
}

fn parse(name: &str) -> Option<Seq> {
    let digits = name.strip_prefix(PREFIX)?;
    let is_name = digits.len() == 16 && !digits.bytes().any(|digit| digit.is_ascii_uppercase());
    let at = u64::from_str_radix(digits, 16).ok()?;
    is_name.then_some(Seq(at))
}

/// Writes frames one after the other.
struct Frames<'a, F> {
    file: &'a F,
    offset: u64,
}

impl<F: DiskFile> Frames<'_, F> {
    fn put(&mut self, body: &[u8]) -> io::Result<()> {
        let mut frame = vec![0; 4];
        put_frame(&mut frame, body);
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_le_bytes());
        write_all(self.file, &frame, self.offset)?;
        self.offset += frame.len() as u64;
        // In pieces: one long flush would hold up those of the log.
        self.file.sync_data()
    }
}

impl Checkpoint {
    /// Writes it, durably, and removes those before it.
    ///
    /// # Errors
    /// [`SeriesError::Io`] and [`SeriesError::DiskFull`].
    pub fn write<D: Disk>(&self, disk: &D) -> Result<(), SeriesError> {
        let name = name_of(self.at);
        let before = list(disk)?;
        let written = self.write_new(disk);
        if written.is_err() {
            // It takes room, and the next attempt begins anew.
            let _ = disk.remove(NEW);
        }
        written.map_err(file_error(disk, "writing", NEW))?;
        disk.rename(NEW, &name)
            .and_then(|()| disk.sync_directory())
            .map_err(file_error(disk, "naming", &name))?;
        for at in before.into_iter().filter(|at| *at != self.at) {
            let old = name_of(at);
            disk.remove(&old)
                .map_err(file_error(disk, "removing", &old))?;
        }
        Ok(())
    }

    fn write_new<D: Disk>(&self, disk: &D) -> io::Result<()> {
        // One that is left of an attempt that failed.
        let _ = disk.remove(NEW);
        let file = disk.create(NEW)?;
        let mut frames = Frames {
            file: &file,
            offset: 0,
        };
        let mut head = Vec::new();
        put_varint(&mut head, FORMAT_VERSION);
        put_varint(&mut head, self.in_blocks.seq.0);
        put_varint(&mut head, zigzag(self.in_blocks.end));
        put_varint(&mut head, self.next_number);
        frames.put(&head)?;
        let (mut piece, mut count, mut last) = (Vec::new(), 0, 0);
        for (number, labels) in &self.series {
            put_varint(&mut piece, number - last);
            put_bytes(&mut piece, labels.as_key().as_bytes());
            last = *number;
            count += 1;
            if count == PIECE_SERIES || piece.len() >= PIECE_BYTES {
                frames.put(&piece)?;
                piece.clear();
                count = 0;
            }
        }
        if !piece.is_empty() {
            frames.put(&piece)?;
        }
        frames.put(&[])
    }

    /// Reads the latest one of a directory, if there is any.
    ///
    /// # Errors
    /// [`SeriesError::Io`], [`SeriesError::Malformed`] and [`SeriesError::UnknownVersion`].
    pub fn read<D: Disk>(disk: &D) -> Result<Option<Self>, SeriesError> {
        let Some(at) = list(disk)?.into_iter().max() else {
            return Ok(None);
        };
        let name = name_of(at);
        let file = disk
            .open(&name)
            .map_err(file_error(disk, "opening", &name))?;
        let read = read_frames(&file).and_then(|frames| Ok(decode(at, &frames)?));
        let path = format!("{}/{name}", disk.place());
        read.map(Some).map_err(|error| match error {
            ReadError::Io(error) => file_error(disk, READING, &name)(error),
            ReadError::Malformed(malformed) => SeriesError::Malformed {
                place: path,
                malformed,
            },
            ReadError::UnknownVersion(version) => SeriesError::UnknownVersion {
                file: path,
                version,
                known: FORMAT_VERSION,
            },
        })
    }
}

/// Whether an error of [`Checkpoint::read`] says that the file is damaged: it is not what was
/// written, or the disk has lost a part of it. What cannot be read now, or by this version, may be
/// whole.
pub(crate) fn is_damage(error: &SeriesError) -> bool {
    match error {
        SeriesError::Malformed { .. } => true,
        SeriesError::Io { action, source, .. } => *action == READING && egret_log::is_lost(source),
        _ => false,
    }
}

/// Why the content of a file was not taken for a checkpoint.
enum ReadError {
    Io(io::Error),
    Malformed(DecodeError),
    UnknownVersion(u64),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<DecodeError> for ReadError {
    fn from(malformed: DecodeError) -> Self {
        Self::Malformed(malformed)
    }
}

/// The frames of a file without the empty one at the end. Of another version, only the head is
/// read: what follows may be laid out in another way.
fn read_frames(file: &impl DiskFile) -> Result<Vec<Vec<u8>>, ReadError> {
    let bad = DecodeError { what: WHAT };
    let mut frames = Vec::new();
    let mut offset = 0;
    loop {
        let length = egret_log::read_exactly(file, offset, 4)?;
        let length = <[u8; 4]>::try_from(length).map_err(|_| bad)?;
        let length = u32::from_le_bytes(length);
        if length > FRAME_BYTES_MAX || offset + u64::from(length) > file.size_bytes()? {
            return Err(bad.into());
        }
        let frame = egret_log::read_exactly(file, offset + 4, length as usize)?;
        offset += 4 + u64::from(length);
        let body = open_frame(&frame, WHAT)?;
        if frames.is_empty() {
            let version = Reader::new(&body, WHAT).varint()?;
            if version != FORMAT_VERSION {
                return Err(ReadError::UnknownVersion(version));
            }
        } else if body.is_empty() {
            return Ok(frames);
        }
        frames.push(body);
    }
}

fn list<D: Disk>(disk: &D) -> Result<Vec<Seq>, SeriesError> {
    let names = disk.list().map_err(file_error(disk, "listing", ""))?;
    Ok(names.iter().filter_map(|name| parse(name)).collect())
}

fn decode(at: Seq, frames: &[Vec<u8>]) -> Result<Checkpoint, DecodeError> {
    let bad = DecodeError { what: WHAT };
    let (head, pieces) = frames.split_first().ok_or(bad)?;
    let mut head = Reader::new(head, WHAT);
    // The version, which was compared before the other frames were read.
    head.varint()?;
    let in_blocks = FlushWatermark {
        seq: Seq(head.varint()?),
        end: unzigzag(head.varint()?),
    };
    let next_number = head.varint()?;
    let mut series = Vec::new();
    let mut last = 0_u64;
    for piece in pieces {
        let mut reader = Reader::new(piece, WHAT);
        while !reader.rest().is_empty() {
            last = last.checked_add(reader.varint()?).ok_or(bad)?;
            let labels = Labels::from_key(reader.text()?).ok_or(bad)?;
            series.push((last, labels));
        }
    }
    let is_sorted = series.is_sorted_by(|one, other| one.0 < other.0);
    let is_whole = series.last().is_none_or(|(last, _)| *last < next_number);
    if head.rest().is_empty() && is_sorted && is_whole {
        Ok(Checkpoint {
            at,
            in_blocks,
            next_number,
            series,
        })
    } else {
        Err(bad)
    }
}

#[cfg(test)]
mod tests;
