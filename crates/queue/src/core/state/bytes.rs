//! Sizes of what records hold: a task's payload and other content, its result, the texts of its
//! past attempts, and what schedules make tasks of.
//!
//! Bytes are counted from when a record is first referred to until it no longer is, so that a
//! replay counts the same. A task that a schedule makes, or a callback, has no bytes of its own: it
//! shares a record, see `shared`. A snapshot of a version that did not count has no bytes either,
//! and its tasks stay uncounted until they are deleted.

use super::machine::State;
use super::schedule::Schedule;
use super::shared_record::RecordOwner;
use super::tenants::subtract;
use crate::core::slab::SlotIndex;
use crate::model::TaskId;

impl State {
    /// Adds bytes of records to a task.
    pub(super) fn add_bytes(&mut self, slot: SlotIndex, bytes: u32) {
        if bytes == 0 {
            return;
        }
        let tenant = self.tenant_slot_of(slot);
        let entry = self.entries.get_mut(slot);
        entry.bytes = entry.bytes.saturating_add(bytes);
        let queue = self.queues.get_mut(entry.queue);
        queue.expect("a task's queue stays").bytes += u64::from(bytes);
        self.tenants.load_mut(tenant).bytes += u64::from(bytes);
        self.bytes += u64::from(bytes);
    }

    /// Subtracts bytes of records from a task.
    pub(super) fn subtract_bytes(&mut self, slot: SlotIndex, bytes: u32) {
        if bytes == 0 {
            return;
        }
        let tenant = self.tenant_slot_of(slot);
        let entry = self.entries.get_mut(slot);
        self.events.miscounts += u64::from(entry.bytes < bytes);
        entry.bytes = entry.bytes.saturating_sub(bytes);
        let queue = self.queues.get_mut(entry.queue);
        let queue = queue.expect("a task's queue stays");
        subtract(&mut queue.bytes, u64::from(bytes), &mut self.events.miscounts);
        self.subtract_tenant_bytes(tenant, bytes);
    }

    pub(super) fn add_schedule_bytes(&mut self, tenant: &str, bytes: u32) {
        let tenant = self.tenants.acquire(tenant);
        self.tenants.load_mut(tenant).bytes += u64::from(bytes);
        self.bytes += u64::from(bytes);
    }

    /// Removes a schedule; tasks may still hold its record.
    pub(super) fn release_schedule(&mut self, tenant: &str, schedule: &Schedule) {
        // `acquire` returns the slot and adds a reference: one for it and the schedule's own are
        // released.
        let tenant = self.tenants.acquire(tenant);
        self.subtract_tenant_bytes(tenant, schedule.bytes);
        self.orphan_record(schedule.record, RecordOwner::Schedule);
        self.release_tenant(tenant);
        self.release_tenant(tenant);
    }

    /// The tenant of a task.
    pub(crate) fn tenant_of_task(&self, id: TaskId) -> Option<&str> {
        let slot = self.find_task(id)?;
        let queue = self.queues.get(self.entries.get(slot).queue)?;
        Some(&queue.tenant)
    }
}
