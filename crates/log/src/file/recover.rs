//! Opening a log: which files belong to it, where it ends, and what a crash left behind.
//!
//! A frame that does not check is the log's torn end, unless something written later proves that it
//! had been durable: a frame or a header that says so in its *synced below*, or the end mark. Then
//! the disk has lost what it had confirmed, and the log is not opened.

mod beyond_damage;
mod forced;

use std::sync::Arc;

use beyond_damage::TrailingData;
pub(crate) use forced::{FileChange, Hole};

use super::compact::TEMPORARY_PREFIX;
use super::end::{END_NAME, NEW_END_NAME};
use super::handles::Handles;
use super::scan::{ScannedFrame, Window, frame_at};
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
    fn sort(names: Vec<String>) -> Self {
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

    fn may_write(self) -> bool {
        matches!(self, Self::Open | Self::Salvage)
    }
}

/// Reads what is in the directory.
pub(crate) fn recover<D: Disk>(
    handles: &Arc<Handles<D>>,
    place: &Arc<str>,
    names: Vec<String>,
    config: &LogConfig,
    known: RecoveryRequest,
) -> Result<RecoveredLog<D>, LogError> {
    let files = Files::sort(names);
    let mut segments: Vec<Segment<D>> = Vec::new();
    let mut dropped = files.temporary;
    let mut unreadable = Vec::new();
    let is_forced = known.purpose.is_forced();
    for (first, name) in files.segments {
        let covered = segments
            .last()
            .and_then(|before| before.header.compacted)
            .is_some_and(|compacted| compacted.last >= first);
        if covered {
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
    let recovery = Recovery {
        foreign_files: files.foreign,
        ..Recovery::default()
    };
    let mut scan = Scan {
        segments,
        proven_below: known.durable_below,
        durable_below: known.durable_below,
        reached_below: known.durable_below,
        purpose: known.purpose,
        dropped,
        recovery,
        changes: Vec::new(),
        holes: Vec::new(),
    };
    let next = if is_forced {
        scan.keep_readable(known.replay_from, &unreadable)?
    } else {
        scan.run(place, known.replay_from)?
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
    reached: Seq,
    records: u64,
    /// What is wrong with what follows, where it is a frame.
    bad: Option<&'static str>,
}

impl<D: Disk> Scan<D> {
    /// Seals what is sealed, checks what is to be replayed, and answers where the log goes on.
    fn run(&mut self, place: &Arc<str>, replay_from: Seq) -> Result<Seq, LogError> {
        if self.segments.is_empty() {
            return Ok(replay_from);
        }
        let next = self.find_end(place, replay_from)?;
        if next < replay_from {
            return Err(LogError::Behind {
                place: place.to_string(),
                next,
                replay_from,
            });
        }
        Ok(next)
    }

    fn find_end(&mut self, place: &Arc<str>, replay_from: Seq) -> Result<Seq, LogError> {
        self.note_proofs();
        // Records that may never have been synced are checked too, even if they are not replayed.
        let needed = replay_from.min(self.proven_below);
        let from = self
            .segments
            .partition_point(|segment| segment.header.first <= needed)
            .saturating_sub(1);
        for at in 0..from {
            self.seal(at, place)?;
        }
        for at in from..self.segments.len() {
            let (reached, bad) = self.check(at)?;
            let next = reached.next();
            let last = at + 1 == self.segments.len();
            if !last && next == self.segments[at + 1].header.first {
                self.seal(at, place)?;
                continue;
            }
            self.end_here(at, next, bad, place)?;
            return Ok(next);
        }
        unreachable!("the last segment always ends the log");
    }

    /// Notes what the segments' headers prove to have been durable.
    fn note_proofs(&mut self) {
        let headers = self.segments.iter().map(|segment| segment.header);
        let proven = headers.map(|header| header.synced_below).max();
        self.proven_below = proven.unwrap_or_default().max(self.durable_below);
    }

    /// Sets the last record of a segment that another one follows.
    fn seal(&mut self, at: usize, place: &Arc<str>) -> Result<(), LogError> {
        let last = self.segments[at + 1].header.first.before();
        let known = *self.segments[at].last.get_or_init(|| last);
        if known == last {
            return Ok(());
        }
        Err(LogError::Missing {
            place: place.to_string(),
            from: known.next(),
            to: last,
        })
    }

    /// Checks a segment's frames in order. Answers the last record, and what ended it.
    fn check(&mut self, at: usize) -> Result<(Seq, Option<&'static str>), LogError> {
        let content = self.read_frames(at)?;
        let segment = &self.segments[at];
        let Some(CompactedRange { last, .. }) = segment.header.compacted else {
            return Ok((content.reached, content.bad));
        };
        if self.is_damaged(at, &content) {
            let what = content.bad.unwrap_or("no frame where one should be");
            return Err(segment.corrupt(segment.end(), content.reached.next(), what));
        }
        Ok((last, None))
    }

    /// Whether a compacted segment is not what its header says: its file was whole and synced
    /// before it got its name.
    fn is_damaged(&self, at: usize, content: &SegmentScan) -> bool {
        let SegmentHeader {
            compacted,
            file_bytes,
            ..
        } = self.segments[at].header;
        let ends = self.segments[at].end();
        compacted.is_some_and(|covered| ends != file_bytes || content.reached > covered.last)
    }

    /// Reads and notes a segment's frames in order, up to the first that is not good.
    fn read_frames(&mut self, at: usize) -> Result<SegmentScan, LogError> {
        let last = self
            .segments
            .get(at + 1)
            .map(|next| next.header.first.before());
        let segment = &self.segments[at];
        let file = segment.file()?;
        let compacted = segment.header.compacted;
        let salt = segment.header.salt;
        let mut window = Window::new(segment.file_bytes);
        let mut reached = segment.header.first.before();
        let (mut records, mut bad) = (0, None);
        while !segment.ends_at(segment.end(), reached, last) {
            let offset = segment.end();
            let found = frame_at(&mut window, &*file, salt, offset)
                .map_err(|error| segment.io("read", error))?;
            let frame = match found {
                ScannedFrame::Frame(frame) => frame,
                ScannedFrame::Nothing => break,
                ScannedFrame::Bad(what) => {
                    bad = Some(what);
                    break;
                }
            };
            let in_order = match compacted {
                None => frame.header.first == reached.next(),
                Some(_) => frame.header.first > reached,
            };
            let checked = if in_order {
                frame.check(compacted.is_none())
            } else {
                Err("a frame's sequence number is out of order")
            };
            if let Err(what) = checked {
                bad = Some(what);
                break;
            }
            reached = super::scan::record_starts(&frame.records)
                .last()
                .map_or(reached, |(seq, _)| seq);
            records += u64::from(frame.header.count);
            segment.note_found(&frame);
            self.proven_below = self.proven_below.max(frame.header.synced_below);
        }
        segment.complete();
        self.recovery.segments_scanned += 1;
        self.recovery.bytes_scanned += segment.end() - SEGMENT_HEADER_BYTES;
        Ok(SegmentScan {
            reached,
            records,
            bad,
        })
    }

    /// Ends the log before `next`, in the segment `index`, unless something proves that it went on.
    fn end_here(
        &mut self,
        at: usize,
        next: Seq,
        bad: Option<&'static str>,
        place: &Arc<str>,
    ) -> Result<(), LogError> {
        let later = self.beyond(at)?;
        let segment = &self.segments[at];
        let offset = segment.end();
        if bad.is_none() && later.bytes == 0 && self.durable_below > next {
            return Err(LogError::Shortened {
                place: place.to_string(),
                next,
                durable_below: self.durable_below,
            });
        }
        if later.synced_below.max(self.durable_below) > next {
            let following = self
                .segments
                .get(at + 1)
                .map(|segment| segment.header.first);
            if segment.header.compacted.is_some() {
                return Err(LogError::Missing {
                    place: place.to_string(),
                    from: next,
                    to: following.map_or(next, Seq::before),
                });
            }
            let what = bad.unwrap_or("no frame where one should be");
            return Err(segment.corrupt(offset, next, what));
        }
        self.cut(at, next, bad, &later)
    }

    /// What lies after the frames of the segment `index` that have been read.
    fn beyond(&self, at: usize) -> Result<TrailingData, LogError> {
        let segment = &self.segments[at];
        let mut later = TrailingData::find(segment, segment.end())?;
        later.bytes = later.end.saturating_sub(segment.end());
        for following in &self.segments[at + 1..] {
            later.add(following)?;
        }
        Ok(later)
    }

    /// Takes what lies beyond `next` out of the log, which then ends in the segment `index`.
    fn cut(
        &mut self,
        at: usize,
        next: Seq,
        bad: Option<&'static str>,
        later: &TrailingData,
    ) -> Result<(), LogError> {
        let segment = &self.segments[at];
        let offset = segment.end();
        if self.purpose.may_write() {
            later.wipe(segment, offset)?;
        }
        if later.bytes > 0 || bad.is_some() || at + 1 < self.segments.len() {
            self.recovery.torn = Some(TornTail {
                segment: segment.path(),
                offset,
                bytes: later.bytes,
                seq: next,
            });
        }
        let beyond = self.segments.drain(at + 1..);
        // Newest first, so that a crash on the way leaves no hole.
        self.dropped
            .extend(beyond.rev().map(|segment| segment.name.clone()));
        Ok(())
    }
}
