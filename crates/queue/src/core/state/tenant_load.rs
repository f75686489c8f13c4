//! Counting what each tenant has in a partition.

use std::collections::BTreeMap;

use super::machine::State;
use super::rows::QueueTable;
use super::shared_record::{RecordOwner, SharedRecord};
use super::tenants::{TaskLoad, subtract};
use crate::core::cow_page_map::CowPageMap;
use crate::core::entry::{Entry, flag};
use crate::core::slab::SlotIndex;

impl State {
    /// The tenant on whose load a task is: of a callback, that of the task it tells of.
    pub(super) fn tenant_at(&self, place: SlotIndex) -> SlotIndex {
        tenant_of_entry(self.entries.get(place), &self.queues, &self.shared)
    }

    /// Counts a new task with its bytes, and the callback that it may cause.
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

    /// A task is no longer known, nor what records hold of it.
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

    /// A task that has not ended will cause a callback.
    pub(super) fn promise_callback(&mut self, place: SlotIndex) {
        let tenant = self.tenant_at(place);
        self.tenants.load_mut(tenant).tasks += 1;
        self.promised += 1;
    }

    /// A task that was to cause a callback has ended or goes.
    pub(super) fn withdraw_promise(&mut self, place: SlotIndex) {
        let tenant = self.tenant_at(place);
        let tasks = &mut self.tenants.load_mut(tenant).tasks;
        subtract(tasks, 1, &mut self.news.miscounts);
        subtract(&mut self.promised, 1, &mut self.news.miscounts);
    }

    /// Takes bytes from a tenant's sum and from that of all.
    pub(super) fn discount_bytes(&mut self, tenant: SlotIndex, bytes: u32) {
        let own = &mut self.tenants.load_mut(tenant).bytes;
        subtract(own, u64::from(bytes), &mut self.news.miscounts);
        subtract(&mut self.bytes, u64::from(bytes), &mut self.news.miscounts);
    }

    /// Takes a reference to a tenant back.
    pub(super) fn release_tenant(&mut self, tenant: SlotIndex) {
        let is_wrong = self.tenants.release(tenant);
        self.news.miscounts += u64::from(is_wrong);
    }

    /// Sum of the loads of all tenants.
    pub fn load(&self) -> TaskLoad {
        TaskLoad {
            tasks: self.len() as u64 + self.promised,
            bytes: self.bytes,
        }
    }

    /// What the tenant of this name has.
    pub fn load_of(&self, tenant: &str) -> TaskLoad {
        let place = self.tenants.place(tenant);
        place.map_or_else(TaskLoad::default, |place| self.tenants.load(place))
    }

    /// What the tenant of a queue has.
    pub fn load_of_queue(&self, queue: u32) -> TaskLoad {
        let queue = self.queues.get(queue);
        queue.map_or_else(TaskLoad::default, |queue| {
            self.tenants.load(queue.tenant_place)
        })
    }

    /// Adds up what an image says of its rows.
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

/// See [`State::tenant_at`]. A callback from before records were shared is on the tenant of its own
/// queue.
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
