//! Schedules: a task per tick, and callbacks: a task that tells of another one's end.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::TaskRef;
use crate::model::TaskOptions;

/// The ordering key of a tenant's callbacks: any number of them may be under way, but tenants take
/// turns.
pub fn callback_key(tenant: &str) -> u128 {
    1 << 64 | u128::from(crc32c::crc32c(tenant.as_bytes()))
}

/// The queue of callbacks: the same in every partition; it belongs to no tenant.
pub const CALLBACKS: u32 = 0;

/// When a schedule ticks next that never does again, in Unix milliseconds: the end of time.
pub const NEVER_MS: u64 = u64::MAX;

/// Names a schedule among those of all tenants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScheduleKey {
    /// The tenant that it belongs to.
    pub tenant: Box<str>,
    /// Its name, unique in the tenant.
    pub name: Box<str>,
}

impl ScheduleKey {
    /// The key of a tenant's schedule.
    pub fn new(tenant: &str, name: &str) -> Self {
        Self {
            tenant: tenant.into(),
            name: name.into(),
        }
    }
}

/// Ticks in their order, each with the key of its schedule.
pub(super) type TickQueue = BTreeSet<(u64, ScheduleKey)>;

/// Ticks that have come and wait for room, by tenant.
pub(super) type WaitingTicks = BTreeMap<Box<str>, TickQueue>;

/// A schedule as the partition knows it. Which ticks it has is known to the partition's driver.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The record with its description and the content of its tasks.
    pub record: u64,
    /// The queue of its tasks.
    pub queue: u32,
    /// Shard of its tasks.
    pub shard: u16,
    /// Priority of its tasks, from 0 to 9.
    pub priority: u8,
    /// Hash of their ordering key.
    pub key: u128,
    /// What they ask for otherwise than their queue.
    pub options: TaskOptions,
    /// Tags of its tasks.
    pub tags: Box<[u8]>,
    /// Whether the end of its tasks causes a callback.
    pub callback: bool,
    /// Whether the schedule is paused.
    pub paused: bool,
    /// The tick to come, in Unix milliseconds. Where it is the same as `last_ms`, it has come and
    /// waits for room.
    pub next_ms: u64,
    /// The tick before; zero: none.
    pub last_ms: u64,
    /// The task of the tick before.
    pub last: TaskRef,
    /// Bytes of what the record holds.
    pub bytes: u32,
}

impl Schedule {
    /// Whether its tick has come, and found no room for its task: any other tick is after the one
    /// before. After the clock was set back, it may be one that has come before and comes again.
    pub fn waits_for_room(&self) -> bool {
        self.next_ms == self.last_ms && self.last_ms > 0
    }

    /// Whether it has a tick to be dealt with.
    pub(super) fn is_awake(&self) -> bool {
        !self.paused && self.next_ms != NEVER_MS
    }
}
