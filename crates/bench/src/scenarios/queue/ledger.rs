//! What became of every task, by its number, so that none that was acknowledged is lost and none is
//! done twice without being noticed. Three bits a task.

/// State of each task: accepted, handed out, completed.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    accepted: Bits,
    delivered: Bits,
    completed: Bits,
    /// Tasks that were handed out or completed once more.
    pub(super) duplicated: u64,
}

impl Ledger {
    /// The server has acknowledged that it has the task.
    #[inline]
    pub(super) fn accept(&mut self, number: u64) {
        self.accepted.insert(number);
    }

    /// The worker was given the task.
    #[inline]
    pub(super) fn deliver(&mut self, number: u64) {
        if self.delivered.insert(number) {
            self.duplicated += 1;
        }
    }

    /// The server has acknowledged that the task is completed.
    #[inline]
    pub(super) fn complete(&mut self, number: u64) {
        if self.completed.insert(number) {
            self.duplicated += 1;
        }
    }

    /// Tasks that the server has acknowledged and that were never completed.
    pub(super) fn lost(&self) -> u64 {
        self.accepted.count_without(&self.completed)
    }

    /// Number of tasks acknowledged by the server.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted.count
    }

    /// Number of completed tasks.
    pub(super) fn completed(&self) -> u64 {
        self.completed.count
    }
}

/// A set of numbers from 0 on.
#[derive(Debug, Default)]
struct Bits {
    words: Vec<u64>,
    count: u64,
}

impl Bits {
    /// Adds a number; whether it was there before.
    #[inline]
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let was_set = self.words[word] & bit != 0;
        self.words[word] |= bit;
        self.count += u64::from(!was_set);
        was_set
    }

    /// How many are in this one and not in the other.
    fn count_without(&self, other: &Self) -> u64 {
        let others = other.words.iter().chain(std::iter::repeat(&0));
        let difference = self.words.iter().zip(others).map(|(one, other)| one & !other);
        difference.map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests;
