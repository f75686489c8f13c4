//! Opening a log: which files belong to it, where it ends, and what a crash left behind.
//!
//! A frame that does not check is the log's torn end, unless something written later proves that it
//! had been durable: a frame or a header that says so in its *synced below*, or the end mark. Then
//! the disk has lost what it had confirmed, and the log is not opened.

mod forced;
mod trailing_data;

use std::sync::Arc;

pub(crate) use forced::{FileChange, Hole};
use trailing_data::TrailingData;

use super::compact::TEMPORARY_PREFIX;
use super::end_mark::{END_NAME, NEW_END_NAME};
use super::handles::Handles;
use super::scan::{ScannedFrame, Window, read_frame};
use super::segment::{Index, Segment, parse_segment_name};
use crate::disk::Disk;
use crate::format::{CompactedRange, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::{LogConfig, LogError, Seq};

/// An end that a crash left half written. It was cut off; nothing in it had been acknowledged as
/// durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The file in which the log ends now.
    pub segment: String,
    /// Offset in that file, in bytes.
    pub offset: u64,
    /// From there to the end of the last thing found, later segments included.
    pub bytes: u64,
    /// The first record that was not whole.
    pub seq: Seq,
}

/// What opening a log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The end that was cut off, if there was one.
    pub torn: Option<TornTail>,
    /// Segments that were read and checked.
    pub segments_scanned: usize,
    /// Bytes of frames in them.
    pub bytes_scanned: u64,
    /// Files in the directory that are not the log's; they are left alone.
    pub foreign_files: Vec<String>,
}

/// Result of reading a log: its segments, and where it goes on.
pub(crate) struct RecoveredLog<D: Disk> {
    /// Oldest first. None when there is no log yet.
    pub segments: Vec<Arc<Segment<D>>>,
    pub next: Seq,
    /// Records from here on are in the files as processes see them, and perhaps not on the disk.
    pub unproven_from: Seq,
    /// Files of segments that are no longer part of the log.
    pub dropped: Vec<String>,
    /// Everything that says how far the log went says at most this.
    pub reached_below: Seq,
    pub recovery: Recovery,
    /// Changes that a repair makes apart from the log's end, and the records lost by them.
    pub changes: Vec<FileChange>,
    pub holes: Vec<Hole>,
    /// Segments whose headers cannot be read, with the records with which they began.
    pub unreadable: Vec<(Seq, String)>,
}

impl<D: Disk> RecoveredLog<D> {
    /// The segments that were read and checked.
    pub(crate) fn scanned(&self) -> &[Arc<Segment<D>>] {
        let kept = self.segments.len();
        &self.segments[kept.saturating_sub(self.recovery.segments_scanned)..]
    }
}

/// The files of a log's directory by what they are.
#[derive(Default)]
struct Files {
    segments: Vec<(Seq, String)>,
    temporary: Vec<String>,
    foreign: Vec<String>,
}

impl Files {
    fn classify(names: Vec<String>) -> Self {
        let mut files = Self::default();
        for name in names {
            if let Some(first) = parse_segment_name(&name) {
                files.segments.push((first, name));
            } else if name.starts_with(TEMPORARY_PREFIX) {
                files.temporary.push(name);
            } else if !name.starts_with("spare-")
                && !["lock", END_NAME, NEW_END_NAME].contains(&name.as_str())
            {
                files.foreign.push(name);
            }
        }
        files.segments.sort_unstable();
        files
    }
}

/// Input of recovery: what is known of a log before its segments are read.
#[derive(Clone, Copy)]
pub(crate) struct RecoveryRequest {
    /// The first record that the owner needs.
    pub replay_from: Seq,
    /// Every record below was durable.
    pub durable_below: Seq,
    pub purpose: Purpose,
}

/// Purpose for which a log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To go on with it.
    Open,
    /// To see whether it can be opened; nothing is changed.
    Examine,
    /// To see what can be kept of it; nothing is changed.
    ExamineForced,
    /// To keep what can be kept of it.
    Salvage,
}

impl Purpose {
    /// Whether damage ends the log where it is found.
    fn is_forced(self) -> bool {
        matches!(self, Self::ExamineForced | Self::Salvage)
    }

    fn can_write(self) -> bool {
        matches!(self, Self::Open | Self::Salvage)
    }
}

