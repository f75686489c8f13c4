//! What of a damaged log can be kept: every record before the first damage, and what follows a
//! damaged stretch where the owner's snapshot stands for that. A segment of which only the front
//! can be read, and that others follow, is made a compacted one that covers what is lost as well.

use super::trailing_data::TrailingData;
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
    fn of_segment<D: Disk>(segment: &Segment<D>, is_closed: bool) -> Self {
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
        self.update_proven_below();
        if let Some((last, _)) = unreadable.last() {
            self.reached_below = self.reached_below.max(*last);
        }
        let first_lost = unreadable.first().map(|(first, _)| *first);
        let first_kept = self.segments.first().map(|segment| segment.header.first);
        match first_kept.filter(|kept| *kept <= replay_from) {
            Some(kept) => self.add_hole(first_lost.unwrap_or(kept), kept),
            None => self.add_hole(first_lost.unwrap_or(Seq::FIRST), replay_from),
        }
        let next = self.find_readable_end(replay_from)?;
        self.resize_files()?;
        Ok(next)
    }

    fn find_readable_end(&mut self, replay_from: Seq) -> Result<Seq, LogError> {
        let first = self.segments.first().map(|segment| segment.header.first);
        if first.is_none_or(|first| first > replay_from) {
            self.drop_segments(0, replay_from)?;
            return Ok(replay_from);
        }
        for index in 0..self.segments.len() {
            let scan = self.read_frames(index)?;
            let is_damaged = self.is_damaged(index, &scan);
            let next = match self.segments[index].header.compacted {
                Some(range) if !is_damaged => range.last.next(),
                _ => scan.last_seq.next(),
            };
            let next_first = self.segments.get(index + 1).map(|segment| segment.header.first);
            let reachable = next..=replay_from.max(next);
            match next_first.filter(|first| reachable.contains(first)) {
                Some(first) if first > next || is_damaged => {
                    self.close_segment(index, next, first, scan.records);
                }
                Some(first) => {
                    self.segments[index].last.get_or_init(|| first.previous());
                }
                None => return self.end_readable_log(index, &scan, next, replay_from),
            }
        }
        unreachable!("no segment follows the last one");
    }

    /// Ends the log in the segment `index`, whose records below `next` can be read.
    fn end_readable_log(
        &mut self,
        index: usize,
        scan: &SegmentScan,
        next: Seq,
        replay_from: Seq,
    ) -> Result<Seq, LogError> {
        let trailing = self.trailing_data(index)?;
        self.update_reached_below(&trailing);
        let header = self.segments[index].header;
        let is_damaged = self.is_damaged(index, scan);
        if let Some(range) = header.compacted {
            self.reached_below = self.reached_below.max(range.last.next());
        }
        let end = next.max(replay_from);
        if is_damaged && end == header.first {
            self.drop_segments(index, end)?;
            return Ok(end);
        }
        if is_damaged || next < replay_from {
            self.close_segment(index, next, end, scan.records);
        }
        self.cut_off(index, end, scan.problem, &trailing)?;
        Ok(end)
    }

    /// Lets the segment `index`, whose records below `next` can be read, cover everything below
    /// `until`.
    fn close_segment(&mut self, index: usize, next: Seq, until: Seq, records: u64) {
        self.add_hole(next, until);
        let segment = &mut self.segments[index];
        segment.convert_to_compacted(until.previous(), records);
        self.changes.push(FileChange::of_segment(segment, true));
    }

    /// Notes that the records from `first` on are lost, if there are any below `until`.
    fn add_hole(&mut self, first: Seq, until: Seq) {
        if first < until {
            let last = until.previous();
            self.holes.push(Hole { first, last });
        }
    }

    /// Takes the segments from `index` on out of the log, which then ends before `next`.
    fn drop_segments(&mut self, index: usize, next: Seq) -> Result<(), LogError> {
        let mut trailing = TrailingData::default();
        for segment in &self.segments[index..] {
            trailing.add_segment(segment)?;
        }
        self.update_reached_below(&trailing);
        if let Some(last) = self.segments[..index].last() {
            self.recovery.torn = Some(super::TornTail {
                segment: last.path(),
                offset: last.end(),
                bytes: trailing.bytes,
                seq: next,
            });
        }
        let dropped = self.segments.drain(index..).rev();
        self.dropped.extend(dropped.map(|segment| segment.name.clone()));
        Ok(())
    }

    fn update_reached_below(&mut self, trailing: &TrailingData) {
        let below = trailing.end_seq.max(trailing.synced_below);
        self.reached_below = self.reached_below.max(below);
    }

    /// Makes every file that is kept as long as its header says, and writes the headers of segments
    /// that were closed.
    fn resize_files(&mut self) -> Result<(), LogError> {
        for segment in &self.segments {
            let mut changes = self.changes.iter();
            let is_closed = changes.any(|change| change.name == segment.name);
            if !is_closed && segment.found_bytes == segment.header.file_bytes {
                continue;
            }
            if !is_closed {
                self.changes.push(FileChange::of_segment(segment, false));
            }
            if self.purpose.can_write() {
                resize_file(segment)?;
            }
        }
        Ok(())
    }
}

fn resize_file<D: Disk>(segment: &Segment<D>) -> Result<(), LogError> {
    let file = segment.file()?;
    let (found_bytes, header) = (segment.found_bytes, segment.header);
    let resize = || {
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
    resize().map_err(|error| segment.io_error("write", error))
}
