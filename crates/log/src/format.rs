//! The format on disk, version 1. All numbers are little endian.
//!
//! A **segment** is one file. It begins with a header block of 4,096 bytes:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic, `EGRETLOG` |
//! | 8 | 4 | CRC32C of bytes 12 to 4,095 |
//! | 12 | 4 | format version, 1 |
//! | 16 | 8 | salt: random, never 0, another one for each life of the file |
//! | 24 | 8 | first sequence number covered, also the file's name |
//! | 32 | 8 | synced below: every record below it was durable when the segment was begun |
//! | 40 | 8 | last sequence number covered, in a compacted segment; else 0 |
//! | 48 | 8 | size of the file |
//! | 56 | 8 | number of records, in a compacted segment; else 0 |
//! | 64 | 4,032 | zeros |
//!
//! After it come **frames**, one per append, each at a multiple of 64 bytes, so that none of their
//! headers lies in two sectors:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | nonce: another one for each attempt to write a frame |
//! | 8 | 8 | the segment's salt, exclusive-or the nonce |
//! | 16 | 8 | sequence number of the first record |
//! | 24 | 8 | synced below: every record below it was durable when the frame was written |
//! | 32 | 4 | number of records, at least 1 |
//! | 36 | 4 | bytes of the records that follow |
//! | 40 | 4 | magic, `FRAM` |
//! | 44 | 4 | CRC32C of bytes 0 to 43 |
//!
//! and then its **records**, back to back, with zeros after the last up to a multiple of 64:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC32C of all that follows in the record, begun with salt and nonce |
//! | 4 | 4 | bytes of the body |
//! | 8 | 8 | sequence number |
//! | 16 | n | body |
//!
//! *Begun with salt and nonce*: the checksum is seeded with the CRC32C of the salt's 8 bytes and
//! the nonce's. The salt distinguishes uses of a recycled file. The nonce distinguishes attempts to
//! write at one offset: after two crashes, sectors of an abandoned frame may lie among those of the
//! frame that replaced it, with records of equal size and number.
//!
//! Sequence numbers in a segment are contiguous; in a compacted one they only ascend, and it ends
//! exactly where its header says. What follows the last frame of another segment means nothing.

use crate::Seq;

/// Size of a segment's header block.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 4096;
/// The largest segment: offsets are kept in 32 bits.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 2 << 30;
/// Size of a frame's header.
pub(crate) const FRAME_HEADER_BYTES: usize = 48;
/// Size of what precedes a record's body.
pub(crate) const RECORD_HEADER_BYTES: usize = 16;
/// Frames begin at multiples of this.
pub(crate) const FRAME_ALIGNMENT: usize = 64;
/// The version written, and the only one read.
pub(crate) const FORMAT_VERSION: u32 = 1;

const SEGMENT_MAGIC: [u8; 8] = *b"EGRETLOG";
const FRAME_MAGIC: [u8; 4] = *b"FRAM";

/// What makes the frames of one life of a file its own; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Salt(pub u64);

/// What makes the records of one frame its own: the start value of their checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seal(u32);

impl Seal {
    pub(crate) fn new(salt: Salt, nonce: u64) -> Self {
        let start = crc32c::crc32c(&salt.0.to_le_bytes());
        Self(crc32c::crc32c_append(start, &nonce.to_le_bytes()))
    }

    fn checksum(self, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(self.0, bytes)
    }
}

/// Fields of the header that only compacted segments have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CompactedRange {
    /// The last sequence number covered.
    pub last: Seq,
    /// Records that were kept.
    pub records: u64,
}

/// The header block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub salt: Salt,
    pub first: Seq,
    pub synced_below: Seq,
    pub compacted: Option<CompactedRange>,
    pub file_bytes: u64,
}

/// Why a header block could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    Corrupt(&'static str),
    Version(u32),
}

impl SegmentHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; SEGMENT_HEADER_BYTES as usize];
        let (last, records) =
            self.compacted.map_or((0, 0), |compacted| (compacted.last.0, compacted.records));
        put(&mut block, 0, SEGMENT_MAGIC);
        put(&mut block, 12, FORMAT_VERSION.to_le_bytes());
        put(&mut block, 16, self.salt.0.to_le_bytes());
        put(&mut block, 24, self.first.0.to_le_bytes());
        put(&mut block, 32, self.synced_below.0.to_le_bytes());
        put(&mut block, 40, last.to_le_bytes());
        put(&mut block, 48, self.file_bytes.to_le_bytes());
        put(&mut block, 56, records.to_le_bytes());
        let crc = crc32c::crc32c(&block[12..]);
        put(&mut block, 8, crc.to_le_bytes());
        block
    }

    pub(crate) fn decode(block: &[u8]) -> Result<Self, BadHeader> {
        if block.len() < SEGMENT_HEADER_BYTES as usize {
            return Err(BadHeader::Corrupt("the file is shorter than its header"));
        }
        let block = &block[..SEGMENT_HEADER_BYTES as usize];
        if block[..8] != SEGMENT_MAGIC {
            return Err(BadHeader::Corrupt("the header does not begin with EGRETLOG"));
        }
        if crc32c::crc32c(&block[12..]) != u32_at(block, 8) {
            return Err(BadHeader::Corrupt("the header's checksum does not match"));
        }
        let version = u32_at(block, 12);
        if version != FORMAT_VERSION {
            return Err(BadHeader::Version(version));
        }
        let last = u64_at(block, 40);
        Ok(Self {
            salt: Salt(u64_at(block, 16)),
            first: Seq(u64_at(block, 24)),
            synced_below: Seq(u64_at(block, 32)),
            compacted: (last != 0)
                .then(|| CompactedRange { last: Seq(last), records: u64_at(block, 56) }),
            file_bytes: u64_at(block, 48),
        })
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub nonce: u64,
    pub first: Seq,
    pub synced_below: Seq,
    pub count: u32,
    /// Bytes of the records that follow.
    pub record_bytes: u32,
}

