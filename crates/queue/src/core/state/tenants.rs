//! What each tenant has of a partition: added up as it comes and goes, so that no limit costs a search.
//!
//! A callback is on its task's tenant from the moment at which the task is made: one that has not ended counts
//! for two, so that no end of a task brings its tenant beyond what was let in.

use super::*;

/// Tasks, and bytes of what records hold of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskLoad {
    /// Tasks that are known, and callbacks of those that have not ended.
    pub tasks: u64,
    /// Bytes of content, results and the words of past attempts, and of schedules.
    pub bytes: u64,
}

impl std::iter::Sum for TaskLoad {
    fn sum<I: Iterator<Item = Self>>(loads: I) -> Self {
        loads.fold(Self::default(), |sum, load| Self {
            tasks: sum.tasks + load.tasks,
            bytes: sum.bytes + load.bytes,
        })
    }
}

/// A tenant that something of a partition refers to.
#[derive(Clone, Debug, Default)]
struct Tenant {
    name: Box<str>,
    /// Queues, schedules and shared records that are the tenant's.
    uses: u64,
    load: TaskLoad,
}

impl Row for Tenant {
    fn is_free(&self) -> bool {
        self.uses == 0
    }
}

/// Tenants by place and by name.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    rows: Slab<Tenant>,
    places: BTreeMap<Box<str>, Place>,
}

impl Tenants {
    /// The place of a tenant, to which there is one more reference.
    pub fn acquire(&mut self, name: &str) -> Place {
        if let Some(place) = self.places.get(name).copied() {
            self.rows.get_mut(place).uses += 1;
            return place;
        }
        let place = self.rows.insert(Tenant {
            name: name.into(),
            uses: 1,
            load: TaskLoad::default(),
        });
        self.places.insert(name.into(), place);
        place
    }

    /// One more reference to a tenant that has some.
    pub(super) fn hold(&mut self, place: Place) -> Place {
        self.rows.get_mut(place).uses += 1;
        place
    }

    /// Takes one reference back; a tenant without any is forgotten. Returns whether it was counted wrongly: it had no
    /// reference, or is forgotten with a load, which nothing takes back any more.
    #[must_use]
    pub(super) fn release(&mut self, place: Place) -> bool {
        let tenant = self.rows.get_mut(place);
        let was_unused = tenant.uses == 0;
        tenant.uses = tenant.uses.saturating_sub(1);
        if tenant.uses > 0 {
            return false;
        }
        let tenant = self.rows.remove(place);
        self.places.remove(&tenant.name);
        was_unused || tenant.load != TaskLoad::default()
    }

    /// The name of a tenant.
    pub fn name(&self, place: Place) -> &str {
        &self.rows.get(place).name
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn load_mut(&mut self, place: Place) -> &mut TaskLoad {
        &mut self.rows.get_mut(place).load
    }

    /// The names by place, for an image, which finds none by name.
    pub(super) fn share(&mut self) -> Self {
        Self {
            rows: self.rows.share(),
            places: BTreeMap::new(),
        }
    }
}

/// Takes from a sum what it has counted. A sum that has less was counted wrongly: it becomes zero, and the error is
/// counted. To wrap would lock its tenant out.
pub(super) fn subtract(sum: &mut u64, less: u64, miscounts: &mut u64) {
    *miscounts += u64::from(*sum < less);
    *sum = sum.saturating_sub(less);
}

impl State {
    /// The tenant on whose load a task is: of a callback, that of the task it tells of.
    pub(super) fn tenant_at(&self, place: Place) -> Place {
        tenant_of_entry(self.entries.get(place), &self.queues, &self.shared)
    }

    /// Counts a new task with its bytes, and the callback that it may cause.
    pub(super) fn count_task(&mut self, place: Place) {
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
    pub(super) fn discount_task(&mut self, place: Place) {
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
    pub(super) fn promise_callback(&mut self, place: Place) {
        let tenant = self.tenant_at(place);
        self.tenants.load_mut(tenant).tasks += 1;
        self.promised += 1;
    }

    /// A task that was to cause a callback has ended or goes.
    pub(super) fn withdraw_promise(&mut self, place: Place) {
        let tenant = self.tenant_at(place);
        let tasks = &mut self.tenants.load_mut(tenant).tasks;
        subtract(tasks, 1, &mut self.news.miscounts);
        subtract(&mut self.promised, 1, &mut self.news.miscounts);
    }

    /// Takes bytes from a tenant's sum and from that of all.
    pub(super) fn discount_bytes(&mut self, tenant: Place, bytes: u32) {
        let own = &mut self.tenants.load_mut(tenant).bytes;
        subtract(own, u64::from(bytes), &mut self.news.miscounts);
        subtract(&mut self.bytes, u64::from(bytes), &mut self.news.miscounts);
    }

    /// Takes a reference to a tenant back.
    pub(super) fn release_tenant(&mut self, tenant: Place) {
        let is_wrong = self.tenants.release(tenant);
        self.news.miscounts += u64::from(is_wrong);
    }

    /// What there is of all tenants.
    pub fn load(&self) -> TaskLoad {
        TaskLoad {
            tasks: self.len() as u64 + self.promised,
            bytes: self.bytes,
        }
    }

    /// What the tenant of this name has.
    pub fn load_of(&self, tenant: &str) -> TaskLoad {
        let place = self.tenants.places.get(tenant);
        place.map_or_else(TaskLoad::default, |place| {
            self.tenants.rows.get(*place).load
        })
    }

    /// What the tenant of a queue has.
    pub fn load_of_queue(&self, queue: u32) -> TaskLoad {
        let queue = self.queues.get(queue);
        queue.map_or_else(TaskLoad::default, |queue| {
            self.tenants.rows.get(queue.tenant_place).load
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
        for ((tenant, _), schedule) in &self.schedules {
            let place = self.tenants.acquire(tenant);
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

/// See [`State::tenant_at`]. A callback from before records were shared is on the tenant of its own queue.
fn tenant_of_entry(entry: &Entry, queues: &Queues, shared: &Numbered<SharedRecord>) -> Place {
    if entry.has(flag::IS_CALLBACK) && entry.has(flag::SHARES_RECORD) {
        let shared = shared.get(entry.record);
        return shared.expect("a callback holds its record").tenant;
    }
    queues[entry.queue].tenant_place
}
