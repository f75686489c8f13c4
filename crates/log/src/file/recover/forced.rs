//! What of a damaged log can be kept: every record before the first damage, and what follows a
//! damaged stretch where the owner's snapshot stands for that. A segment of which only the front
//! can be read, and that others follow, is made a compacted one that covers what is lost as well.

use super::beyond_damage::TrailingData;
use super::{Scan, SegmentScan};
use crate::disk::{Disk, DiskFile, write_all, write_zeros};
use crate::file::segment::Segment;
use crate::{LogError, Seq};

/// Records below the owner's snapshot that are lost; others after them may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// The first of them.
    pub first: Seq,
    /// The last of them.
    pub last: Seq,
}

/// A file that a repair changes, apart from what it cuts off at the end of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The file's name in the log's directory.
    pub name: String,
    /// The file with its directory.
    pub path: String,
    /// How long it was found.
    pub found_bytes: u64,
    /// How long it is made.
    pub bytes: u64,
    /// Whether that is where its readable records end, and not what its header says.
    pub is_closed: bool,
}

impl FileChange {
    fn of<D: Disk>(segment: &Segment<D>, is_closed: bool) -> Self {
        Self {
            name: segment.name.clone(),
            path: segment.path(),
            found_bytes: segment.found_bytes,
            bytes: segment.header.file_bytes,
            is_closed,
        }
    }
}

impl<D: Disk> Scan<D> {
    /// Keeps what can be read, and answers where the log goes on: not before `replay_from`, as the
    /// owner's snapshot has what came before. Segments that are `unreadable` are not among the
    /// others.
    pub(super) fn keep_readable(
        &mut self,
        replay_from: Seq,
        unreadable: &[(Seq, String)],
    ) -> Result<Seq, LogError> {
        self.note_proofs();
        if let Some((last, _)) = unreadable.last() {
            self.reached_below = self.reached_below.max(*last);
        }
        let lost = unreadable.first().map(|(first, _)| *first);
        let kept = self.segments.first().map(|segment| segment.header.first);
        match kept.filter(|kept| *kept <= replay_from) {
            Some(kept) => self.note_hole(lost.unwrap_or(kept), kept),
            None => self.note_hole(lost.unwrap_or(Seq::FIRST), replay_from),
        }
        let next = self.find_readable_end(replay_from)?;
        self.fit_files()?;
        Ok(next)
    }

    fn find_readable_end(&mut self, replay_from: Seq) -> Result<Seq, LogError> {
        let first = self.segments.first().map(|segment| segment.header.first);
        if first.is_none_or(|first| first > replay_from) {
            self.drop_segments(0, replay_from)?;
            return Ok(replay_from);
        }
        for at in 0..self.segments.len() {
            let content = self.read_frames(at)?;
            let is_damaged = self.is_damaged(at, &content);
            let next = match self.segments[at].header.compacted {
                Some(covered) if !is_damaged => covered.last.next(),
                _ => content.reached.next(),
            };
            let following = self
                .segments
                .get(at + 1)
                .map(|segment| segment.header.first);
            let reachable = next..=replay_from.max(next);
            match following.filter(|first| reachable.contains(first)) {
                Some(first) if first > next || is_damaged => {
                    self.close(at, next, first, content.records);
                }
                Some(first) => {
                    self.segments[at].last.get_or_init(|| first.before());
                }
                None => return self.end_readable(at, &content, next, replay_from),
            }
        }
        unreachable!("no segment follows the last one");
    }

    /// Ends the log in the segment `index`, whose records below `next` can be read.
    fn end_readable(
        &mut self,
        at: usize,
        content: &SegmentScan,
        next: Seq,
        replay_from: Seq,
    ) -> Result<Seq, LogError> {
        let later = self.beyond(at)?;
        self.note_reached(&later);
        let header = self.segments[at].header;
        let is_damaged = self.is_damaged(at, content);
        if let Some(covered) = header.compacted {
            self.reached_below = self.reached_below.max(covered.last.next());
        }
        let end = next.max(replay_from);
        if is_damaged && end == header.first {
            self.drop_segments(at, end)?;
            return Ok(end);
        }
        if is_damaged || next < replay_from {
            self.close(at, next, end, content.records);
        }
        self.cut(at, end, content.bad, &later)?;
        Ok(end)
    }

    /// Lets the segment `index`, whose records below `next` can be read, cover everything below
    /// `until`.
    fn close(&mut self, at: usize, next: Seq, until: Seq, records: u64) {
        self.note_hole(next, until);
        let segment = &mut self.segments[at];
        segment.close(until.before(), records);
        self.changes.push(FileChange::of(segment, true));
    }

    /// Notes that the records from `first` on are lost, if there are any below `until`.
    fn note_hole(&mut self, first: Seq, until: Seq) {
        if first < until {
            let last = until.before();
            self.holes.push(Hole { first, last });
        }
    }

    /// Takes the segments from `index` on out of the log, which then ends before `next`.
    fn drop_segments(&mut self, at: usize, next: Seq) -> Result<(), LogError> {
        let mut later = TrailingData::default();
        for segment in &self.segments[at..] {
            later.add(segment)?;
        }
        self.note_reached(&later);
        if let Some(last) = self.segments[..at].last() {
            self.recovery.torn = Some(super::TornTail {
                segment: last.path(),
                offset: last.end(),
                bytes: later.bytes,
                seq: next,
            });
        }
        let dropped = self.segments.drain(at..).rev();
        self.dropped
            .extend(dropped.map(|segment| segment.name.clone()));
        Ok(())
    }

    fn note_reached(&mut self, later: &TrailingData) {
        let below = later.below.max(later.synced_below);
        self.reached_below = self.reached_below.max(below);
    }

    /// Makes every file that is kept as long as its header says, and writes the headers of segments
    /// that were closed.
    fn fit_files(&mut self) -> Result<(), LogError> {
        for segment in &self.segments {
            let mut changes = self.changes.iter();
            let is_closed = changes.any(|change| change.name == segment.name);
            if !is_closed && segment.found_bytes == segment.header.file_bytes {
                continue;
            }
            if !is_closed {
                self.changes.push(FileChange::of(segment, false));
            }
            if self.purpose.may_write() {
                fit_file(segment)?;
            }
        }
        Ok(())
    }
}

fn fit_file<D: Disk>(segment: &Segment<D>) -> Result<(), LogError> {
    let file = segment.file()?;
    let (found_bytes, header) = (segment.found_bytes, segment.header);
    let fit = || {
        if found_bytes > header.file_bytes {
            file.truncate(header.file_bytes)?;
        } else {
            // What is left after the end could become a frame again with the zeros that follow it.
            let from = segment.end().min(found_bytes);
            write_zeros(&*file, from, header.file_bytes)?;
        }
        if header.compacted.is_some() {
            write_all(&*file, &header.encode(), 0)?;
        }
        file.sync_data()
    };
    fit().map_err(|error| segment.io("write", error))
}