/// Reads what is in the directory.
pub(crate) fn recover<D: Disk>(
    handles: &Arc<Handles<D>>,
    place: &Arc<str>,
    names: Vec<String>,
    config: &LogConfig,
    request: RecoveryRequest,
) -> Result<RecoveredLog<D>, LogError> {
    let files = Files::classify(names);
    let mut segments: Vec<Segment<D>> = Vec::new();
    let mut dropped = files.temporary;
    let mut unreadable = Vec::new();
    let is_forced = request.purpose.is_forced();
    for (first, name) in files.segments {
        let is_replaced = segments
            .last()
            .and_then(|previous| previous.header.compacted)
            .is_some_and(|compacted| compacted.last >= first);
        if is_replaced {
            // A compaction put its result in place and did not get to delete all it replaced.
            dropped.push(name);
        } else {
            let index = Index::new(config.index_stride_bytes);
            let (handles, place) = (Arc::clone(handles), Arc::clone(place));
            match Segment::open(handles, place, &name, first, index, is_forced) {
                Err(LogError::Corrupt { .. }) if is_forced => {
                    unreadable.push((first, name.clone()));
                    dropped.push(name);
                }
                segment => segments.push(segment?),
            }
        }
    }
    let recovery = Recovery { foreign_files: files.foreign, ..Recovery::default() };
    let mut scan = Scan {
        segments,
        proven_below: request.durable_below,
        durable_below: request.durable_below,
        reached_below: request.durable_below,
        purpose: request.purpose,
        dropped,
        recovery,
        changes: Vec::new(),
        holes: Vec::new(),
    };
    let next = if is_forced {
        scan.keep_readable(request.replay_from, &unreadable)?
    } else {
        scan.run(place, request.replay_from)?
    };
    Ok(RecoveredLog {
        segments: scan.segments.into_iter().map(Arc::new).collect(),
        next,
        unproven_from: scan.proven_below,
        dropped: scan.dropped,
        reached_below: scan.reached_below,
        recovery: scan.recovery,
        changes: scan.changes,
        holes: scan.holes,
        unreadable,
    })
}

struct Scan<D: Disk> {
    segments: Vec<Segment<D>>,
    /// A segment's header, the end mark or the owner says that every record below was durable.
    proven_below: Seq,
    /// What the end mark or the owner says of it.
    durable_below: Seq,
    reached_below: Seq,
    purpose: Purpose,
    dropped: Vec<String>,
    recovery: Recovery,
    changes: Vec<FileChange>,
    holes: Vec<Hole>,
}

/// What the frames of a segment are found to hold, up to the first that is not good.
struct SegmentScan {
    /// The last good record.
    last_seq: Seq,
    records: u64,
    /// What is wrong with what follows, where it is a frame.
    problem: Option<&'static str>,
}

impl<D: Disk> Scan<D> {
    /// Seals what is sealed, checks what is to be replayed, and answers where the log goes on.
    fn run(&mut self, place: &Arc<str>, replay_from: Seq) -> Result<Seq, LogError> {
        if self.segments.is_empty() {
            return Ok(replay_from);
        }
        let next = self.find_end(place, replay_from)?;
        if next < replay_from {
            return Err(LogError::Behind { place: place.to_string(), next, replay_from });
        }
        Ok(next)
    }

    fn find_end(&mut self, place: &Arc<str>, replay_from: Seq) -> Result<Seq, LogError> {
        self.update_proven_below();
        // Records that may never have been synced are checked too, even if they are not replayed.
        let needed = replay_from.min(self.proven_below);
        let from = self
            .segments
            .partition_point(|segment| segment.header.first <= needed)
            .saturating_sub(1);
        for index in 0..from {
            self.seal_segment(index, place)?;
        }
        for at in from..self.segments.len() {
            let (last_seq, problem) = self.check_segment(at)?;
            let next = last_seq.next();
            let is_last = at + 1 == self.segments.len();
            if !is_last && next == self.segments[at + 1].header.first {
                self.seal_segment(at, place)?;
                continue;
            }
            self.end_log_in(at, next, problem, place)?;
            return Ok(next);
        }
        unreachable!("the last segment always ends the log");
    }

    /// Notes what the segments' headers prove to have been durable.
    fn update_proven_below(&mut self) {
        let headers = self.segments.iter().map(|segment| segment.header);
        let proven = headers.map(|header| header.synced_below).max();
        self.proven_below = proven.unwrap_or_default().max(self.durable_below);
    }

    /// Sets the last record of a segment that another one follows.
    fn seal_segment(&mut self, index: usize, place: &Arc<str>) -> Result<(), LogError> {
        let last = self.segments[index + 1].header.first.previous();
        let recorded = *self.segments[index].last.get_or_init(|| last);
        if recorded == last {
            return Ok(());
        }
        Err(LogError::Missing { place: place.to_string(), from: recorded.next(), to: last })
    }

    /// Checks a segment's frames in order. Answers the last record, and what ended it.
    fn check_segment(&mut self, index: usize) -> Result<(Seq, Option<&'static str>), LogError> {
        let scan = self.read_frames(index)?;
        let segment = &self.segments[index];
        let Some(CompactedRange { last, .. }) = segment.header.compacted else {
            return Ok((scan.last_seq, scan.problem));
        };
        if self.is_damaged(index, &scan) {
            let what = scan.problem.unwrap_or("no frame where one should be");
            return Err(segment.corrupt_error(segment.end(), scan.last_seq.next(), what));
        }
        Ok((last, None))
    }

