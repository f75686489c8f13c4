//! Which series there are in a shard, and which have a label: series by the bytes of their labels, and for each
//! value of each label the numbers of the series that have it.
//!
//! Numbers are given in order, so a list of them only grows at its end and is always sorted.

use std::collections::BTreeMap;

use hashbrown::HashTable;

/// The numbers of series, ascending.
type Postings = Vec<u32>;

/// See the module.
#[derive(Debug, Default)]
pub struct Index {
    /// The labels of each series as they are kept; `None` when it is gone.
    labels: Vec<Option<Box<[u8]>>>,
    by_labels: HashTable<u32>,
    names: BTreeMap<Box<str>, BTreeMap<Box<str>, Postings>>,
}

impl Index {
    /// The number of the series with these labels, `hash` being that of their bytes.
    pub fn find(&self, hash: u64, labels: &[u8]) -> Option<u32> {
        let same = |number: &u32| self.labels[*number as usize].as_deref() == Some(labels);
        self.by_labels.find(hash, same).copied()
    }

    /// The number that the next new series gets.
    pub fn next(&self) -> u32 {
        self.labels.len() as u32
    }

    /// Adds a series that is not there, with its next number or a later one; `pairs` are its labels, `hash` tells
    /// that of any labels' bytes.
    pub fn insert<'a>(
        &mut self,
        number: u32,
        labels: &[u8],
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
        hash: impl Fn(&[u8]) -> u64,
    ) {
        let place = number as usize;
        assert!(place >= self.labels.len(), "numbers of series ascend");
        self.labels.resize_with(place, || None);
        self.labels.push(Some(labels.into()));
        let all = &self.labels;
        let rehash = |number: &u32| all[*number as usize].as_deref().map_or(0, &hash);
        self.by_labels.insert_unique(hash(labels), number, rehash);
        for (name, value) in pairs {
            let values = match self.names.get_mut(name) {
                Some(values) => values,
                None => self.names.entry(name.into()).or_default(),
            };
            match values.get_mut(value) {
                Some(postings) => postings.push(number),
                None => drop(values.insert(value.into(), vec![number])),
            }
        }
    }

    /// Takes a series out.
    pub fn remove<'a>(
        &mut self,
        number: u32,
        pairs: impl Iterator<Item = (&'a str, &'a str)>,
        hash: impl Fn(&[u8]) -> u64,
    ) {
        let Some(labels) = self.labels.get_mut(number as usize).and_then(Option::take) else {
            return;
        };
        let found = self
            .by_labels
            .find_entry(hash(&labels), |other| *other == number);
        found.expect("a series that is there is found").remove();
        for (name, value) in pairs {
            let Some(values) = self.names.get_mut(name) else {
                continue;
            };
            if let Some(postings) = values.get_mut(value) {
                postings.retain(|other| *other != number);
                if postings.is_empty() {
                    values.remove(value);
                }
            }
            if values.is_empty() {
                self.names.remove(name);
            }
        }
    }

    /// The labels of a series as they are kept.
    pub fn labels(&self, number: u32) -> Option<&[u8]> {
        self.labels.get(number as usize)?.as_deref()
    }

    /// Every series, ascending.
    pub fn all(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let labels = self.labels.iter().enumerate();
        labels.filter_map(|(number, labels)| Some((number as u32, labels.as_deref()?)))
    }

    /// How many series there are.
    pub fn len(&self) -> usize {
        self.by_labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_labels.is_empty()
    }

    /// The names of labels, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(|name| &**name)
    }

    /// The values of a label, sorted, with the series that have each.
    pub fn values(&self, name: &str) -> impl Iterator<Item = (&str, &[u32])> {
        let values = self.names.get(name).into_iter().flatten();
        values.map(|(value, postings)| (&**value, &**postings))
    }

    /// The series in which a label has a value.
    pub fn with(&self, name: &str, value: &str) -> &[u32] {
        let postings = self.names.get(name).and_then(|values| values.get(value));
        postings.map_or(&[], Vec::as_slice)
    }
}

/// Numbers that are in both of two ascending lists. Steps through the shorter one and leaps through the longer.
pub fn intersect(one: &[u32], other: &[u32]) -> Vec<u32> {
    let (short, mut long) = match one.len() <= other.len() {
        true => (one, other),
        false => (other, one),
    };
    let mut both = Vec::with_capacity(short.len());
    for number in short {
        let mut step = 1;
        while long.get(step).is_some_and(|there| there < number) {
            step *= 2;
        }
        let near = &long[..long.len().min(step + 1)];
        let at = near.partition_point(|there| there < number);
        long = &long[at..];
        if long.first() == Some(number) {
            both.push(*number);
        }
    }
    both
}

/// Numbers that are in any of several ascending lists.
pub fn union<'a>(lists: impl Iterator<Item = &'a [u32]>) -> Vec<u32> {
    let mut all: Vec<u32> = lists.flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests;
