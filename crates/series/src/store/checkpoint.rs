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
const DESCRIPTION: &str = "a checkpoint of series";
const FILE_NAME_PREFIX: &str = "checkpoint-";
const NEW_FILE_NAME: &str = "checkpoint.new";

/// What is tried when the content of a file cannot be read.
const READ_ACTION: &str = "reading";

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
    pub const EMPTY: Self = Self { seq: Seq::FIRST, end: TimeMs::MIN };
}

/// The series of a shard, and what of its log blocks have already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The first record that is not in it.
    pub next_seq: Seq,
    /// What blocks have of the log.
    pub flush_watermark: FlushWatermark,
    /// The number of the next new series.
    pub next_number: u64,
    /// Every series by its number, ascending.
    pub series: Vec<(u64, Labels)>,
}

fn file_name(seq: Seq) -> String {
    format!("{FILE_NAME_PREFIX}{:016x}", seq.0)
}

fn parse_file_name(name: &str) -> Option<Seq> {
    let digits = name.strip_prefix(FILE_NAME_PREFIX)?;
    let is_valid = digits.len() == 16 && !digits.bytes().any(|digit| digit.is_ascii_uppercase());
    let seq = u64::from_str_radix(digits, 16).ok()?;
    is_valid.then_some(Seq(seq))
}

/// Writes frames one after the other.
struct Frames<'a, F> {
    file: &'a F,
    offset: u64,
}

impl<F: DiskFile> Frames<'_, F> {
    fn write_frame(&mut self, body: &[u8]) -> io::Result<()> {
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
        let name = file_name(self.next_seq);
        let previous_seqs = list_seqs(disk)?;
        let result = self.write_new_file(disk);
        if result.is_err() {
            // It takes room, and the next attempt begins anew.
            let _ = disk.remove(NEW_FILE_NAME);
        }
        result.map_err(file_error(disk, "writing", NEW_FILE_NAME))?;
        disk.rename(NEW_FILE_NAME, &name)
            .and_then(|()| disk.sync_directory())
            .map_err(file_error(disk, "naming", &name))?;
        for seq in previous_seqs.into_iter().filter(|at| *at != self.next_seq) {
            let old_name = file_name(seq);
            disk.remove(&old_name).map_err(file_error(disk, "removing", &old_name))?;
        }
        Ok(())
    }

    fn write_new_file<D: Disk>(&self, disk: &D) -> io::Result<()> {
        // One that is left of an attempt that failed.
        let _ = disk.remove(NEW_FILE_NAME);
        let file = disk.create(NEW_FILE_NAME)?;
        let mut frames = Frames { file: &file, offset: 0 };
        let mut header = Vec::new();
        put_varint(&mut header, FORMAT_VERSION);
        put_varint(&mut header, self.flush_watermark.seq.0);
        put_varint(&mut header, zigzag(self.flush_watermark.end));
        put_varint(&mut header, self.next_number);
        frames.write_frame(&header)?;
        let (mut piece, mut count, mut last_number) = (Vec::new(), 0, 0);
        for (number, labels) in &self.series {
            put_varint(&mut piece, number - last_number);
            put_bytes(&mut piece, labels.as_key().as_bytes());
            last_number = *number;
            count += 1;
            if count == PIECE_SERIES || piece.len() >= PIECE_BYTES {
                frames.write_frame(&piece)?;
                piece.clear();
                count = 0;
            }
        }
        if !piece.is_empty() {
            frames.write_frame(&piece)?;
        }
        frames.write_frame(&[])
    }

    /// Reads the latest one of a directory, if there is any.
    ///
    /// # Errors
    /// [`SeriesError::Io`], [`SeriesError::Malformed`] and [`SeriesError::UnknownVersion`].
    pub fn read<D: Disk>(disk: &D) -> Result<Option<Self>, SeriesError> {
        let Some(next_seq) = list_seqs(disk)?.into_iter().max() else {
            return Ok(None);
        };
        let name = file_name(next_seq);
        let file = disk.open(&name).map_err(file_error(disk, "opening", &name))?;
        let result = read_frames(&file).and_then(|frames| Ok(decode(next_seq, &frames)?));
        let path = format!("{}/{name}", disk.display_path());
        result.map(Some).map_err(|error| match error {
            ReadError::Io(error) => file_error(disk, READ_ACTION, &name)(error),
            ReadError::Malformed(malformed) => SeriesError::Malformed { place: path, malformed },
            ReadError::UnknownVersion(version) => {
                SeriesError::UnknownVersion { file: path, version, known: FORMAT_VERSION }
            }
        })
    }
}

/// Whether an error of [`Checkpoint::read`] says that the file is damaged: it is not what was
/// written, or the disk has lost a part of it. What cannot be read now, or by this version, may be
/// whole.
pub(crate) fn is_damage(error: &SeriesError) -> bool {
    match error {
        SeriesError::Malformed { .. } => true,
        SeriesError::Io { action, source, .. } => {
            *action == READ_ACTION && egret_log::is_media_error(source)
        }
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
    let malformed = DecodeError { what: DESCRIPTION };
    let mut frames = Vec::new();
    let mut offset = 0;
    loop {
        let length = egret_log::read_exactly(file, offset, 4)?;
        let length = <[u8; 4]>::try_from(length).map_err(|_| malformed)?;
        let length = u32::from_le_bytes(length);
        if length > FRAME_BYTES_MAX || offset + u64::from(length) > file.size_bytes()? {
            return Err(malformed.into());
        }
        let frame = egret_log::read_exactly(file, offset + 4, length as usize)?;
        offset += 4 + u64::from(length);
        let body = open_frame(&frame, DESCRIPTION)?;
        if frames.is_empty() {
            let version = Reader::new(&body, DESCRIPTION).varint()?;
            if version != FORMAT_VERSION {
                return Err(ReadError::UnknownVersion(version));
            }
        } else if body.is_empty() {
            return Ok(frames);
        }
        frames.push(body);
    }
}

fn list_seqs<D: Disk>(disk: &D) -> Result<Vec<Seq>, SeriesError> {
    let names = disk.list().map_err(file_error(disk, "listing", ""))?;
    Ok(names.iter().filter_map(|name| parse_file_name(name)).collect())
}

fn decode(next_seq: Seq, frames: &[Vec<u8>]) -> Result<Checkpoint, DecodeError> {
    let malformed = DecodeError { what: DESCRIPTION };
    let (header, pieces) = frames.split_first().ok_or(malformed)?;
    let mut head = Reader::new(header, DESCRIPTION);
    // The version, which was compared before the other frames were read.
    head.varint()?;
    let flush_watermark =
        FlushWatermark { seq: Seq(head.varint()?), end: unzigzag(head.varint()?) };
    let next_number = head.varint()?;
    let mut series = Vec::new();
    let mut number = 0_u64;
    for piece in pieces {
        let mut reader = Reader::new(piece, DESCRIPTION);
        while !reader.rest().is_empty() {
            number = number.checked_add(reader.varint()?).ok_or(malformed)?;
            let labels = Labels::from_key(reader.text()?).ok_or(malformed)?;
            series.push((number, labels));
        }
    }
    let is_sorted = series.is_sorted_by(|left, right| left.0 < right.0);
    let is_whole = series.last().is_none_or(|(last, _)| *last < next_number);
    if head.rest().is_empty() && is_sorted && is_whole {
        Ok(Checkpoint { next_seq, flush_watermark, next_number, series })
    } else {
        Err(malformed)
    }
}

#[cfg(test)]
mod tests;
