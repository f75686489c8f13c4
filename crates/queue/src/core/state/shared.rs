//! Records that several tasks refer to: those of schedules, of which each tick makes tasks, and
//! those of tasks that a callback tells of.
//!
//! The bytes of such a record are its owner's: the schedule's or the task's. When that goes before
//! the others, they stay on the tenant until the last holder has gone as well. The tenant stands
//! here, because holders may outlive the queue.

use super::machine::State;
use super::schedule::Schedule;
use super::shared_record::{RecordOwner, SharedRecord};
use super::tenants::subtract;
use crate::core::slab::SlotIndex;

impl State {
    /// So many tasks come to hold the record of a schedule.
    pub(super) fn share_schedule(&mut self, tenant: &str, schedule: &Schedule, tasks: u32) {
        let tasks = u64::from(tasks);
        if let Some(shared) = self.shared.get_mut(schedule.record) {
            shared.holders += tasks;
            return;
        }
        let shared = SharedRecord {
            tenant: self.tenants.acquire(tenant),
            owner: RecordOwner::Schedule,
            bytes: schedule.bytes,
            holders: tasks,
        };
        self.shared.insert(schedule.record, shared);
    }

    /// A callback comes to hold the record of the task that it tells of.
    pub(super) fn share_record(&mut self, place: SlotIndex) {
        let entry = self.entries.get(place);
        let (record, number, bytes) = (entry.record, entry.number, entry.bytes);
        let queue = entry.queue;
        if let Some(shared) = self.shared.get_mut(record) {
            shared.holders += 1;
            return;
        }
        let words: u32 = self.pasts(place).map(|past| past.bytes).sum();
        let shared = SharedRecord {
            tenant: self.tenants.hold(self.queues[queue].tenant_place),
            owner: RecordOwner::Task(number),
            bytes: bytes.saturating_sub(words),
            holders: 1,
        };
        self.shared.insert(record, shared);
    }

    /// A holder of a record has gone.
    pub(super) fn release_record(&mut self, record: u64) {
        let shared = self.shared.get_mut(record);
        let shared = shared.expect("a record is shared while it is held");
        subtract(&mut shared.holders, 1, &mut self.news.miscounts);
        if shared.holders > 0 {
            return;
        }
        let shared = *shared;
        self.shared.remove(record);
        if shared.owner == RecordOwner::None {
            self.discount_bytes(shared.tenant, shared.bytes);
        }
        self.release_tenant(shared.tenant);
    }

    /// The owner of a record goes, and its bytes with it: while the record is held, they count for
    /// its tenant.
    pub(super) fn orphan_record(&mut self, record: u64, owner: RecordOwner) {
        let shared = self.shared.get_mut(record);
        let Some(shared) = shared.filter(|shared| shared.owner == owner) else {
            return;
        };
        shared.owner = RecordOwner::None;
        self.tenants.load_mut(shared.tenant).bytes += u64::from(shared.bytes);
        self.bytes += u64::from(shared.bytes);
    }

    /// Bytes that would no longer be counted if a schedule went: none while its tasks are there.
    pub(crate) fn bytes_freed_with(&self, schedule: &Schedule) -> u64 {
        match self.shared.get(schedule.record) {
            Some(_) => 0,
            None => u64::from(schedule.bytes),
        }
    }

    /// Shared records by sequence number, with how many tasks hold each besides its owner.
    pub fn shared_records(&self) -> impl Iterator<Item = (u64, u64)> {
        let records = self.shared.iter();
        records.map(|(record, shared)| (record, shared.holders))
    }

    /// The tenant whose record a task shares.
    pub(crate) fn tenant_of_shared(&self, record: u64) -> Option<&str> {
        let shared = self.shared.get(record)?;
        Some(self.tenants.name(shared.tenant))
    }
}
