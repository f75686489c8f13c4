//! Rows in stable slots, in pages that a snapshot can share while the rows change.
//!
//! [`Slab::share`] costs one small allocation a page. Afterwards the first change of a shared page
//! copies that page, so that the shared copy still has the rows as they were. A page that is not
//! shared is changed without asking a reference count, which would be the dearest part of a change.

use std::sync::Arc;

/// The memory of a page, copied in a few microseconds. Allocators have just this size, as they have
/// four or eight between powers of two: with a power of two of entries a page would leave 7% of its
/// memory empty.
const PAGE_BYTES: usize = 56 << 10;

/// Index of a slot.
pub type SlotIndex = u32;

/// Stands for no slot.
pub(crate) const NO_SLOT: SlotIndex = u32::MAX;

/// A row that can be kept in a slab. Its default marks a free slot.
pub trait Row: Clone + Default {
    /// Whether the slot is free.
    fn is_free(&self) -> bool;
}

/// Free slots in a full chunk.
const CHUNK_SLOTS: usize = 4_096;

/// Free slots, used last in, first out. All but the last few are in chunks that never change, so
/// that a clone is short however many there are.
#[derive(Clone, Debug, Default)]
struct Free {
    full_chunks: Vec<Arc<[SlotIndex]>>,
    last_chunk: Vec<SlotIndex>,
}

impl Free {
    fn push(&mut self, slot: SlotIndex) {
        if self.last_chunk.len() == CHUNK_SLOTS {
            self.full_chunks.push(self.last_chunk.as_slice().into());
            self.last_chunk.clear();
        }
        self.last_chunk.push(slot);
    }

    fn pop(&mut self) -> Option<SlotIndex> {
        if self.last_chunk.is_empty() {
            self.last_chunk.extend_from_slice(&self.full_chunks.pop()?);
        }
        self.last_chunk.pop()
    }

    fn len(&self) -> usize {
        self.full_chunks.len() * CHUNK_SLOTS + self.last_chunk.len()
    }

    fn iter(&self) -> impl Iterator<Item = SlotIndex> {
        let full = self.full_chunks.iter().flat_map(|chunk| chunk.iter());
        full.chain(&self.last_chunk).copied()
    }
}

#[derive(Clone, Debug)]
enum SlabPage<R> {
    /// Used by this slab only.
    Own(Box<[R]>),
    /// Possibly shared with snapshots.
    Shared(Arc<Box<[R]>>),
}

impl<R: Clone> SlabPage<R> {
    fn rows(&self) -> &[R] {
        match self {
            SlabPage::Own(rows) => rows,
            SlabPage::Shared(rows) => rows,
        }
    }

    /// The rows, for changes; a shared page is copied first.
    fn rows_mut(&mut self) -> &mut [R] {
        if let SlabPage::Shared(_) = self {
            self.make_own();
        }
        match self {
            SlabPage::Own(rows) => rows,
            SlabPage::Shared(_) => unreachable!("it has just become its own"),
        }
    }

    #[cold]
    fn make_own(&mut self) {
        if let SlabPage::Shared(rows) = std::mem::replace(self, SlabPage::Own(Box::default())) {
            *self = SlabPage::Own(Arc::unwrap_or_clone(rows));
        }
    }

    fn share(&mut self) -> Self {
        if let SlabPage::Own(rows) = self {
            *self = SlabPage::Shared(Arc::new(std::mem::take(rows)));
        }
        self.clone()
    }
}

/// Rows by slot.
///
/// A slot is used again once its row is removed: references to the row must be removed before.
#[derive(Clone, Debug)]
pub struct Slab<R> {
    pages: Vec<SlabPage<R>>,
    free: Free,
    /// Slots that have been in use at least once.
    slots_used: SlotIndex,
}

impl<R> Default for Slab<R> {
    fn default() -> Self {
        Self { pages: Vec::new(), free: Free::default(), slots_used: 0 }
    }
}

impl<R: Row> Slab<R> {
    /// Rows in a page.
    const PAGE_ROWS: SlotIndex = (PAGE_BYTES / size_of::<R>()) as SlotIndex;

    /// Page and row of a slot.
    fn locate(slot: SlotIndex) -> (usize, usize) {
        let page = slot / Self::PAGE_ROWS;
        (page as usize, (slot - page * Self::PAGE_ROWS) as usize)
    }

    /// The row of a slot in use.
    pub fn get(&self, slot: SlotIndex) -> &R {
        let (page, row) = Self::locate(slot);
        &self.pages[page].rows()[row]
    }

    /// The row of a slot in use, for changes.
    pub fn get_mut(&mut self, slot: SlotIndex) -> &mut R {
        let (page, row) = Self::locate(slot);
        &mut self.pages[page].rows_mut()[row]
    }

    /// Puts a row into a free slot.
    ///
    /// # Panics
    /// When all 2^32 − 1 slots are in use; limits refuse tasks long before.
    pub fn insert(&mut self, row: R) -> SlotIndex {
        let slot = self.free.pop().unwrap_or_else(|| {
            let place = self.slots_used;
            assert!(place < NO_SLOT, "the slab is full");
            self.slots_used += 1;
            place
        });
        if Self::locate(slot).0 == self.pages.len() {
            let rows = (0..Self::PAGE_ROWS).map(|_| R::default());
            self.pages.push(SlabPage::Own(rows.collect()));
        }
        *self.get_mut(slot) = row;
        slot
    }

    /// Frees a slot and returns its row.
    pub fn remove(&mut self, slot: SlotIndex) -> R {
        self.free.push(slot);
        std::mem::take(self.get_mut(slot))
    }

    /// A copy of the present rows, which shares its pages with this slab.
    pub fn share(&mut self) -> Self {
        Self {
            pages: self.pages.iter_mut().map(SlabPage::share).collect(),
            free: self.free.clone(),
            slots_used: self.slots_used,
        }
    }

    /// Number of rows in use.
    pub fn len(&self) -> usize {
        self.slots_used as usize - self.free.len()
    }

    /// Whether no row is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Free slots that were in use, the next to be used last.
    pub fn free_slots(&self) -> impl Iterator<Item = SlotIndex> {
        self.free.iter()
    }

    /// Number of slots that have ever been in use.
    pub fn extent(&self) -> SlotIndex {
        self.slots_used
    }

    /// Every slot that has been in use, free ones as `None`, in order.
    pub fn slots(&self) -> impl Iterator<Item = Option<&R>> + Clone {
        (0..self.slots_used).map(|slot| Some(self.get(slot)).filter(|row| !row.is_free()))
    }

    /// Rebuilds a slab from its slots and its free slots: it then behaves exactly as the one that
    /// they were taken from.
    pub fn restore(slots: impl Iterator<Item = Option<R>>, free: Vec<SlotIndex>) -> Self {
        let mut slab = Self::default();
        for row in slots {
            slab.insert(row.unwrap_or_default());
        }
        free.into_iter().for_each(|slot| slab.free.push(slot));
        slab
    }
}
