//! Loads of tenants in a partition.

use std::collections::BTreeMap;

use super::machine::State;
use super::rows::QueueTable;
use super::shared_record::{RecordOwner, SharedRecord};
use super::tenants::{TaskLoad, subtract};
use crate::core::cow_page_map::CowPageMap;
use crate::core::entry::{Entry, flag};
use crate::core::slab::SlotIndex;

impl State {
    /// The tenant whose load includes a task: for a callback, that of the task it reports.
    pub(super) fn tenant_slot_of(&self, slot: SlotIndex) -> SlotIndex {
        tenant_of_entry(self.entries.get(slot), &self.queues, &self.shared_records)
    }

    /// Adds a new task with its bytes, and the callback that it may cause.
    pub(super) fn add_task_load(&mut self, slot: SlotIndex) {
        let tenant = self.tenant_slot_of(slot);
        let entry = self.entries.get(slot);
        let bytes = u64::from(entry.bytes);
        let reserved = u64::from(entry.has_flag(flag::CALLBACK));
        let queue = self.queues.get_mut(entry.queue);
        queue.expect("a task's queue stays").bytes += bytes;
        let load = self.tenants.load_mut(tenant);
        load.tasks += 1 + reserved;
        load.bytes += bytes;
        self.reserved_callbacks += reserved;
        self.bytes += bytes;
    }

    /// Subtracts a task and the bytes of its records.
    pub(super) fn subtract_task_load(&mut self, slot: SlotIndex) {
        let tenant = self.tenant_slot_of(slot);
        let entry = self.entries.get(slot);
        let bytes = u64::from(entry.bytes);
        let miscounts = &mut self.events.miscounts;
        let queue = self.queues.get_mut(entry.queue);
        let queue = queue.expect("a task's queue stays");
        subtract(&mut queue.bytes, bytes, miscounts);
        let load = self.tenants.load_mut(tenant);
        subtract(&mut load.tasks, 1, miscounts);
        subtract(&mut load.bytes, bytes, miscounts);
        subtract(&mut self.bytes, bytes, miscounts);
    }

    /// Counts the callback that a task will cause when it ends.
    pub(super) fn reserve_callback(&mut self, slot: SlotIndex) {
        let tenant = self.tenant_slot_of(slot);
        self.tenants.load_mut(tenant).tasks += 1;
        self.reserved_callbacks += 1;
    }

    /// Subtracts the callback of a task that has ended or is deleted.
    pub(super) fn release_reserved_callback(&mut self, slot: SlotIndex) {
        let tenant = self.tenant_slot_of(slot);
        let tasks = &mut self.tenants.load_mut(tenant).tasks;
        subtract(tasks, 1, &mut self.events.miscounts);
        subtract(&mut self.reserved_callbacks, 1, &mut self.events.miscounts);
    }

    /// Subtracts bytes from a tenant's sum and from the total.
    pub(super) fn subtract_tenant_bytes(&mut self, tenant: SlotIndex, bytes: u32) {
        let tenant_bytes = &mut self.tenants.load_mut(tenant).bytes;
        subtract(tenant_bytes, u64::from(bytes), &mut self.events.miscounts);
        subtract(&mut self.bytes, u64::from(bytes), &mut self.events.miscounts);
    }

    /// Releases a reference to a tenant.
    pub(super) fn release_tenant(&mut self, tenant: SlotIndex) {
        let is_miscounted = self.tenants.release(tenant);
        self.events.miscounts += u64::from(is_miscounted);
    }

    /// Total load of all tenants.
    pub fn total_load(&self) -> TaskLoad {
        TaskLoad { tasks: self.len() as u64 + self.reserved_callbacks, bytes: self.bytes }
    }

    /// Load of the tenant of this name.
    pub fn tenant_load(&self, tenant: &str) -> TaskLoad {
        let slot = self.tenants.find_slot(tenant);
        slot.map_or_else(TaskLoad::default, |place| self.tenants.load(place))
    }

    /// Load of the tenant of a queue.
    pub fn queue_tenant_load(&self, queue: u32) -> TaskLoad {
        let queue = self.queues.get(queue);
        queue.map_or_else(TaskLoad::default, |queue| self.tenants.load(queue.tenant_slot))
    }

    /// Rebuilds the loads from the rows of a snapshot.
    pub(super) fn rebuild_loads(&mut self) {
        let previous_tenants = std::mem::take(&mut self.tenants);
        let shared = std::mem::take(&mut self.shared_records);
        self.shared_records = shared
            .iter()
            .map(|(record, shared)| {
                let tenant = self.tenants.acquire(previous_tenants.name(shared.tenant));
                (record, SharedRecord { tenant, ..*shared })
            })
            .collect();
        let mut by_queue: BTreeMap<u32, u64> = BTreeMap::new();
        for entry in self.entries.slots().flatten() {
            *by_queue.entry(entry.queue).or_default() += u64::from(entry.bytes);
        }
        let ids: Vec<u32> = self.queues.iter().map(|(id, _)| id).collect();
        for id in ids {
            let queue = self.queues.get_mut(id).expect("just listed");
            queue.tenant_slot = self.tenants.acquire(&queue.tenant);
            queue.bytes = by_queue.get(&id).copied().unwrap_or(0);
        }
        for (key, schedule) in &self.schedules {
            let slot = self.tenants.acquire(&key.tenant);
            self.tenants.load_mut(slot).bytes += u64::from(schedule.bytes);
            self.bytes += u64::from(schedule.bytes);
        }
        for (_, shared) in self.shared_records.iter() {
            if shared.owner == RecordOwner::None {
                self.tenants.load_mut(shared.tenant).bytes += u64::from(shared.bytes);
                self.bytes += u64::from(shared.bytes);
            }
        }
        for entry in self.entries.slots().flatten() {
            let has_reserved_callback = entry.has_flag(flag::CALLBACK) && !entry.state.has_ended();
            let tenant = tenant_of_entry(entry, &self.queues, &self.shared_records);
            let load = self.tenants.load_mut(tenant);
            load.tasks += 1 + u64::from(has_reserved_callback);
            load.bytes += u64::from(entry.bytes);
            self.reserved_callbacks += u64::from(has_reserved_callback);
            self.bytes += u64::from(entry.bytes);
        }
    }
}

/// The tenant whose load includes an entry. A callback that was made before records were shared
/// counts for the tenant of its own queue.
fn tenant_of_entry(
    entry: &Entry,
    queues: &QueueTable,
    shared: &CowPageMap<SharedRecord>,
) -> SlotIndex {
    if entry.has_flag(flag::IS_CALLBACK) && entry.has_flag(flag::SHARES_RECORD) {
        let shared = shared.get(entry.record);
        return shared.expect("a callback holds its record").tenant;
    }
    queues[entry.queue].tenant_slot
}
