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
    pub(super) fn tenant_at(&self, place: SlotIndex) -> SlotIndex {
        tenant_of_entry(self.entries.get(place), &self.queues, &self.shared)
    }

    /// Adds a new task with its bytes, and the callback that it may cause.
    pub(super) fn count_task(&mut self, place: SlotIndex) {
        let tenant = self.tenant_at(place);
        let entry = self.entries.get(place);
        let bytes = u64::from(entry.bytes);
        let promises = u64::from(entry.has(flag::CALLBACK));
        let queue = self.queues.get_mut(entry.queue);
        queue.expect("a task's queue stays").bytes += bytes;
        let load = self.tenants.load_mut(tenant);
        load.tasks += 1 + promises;
        load.bytes += bytes;
        self.promised += promises;
        self.bytes += bytes;
    }

    /// Subtracts a task and the bytes of its records.
    pub(super) fn discount_task(&mut self, place: SlotIndex) {
        let tenant = self.tenant_at(place);
        let entry = self.entries.get(place);
        let bytes = u64::from(entry.bytes);
        let miscounts = &mut self.news.miscounts;
        let queue = self.queues.get_mut(entry.queue);
        let queue = queue.expect("a task's queue stays");
        subtract(&mut queue.bytes, bytes, miscounts);
        let load = self.tenants.load_mut(tenant);
        subtract(&mut load.tasks, 1, miscounts);
        subtract(&mut load.bytes, bytes, miscounts);
        subtract(&mut self.bytes, bytes, miscounts);
    }

    /// Counts the callback that a task will cause when it ends.
    pub(super) fn promise_callback(&mut self, place: SlotIndex) {
        let tenant = self.tenant_at(place);
        self.tenants.load_mut(tenant).tasks += 1;
        self.promised += 1;
    }

    /// Subtracts the callback of a task that has ended or is deleted.
    pub(super) fn withdraw_promise(&mut self, place: SlotIndex) {
        let tenant = self.tenant_at(place);
        let tasks = &mut self.tenants.load_mut(tenant).tasks;
        subtract(tasks, 1, &mut self.news.miscounts);
        subtract(&mut self.promised, 1, &mut self.news.miscounts);
    }

    /// Subtracts bytes from a tenant's sum and from the total.
    pub(super) fn discount_bytes(&mut self, tenant: SlotIndex, bytes: u32) {
        let own = &mut self.tenants.load_mut(tenant).bytes;
        subtract(own, u64::from(bytes), &mut self.news.miscounts);
        subtract(&mut self.bytes, u64::from(bytes), &mut self.news.miscounts);
    }

    /// Releases a reference to a tenant.
    pub(super) fn release_tenant(&mut self, tenant: SlotIndex) {
        let is_wrong = self.tenants.release(tenant);
        self.news.miscounts += u64::from(is_wrong);
    }

    /// Total load of all tenants.
    pub fn load(&self) -> TaskLoad {
        TaskLoad {
            tasks: self.len() as u64 + self.promised,
            bytes: self.bytes,
        }
    }

    /// Load of the tenant of this name.
    pub fn load_of(&self, tenant: &str) -> TaskLoad {
        let place = self.tenants.place(tenant);
        place.map_or_else(TaskLoad::default, |place| self.tenants.load(place))
    }

    /// Load of the tenant of a queue.
    pub fn load_of_queue(&self, queue: u32) -> TaskLoad {
        let queue = self.queues.get(queue);
        queue.map_or_else(TaskLoad::default, |queue| {
            self.tenants.load(queue.tenant_place)
        })
    }

    /// Rebuilds the loads from the rows of a snapshot.
    pub(super) fn count_load(&mut self) {
        let former = std::mem::take(&mut self.tenants);
        let shared = std::mem::take(&mut self.shared);
        self.shared = shared
            .iter()
            .map(|(record, shared)| {
                let tenant = self.tenants.acquire(former.name(shared.tenant));
                (record, SharedRecord { tenant, ..*shared })
            })
            .collect();
        let mut by_queue: BTreeMap<u32, u64> = BTreeMap::new();
        for entry in self.entries.places().flatten() {
            *by_queue.entry(entry.queue).or_default() += u64::from(entry.bytes);
        }
        let ids: Vec<u32> = self.queues.iter().map(|(id, _)| id).collect();
        for id in ids {
            let queue = self.queues.get_mut(id).expect("just listed");
            queue.tenant_place = self.tenants.acquire(&queue.tenant);
            queue.bytes = by_queue.get(&id).copied().unwrap_or(0);
        }
        for (key, schedule) in &self.schedules {
            let place = self.tenants.acquire(&key.tenant);
            self.tenants.load_mut(place).bytes += u64::from(schedule.bytes);
            self.bytes += u64::from(schedule.bytes);
        }
        for (_, shared) in self.shared.iter() {
            if shared.owner == RecordOwner::None {
                self.tenants.load_mut(shared.tenant).bytes += u64::from(shared.bytes);
                self.bytes += u64::from(shared.bytes);
            }
        }
        for entry in self.entries.places().flatten() {
            let promised = entry.has(flag::CALLBACK) && !entry.state.has_ended();
            let tenant = tenant_of_entry(entry, &self.queues, &self.shared);
            let load = self.tenants.load_mut(tenant);
            load.tasks += 1 + u64::from(promised);
            load.bytes += u64::from(entry.bytes);
            self.promised += u64::from(promised);
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
    if entry.has(flag::IS_CALLBACK) && entry.has(flag::SHARES_RECORD) {
        let shared = shared.get(entry.record);
        return shared.expect("a callback holds its record").tenant;
    }
    queues[entry.queue].tenant_place
}
