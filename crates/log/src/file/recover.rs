//! Opening a log: which files belong to it, where it ends, and what a crash left behind.
//!
//! A frame that does not check is the log's torn end, unless something written later proves that it
//! had been durable: a frame or a header that says so in its *synced below*, or the end mark. Then the disk
//! has lost what it had confirmed, and the log is not opened.

use std::sync::Arc;

use super::compact::TEMPORARY_PREFIX;
use super::end::{END_NAME, NEW_END_NAME};
use super::handles::Handles;
use super::scan::{Found, WINDOW_BYTES, Window, frame_at};
use super::segment::{Index, Segment, parse_segment_name};
use crate::disk::{Disk, DiskFile, read_exactly, write_zeros};
use crate::format::{
    Covered, FRAME_ALIGNMENT, FRAME_HEADER_BYTES, FrameHeader, SEGMENT_HEADER_BYTES, Salt,
};
use crate::{LogConfig, LogError, Seq};

/// An end that a crash left half written. It was cut off; nothing in it had been acknowledged as
/// durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The file in which the log ends now.
    pub segment: String,
    /// Where in it.
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
    pub torn: Option<Torn>,
    /// Segments that were read and checked.
    pub segments_scanned: usize,
    /// Bytes of frames in them.
    pub bytes_scanned: u64,
    /// Files in the directory that are not the log's; they are left alone.
    pub foreign_files: Vec<String>,
}

/// The segments of a log that has been read, and where it goes on.
pub(crate) struct Recovered<D: Disk> {
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
}

