//! Upkeep of the log: snapshots, dropping the segments that they cover, and compacting segments
//! with few records in use. The work is done on a thread of its own; the partition only starts it
//! and takes its results.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use egret_base::Condition;
use egret_base::sync::lock;
use egret_log::{Compaction, Log, LogError, SegmentInfo, Seq};

use crate::core::state::State;
use crate::error::QueueError;
use crate::store::snapshot::{self, SnapshotFile};
use crate::worker::partition_handle::PartitionHandle;

const SNAPSHOT_FAILED: &str = "cannot write a snapshot of the queue; retrying";

/// A segment is compacted when less than this part of its records is in use.
const LIVE_PERCENT: u64 = 50;

/// Bytes read by one compaction, which bounds what it writes, whatever was estimated.
const RUN_BYTES_MAX: u64 = 256 << 20;

/// The least time between two snapshots while there is no room for more…
const REST_MIN: Duration = Duration::from_secs(2);

/// …after one that failed…
const REST_FAILED: Duration = Duration::from_secs(10);

/// …and so many times as long as the last one took.
const REST_SHARE: u32 = 10;

/// Which records of a segment are in use.
#[derive(Clone, Debug)]
struct LiveRecords {
    segment: SegmentInfo,
    bits: Vec<u64>,
    count: u64,
}

impl LiveRecords {
    fn new(segment: SegmentInfo) -> Self {
        let records = (segment.last.0 + 1).saturating_sub(segment.first.0) as usize;
        Self { segment, bits: vec![0; records.div_ceil(64)], count: 0 }
    }

    fn mark(&mut self, seq: Seq) {
        let offset = seq.0 - self.segment.first.0;
        let bit = 1 << (offset % 64);
        let word = &mut self.bits[(offset / 64) as usize];
        // Tasks of a schedule share a record.
        self.count += u64::from(*word & bit == 0);
        *word |= bit;
    }

    fn is_sparse(&self) -> bool {
        self.count * 100 < self.segment.records * LIVE_PERCENT
    }

    /// Bytes that a compaction would leave, if its records were of equal size.
    fn remaining_bytes(&self) -> u64 {
        let used = self.segment.used_bytes.unwrap_or(self.segment.file_bytes);
        used * self.count / self.segment.records.max(1)
    }

    fn contains(&self, seq: Seq) -> bool {
        (self.segment.first..=self.segment.last).contains(&seq) && {
            let offset = seq.0 - self.segment.first.0;
            self.bits[(offset / 64) as usize] >> (offset % 64) & 1 == 1
        }
    }
}

/// Result of the upkeep thread.
enum UpkeepResult<L: Log> {
    Snapshot(Result<(SnapshotFile, Vec<LiveRecords>), QueueError>),
    Compaction(u64, Result<<L::Compaction as Compaction>::Output, LogError>),
}

pub(crate) struct Upkeep<L: Log> {
    directory: PathBuf,
    handle: Arc<PartitionHandle>,
    /// Bytes of log after which a snapshot is due, at least; the largest number: never.
    after_bytes: u64,
    /// Bytes appended since the start of the last snapshot that was written.
    appended: u64,
    /// The part of them from before the snapshot in progress.
    snapshot_appended: u64,
    /// Condition of snapshots that are not written.
    snapshot_condition: Condition,
    compaction_condition: Condition,
    /// When the snapshot in progress was started.
    started_at: Instant,
    /// Earliest time of a snapshot, unless there is room and the last one was written.
    rest_until: Instant,
    /// Size of the last snapshot's file.
    file_bytes: u64,
    result: Arc<Mutex<Option<UpkeepResult<L>>>>,
    thread: Option<JoinHandle<()>>,
    /// Runs of segments to be compacted.
    runs: VecDeque<Vec<LiveRecords>>,
}

