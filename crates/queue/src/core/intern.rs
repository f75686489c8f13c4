//! Values that many tasks share, kept once and named by a number.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

/// Values in a page.
const PAGE_VALUES: usize = 512;

/// Values by number, with how often each is used, in pages that a snapshot can share: a clone costs
/// one reference count a page, and the first change of a shared page copies the page, not its
/// values.
#[derive(Clone, Debug)]
pub struct Values<T> {
    pages: Vec<Arc<[Value<T>]>>,
    /// Numbers that have been in use at least once, 0 included.
    numbers_used: u32,
}

#[derive(Debug)]
struct Value<T> {
    value: Arc<T>,
    uses: u64,
}

impl<T> Clone for Value<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), uses: self.uses }
    }
}

impl<T: Default> Default for Values<T> {
    /// Values with number 0 only.
    fn default() -> Self {
        let mut values = Self { pages: Vec::new(), numbers_used: 0 };
        values.set(0, T::default(), 1);
        values
    }
}

impl<T: Default> Values<T> {
    fn entry(&self, number: u32) -> &Value<T> {
        let number = number as usize;
        &self.pages[number / PAGE_VALUES][number % PAGE_VALUES]
    }

    fn entry_mut(&mut self, number: u32) -> &mut Value<T> {
        let number = number as usize;
        let page = &mut self.pages[number / PAGE_VALUES];
        &mut Arc::make_mut(page)[number % PAGE_VALUES]
    }

    fn set(&mut self, number: u32, value: T, uses: u64) {
        while self.pages.len() <= number as usize / PAGE_VALUES {
            let unused = Value { value: Arc::default(), uses: 0 };
            self.pages.push(vec![unused; PAGE_VALUES].into());
        }
        self.numbers_used = self.numbers_used.max(number + 1);
        *self.entry_mut(number) = Value { value: Arc::new(value), uses };
    }

    /// Values in use with their numbers and counts, without number 0's.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T, u64)> {
        let numbered = (1..self.numbers_used).map(|number| (number, self.entry(number)));
        numbered
            .filter(|(_, value)| value.uses > 0)
            .map(|(number, value)| (number, &*value.value, value.uses))
    }

    /// Rebuilds from what [`Values::iter`] gave.
    pub fn restore(values: impl Iterator<Item = (u32, T, u64)>) -> Self {
        let mut restored = Self::default();
        for (number, value, uses) in values {
            restored.set(number, value, uses);
        }
        restored
    }
}

/// Values by number. Number 0 is the default value and always known.
#[derive(Clone, Debug)]
pub(crate) struct Interner<T> {
    values: Values<T>,
    numbers: HashTable<u32>,
    hasher: RandomState,
    /// Numbers to be used again, the lowest first: which they are does not depend on their history.
    free: BTreeSet<u32>,
}

impl<T: Default + Eq + Hash> Default for Interner<T> {
    fn default() -> Self {
        Self::new(Values::default())
    }
}

impl<T: Default + Eq + Hash> Interner<T> {
    /// Starts with these values.
    pub(crate) fn new(values: Values<T>) -> Self {
        let mut interner = Self {
            numbers: HashTable::new(),
            hasher: RandomState::new(),
            free: BTreeSet::new(),
            values,
        };
        for number in 0..interner.values.numbers_used {
            match interner.values.entry(number).uses {
                0 => drop(interner.free.insert(number)),
                _ => interner.index_value(number),
            }
        }
        interner
    }

    /// The values, for a snapshot.
    pub(crate) fn values(&self) -> &Values<T> {
        &self.values
    }

    /// Adds a value to the index by hash.
    fn index_value(&mut self, number: u32) {
        let (values, hasher) = (&self.values, &self.hasher);
        let hash = |number: &u32| hasher.hash_one(&*values.entry(*number).value);
        self.numbers.insert_unique(hash(&number), number, hash);
    }

    /// The number of a value, with one more use.
    pub(crate) fn acquire<Q>(&mut self, value: &Q) -> u32
    where
        T: Borrow<Q> + for<'a> From<&'a Q>,
        Q: Eq + Hash + ?Sized,
    {
        let values = &self.values;
        let is_match = |number: &u32| T::borrow(&values.entry(*number).value) == value;
        let found = self.numbers.find(self.hasher.hash_one(value), is_match);
        if let Some(number) = found.copied() {
            self.add_uses(number, 1);
            return number;
        }
        let number = self.free.pop_first().unwrap_or(self.values.numbers_used);
        self.values.set(number, T::from(value), 1);
        self.index_value(number);
        number
    }

    /// Counts uses of a known number.
    pub(crate) fn add_uses(&mut self, number: u32, uses: u64) {
        if number == 0 {
            return;
        }
        self.values.entry_mut(number).uses += uses;
    }

    /// Subtracts uses of a number; a value without uses is removed.
    pub(crate) fn release(&mut self, number: u32, uses: u64) {
        if number == 0 {
            return;
        }
        let value = self.values.entry_mut(number);
        value.uses -= uses;
        if value.uses > 0 {
            return;
        }
        let forgotten = std::mem::take(&mut value.value);
        let hash = self.hasher.hash_one(&*forgotten);
        let found = self.numbers.find_entry(hash, |other| *other == number);
        found.expect("a value in use is found").remove();
        self.free.insert(number);
    }

    /// The value with this number.
    pub(crate) fn get(&self, number: u32) -> &T {
        &self.values.entry(number).value
    }
}
