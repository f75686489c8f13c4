//! Opening a log and beginning a new one.

use std::io;
use std::sync::Arc;

use egret_base::{Entropy, SystemEntropy};

use super::append::{begin_segment, new_header, random_salt};
use super::end_mark;
use super::file_error::io_error;
use super::handles::Handles;
use super::read::ReadState;
use super::recover::{Purpose, RecoveredLog, RecoveryRequest, recover};
use super::segment::Index;
use super::segment_pool::{HousekeepingThread, SegmentPool};
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
        let place: Arc<str> = disk.display_path().into();
        let lock = take_lock(&disk, &place)?;
        let names = disk.list().map_err(|error| io_error(&place, "list", error))?;
        let handles = Arc::new(Handles::new(disk.clone(), config.open_segments_max));
        let mark = end_mark::read(&disk, &place, &names)?;
        let durable_below = config.durable_below.max(mark.unwrap_or_default());
        let request = RecoveryRequest { replay_from, durable_below, purpose: Purpose::Open };
        let recovered = recover(&handles, &place, names.clone(), &config, request)?;
        check_presence(&place, &recovered, &config, request, mark)?;
        make_durable(&disk, &place, &recovered)?;
        let pool = SegmentPool::open(disk.clone(), Arc::clone(&place), &config, &names)?;
        let keeper = Arc::new(pool);
        let next = recovered.next;
        let mut segments = recovered.segments;
        let has_active_segment =
            segments.last().is_some_and(|segment| segment.header.compacted.is_none());
        if !has_active_segment {
            let spare = keeper.create_sized_spare(config.first_segment_bytes)?;
            let stride = config.index_stride_bytes;
            let header = new_header(&*entropy, next, next);
            let new_segment = begin_segment(&handles, &keeper, spare, header, Index::new(stride))?;
            segments.push(new_segment.segment);
            disk.sync_directory().map_err(|error| io_error(&place, "sync", error))?;
        }
        let active = Arc::clone(segments.last().expect("one was begun if there was none"));
        let active_file = active.file()?;
        let end_mark = end_mark::open(&disk, &place, next, mark.is_some())?;
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
            stop_error: None,
            compactions: 0,
            nonce: random_salt(&*entropy).0,
            end_mark,
            entropy,
            segment_pool: keeper,
            _thread: thread,
            _lock: lock,
        };
        log.update_end_mark();
        Ok((log, recovered.recovery))
    }
}

/// The log that must be there is not.
fn absent_error(place: &str, replay_from: Seq) -> LogError {
    LogError::Absent { place: place.to_owned(), replay_from }
}

/// Starts the thread that keeps spare segments, where the owner of the log does not do so.
fn start_housekeeping<D: Disk>(
    config: &LogConfig,
    pool: &Arc<SegmentPool<D>>,
    place: &str,
) -> Result<Option<HousekeepingThread<D>>, LogError> {
    match config.housekeeping {
        Housekeeping::Owner => Ok(None),
        Housekeeping::Thread => HousekeepingThread::start(Arc::clone(pool))
            .map(Some)
            .map_err(|error| io_error(place, "start a thread for", error)),
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
            .map_err(|error| segment.io_error("sync", error))?;
    }
    for name in &recovered.dropped {
        disk.remove(name).map_err(|error| io_error(place, "remove", error))?;
        disk.sync_directory().map_err(|error| io_error(place, "sync", error))?;
    }
    disk.sync_directory().map_err(|error| io_error(place, "sync", error))
}

pub(super) fn take_lock<D: Disk>(disk: &D, place: &Arc<str>) -> Result<D::Lock, LogError> {
    disk.lock().map_err(|error| {
        if error.kind() != io::ErrorKind::WouldBlock {
            return io_error(place, "lock", error);
        }
        let holder = error.to_string();
        LogError::Locked {
            place: place.to_string(),
            holder: if holder.is_empty() { "unknown".to_owned() } else { holder },
        }
    })
}

fn check_config(config: &LogConfig) -> Result<(), LogError> {
    let bytes_min = config.batch_bytes_max + SEGMENT_HEADER_BYTES;
    if config.segment_bytes < bytes_min || config.segment_bytes > SEGMENT_BYTES_MAX {
        return Err(LogError::Config(format!(
            "segment_bytes is {}, but must be between {bytes_min} (batch_bytes_max and a header) and {SEGMENT_BYTES_MAX}",
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
    request: RecoveryRequest,
    mark: Option<Seq>,
) -> Result<(), LogError> {
    // A mark is made only once there is a segment.
    let must_exist = config.must_exist || request.durable_below > Seq::FIRST || mark.is_some();
    if recovered.segments.is_empty() && must_exist {
        return Err(absent_error(place, request.replay_from.max(request.durable_below)));
    }
    if config.end_mark_must_exist && mark.is_none() {
        return Err(end_mark::missing_mark_error(place));
    }
    Ok(())
}