impl<L: Log + 'static> Upkeep<L> {
    pub(crate) fn new(
        directory: PathBuf,
        handle: Arc<PartitionHandle>,
        after_bytes: u64,
        file_bytes: u64,
    ) -> Self {
        let name = directory.file_name().unwrap_or_default();
        let subject = format!("queue/{}", name.display());
        Self {
            snapshot_condition: Condition::new("queue_snapshot_failing", subject.as_str()),
            compaction_condition: Condition::new("queue_compaction_failing", subject),
            directory,
            handle,
            after_bytes,
            appended: 0,
            snapshot_appended: 0,
            started_at: Instant::now(),
            rest_until: Instant::now(),
            file_bytes,
            result: Arc::default(),
            thread: None,
            runs: VecDeque::new(),
        }
    }

    /// Counts bytes appended since the last snapshot.
    pub(crate) fn add_appended(&mut self, bytes: usize) {
        self.appended += bytes as u64;
    }

    /// Takes the result of finished work and starts what is due. To be called between turns.
    ///
    /// # Errors
    /// When the log has stopped.
    pub(crate) fn run_step(&mut self, state: &mut State, log: &mut L) -> Result<(), LogError> {
        self.collect_result(log)?;
        if self.thread.is_some() {
            return Ok(());
        }
        if let Some(run) = self.runs.pop_front() {
            return self.start_compaction(run, log);
        }
        if self.is_due(log) {
            self.start_snapshot(state, log)?;
        }
        Ok(())
    }

    /// Takes the result of finished work, also while a turn waits for room in the log.
    ///
    /// # Errors
    /// When the log has stopped.
    pub(crate) fn collect_result(&mut self, log: &mut L) -> Result<(), LogError> {
        if let Some(thread) = self.thread.take_if(|thread| thread.is_finished()) {
            // A panic was reported already; without a result, the work is postponed.
            let _ = thread.join();
            let result = lock(&self.result).take();
            match result {
                Some(UpkeepResult::Snapshot(written)) => self.finish_snapshot(written, log)?,
                Some(UpkeepResult::Compaction(left, output)) => {
                    self.finish_compaction(left, output, log)?
                }
                None => self.postpone("its thread panicked"),
            }
        }
        Ok(())
    }

    /// Whether a snapshot is due. With a full disk it is as soon as anything was appended, as the
    /// segments that it covers may be what fills the disk: a purge is a short record.
    fn is_due(&self, log: &L) -> bool {
        let is_failing =
            self.snapshot_condition.is_active() || self.compaction_condition.is_active();
        match is_failing || log.space_error().is_some() {
            _ if self.after_bytes == u64::MAX => false,
            true => self.appended > 0 && Instant::now() >= self.rest_until,
            false => self.appended >= self.after_bytes.max(self.file_bytes / 4),
        }
    }

    /// Waits for the work in progress; its result is discarded.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A failed thread has reported why itself.
            let _ = thread.join();
        }
    }

    fn spawn(&mut self, work: impl FnOnce() -> UpkeepResult<L> + Send + 'static) {
        let (result_slot, handle) = (self.result.clone(), self.handle.clone());
        let spawned =
            std::thread::Builder::new().name("queue-upkeep".to_owned()).spawn(move || {
                let result = work();
                *lock(&result_slot) = Some(result);
                handle.inbox.wake();
            });
        match spawned {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                self.postpone(error);
            }
        }
    }

    /// Postpones work that has failed.
    fn postpone(&mut self, reason: impl std::fmt::Display) {
        self.snapshot_condition.fail(reason, SNAPSHOT_FAILED);
        self.rest_until = Instant::now() + REST_FAILED;
    }

    fn start_snapshot(&mut self, state: &mut State, log: &mut L) -> Result<(), LogError> {
        // A snapshot must not be ahead of its log.
        log.sync()?;
        let seq = log.next_seq();
        let state_snapshot = state.take_snapshot();
        let sealed = log.segments().into_iter();
        let sealed = sealed.filter(|segment| segment.is_sealed && segment.last < seq);
        let mut live: Vec<LiveRecords> = sealed.map(LiveRecords::new).collect();
        let directory = self.directory.clone();
        self.snapshot_appended = self.appended;
        let started = Instant::now();
        self.started_at = started;
        self.rest_until = started + REST_MIN;
        self.spawn(move || {
            let written = snapshot::write(&directory, seq, &state_snapshot, &mut |seq| {
                let after = live.partition_point(|records| records.segment.first <= seq);
                if let Some(one) = after.checked_sub(1).map(|at| &mut live[at])
                    && seq <= one.segment.last
                {
                    one.mark(seq);
                }
            });
            tracing::debug!(%seq, elapsed = ?started.elapsed(), "finished a snapshot of the queue");
            UpkeepResult::Snapshot(written.map(|written| (written, live)))
        });
        Ok(())
    }

    fn finish_snapshot(
        &mut self,
        written: Result<(SnapshotFile, Vec<LiveRecords>), QueueError>,
        log: &mut L,
    ) -> Result<(), LogError> {
        let duration = self.started_at.elapsed();
        // A snapshot for which there was no room has filled the disk for a moment, for others too.
        let rest_min = match written {
            Ok(_) => REST_MIN,
            Err(_) => REST_FAILED,
        };
        self.rest_until = Instant::now() + rest_min.max(duration * REST_SHARE);
        let (written, live) = match written {
            Ok(written) => written,
            Err(error) => {
                self.snapshot_condition.fail(error, SNAPSHOT_FAILED);
                return Ok(());
            }
        };
        self.snapshot_condition.recover("snapshots of the queue are written again");
        self.appended -= self.snapshot_appended;
        self.file_bytes = written.file_bytes;
        let needed = live.iter().find(|records| records.count > 0);
        let first = needed.map_or(written.seq, |one| one.segment.first);
        log.truncate_below(first)?;
        let rest = live.into_iter().filter(|one| one.segment.first >= first);
        self.runs.extend(plan_runs(rest));
        if self.runs.is_empty() {
            // A segment that could not be compacted is deleted, or no longer sparse.
            let message = "no segment of the queue's log is left to compact";
            self.compaction_condition.recover(message);
        }
        Ok(())
    }

    fn start_compaction(&mut self, run: Vec<LiveRecords>, log: &mut L) -> Result<(), LogError> {
        let (first, last) = (run[0].segment.first, run[run.len() - 1].segment.last);
        let compaction = match log.prepare_compaction(first, last) {
            Ok(compaction) => compaction,
            Err(error @ LogError::Stopped { .. }) => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "segments were not compacted");
                return Ok(());
            }
        };
        let left = run.iter().map(|records| records.count).sum();
        self.spawn(move || {
            let output = compaction.run(|seq| run.iter().any(|one| one.contains(seq)));
            UpkeepResult::Compaction(left, output)
        });
        Ok(())
    }

    fn finish_compaction(
        &mut self,
        left: u64,
        output: Result<<L::Compaction as Compaction>::Output, LogError>,
        log: &mut L,
    ) -> Result<(), LogError> {
        match output {
            Ok(output) => {
                let swapped = match log.finish_compaction(output) {
                    Err(error @ LogError::Stopped { .. }) => return Err(error),
                    other => other,
                };
                match swapped {
                    Ok(swapped) => {
                        let message = "compacting the queue's log works again";
                        self.compaction_condition.recover(message);
                        tracing::debug!(
                            left,
                            swapped,
                            "segments of the queue's log were compacted"
                        );
                    }
                    Err(error) => {
                        let message = "cannot put compacted segments in place; retrying";
                        self.postpone_compaction(error, message);
                    }
                }
            }
            // Reported when the disk became full; it is retried after every snapshot.
            Err(error @ LogError::Full { .. }) => {
                tracing::debug!(%error, "cannot compact segments of the queue's log");
            }
            Err(error) => {
                let message = "cannot compact segments of the queue's log; retrying";
                self.postpone_compaction(error, message);
            }
        }
        Ok(())
    }

    /// Postpones a compaction that has failed: the next snapshot, which plans it again, is made
    /// after a while and not only once the log has grown.
    fn postpone_compaction(&mut self, error: LogError, message: &str) {
        self.compaction_condition.fail(error, message);
        self.rest_until = self.rest_until.max(Instant::now() + REST_FAILED);
    }
}