    /// Whether a compacted segment is not what its header says: its file was whole and synced
    /// before it got its name.
    fn is_damaged(&self, index: usize, scan: &SegmentScan) -> bool {
        let SegmentHeader { compacted, file_bytes, .. } = self.segments[index].header;
        let end = self.segments[index].end();
        compacted.is_some_and(|range| end != file_bytes || scan.last_seq > range.last)
    }

    /// Reads and notes a segment's frames in order, up to the first that is not good.
    fn read_frames(&mut self, index: usize) -> Result<SegmentScan, LogError> {
        let last = self.segments.get(index + 1).map(|next| next.header.first.previous());
        let segment = &self.segments[index];
        let file = segment.file()?;
        let compacted = segment.header.compacted;
        let salt = segment.header.salt;
        let mut window = Window::new(segment.file_bytes);
        let mut last_seq = segment.header.first.previous();
        let (mut records, mut problem) = (0, None);
        while !segment.is_end(segment.end(), last_seq, last) {
            let offset = segment.end();
            let scanned = read_frame(&mut window, &*file, salt, offset)
                .map_err(|error| segment.io_error("read", error))?;
            let frame = match scanned {
                ScannedFrame::Frame(frame) => frame,
                ScannedFrame::Nothing => break,
                ScannedFrame::Bad(what) => {
                    problem = Some(what);
                    break;
                }
            };
            let is_in_order = match compacted {
                None => frame.header.first == last_seq.next(),
                Some(_) => frame.header.first > last_seq,
            };
            let result = if is_in_order {
                frame.check(compacted.is_none())
            } else {
                Err("a frame's sequence number is out of order")
            };
            if let Err(what) = result {
                problem = Some(what);
                break;
            }
            last_seq =
                super::scan::record_starts(&frame.records).last().map_or(last_seq, |(seq, _)| seq);
            records += u64::from(frame.header.count);
            segment.index_found_frame(&frame);
            self.proven_below = self.proven_below.max(frame.header.synced_below);
        }
        segment.mark_indexed();
        self.recovery.segments_scanned += 1;
        self.recovery.bytes_scanned += segment.end() - SEGMENT_HEADER_BYTES;
        Ok(SegmentScan { last_seq, records, problem })
    }

    /// Ends the log before `next`, in the segment `index`, unless something proves that it went on.
    fn end_log_in(
        &mut self,
        index: usize,
        next: Seq,
        problem: Option<&'static str>,
        place: &Arc<str>,
    ) -> Result<(), LogError> {
        let trailing = self.trailing_data(index)?;
        let segment = &self.segments[index];
        let offset = segment.end();
        if problem.is_none() && trailing.bytes == 0 && self.durable_below > next {
            return Err(LogError::Shortened {
                place: place.to_string(),
                next,
                durable_below: self.durable_below,
            });
        }
        if trailing.synced_below.max(self.durable_below) > next {
            let following = self.segments.get(index + 1).map(|segment| segment.header.first);
            if segment.header.compacted.is_some() {
                return Err(LogError::Missing {
                    place: place.to_string(),
                    from: next,
                    to: following.map_or(next, Seq::previous),
                });
            }
            let what = problem.unwrap_or("no frame where one should be");
            return Err(segment.corrupt_error(offset, next, what));
        }
        self.cut_off(index, next, problem, &trailing)
    }

    /// What lies after the frames of the segment `index` that have been read.
    fn trailing_data(&self, index: usize) -> Result<TrailingData, LogError> {
        let segment = &self.segments[index];
        let mut trailing = TrailingData::scan(segment, segment.end())?;
        trailing.bytes = trailing.end.saturating_sub(segment.end());
        for following in &self.segments[index + 1..] {
            trailing.add_segment(following)?;
        }
        Ok(trailing)
    }

    /// Takes what lies beyond `next` out of the log, which then ends in the segment `index`.
    fn cut_off(
        &mut self,
        index: usize,
        next: Seq,
        problem: Option<&'static str>,
        trailing: &TrailingData,
    ) -> Result<(), LogError> {
        let segment = &self.segments[index];
        let offset = segment.end();
        if self.purpose.can_write() {
            trailing.wipe(segment, offset)?;
        }
        if trailing.bytes > 0 || problem.is_some() || index + 1 < self.segments.len() {
            self.recovery.torn = Some(TornTail {
                segment: segment.path(),
                offset,
                bytes: trailing.bytes,
                seq: next,
            });
        }
        let cut_segments = self.segments.drain(index + 1..);
        // Newest first, so that a crash on the way leaves no hole.
        self.dropped.extend(cut_segments.rev().map(|segment| segment.name.clone()));
        Ok(())
    }
}
