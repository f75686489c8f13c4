//! What each tenant has of a partition: added up as it comes and goes, so that no limit costs a
//! search.
//!
//! A callback is on its task's tenant from the moment at which the task is made: one that has not
//! ended counts for two, so that no end of a task brings its tenant beyond what was let in.

use std::collections::BTreeMap;

use crate::core::slab::{Row, Slab, SlotIndex};

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
    places: BTreeMap<Box<str>, SlotIndex>,
}

impl Tenants {
    /// The place of a tenant, to which there is one more reference.
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

    /// One more reference to a tenant that has some.
    pub(super) fn hold(&mut self, place: SlotIndex) -> SlotIndex {
        self.rows.get_mut(place).uses += 1;
        place
    }

    /// Takes one reference back; a tenant without any is forgotten. Returns whether it was counted
    /// wrongly: it had no reference, or is forgotten with a load, which nothing takes back any
    /// more.
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

    /// The place of a tenant that something refers to.
    pub(super) fn place(&self, name: &str) -> Option<SlotIndex> {
        self.places.get(name).copied()
    }

    pub(super) fn load(&self, place: SlotIndex) -> TaskLoad {
        self.rows.get(place).load
    }

    pub(super) fn load_mut(&mut self, place: SlotIndex) -> &mut TaskLoad {
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

/// Takes from a sum what it has counted. A sum that has less was counted wrongly: it becomes zero,
/// and the error is counted. To wrap would lock its tenant out.
pub(super) fn subtract(sum: &mut u64, less: u64, miscounts: &mut u64) {
    *miscounts += u64::from(*sum < less);
    *sum = sum.saturating_sub(less);
}
