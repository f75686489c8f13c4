//! Values by number, in pages that a snapshot can share while the values change.
//!
//! A clone costs one reference count a page. Afterwards the first change of a shared page copies
//! that page, so that the clone still has the values as they were.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Numbers in a page, as a power of two.
const PAGE_BITS: u32 = 9;

/// Values by number, in order of numbers.
#[derive(Clone, Debug)]
pub struct CowPageMap<V> {
    pages: BTreeMap<u64, Arc<BTreeMap<u64, V>>>,
    len: usize,
}

impl<V> Default for CowPageMap<V> {
    fn default() -> Self {
        Self { pages: BTreeMap::new(), len: 0 }
    }
}

impl<V: Clone> CowPageMap<V> {
    /// The value of a number.
    pub fn get(&self, number: u64) -> Option<&V> {
        self.pages.get(&(number >> PAGE_BITS))?.get(&number)
    }

    /// The value of a number, for changes.
    pub fn get_mut(&mut self, number: u64) -> Option<&mut V> {
        self.get(number)?;
        let page = self.pages.get_mut(&(number >> PAGE_BITS))?;
        Arc::make_mut(page).get_mut(&number)
    }

    /// The value of a number, which becomes its type's default where there is none.
    pub(crate) fn get_or_default(&mut self, number: u64) -> &mut V
    where
        V: Default,
    {
        if self.get(number).is_none() {
            self.insert(number, V::default());
        }
        self.get_mut(number).expect("it was there or just put there")
    }

    /// Gives a number a value.
    pub fn insert(&mut self, number: u64, value: V) {
        let page = self.pages.entry(number >> PAGE_BITS).or_default();
        let previous = Arc::make_mut(page).insert(number, value);
        self.len += usize::from(previous.is_none());
    }

    /// Takes a number's value away.
    pub fn remove(&mut self, number: u64) -> Option<V> {
        self.get(number)?;
        let page = self.pages.get_mut(&(number >> PAGE_BITS))?;
        let values = Arc::make_mut(page);
        let removed = values.remove(&number);
        if values.is_empty() {
            self.pages.remove(&(number >> PAGE_BITS));
        }
        self.len -= usize::from(removed.is_some());
        removed
    }

    /// How many numbers have a value.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Every number with its value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.range_from(0)
    }

    /// Numbers from this one on with their values, in order.
    pub(crate) fn range_from(&self, number: u64) -> impl Iterator<Item = (u64, &V)> {
        let pages = self.pages.range(number >> PAGE_BITS..);
        let values = pages.flat_map(move |(_, page)| page.range(number..));
        values.map(|(number, value)| (*number, value))
    }
}

impl<V: Clone> FromIterator<(u64, V)> for CowPageMap<V> {
    fn from_iter<I: IntoIterator<Item = (u64, V)>>(values: I) -> Self {
        let mut map = Self::default();
        for (number, value) in values {
            map.insert(number, value);
        }
        map
    }
}

#[cfg(test)]
mod tests;
