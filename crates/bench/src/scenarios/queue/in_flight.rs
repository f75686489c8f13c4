//! Operations under way, by consecutive numbers: answers come in any order, but mostly in the order
//! of the requests.

use std::collections::VecDeque;

/// Things under way, numbered 0, 1, 2 … as they begin. Looking one up is an index, not a hash.
#[derive(Debug)]
pub(super) struct Flight<T> {
    /// The number of the first slot.
    base: u64,
    slots: VecDeque<Option<T>>,
    under_way: usize,
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self {
            base: 0,
            slots: VecDeque::new(),
            under_way: 0,
        }
    }
}

impl<T> Flight<T> {
    /// Begins one and returns its number.
    #[inline]
    pub(super) fn begin(&mut self, what: T) -> u64 {
        self.slots.push_back(Some(what));
        self.under_way += 1;
        self.base + self.slots.len() as u64 - 1
    }

    /// Ends the one with this number; `None` where it is not under way.
    #[inline]
    pub(super) fn end(&mut self, number: u64) -> Option<T> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let ended = self.slots.get_mut(index)?.take()?;
        self.under_way -= 1;
        while let Some(None) = self.slots.front() {
            self.slots.pop_front();
            self.base += 1;
        }
        Some(ended)
    }

    /// Number of operations begun.
    pub(super) fn begun(&self) -> u64 {
        self.base + self.slots.len() as u64
    }

    /// Number of operations under way.
    pub(super) fn len(&self) -> usize {
        self.under_way
    }
}

#[cfg(test)]
mod tests;
