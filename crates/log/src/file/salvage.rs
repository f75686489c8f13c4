//! A log that cannot be opened: what is wrong with it, and what of it can be kept. Everything
//! before the first damage is kept. What follows is cut off, as records are only worth something
//! after all those before them, unless the damage lies in what the owner's snapshot has.

use std::sync::Arc;

use super::end_mark;
use super::file_error::io_error;
use super::handles::Handles;
use super::open::{make_durable, take_lock};
pub(crate) use super::recover::{FileChange, Hole};
use super::recover::{Purpose, RecoveredLog, RecoveryRequest, recover};
use crate::disk::Disk;
use crate::{LogConfig, LogError, Seq};

/// The records that the owner of a log needs.
#[derive(Clone, Copy, Debug)]
pub struct ReplayNeeds {
    /// The first record that is not in the owner's snapshot.
    pub replay_from: Seq,
    /// Whether the owner reads all records that there are at a start, and not only those from there
    /// on.
    pub reads_all: bool,
}

/// The part of a damaged log that a repair would cut off.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Why the log cannot be opened.
    pub error: LogError,
    /// The file in which the log would end, where anything of it is left.
    pub file: Option<String>,
    /// Offset in that file, in bytes.
    pub offset: u64,
    /// Bytes that would be cut off there, those of later segments included, if anything is.
    pub bytes: Option<u64>,
    /// The first record that would be lost: the next append gets its number.
    pub from: Seq,
    /// One more than the last record that is known to have been there.
    pub below: Seq,
    /// Records before the snapshot that would be lost besides.
    pub holes: Vec<Hole>,
    /// Files that would be changed, apart from that.
    pub changes: Vec<FileChange>,
    /// Files before that end that would be left out, as their headers cannot be read.
    pub unreadable: Vec<String>,
    /// Whether the log would go on in a new segment.
    pub begins_segment: bool,
}

/// Examines a log and changes nothing. `None` when the log can be opened.
///
/// # Errors
/// [`LogError::Locked`], [`LogError::UnknownVersion`], [`LogError::Io`].
pub fn examine<D: Disk>(
    disk: &D,
    config: &LogConfig,
    needs: ReplayNeeds,
) -> Result<Option<Cut>, LogError> {
    let place: Arc<str> = disk.display_path().into();
    let _lock = take_lock(disk, &place)?;
    let error = match check_readable(disk, config, needs) {
        Ok(()) => return Ok(None),
        Err(error @ (LogError::Io { .. } | LogError::UnknownVersion { .. })) => return Err(error),
        Err(error) => error,
    };
    let recovered = recover_log(disk, config, needs.replay_from, Purpose::ExamineForced)?;
    Ok(Some(describe_cut(&place, error, &recovered)))
}

/// Cuts a damaged log off where [`examine`] says, so that it can be opened again. For a copy of it
/// without its end mark, which says how far it was durable: without it some damage looks like the
/// end of a log whose last write was interrupted, so it is not asked again whether the log can be
/// opened.
///
/// # Errors
/// As [`examine`].
pub fn salvage<D: Disk>(disk: &D, config: &LogConfig, replay_from: Seq) -> Result<(), LogError> {
    let place: Arc<str> = disk.display_path().into();
    let _lock = take_lock(disk, &place)?;
    let recovered = recover_log(disk, config, replay_from, Purpose::Salvage)?;
    make_durable(disk, &place, &recovered)
}

/// A log that has every record from a place on.
#[derive(Clone, Debug)]
pub(crate) struct WholeLog {
    /// The name of the segment in which it goes on.
    pub(crate) segment: String,
    /// The number that the next record gets.
    pub(crate) next: Seq,
}

