//! Operations under way, by consecutive numbers: answers come in any order, but mostly in the order
//! of the requests.

use std::collections::VecDeque;

/// Things under way, numbered 0, 1, 2 … as they begin. Looking one up is an index, not a hash.
#[derive(Debug)]
pub(super) struct InFlight<T> {
    /// The number of the first slot.
    base: u64,
    slots: VecDeque<Option<T>>,
    in_flight_count: usize,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self { base: 0, slots: VecDeque::new(), in_flight_count: 0 }
    }
}

impl<T> InFlight<T> {
    /// Begins one and returns its number.
    #[inline]
    pub(super) fn begin(&mut self, operation: T) -> u64 {
        self.slots.push_back(Some(operation));
        self.in_flight_count += 1;
        self.base + self.slots.len() as u64 - 1
    }

    /// Ends the one with this number; `None` where it is not under way.
    #[inline]
    pub(super) fn end(&mut self, number: u64) -> Option<T> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let operation = self.slots.get_mut(index)?.take()?;
        self.in_flight_count -= 1;
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.base += 1;
        }
        Some(operation)
    }

    /// Number of operations begun.
    pub(super) fn begun_count(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Number of operations under way.
    pub(super) fn len(&self) -> usize {
        self.in_flight_count
    }
}

#[cfg(test)]
mod tests;
