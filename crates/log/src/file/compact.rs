//! Rewriting sealed segments so that they hold only what is still wanted.

use std::sync::Arc;

use super::handles::Handles;
use super::segment::{Index, Segment};
use super::tail::Cursor;
use crate::disk::{Disk, DiskFile, is_full, write_all};
use crate::format::{
    CompactedRange, FRAME_HEADER_BYTES, FrameHeader, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES,
    Salt, Seal, SegmentHeader, padded, seal_record,
};
use crate::{Compaction, Directory, LogError, Seq};

/// Prefix of files that a compaction has not finished.
pub(crate) const TEMPORARY_PREFIX: &str = "compact-";

/// A frame is written when it has this many bytes.
const FRAME_BYTES: usize = 128 << 10;

/// A rewrite of a run of sealed segments into one.
pub struct FileCompaction<D: Disk = Directory> {
    pub(crate) handles: Arc<Handles<D>>,
    pub(crate) place: Arc<str>,
    pub(crate) sources: Vec<Arc<Segment<D>>>,
    pub(crate) salt: Salt,
    pub(crate) index_stride_bytes: u64,
    /// The largest file it may write.
    pub(crate) bytes_max: u64,
    pub(crate) temporary_name: String,
}

/// What a compaction wrote, and what it can be said to have gained.
pub struct CompactionResult<D: Disk = Directory> {
    /// Number of records that were kept.
    pub kept: u64,
    /// Number of records that were left out.
    pub dropped: u64,
    /// Size of the files read.
    pub bytes_before: u64,
    /// Size of the file written.
    pub bytes_after: u64,
    pub(crate) sources: Vec<Arc<Segment<D>>>,
    pub(crate) segment: Segment<D>,
    pub(crate) temporary_name: String,
}

impl<D: Disk> CompactionResult<D> {
    /// The first and the last record that the segments read cover.
    pub fn range(&self) -> (Seq, Seq) {
        let last = self.segment.last.get().copied();
        let first = self.segment.header.first;
        (first, last.unwrap_or(first))
    }
}

impl<D: Disk> Compaction for FileCompaction<D> {
    type Output = CompactionResult<D>;

    fn run(self, keep: impl FnMut(Seq) -> bool) -> Result<CompactionResult<D>, LogError> {
        let result = self.write(keep);
        if result.is_err() {
            // The error says what matters; a leftover is removed when the log is opened next.
            let removed = self.handles.disk.remove(&self.temporary_name);
            tracing::debug!(?removed, "a compaction was given up");
        }
        result
    }
}

impl<D: Disk> FileCompaction<D> {
    fn write(&self, mut keep: impl FnMut(Seq) -> bool) -> Result<CompactionResult<D>, LogError> {
        let file = self
            .handles
            .disk
            .create(&self.temporary_name)
            .map_err(|error| self.write_error("create", error))?;
        let synced_below = self.sources[0].header.synced_below;
        let index = Index::new(self.index_stride_bytes);
        let mut writer = Writer::new(&file, self.salt, synced_below, index);
        let (mut kept, mut dropped) = (0, 0);
        for source in &self.sources {
            let first = source.header.first;
            let mut cursor = Cursor::new(Arc::clone(source), first)
                .map_err(|error| self.map_missing_source(error))?;
            while let Some((seq, body)) = cursor.next(first)? {
                if keep(seq) {
                    kept += 1;
                    writer.push(seq, &body).map_err(|error| self.write_error("write", error))?;
                    if writer.end() > self.bytes_max {
                        return Err(self.too_large_error());
                    }
                } else {
                    dropped += 1;
                }
            }
        }
        writer.flush().map_err(|error| self.write_error("write", error))?;
        let used_bytes = writer.offset;
        let index = writer.index;
        let header = self.segment_header(used_bytes, kept);
        write_all(&file, &header.encode(), 0)
            .and_then(|()| file.sync_data())
            .map_err(|error| self.write_error("write", error))?;
        let place = Arc::clone(&self.place);
        let handles = Arc::clone(&self.handles);
        let segment =
            Segment::new_compacted(place, handles, self.temporary_name.clone(), header, index);
        Ok(CompactionResult {
            kept,
            dropped,
            bytes_before: self.sources.iter().map(|source| source.file_bytes).sum(),
            bytes_after: used_bytes,
            sources: self.sources.clone(),
            segment,
            temporary_name: self.temporary_name.clone(),
        })
    }

