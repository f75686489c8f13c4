//! Schedules, which make a task per tick, and callbacks, which are tasks that report the end of
//! another.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::TaskRef;
use crate::model::TaskOptions;

/// The ordering key of a tenant's callbacks. Any number of them may be in flight, but tenants take
/// turns.
pub fn callback_key(tenant: &str) -> u128 {
    1 << 64 | u128::from(crc32c::crc32c(tenant.as_bytes()))
}

/// The queue of callbacks: the same in every partition; it belongs to no tenant.
pub const CALLBACK_QUEUE: u32 = 0;

/// Next tick of a schedule that has no further one, in Unix milliseconds: the end of time.
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
        Self { tenant: tenant.into(), name: name.into() }
    }
}

/// Ticks in their order, each with the key of its schedule.
pub(super) type TickQueue = BTreeSet<(u64, ScheduleKey)>;

/// Due ticks that wait for room, by tenant.
pub(super) type WaitingTicks = BTreeMap<Box<str>, TickQueue>;

/// A schedule as stored in the partition. Only the driver of the partition knows its expression.
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
    /// Options in which they differ from their queue.
    pub options: TaskOptions,
    /// Tags of its tasks.
    pub tags: Box<[u8]>,
    /// Whether the end of its tasks causes a callback.
    pub callback: bool,
    /// Whether the schedule is paused.
    pub paused: bool,
    /// The next tick, in Unix milliseconds. Equal to `last_ms` while a due tick waits for room.
    pub next_ms: u64,
    /// The previous tick; zero: none.
    pub last_ms: u64,
    /// The task of the previous tick.
    pub last_task: TaskRef,
    /// Bytes of the record's content.
    pub bytes: u32,
}

impl Schedule {
    /// Whether its tick is due but found no room for its task: any other tick is later than the
    /// previous one. After the clock was set back, it may be a tick that has come before and comes
    /// again.
    pub fn waits_for_room(&self) -> bool {
        self.next_ms == self.last_ms && self.last_ms > 0
    }

    /// Whether it has a next tick.
    pub(super) fn is_active(&self) -> bool {
        !self.paused && self.next_ms != NEVER_MS
    }
}
