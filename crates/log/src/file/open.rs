//! Opening a log and beginning a new one.

use std::io;
use std::sync::Arc;

use egret_base::{Entropy, SystemEntropy};

use super::append::{begin, new_header, random_salt};
use super::end;
use super::file_error::failed;
use super::handles::Handles;
use super::keeper::{HousekeepingThread, SegmentPool};
use super::read::ReadState;
use super::recover::{Purpose, RecoveredLog, RecoveryRequest, recover};
use super::segment::Index;
use super::{FileLog, Recovery};
use crate::disk::{Disk, DiskFile};
use crate::format::{SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES};
use crate::{Housekeeping, LogConfig, LogError, Seq};

impl<D: Disk> FileLog<D> {
    /// Opens the log in `disk`, or begins one whose first record will be `replay_from`. Segments
    /// that hold records from `replay_from` on are read and checked; older ones when they are first
    /// read.
    ///
    /// # Errors
    /// [`LogError::Locked`], [`LogError::Corrupt`], [`LogError::Missing`], [`LogError::Behind`],
    /// [`LogError::Absent`], [`LogError::Shortened`], [`LogError::UnknownVersion`],
    /// [`LogError::Full`], [`LogError::Config`], [`LogError::Io`].
    pub fn open(
        disk: D,
        config: LogConfig,
        replay_from: Seq,
    ) -> Result<(Self, Recovery), LogError> {
        Self::open_with(disk, config, replay_from, Arc::new(SystemEntropy))
    }

    /// Like [`FileLog::open`], with the source of the segments' salts.
    ///
    /// # Errors
    /// As [`FileLog::open`].
    pub fn open_with(
        disk: D,
        config: LogConfig,
        replay_from: Seq,
        entropy: Arc<dyn Entropy>,
    ) -> Result<(Self, Recovery), LogError> {
        check_config(&config)?;
        let replay_from = replay_from.max(Seq::FIRST);
        let place: Arc<str> = disk.place().into();
        let lock = take_lock(&disk, &place)?;
        let names = disk.list().map_err(|error| failed(&place, "list", error))?;
        let handles = Arc::new(Handles::new(disk.clone(), config.open_segments_max));
        let marked = end::read(&disk, &place, &names)?;
        let durable_below = config.durable_below.max(marked.unwrap_or_default());
        let known = RecoveryRequest {
            replay_from,
            durable_below,
            purpose: Purpose::Open,
        };
        let recovered = recover(&handles, &place, names.clone(), &config, known)?;
        check_presence(&place, &recovered, &config, known, marked)?;
        make_durable(&disk, &place, &recovered)?;
        let keeper = SegmentPool::open(disk.clone(), Arc::clone(&place), &config, &names)?;
        let keeper = Arc::new(keeper);
        let next = recovered.next;
        let mut segments = recovered.segments;
        let open_end = segments
            .last()
            .is_some_and(|segment| segment.header.compacted.is_none());
        if !open_end {
            let spare = keeper.make_sized(config.first_segment_bytes)?;
            let stride = config.index_stride_bytes;
            let header = new_header(&*entropy, next, next);
            let begun = begin(&handles, &keeper, spare, header, Index::new(stride))?;
            segments.push(begun.segment);
            disk.sync_directory()
                .map_err(|error| failed(&place, "sync", error))?;
        }
        let active = Arc::clone(segments.last().expect("one was begun if there was none"));
        let active_file = active.file()?;
        let end = end::open(&disk, &place, next, marked.is_some())?;
        let shared = Arc::new(ReadState::new(place, handles, &config, segments, next));
        let thread = start_housekeeping(&config, &keeper, &shared.place)?;
        let mut log = Self {
            disk,
            config,
            shared,
            active,
            active_file,
            next,
            synced_below: next,
            unsynced: Vec::new(),
            directory_unsynced: false,
            unsynced_since: None,
            stopped: None,
            compactions: 0,
            nonce: random_salt(&*entropy).0,
            end,
            entropy,
            keeper,
            _thread: thread,
            _lock: lock,
        };
        log.note_end();
        Ok((log, recovered.recovery))
    }
}

/// The log that must be there is not.
fn absent(place: &str, replay_from: Seq) -> LogError {
    LogError::Absent {
        place: place.to_owned(),
        replay_from,
    }
}

/// Starts the thread that keeps spare segments, where the owner of the log does not do so.
fn start_housekeeping<D: Disk>(
    config: &LogConfig,
    keeper: &Arc<SegmentPool<D>>,
    place: &str,
) -> Result<Option<HousekeepingThread<D>>, LogError> {
    match config.housekeeping {
        Housekeeping::Owner => Ok(None),
        Housekeeping::Thread => HousekeepingThread::start(Arc::clone(keeper))
            .map(Some)
            .map_err(|error| failed(place, "start a thread for", error)),
    }
}

/// Removes what is no longer part of the log, and makes sure that what is will stay: an earlier
/// process may have written it without a sync.
pub(super) fn make_durable<D: Disk>(
    disk: &D,
    place: &Arc<str>,
    recovered: &RecoveredLog<D>,
) -> Result<(), LogError> {
    for segment in recovered.scanned() {
        let file = segment.file()?;
        segment
            .rewrite(&file, recovered.unproven_from)
            .and_then(|()| file.sync_data())
            .map_err(|error| segment.io("sync", error))?;
    }
    for name in &recovered.dropped {
        disk.remove(name)
            .map_err(|error| failed(place, "remove", error))?;
        disk.sync_directory()
            .map_err(|error| failed(place, "sync", error))?;
    }
    disk.sync_directory()
        .map_err(|error| failed(place, "sync", error))
}

pub(super) fn take_lock<D: Disk>(disk: &D, place: &Arc<str>) -> Result<D::Lock, LogError> {
    disk.lock().map_err(|error| {
        if error.kind() != io::ErrorKind::WouldBlock {
            return failed(place, "lock", error);
        }
        let holder = error.to_string();
        LogError::Locked {
            place: place.to_string(),
            holder: if holder.is_empty() {
                "unknown".to_owned()
            } else {
                holder
            },
        }
    })
}

fn check_config(config: &LogConfig) -> Result<(), LogError> {
    let least = config.batch_bytes_max + SEGMENT_HEADER_BYTES;
    if config.segment_bytes < least || config.segment_bytes > SEGMENT_BYTES_MAX {
        return Err(LogError::Config(format!(
            "segment_bytes is {}, but must be between {least} (batch_bytes_max and a header) and {SEGMENT_BYTES_MAX}",
            config.segment_bytes
        )));
    }
    if config.first_segment_bytes < SEGMENT_HEADER_BYTES
        || config.first_segment_bytes > config.segment_bytes
    {
        return Err(LogError::Config(format!(
            "first_segment_bytes is {}, but must be between {SEGMENT_HEADER_BYTES} and segment_bytes, {}",
            config.first_segment_bytes, config.segment_bytes
        )));
    }
    Ok(())
}

/// Refuses a log that is not there, or lacks its mark, where it had one.
fn check_presence<D: Disk>(
    place: &str,
    recovered: &RecoveredLog<D>,
    config: &LogConfig,
    known: RecoveryRequest,
    marked: Option<Seq>,
) -> Result<(), LogError> {
    // A mark is made only once there is a segment.
    let must_exist = config.must_exist || known.durable_below > Seq::FIRST || marked.is_some();
    if recovered.segments.is_empty() && must_exist {
        return Err(absent(place, known.replay_from.max(known.durable_below)));
    }
    if config.mark_must_exist && marked.is_none() {
        return Err(end::missing(place));
    }
    Ok(())
}