    fn last_seq(&self) -> Seq {
        self.sources
            .last()
            .and_then(|source| source.last.get().copied())
            .expect("a compaction has sealed sources only")
    }

    fn segment_header(&self, used_bytes: u64, kept: u64) -> SegmentHeader {
        let oldest = &self.sources[0];
        SegmentHeader {
            salt: self.salt,
            first: oldest.header.first,
            synced_below: oldest.header.synced_below,
            compacted: Some(CompactedRange { last: self.last_seq(), records: kept }),
            file_bytes: used_bytes,
        }
    }

    /// What is read is no longer part of the log, if its file is not there any more.
    fn map_missing_source(&self, error: LogError) -> LogError {
        match error {
            LogError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                LogError::NotSealed { from: self.sources[0].header.first, to: self.last_seq() }
            }
            other => other,
        }
    }

    fn too_large_error(&self) -> LogError {
        LogError::CompactionTooLarge {
            from: self.sources[0].header.first,
            to: self.last_seq(),
            max_bytes: self.bytes_max,
        }
    }

    fn write_error(&self, action: &'static str, error: std::io::Error) -> LogError {
        if is_full(&error) {
            return LogError::Full {
                place: self.place.to_string(),
                needed_bytes: FRAME_BYTES as u64,
            };
        }
        LogError::Io {
            action,
            file: format!("{}/{}", self.place, self.temporary_name),
            source: Arc::new(error),
        }
    }
}

/// Writes frames one after the other, in a file that begins with room for the header.
struct Writer<'file, F> {
    file: &'file F,
    salt: Salt,
    /// What the oldest segment read knows; its records may be gone after a crash, and these too.
    synced_below: Seq,
    /// The frame being filled, its header still zeros.
    frame: Vec<u8>,
    first: Seq,
    count: u32,
    /// Of the frame being filled.
    nonce: u64,
    /// Where the frame goes.
    offset: u64,
    index: Index,
}

impl<'file, F: DiskFile> Writer<'file, F> {
    fn new(file: &'file F, salt: Salt, synced_below: Seq, index: Index) -> Self {
        Self {
            file,
            salt,
            synced_below,
            frame: vec![0; FRAME_HEADER_BYTES],
            first: Seq(0),
            count: 0,
            nonce: 1,
            offset: SEGMENT_HEADER_BYTES,
            index,
        }
    }

    fn push(&mut self, seq: Seq, body: &[u8]) -> std::io::Result<()> {
        let start = self.frame.len();
        if self.count == 0 {
            self.first = seq;
        }
        self.frame.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        self.frame.extend_from_slice(body);
        seal_record(Seal::new(self.salt, self.nonce), seq, &mut self.frame[start..]);
        self.count += 1;
        if self.frame.len() >= FRAME_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Where the file ends when what was pushed is written.
    fn end(&self) -> u64 {
        self.offset + padded(self.frame.len()) as u64
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.count == 0 {
            return Ok(());
        }
        let header = FrameHeader {
            nonce: self.nonce,
            first: self.first,
            count: self.count,
            synced_below: self.synced_below,
            record_bytes: (self.frame.len() - FRAME_HEADER_BYTES) as u32,
        };
        header.encode(self.salt, &mut self.frame);
        self.index.add_records(
            self.offset,
            Seal::new(self.salt, self.nonce),
            &self.frame[FRAME_HEADER_BYTES..],
        );
        self.frame.resize(padded(self.frame.len()), 0);
        write_all(self.file, &self.frame, self.offset)?;
        // Syncing only once at the end would hold up concurrent syncs of the log.
        self.file.sync_data()?;
        self.offset += self.frame.len() as u64;
        self.frame.truncate(0);
        self.frame.resize(FRAME_HEADER_BYTES, 0);
        self.count = 0;
        self.nonce += 1;
        Ok(())
    }
}
