//! Recovery of a partition: replays its log, and begins an epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use egret_base::{Clock, Entropy};
use egret_log::{
    AppendResult, Batch, Disk, FileLog, Log, LogConfig, LogError, LogReader, Recovery, Seq,
};

use super::partition::Partition;
use super::turn::BatchTurn;
use super::watch::Watchers;
use crate::core::command::{Command, Refusal};
use crate::core::state::{ScheduleKey, State};
use crate::error::QueueError;
use crate::store::record;
use crate::store::schedule::put_ms;
use crate::worker::schedule_locations::{ScheduleLocation, ScheduleLocations};

/// Opens the log whose records from `from` on are to be replayed. It may be new only if no snapshot
/// contains records: otherwise it was removed, with tasks in it.
///
/// # Errors
/// [`LogError::Absent`], [`LogError::Missing`], and those of [`FileLog::open`].
pub(super) fn open_log<D: Disk>(
    disk: D,
    config: LogConfig,
    from: Seq,
    entropy: Arc<dyn Entropy>,
) -> Result<(FileLog<D>, Recovery), LogError> {
    let place = disk.display_path();
    let config = LogConfig { must_exist: config.must_exist || from > Seq::FIRST, ..config };
    let (log, recovery) = FileLog::open_with(disk, config, from, entropy)?;
    match log.first_seq() {
        first if first > from => Err(LogError::Missing { place, from, to: first.previous() }),
        _ => Ok((log, recovery)),
    }
}

/// Applies every record from `from` on; of a chain that a crash has cut, none.
///
/// # Errors
/// [`QueueError::Log`], [`QueueError::Malformed`], and [`QueueError::Diverged`]: only what was
/// accepted is in a log.
pub(crate) fn replay(
    log: &impl Log,
    from: Seq,
    partition: usize,
    state: &mut State,
) -> Result<(), QueueError> {
    let mut apply = |seq: Seq, command: &Command<'_>| {
        let applied = state.apply(seq.0, command);
        applied.map_err(|refusal| QueueError::Diverged {
            partition,
            seq,
            reason: format!("{refusal:?}"),
        })
    };
    let mut chain = PendingChain::default();
    for record in log.read_from(from) {
        let (seq, bytes) = record?;
        let command = record::decode(&bytes)?;
        match command {
            Command::Enqueue(_) if chain.missing > 0 => {
                chain.missing -= 1;
                chain.records.push((seq, bytes));
            }
            // A cut chain is followed by the clock of the next start.
            Command::Chain { tasks } => {
                chain = PendingChain { missing: tasks, records: Vec::new() };
            }
            _ => {
                chain = PendingChain::default();
                apply(seq, &command)?;
            }
        }
        if chain.missing == 0 {
            for (seq, bytes) in std::mem::take(&mut chain.records) {
                apply(seq, &record::decode(&bytes)?)?;
            }
        }
    }
    Ok(())
}

/// Records of a chain that is not complete yet.
#[derive(Default)]
struct PendingChain {
    missing: u32,
    records: Vec<(Seq, Bytes)>,
}

/// Begins an epoch: leases differ from all that were given before, and present ones do not expire
/// for `grace_ms`.
///
/// # Errors
/// [`QueueError::Log`].
pub(crate) fn begin_epoch(
    log: &mut impl Log,
    state: &mut State,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
    grace_ms: u64,
) -> Result<(), QueueError> {
    let random = entropy.ten_bytes();
    let instance = u16::from_le_bytes([random[0], random[1]]) & 0x3fff;
    let epoch = state.epoch() + 1;
    commit_in_one_turn(log, state, clock, entropy, |turn| {
        turn.run(&Command::Epoch { epoch, instance, grace_ms })
    })?;
    // No worker or subscriber had connected yet: events of the replay have no receiver.
    state.events = Default::default();
    Ok(())
}

/// Runs a job and commits it.
fn commit_in_one_turn(
    log: &mut impl Log,
    state: &mut State,
    clock: &dyn Clock,
    entropy: &dyn Entropy,
    job: impl FnOnce(&mut BatchTurn<'_>) -> Result<(), Refusal>,
) -> Result<(), QueueError> {
    let mut seed = [0; 8];
    entropy.fill(&mut seed);
    let mut batch = Batch::new();
    let first = log.next_seq();
    job(&mut BatchTurn {
        state,
        batch: &mut batch,
        watchers: &mut Watchers::default(),
        first,
        now: clock.now(),
        seed: u64::from_le_bytes(seed),
    })?;
    match log.append(&mut batch, first)? {
        AppendResult::Committed(_) => {}
        other => unreachable!("a log in local files knows what it has: {other:?}"),
    }
    Ok(log.sync()?)
}

/// Locates every schedule. Of two with one name, which a crash may leave during a move, the earlier
/// is deleted; and so are those of deleted queues.
///
/// # Errors
/// [`QueueError::Log`].
pub(crate) fn locate_schedules<L: Log + 'static>(
    partitions: &mut [Partition<L>],
    queues: &BTreeSet<u32>,
) -> Result<ScheduleLocations, QueueError> {
    let mut locations = ScheduleLocations::new();
    let mut duplicates: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for partition in partitions.iter() {
        let number = partition.partition;
        for (tenant, name, schedule) in partition.state.schedules() {
            let key = ScheduleKey::new(tenant, name);
            if !queues.contains(&schedule.queue) {
                tracing::warn!(tenant, name, "a schedule is deleted: its queue is gone");
                duplicates.entry(number).or_default().push(key);
                continue;
            }
            let location =
                locations.entry(key.clone()).or_insert_with(|| ScheduleLocation::new(number));
            if location.partition != number {
                let other =
                    partitions.iter().find(|candidate| candidate.partition == location.partition);
                let others_ms = other.map_or(0, |other| put_ms_in(other, &key));
                let is_later = put_ms_in(partition, &key) > others_ms;
                let earlier = if is_later { location.partition } else { number };
                location.partition = if is_later { number } else { location.partition };
                duplicates.entry(earlier).or_default().push(key);
            }
        }
    }
    for partition in partitions {
        let Some(keys) = duplicates.remove(&partition.partition) else {
            continue;
        };
        let (clock, entropy) = (partition.time.clock(), partition.entropy.clone());
        let (log, state) = (&mut partition.log, &mut partition.state);
        commit_in_one_turn(log, state, &*clock, &*entropy, |turn| {
            keys.iter().try_for_each(|ScheduleKey { tenant, name }| {
                turn.run(&Command::DeleteSchedule { tenant, name })
            })
        })?;
    }
    Ok(locations)
}

/// When the schedule of this name was put, in Unix milliseconds; 0 when that is not known.
fn put_ms_in<L: Log + 'static>(partition: &Partition<L>, key: &ScheduleKey) -> u64 {
    let schedule = partition.state.schedule(&key.tenant, &key.name);
    let record = schedule.map(|schedule| partition.reader.read(Seq(schedule.record)));
    match record {
        Some(Ok(record)) => put_ms(&record),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