/// Neighbouring segments that are compacted into one.
#[derive(Default)]
struct SegmentRun {
    segments: Vec<LiveRecords>,
    read_bytes: u64,
    remaining_bytes: u64,
    /// Size of the largest of them.
    file_bytes: u64,
}

impl SegmentRun {
    fn with_segment(&self, records: &LiveRecords) -> Self {
        Self {
            segments: Vec::new(),
            read_bytes: self.read_bytes + records.segment.file_bytes,
            remaining_bytes: self.remaining_bytes + records.remaining_bytes(),
            file_bytes: self.file_bytes.max(records.segment.file_bytes),
        }
    }

    fn fits(&self) -> bool {
        self.read_bytes <= RUN_BYTES_MAX && self.remaining_bytes <= self.file_bytes
    }
}

/// Groups neighbouring sparse segments into runs whose live records should fit into one segment.
fn plan_runs(segments: impl Iterator<Item = LiveRecords>) -> Vec<Vec<LiveRecords>> {
    let mut runs = Vec::new();
    let mut run = SegmentRun::default();
    for records in segments {
        let mut longer = run.with_segment(&records);
        if !records.is_sparse() || !longer.fits() {
            runs.push(std::mem::take(&mut run.segments));
            longer = SegmentRun::default().with_segment(&records);
        }
        if records.is_sparse() {
            longer.segments = std::mem::take(&mut run.segments);
            longer.segments.push(records);
            run = longer;
        } else {
            run = SegmentRun::default();
        }
    }
    runs.push(run.segments);
    runs.retain(|run| !run.is_empty());
    runs
}

#[cfg(test)]
mod tests;