impl FrameHeader {
    /// Writes the header over the first bytes of `frame`.
    pub(crate) fn encode(&self, salt: Salt, frame: &mut [u8]) {
        put(frame, 0, self.nonce.to_le_bytes());
        put(frame, 8, (salt.0 ^ self.nonce).to_le_bytes());
        put(frame, 16, self.first.0.to_le_bytes());
        put(frame, 24, self.synced_below.0.to_le_bytes());
        put(frame, 32, self.count.to_le_bytes());
        put(frame, 36, self.record_bytes.to_le_bytes());
        put(frame, 40, FRAME_MAGIC);
        let crc = crc32c::crc32c(&frame[..44]);
        put(frame, 44, crc.to_le_bytes());
    }

    /// Whether `bytes` begin as a frame of this life does.
    pub(crate) fn has_frame_start(salt: Salt, bytes: &[u8]) -> bool {
        bytes.len() >= 16 && u64_at(bytes, 0) ^ u64_at(bytes, 8) == salt.0
    }

    /// The header at the start of `bytes`, if there is one of this life.
    pub(crate) fn decode(salt: Salt, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..FRAME_HEADER_BYTES)?;
        if !Self::has_frame_start(salt, bytes) || bytes[40..44] != FRAME_MAGIC {
            return None;
        }
        if crc32c::crc32c(&bytes[..44]) != u32_at(bytes, 44) {
            return None;
        }
        let header = Self {
            nonce: u64_at(bytes, 0),
            first: Seq(u64_at(bytes, 16)),
            synced_below: Seq(u64_at(bytes, 24)),
            count: u32_at(bytes, 32),
            record_bytes: u32_at(bytes, 36),
        };
        let bytes_min = u64::from(header.count) * RECORD_HEADER_BYTES as u64;
        (header.count > 0 && u64::from(header.record_bytes) >= bytes_min).then_some(header)
    }

    /// Bytes from this frame's start to the next one's.
    pub(crate) fn frame_bytes(&self) -> u64 {
        padded(FRAME_HEADER_BYTES + self.record_bytes as usize) as u64
    }
}

/// `length` rounded up to where the next frame may begin.
pub(crate) fn padded(length: usize) -> usize {
    length.next_multiple_of(FRAME_ALIGNMENT)
}

/// Completes the record at the start of `record`, which has its body already and ends with it.
pub(crate) fn seal_record(seal: Seal, seq: Seq, record: &mut [u8]) {
    let body_bytes = (record.len() - RECORD_HEADER_BYTES) as u32;
    put(record, 4, body_bytes.to_le_bytes());
    put(record, 8, seq.0.to_le_bytes());
    let crc = seal.checksum(&record[4..]);
    put(record, 0, crc.to_le_bytes());
}

/// A record found in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub seq: Seq,
    /// Bytes of the body.
    pub body_bytes: usize,
}

impl RecordHeader {
    /// The header of the record at the start of `bytes`, which must hold the body too.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..RECORD_HEADER_BYTES)?;
        let body_bytes = u32_at(header, 4) as usize;
        (bytes.len() - RECORD_HEADER_BYTES >= body_bytes)
            .then(|| Self { seq: Seq(u64_at(header, 8)), body_bytes })
    }

    /// Like [`RecordHeader::decode`], for a record whose checksum matches.
    pub(crate) fn decode_checked(seal: Seal, bytes: &[u8]) -> Option<Self> {
        let header = Self::decode(bytes)?;
        let record = &bytes[..header.record_bytes()];
        (seal.checksum(&record[4..]) == u32_at(record, 0)).then_some(header)
    }

    /// Bytes of the record, header included.
    pub(crate) fn record_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.body_bytes
    }
}

fn put<const N: usize>(bytes: &mut [u8], offset: usize, value: [u8; N]) {
    bytes[offset..offset + N].copy_from_slice(&value);
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(value)
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut value = [0; 8];
    value.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(value)
}