impl<D: Disk> Recovered<D> {
    /// The segments that were read and checked.
    pub fn scanned(&self) -> &[Arc<Segment<D>>] {
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

/// What is known of a log before its segments are read.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// The first record that the owner needs.
    pub replay_from: Seq,
    /// Every record below was durable.
    pub durable_below: Seq,
    pub purpose: Purpose,
}

/// Why a log is read.
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
    known: Known,
) -> Result<Recovered<D>, LogError> {
    let files = Files::sort(names);
    let mut segments: Vec<Segment<D>> = Vec::new();
    let mut dropped = files.temporary;
    let mut is_cut = false;
    for (first, name) in files.segments {
        if is_cut {
            dropped.push(name);
            continue;
        }
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
            match Segment::open(handles, place, &name, first, index) {
                Err(LogError::Corrupt { .. }) if known.purpose.is_forced() => {
                    is_cut = true;
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
    };
    let next = scan.run(place, known.replay_from)?;
    Ok(Recovered {
        segments: scan.segments.into_iter().map(Arc::new).collect(),
        next,
        unproven_from: scan.proven_below,
        dropped: scan.dropped,
        reached_below: scan.reached_below,
        recovery: scan.recovery,
    })
}

struct Scan<D: Disk> {
    segments: Vec<Segment<D>>,
    /// Somebody has noted that every record below was durable.
    proven_below: Seq,
    /// What the end mark or the owner says of it.
    durable_below: Seq,
    reached_below: Seq,
    purpose: Purpose,
    dropped: Vec<String>,
    recovery: Recovery,
}

impl<D: Disk> Scan<D> {
    /// Seals what is sealed, checks what is to be replayed, and answers where the log goes on.
    fn run(&mut self, place: &Arc<str>, replay_from: Seq) -> Result<Seq, LogError> {
        if self.segments.is_empty() {
            return Ok(replay_from);
        }
        let next = self.find_end(place, replay_from)?;
        if next < replay_from && self.purpose.is_forced() {
            // The snapshot has all of it.
            self.drop_segments(0);
            return Ok(replay_from);
        }
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
        let proven = self
            .segments
            .iter()
            .map(|segment| segment.header.synced_below);
        self.proven_below = proven.max().unwrap_or_default().max(self.durable_below);
        // What may never have been synced is looked at too, even if nobody replays it.
        let needed = replay_from.min(self.proven_below);
        let from = self
            .segments
            .partition_point(|segment| segment.header.first <= needed)
            .saturating_sub(1);
        let from = if self.purpose.is_forced() { 0 } else { from };
        for at in 0..from {
            self.seal(at, place)?;
        }
        for at in from..self.segments.len() {
            let (reached, bad) = match self.check(at) {
                Err(LogError::Corrupt { .. }) if self.purpose.is_forced() => {
                    // A compacted segment, which is whole or nothing.
                    let next = self.segments[at].header.first;
                    self.drop_segments(at);
                    return Ok(next);
                }
                checked => checked?,
            };
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

    /// Takes the segments from `at` on out of the log.
    fn drop_segments(&mut self, at: usize) {
        for segment in self.segments.drain(at..).rev() {
            let last = segment.header.compacted.map(|covered| covered.last.next());
            let below = segment.header.first.max(last.unwrap_or_default());
            self.reached_below = self.reached_below.max(below);
            self.dropped.push(segment.name.clone());
        }
        self.recovery.segments_scanned = self.recovery.segments_scanned.min(at);
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

    /// Checks a segment's frames in order. Answers the last good record, and what ended it.
    fn check(&mut self, at: usize) -> Result<(Seq, Option<&'static str>), LogError> {
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
        let mut bad = None;
        while !segment.ends_at(segment.end(), reached, last) {
            let offset = segment.end();
            let found = frame_at(&mut window, &*file, salt, offset)
                .map_err(|error| segment.io("read", error))?;
            let frame = match found {
                Found::Frame(frame) => frame,
                Found::Nothing => break,
                Found::Bad(what) => {
                    bad = Some(what);
                    break;
                }
            };
            let in_order = match compacted {
                None => frame.header.first == reached.next(),
                Some(_) => frame.header.first > reached,
            };
            let checked = match in_order {
                true => frame.check(compacted.is_none()),
                false => Err("a frame's sequence number is out of order"),
            };
            if let Err(what) = checked {
                bad = Some(what);
                break;
            }
            reached = super::scan::record_starts(&frame.records)
                .last()
                .map_or(reached, |(seq, _)| seq);
            segment.note_found(&frame);
            self.proven_below = self.proven_below.max(frame.header.synced_below);
        }
        segment.complete();
        self.recovery.segments_scanned += 1;
        self.recovery.bytes_scanned += segment.end() - SEGMENT_HEADER_BYTES;
        if let Some(Covered { last, .. }) = compacted {
            // Such a file was whole and synced before it got its name.
            if segment.end() != segment.file_bytes || reached > last {
                let what = bad.unwrap_or("no frame where one should be");
                return Err(segment.corrupt(segment.end(), reached.next(), what));
            }
            return Ok((last, None));
        }
        Ok((reached, bad))
    }

    /// Ends the log before `next`, in the segment `at`, unless something proves that it went on.
    fn end_here(
        &mut self,
        at: usize,
        next: Seq,
        bad: Option<&'static str>,
        place: &Arc<str>,
    ) -> Result<(), LogError> {
        let segment = &self.segments[at];
        let offset = segment.end();
        let mut later = Later::find(segment, offset)?;
        let mut torn_bytes = later.end.saturating_sub(offset);
        for following in &self.segments[at + 1..] {
            later.synced_below = later.synced_below.max(following.header.synced_below);
            let inside = Later::find(following, SEGMENT_HEADER_BYTES)?;
            later.synced_below = later.synced_below.max(inside.synced_below);
            later.below = later.below.max(inside.below).max(following.header.first);
            torn_bytes += inside.end.max(SEGMENT_HEADER_BYTES);
        }
        self.reached_below = self.reached_below.max(later.below).max(later.synced_below);
        let is_forced = self.purpose.is_forced();
        if !is_forced && bad.is_none() && torn_bytes == 0 && self.durable_below > next {
            return Err(LogError::Shortened {
                place: place.to_string(),
                next,
                durable_below: self.durable_below,
            });
        }
        if !is_forced && later.synced_below.max(self.durable_below) > next {
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
        if self.purpose.may_write() {
            later.wipe(segment, offset)?;
        }
        if torn_bytes > 0 || bad.is_some() || at + 1 < self.segments.len() {
            self.recovery.torn = Some(Torn {
                segment: segment.path(),
                offset,
                bytes: torn_bytes,
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

/// What is found of a segment's life after the place where it should end.
struct Later {
    /// The highest such claim.
    synced_below: Seq,
    /// One more than the last record of any frame that is found.
    below: Seq,
    /// Where the last thing found ends.
    end: u64,
    /// Where something that begins like a frame is.
    places: Vec<u64>,
}

impl Later {
    fn find<D: Disk>(segment: &Segment<D>, from: u64) -> Result<Self, LogError> {
        let file = segment.file()?;
        let salt = segment.header.salt;
        let mut later = Self {
            synced_below: Seq(0),
            below: Seq(0),
            end: 0,
            places: Vec::new(),
        };
        let mut offset = from;
        while offset < segment.file_bytes {
            let piece = read_exactly(&*file, offset, WINDOW_BYTES + FRAME_HEADER_BYTES)
                .map_err(|error| segment.io("read", error))?;
            later.search(salt, &piece, offset);
            offset += WINDOW_BYTES as u64;
        }
        Ok(later)
    }

    fn search(&mut self, salt: Salt, piece: &[u8], offset: u64) {
        let ours = &piece[..piece.len().min(WINDOW_BYTES)];
        for (index, place) in ours.chunks(FRAME_ALIGNMENT).enumerate() {
            if !FrameHeader::begins(salt, place) {
                continue;
            }
            let start = index * FRAME_ALIGNMENT;
            let place = offset + start as u64;
            self.places.push(place);
            self.end = self.end.max(place + FRAME_HEADER_BYTES as u64);
            if let Some(header) = FrameHeader::decode(salt, &piece[start..]) {
                self.synced_below = self.synced_below.max(header.synced_below);
                self.below = self.below.max(header.first.plus(u64::from(header.count)));
                self.end = self.end.max(place + header.frame_bytes());
            }
        }
    }

    /// Makes sure that nothing found ever checks again, once other frames lie before it.
    fn wipe<D: Disk>(&self, segment: &Segment<D>, from: u64) -> Result<(), LogError> {
        if self.places.is_empty() {
            return Ok(());
        }
        let file = segment.file()?;
        let failed = |error| segment.io("write", error);
        for place in &self.places {
            let end = (place + FRAME_HEADER_BYTES as u64).min(segment.file_bytes);
            write_zeros(&*file, (*place).max(from), end).map_err(failed)?;
        }
        file.sync_data().map_err(failed)
    }
}
