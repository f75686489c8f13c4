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
    slots_by_name: BTreeMap<Box<str>, SlotIndex>,
}

impl Tenants {
    /// The slot of a tenant, with one more reference.
    pub fn acquire(&mut self, name: &str) -> SlotIndex {
        if let Some(slot) = self.slots_by_name.get(name).copied() {
            self.rows.get_mut(slot).uses += 1;
            return slot;
        }
        let place =
            self.rows.insert(Tenant { name: name.into(), uses: 1, load: TaskLoad::default() });
        self.slots_by_name.insert(name.into(), place);
        place
    }

    /// Adds a reference to a tenant that has some.
    pub(super) fn add_reference(&mut self, slot: SlotIndex) -> SlotIndex {
        self.rows.get_mut(slot).uses += 1;
        slot
    }

    /// Releases a reference; a tenant without references is removed. Returns whether it was counted
    /// wrongly: it had no reference, or is removed with a load, which nothing subtracts any more.
    #[must_use]
    pub(super) fn release(&mut self, slot: SlotIndex) -> bool {
        let tenant = self.rows.get_mut(slot);
        let was_unused = tenant.uses == 0;
        tenant.uses = tenant.uses.saturating_sub(1);
        if tenant.uses > 0 {
            return false;
        }
        let tenant = self.rows.remove(slot);
        self.slots_by_name.remove(&tenant.name);
        was_unused || tenant.load != TaskLoad::default()
    }

    /// The name of a tenant.
    pub fn name(&self, slot: SlotIndex) -> &str {
        &self.rows.get(slot).name
    }

    pub(super) fn len(&self) -> usize {
        self.slots_by_name.len()
    }

    /// The slot of a tenant that has references.
    pub(super) fn find_slot(&self, name: &str) -> Option<SlotIndex> {
        self.slots_by_name.get(name).copied()
    }

    pub(super) fn load(&self, slot: SlotIndex) -> TaskLoad {
        self.rows.get(slot).load
    }

    pub(super) fn load_mut(&mut self, slot: SlotIndex) -> &mut TaskLoad {
        &mut self.rows.get_mut(slot).load
    }

    /// The names by slot, for a snapshot, which finds none by name.
    pub(super) fn share(&mut self) -> Self {
        Self { rows: self.rows.share(), slots_by_name: BTreeMap::new() }
    }
}

/// Subtracts from a sum. A sum that is smaller was counted wrongly: it becomes zero, and the error
/// is counted. A wrapped sum would lock its tenant out.
pub(super) fn subtract(sum: &mut u64, amount: u64, miscounts: &mut u64) {
    *miscounts += u64::from(*sum < amount);
    *sum = sum.saturating_sub(amount);
}
