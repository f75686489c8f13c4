//! Records that several tasks refer to: those of schedules, which make a task per tick, and those
//! of tasks that a callback reports.
//!
//! The bytes of such a record belong to its owner, the schedule or the task. When the owner is
//! deleted before the other holders, they stay with the tenant until the last holder is deleted.
//! The tenant is stored here, because holders may outlive the queue.

use super::machine::State;
use super::schedule::Schedule;
use super::shared_record::{RecordOwner, SharedRecord};
use super::tenants::subtract;
use crate::core::slab::SlotIndex;

impl State {
    /// Counts so many tasks as holders of a schedule's record.
    pub(super) fn hold_schedule_record(&mut self, tenant: &str, schedule: &Schedule, tasks: u32) {
        let tasks = u64::from(tasks);
        if let Some(shared) = self.shared_records.get_mut(schedule.record) {
            shared.holders += tasks;
            return;
        }
        let shared = SharedRecord {
            tenant: self.tenants.acquire(tenant),
            owner: RecordOwner::Schedule,
            bytes: schedule.bytes,
            holders: tasks,
        };
        self.shared_records.insert(schedule.record, shared);
    }

    /// Counts a callback as a holder of the record of the task that it reports.
    pub(super) fn hold_record(&mut self, slot: SlotIndex) {
        let entry = self.entries.get(slot);
        let (record, number, bytes) = (entry.record, entry.number, entry.bytes);
        let queue = entry.queue;
        if let Some(shared) = self.shared_records.get_mut(record) {
            shared.holders += 1;
            return;
        }
        let attempt_bytes: u32 = self.past_attempts(slot).map(|past| past.bytes).sum();
        let shared = SharedRecord {
            tenant: self.tenants.add_reference(self.queues[queue].tenant_slot),
            owner: RecordOwner::Task(number),
            bytes: bytes.saturating_sub(attempt_bytes),
            holders: 1,
        };
        self.shared_records.insert(record, shared);
    }

    /// Removes a holder of a record.
    pub(super) fn release_record(&mut self, record: u64) {
        let shared = self.shared_records.get_mut(record);
        let shared = shared.expect("a record is shared while it is held");
        subtract(&mut shared.holders, 1, &mut self.events.miscounts);
        if shared.holders > 0 {
            return;
        }
        let shared = *shared;
        self.shared_records.remove(record);
        if shared.owner == RecordOwner::None {
            self.subtract_tenant_bytes(shared.tenant, shared.bytes);
        }
        self.release_tenant(shared.tenant);
    }

    /// Removes the owner of a record, and its bytes. While the record has holders, they count for
    /// the tenant.
    pub(super) fn orphan_record(&mut self, record: u64, owner: RecordOwner) {
        let shared = self.shared_records.get_mut(record);
        let Some(shared) = shared.filter(|shared| shared.owner == owner) else {
            return;
        };
        shared.owner = RecordOwner::None;
        self.tenants.load_mut(shared.tenant).bytes += u64::from(shared.bytes);
        self.bytes += u64::from(shared.bytes);
    }

    /// Bytes that deleting a schedule would free: none while its tasks exist.
    pub(crate) fn freeable_schedule_bytes(&self, schedule: &Schedule) -> u64 {
        match self.shared_records.get(schedule.record) {
            Some(_) => 0,
            None => u64::from(schedule.bytes),
        }
    }

    /// Shared records by sequence number, with how many tasks hold each besides its owner.
    pub fn shared_records(&self) -> impl Iterator<Item = (u64, u64)> {
        let records = self.shared_records.iter();
        records.map(|(record, shared)| (record, shared.holders))
    }

    /// The tenant of a shared record.
    pub(crate) fn tenant_of_shared_record(&self, record: u64) -> Option<&str> {
        let shared = self.shared_records.get(record)?;
        Some(self.tenants.name(shared.tenant))
    }
}