/// The log, if it has every record from `replay_from` on. `None` where some are damaged, missing or
/// compacted away, or there is no log. Nothing is changed.
///
/// # Errors
/// As [`examine`].
pub(crate) fn read_whole_log<D: Disk>(
    disk: &D,
    config: &LogConfig,
    replay_from: Seq,
) -> Result<Option<WholeLog>, LogError> {
    let place: Arc<str> = disk.display_path().into();
    let _lock = take_lock(disk, &place)?;
    let recovered = match recover_log(disk, config, replay_from, Purpose::Examine) {
        Ok(recovered) => recovered,
        Err(error @ (LogError::Io { .. } | LogError::UnknownVersion { .. })) => return Err(error),
        Err(_) => return Ok(None),
    };
    let segments = &recovered.segments;
    let first_seq = segments.first().map(|segment| segment.header.first);
    let is_sparse = segments.iter().any(|segment| {
        let compacted = segment.header.compacted;
        compacted.is_some_and(|range| range.last >= replay_from)
    });
    let is_whole = first_seq.is_some_and(|first| first <= replay_from) && !is_sparse;
    let last = segments.last().filter(|_| is_whole);
    Ok(last.map(|segment| WholeLog { segment: segment.name.clone(), next: recovered.next }))
}

/// Reads the log as its owner does: everything that the owner needs must be there.
fn check_readable<D: Disk>(
    disk: &D,
    config: &LogConfig,
    needs: ReplayNeeds,
) -> Result<(), LogError> {
    let ReplayNeeds { replay_from, reads_all: all } = needs;
    let from = if all { Seq::FIRST } else { replay_from };
    let recovered = recover_log(disk, config, from, Purpose::Examine)?;
    let place = disk.display_path();
    if let Some(first) = recovered.segments.first()
        && first.header.first > from
        && !all
    {
        return Err(LogError::Missing { place, from, to: first.header.first.previous() });
    }
    if recovered.next < replay_from && !recovered.segments.is_empty() {
        return Err(LogError::Behind { place, next: recovered.next, replay_from });
    }
    Ok(())
}

fn recover_log<D: Disk>(
    disk: &D,
    config: &LogConfig,
    replay_from: Seq,
    purpose: Purpose,
) -> Result<RecoveredLog<D>, LogError> {
    let place: Arc<str> = disk.display_path().into();
    let names = disk.list().map_err(|error| io_error(&place, "list", error))?;
    let mark = match end_mark::read(disk, &place, &names) {
        // The mark's content is lost; the segments say how far the log was durable.
        Err(LogError::Corrupt { .. }) if purpose != Purpose::Examine => None,
        marked => marked?,
    };
    let request = RecoveryRequest {
        replay_from: replay_from.max(Seq::FIRST),
        durable_below: config.durable_below.max(mark.unwrap_or_default()),
        purpose,
    };
    let handles = Arc::new(Handles::new(disk.clone(), config.open_segments_max));
    let recovered = recover(&handles, &place, names, config, request)?;
    let must_exist = config.must_exist || request.durable_below > Seq::FIRST;
    if purpose == Purpose::Examine && recovered.segments.is_empty() && must_exist {
        return Err(LogError::Absent {
            place: place.to_string(),
            replay_from: request.replay_from.max(request.durable_below),
        });
    }
    Ok(recovered)
}

fn describe_cut<D: Disk>(place: &str, error: LogError, recovered: &RecoveredLog<D>) -> Cut {
    let last = recovered.segments.last();
    let torn = recovered.recovery.torn.as_ref();
    let unreadable = recovered
        .unreadable
        .iter()
        .filter(|(first, _)| last.is_some() && *first < recovered.next)
        .map(|(_, name)| format!("{place}/{name}"))
        .collect();
    let has_open_segment = last.is_some_and(|segment| segment.header.compacted.is_none());
    Cut {
        error,
        file: last.map(|segment| segment.path()),
        offset: last.map_or(0, |segment| segment.end()),
        bytes: torn.map(|torn| torn.bytes),
        from: recovered.next,
        below: recovered.reached_below.max(recovered.next),
        holes: recovered.holes.clone(),
        changes: recovered.changes.clone(),
        unreadable,
        begins_segment: !has_open_segment,
    }
}

#[cfg(test)]
mod tests;
