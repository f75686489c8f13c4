//! Which series a shard has, and what of its log blocks have already: what lets the front of the log go.
//!
//! A file `checkpoint-<16 hex digits>`, of which the digits are the number of the first record that is not in it. It is
//! a sequence of frames ([`crate::core::block::frame`]), each after its length (4 bytes, little endian): the head,
//! series in pieces, and an empty one at the end. The head holds format version, the two numbers of [`InBlocks`], the
//! next number of a series (varints; the time in zigzag); a piece for each series its number (the difference to the
//! one before) and its labels ([`Labels::as_key`]).

use std::io;

use egret_base::codec::{Malformed, Reader, put_bytes, put_varint, unzigzag, zigzag};
use egret_log::{Disk, DiskFile, Seq, write_all};

use super::file_error;
use crate::core::block::frame::{open_frame, put_frame};
use crate::error::SeriesError;
use crate::model::{Labels, TimeMs};

const FORMAT_VERSION: u64 = 1;
const WHAT: &str = "a checkpoint of series";
const PREFIX: &str = "checkpoint-";
const NEW: &str = "checkpoint.new";

/// Series of a piece, at most.
const PIECE_SERIES: usize = 1_024;

/// A piece that has so many bytes takes no other series, whatever their labels: it is far below what is read.
const PIECE_BYTES: usize = 1 << 20;

/// The largest frame that is read, in bytes.
const FRAME_BYTES_MAX: u32 = 256 << 20;

/// What blocks have already of a log: the samples before `end` of records below `seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InBlocks {
    /// See above.
    pub seq: Seq,
    /// See above.
    pub end: TimeMs,
}

impl InBlocks {
    /// Nothing.
    pub const NOTHING: Self = Self {
        seq: Seq::FIRST,
        end: TimeMs::MIN,
    };
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The first record that is not in it.
    pub at: Seq,
    /// What blocks have.
    pub in_blocks: InBlocks,
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
    /// [`SeriesError::Io`] and [`SeriesError::Malformed`].
    pub fn read<D: Disk>(disk: &D) -> Result<Option<Self>, SeriesError> {
        let Some(at) = list(disk)?.into_iter().max() else {
            return Ok(None);
        };
        let name = name_of(at);
        let failed = file_error(disk, "reading", &name);
        let mut frames = Vec::new();
        let mut read = || -> io::Result<Result<(), Malformed>> {
            let file = disk.open(&name)?;
            let mut offset = 0;
            loop {
                let bad = Malformed { what: WHAT };
                let length = egret_log::read_exactly(&file, offset, 4)?;
                let Ok(length) = <[u8; 4]>::try_from(length) else {
                    return Ok(Err(bad));
                };
                let length = u32::from_le_bytes(length);
                if length > FRAME_BYTES_MAX || offset + u64::from(length) > file.size_bytes()? {
                    return Ok(Err(bad));
                }
                let frame = egret_log::read_exactly(&file, offset + 4, length as usize)?;
                offset += 4 + u64::from(length);
                match open_frame(&frame, WHAT) {
                    Err(error) => return Ok(Err(error)),
                    Ok(body) if body.is_empty() && !frames.is_empty() => return Ok(Ok(())),
                    Ok(body) => frames.push(body),
                }
            }
        };
        let decoded = read().map_err(failed)?.and_then(|()| decode(at, &frames));
        let place = format!("{}/{name}", disk.place());
        decoded
            .map(Some)
            .map_err(|malformed| SeriesError::Malformed { place, malformed })
    }
}

fn list<D: Disk>(disk: &D) -> Result<Vec<Seq>, SeriesError> {
    let names = disk.list().map_err(file_error(disk, "listing", ""))?;
    Ok(names.iter().filter_map(|name| parse(name)).collect())
}

fn decode(at: Seq, frames: &[Vec<u8>]) -> Result<Checkpoint, Malformed> {
    let bad = Malformed { what: WHAT };
    let (head, pieces) = frames.split_first().ok_or(bad)?;
    let mut head = Reader::new(head, WHAT);
    if head.varint()? != FORMAT_VERSION {
        return Err(bad);
    }
    let in_blocks = InBlocks {
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
    match head.rest().is_empty() && is_sorted && is_whole {
        true => Ok(Checkpoint {
            at,
            in_blocks,
            next_number,
            series,
        }),
        false => Err(bad),
    }
}

#[cfg(test)]
mod tests;
