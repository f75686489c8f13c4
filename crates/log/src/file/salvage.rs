//! A log that cannot be opened: what is wrong with it, and what of it can be kept. Everything before the first damage
//! is kept; what follows is cut off, as records are only worth something after all those before them.

use std::sync::Arc;

use super::end;
use super::failed;
use super::handles::Handles;
use super::open::{make_durable, take_lock};
use super::recover::{Known, Purpose, Recovered, recover};
use crate::disk::Disk;
use crate::{LogConfig, LogError, Seq};

/// What of a damaged log would be cut off.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Why the log cannot be opened.
    pub error: LogError,
    /// The file in which the log would end, where anything of it is left.
    pub file: Option<String>,
    /// Where in it.
    pub offset: u64,
    /// Bytes that would be cut off, those of later segments included.
    pub bytes: u64,
    /// The first record that would be lost: the next append gets its number.
    pub from: Seq,
    /// One more than the last record that is known to have been there.
    pub below: Seq,
}

/// Examines a log and changes nothing. `replay_from` is the first record that is not in the owner's snapshot. `None`
/// when the log can be opened.
///
/// # Errors
/// [`LogError::Locked`], [`LogError::UnknownVersion`], [`LogError::Io`].
pub fn examine<D: Disk>(
    disk: &D,
    config: &LogConfig,
    replay_from: Seq,
) -> Result<Option<Cut>, LogError> {
    let place: Arc<str> = disk.place().into();
    let _lock = take_lock(disk, &place)?;
    let error = match read(disk, config, replay_from, Purpose::Examine) {
        Ok(_) => return Ok(None),
        Err(error @ (LogError::Io { .. } | LogError::UnknownVersion { .. })) => return Err(error),
        Err(error) => error,
    };
    let recovered = read(disk, config, replay_from, Purpose::ExamineForced)?;
    Ok(Some(cut(error, &recovered)))
}

/// Cuts a damaged log off where [`examine`] says, so that it can be opened again. For a copy of it without its end
/// mark, which says how far it was durable.
///
/// # Errors
/// As [`examine`].
pub fn salvage<D: Disk>(
    disk: &D,
    config: &LogConfig,
    replay_from: Seq,
) -> Result<Option<Cut>, LogError> {
    let Some(cut) = examine(disk, config, replay_from)? else {
        return Ok(None);
    };
    let place: Arc<str> = disk.place().into();
    let _lock = take_lock(disk, &place)?;
    let recovered = read(disk, config, replay_from, Purpose::Salvage)?;
    make_durable(disk, &place, &recovered)?;
    Ok(Some(cut))
}

fn read<D: Disk>(
    disk: &D,
    config: &LogConfig,
    replay_from: Seq,
    purpose: Purpose,
) -> Result<Recovered<D>, LogError> {
    let place: Arc<str> = disk.place().into();
    let names = disk.list().map_err(|error| failed(&place, "list", error))?;
    let marked = match end::read(disk, &place, &names) {
        // What the mark said is lost; the segments speak for themselves.
        Err(LogError::Corrupt { .. }) if purpose != Purpose::Examine => None,
        marked => marked?,
    };
    let known = Known {
        replay_from: replay_from.max(Seq::FIRST),
        durable_below: config.durable_below.max(marked.unwrap_or_default()),
        purpose,
    };
    let handles = Arc::new(Handles::new(disk.clone(), config.open_segments_max));
    let recovered = recover(&handles, &place, names, config, known)?;
    let must_exist = config.must_exist || known.durable_below > Seq::FIRST;
    if purpose == Purpose::Examine && recovered.segments.is_empty() && must_exist {
        return Err(LogError::Absent {
            place: place.to_string(),
            replay_from: known.replay_from.max(known.durable_below),
        });
    }
    Ok(recovered)
}

fn cut<D: Disk>(error: LogError, recovered: &Recovered<D>) -> Cut {
    let last = recovered.segments.last();
    let torn = recovered.recovery.torn.as_ref();
    Cut {
        error,
        file: last.map(|segment| segment.path()),
        offset: last.map_or(0, |segment| segment.end()),
        bytes: torn.map_or(0, |torn| torn.bytes),
        from: recovered.next,
        below: recovered.reached_below.max(recovered.next),
    }
}
