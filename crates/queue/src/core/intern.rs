//! Values that many tasks share, kept once and named by a number.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Values by number. Number 0 is the default value and always known.
#[derive(Clone, Debug)]
pub struct Interner<T> {
    values: Vec<(T, u64)>,
    numbers: HashMap<T, u32>,
    /// Numbers to be used again, the lowest first: which they are does not depend on their history.
    free: BTreeSet<u32>,
}

impl<T: Clone + Default + Eq + Hash> Default for Interner<T> {
    fn default() -> Self {
        Self {
            values: vec![(T::default(), 1)],
            numbers: HashMap::from([(T::default(), 0)]),
            free: BTreeSet::new(),
        }
    }
}

impl<T: Clone + Default + Eq + Hash> Interner<T> {
    /// The number of a value, counted as one use more.
    pub fn acquire<Q>(&mut self, value: &Q) -> u32
    where
        T: Borrow<Q> + for<'a> From<&'a Q>,
        Q: Eq + Hash + ?Sized,
    {
        if let Some(number) = self.numbers.get(value).copied() {
            self.hold(number, 1);
            return number;
        }
        let kept = T::from(value);
        let number = match self.free.pop_first() {
            Some(number) => {
                self.values[number as usize] = (kept.clone(), 1);
                number
            }
            None => {
                self.values.push((kept.clone(), 1));
                self.values.len() as u32 - 1
            }
        };
        self.numbers.insert(kept, number);
        number
    }

    /// Counts uses of a known number.
    pub fn hold(&mut self, number: u32, uses: u64) {
        if number == 0 {
            return;
        }
        self.values[number as usize].1 += uses;
    }

    /// Ends uses of a number; without any the value is forgotten.
    pub fn release(&mut self, number: u32, uses: u64) {
        if number == 0 {
            return;
        }
        let (value, left) = &mut self.values[number as usize];
        *left -= uses;
        if *left == 0 {
            self.numbers.remove(value);
            *value = T::default();
            self.free.insert(number);
        }
    }

    /// The value with this number.
    pub fn get(&self, number: u32) -> &T {
        &self.values[number as usize].0
    }

    /// Values in use with their numbers and counts, without number 0's.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T, u64)> {
        let numbered = self.values.iter().enumerate().skip(1);
        numbered
            .filter(|(_, (_, uses))| *uses > 0)
            .map(|(number, (value, uses))| (number as u32, value, *uses))
    }

    /// Rebuilds from what [`Interner::iter`] gave.
    pub fn restore(values: impl Iterator<Item = (u32, T, u64)>) -> Self {
        let mut interner = Self::default();
        for (number, value, uses) in values {
            let place = number as usize;
            if interner.values.len() <= place {
                interner.values.resize(place + 1, (T::default(), 0));
            }
            interner.numbers.insert(value.clone(), number);
            interner.values[place] = (value, uses);
        }
        let unused = interner.values.iter().enumerate();
        interner.free = unused
            .filter(|(_, (_, uses))| *uses == 0)
            .map(|(number, _)| number as u32)
            .collect();
        interner
    }
}
