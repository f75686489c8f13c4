//! Loads of tenants in a partition: running sums, so that checking a limit needs no search.
//!
//! A callback counts for its task's tenant from when the task is made: a task that has not ended
//! counts for two, so that its end cannot exceed the tenant's limit.

use std::collections::BTreeMap;

use crate::core::slab::{Row, Slab, SlotIndex};

/// Tasks, and bytes of what records hold of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskLoad {
    /// Existing tasks, and callbacks of those that have not ended.
    pub tasks: u64,
    /// Bytes of content, results and texts of past attempts, and of schedules.
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

/// A tenant with references from queues, schedules or shared records.
#[derive(Clone, Debug, Default)]
struct Tenant {
    name: Box<str>,
    /// Number of its queues, schedules and shared records.
    uses: u64,
    load: TaskLoad,
}

impl Row for Tenant {
    fn is_free(&self) -> bool {
        self.uses == 0
    }
}

/// Tenants by slot and by name.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    rows: Slab<Tenant>,
    places: BTreeMap<Box<str>, SlotIndex>,
}

impl Tenants {
    /// The slot of a tenant, with one more reference.
    pub fn acquire(&mut self, name: &str) -> SlotIndex {
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

    /// Adds a reference to a tenant that has some.
    pub(super) fn hold(&mut self, place: SlotIndex) -> SlotIndex {
        self.rows.get_mut(place).uses += 1;
        place
    }

    /// Releases a reference; a tenant without references is removed. Returns whether it was counted
    /// wrongly: it had no reference, or is removed with a load, which nothing subtracts any more.
    #[must_use]
    pub(super) fn release(&mut self, place: SlotIndex) -> bool {
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
    pub fn name(&self, place: SlotIndex) -> &str {
        &self.rows.get(place).name
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The slot of a tenant that has references.
    pub(super) fn place(&self, name: &str) -> Option<SlotIndex> {
        self.places.get(name).copied()
    }

    pub(super) fn load(&self, place: SlotIndex) -> TaskLoad {
        self.rows.get(place).load
    }

    pub(super) fn load_mut(&mut self, place: SlotIndex) -> &mut TaskLoad {
        &mut self.rows.get_mut(place).load
    }

    /// The names by slot, for a snapshot, which finds none by name.
    pub(super) fn share(&mut self) -> Self {
        Self {
            rows: self.rows.share(),
            places: BTreeMap::new(),
        }
    }
}

/// Subtracts from a sum. A sum that is smaller was counted wrongly: it becomes zero, and the error
/// is counted. A wrapped sum would lock its tenant out.
pub(super) fn subtract(sum: &mut u64, less: u64, miscounts: &mut u64) {
    *miscounts += u64::from(*sum < less);
    *sum = sum.saturating_sub(less);
}
