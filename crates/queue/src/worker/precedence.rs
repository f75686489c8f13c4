//! Precedence: which partition hands out the next task of a queue with several priorities.
//!
//! A partition orders its own tasks only. For the order to hold over all of them, each publishes
//! the rank of its next task, and hands out a task only while no other partition's next task ranks
//! higher. A partition that yields tries again when a higher rank elsewhere falls, and hands out
//! anyway after `queue.priority_wait_max`: one that makes no progress delays the others by no more
//! than that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::sync::lock;

use crate::core::state::State;

/// Ranks of the next tasks of one queue.
#[derive(Debug, Default)]
struct Heads {
    /// Their ranks by partition.
    ranks: BTreeMap<usize, i64>,
    yielding: BTreeSet<usize>,
}

/// Ranks of all queues with several priorities, shared by the partitions.
#[derive(Debug, Default)]
pub(crate) struct SharedRanks {
    queues: Mutex<HashMap<u32, Heads>>,
    /// Number of these queues, so that servers without any need no lock.
    count: AtomicUsize,
    /// The longest that a partition yields.
    wait_max_ms: u64,
}

impl SharedRanks {
    /// Without ranks of any queue; a partition yields for up to `wait_max_ms`.
    pub(crate) fn new(wait_max_ms: u64) -> Self {
        Self { wait_max_ms, ..Self::default() }
    }

    fn is_compared(&self, queue: u32) -> bool {
        self.count.load(Ordering::Acquire) > 0 && lock(&self.queues).contains_key(&queue)
    }

    /// Starts to compare the partitions of a queue. Returns whether they were not compared before.
    fn start_comparing(&self, queue: u32) -> bool {
        let mut queues = lock(&self.queues);
        let is_new = !queues.contains_key(&queue);
        queues.entry(queue).or_default();
        self.count.store(queues.len(), Ordering::Release);
        is_new
    }

    /// Publishes the rank of a partition's next task. Returns the partitions that may have to yield
    /// no more.
    fn publish_rank(&self, queue: u32, partition: usize, rank: Option<i64>) -> BTreeSet<usize> {
        let mut queues = lock(&self.queues);
        let heads = queues.entry(queue).or_default();
        let previous = match rank {
            Some(rank) => heads.ranks.insert(partition, rank),
            None => heads.ranks.remove(&partition),
        };
        let has_fallen = previous > rank;
        let yielding =
            if has_fallen { std::mem::take(&mut heads.yielding) } else { BTreeSet::new() };
        if heads.ranks.is_empty() {
            queues.remove(&queue);
        }
        self.count.store(queues.len(), Ordering::Release);
        yielding
    }

    /// The highest rank in other partitions; where it is higher than `rank`, the partition yields.
    fn compare(&self, queue: u32, partition: usize, rank: i64) -> Option<i64> {
        let mut queues = lock(&self.queues);
        let heads = queues.get_mut(&queue)?;
        let others = heads.ranks.iter().filter(|(other, _)| **other != partition);
        let highest = others.map(|(_, rank)| *rank).max();
        if highest > Some(rank) {
            heads.yielding.insert(partition);
        }
        highest
    }
}

/// Tasks of a queue that a partition may hand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowance {
    /// Tasks of this rank and above.
    AtLeast(i64),
    /// Nothing until this time, in Unix milliseconds.
    Nothing { until_ms: u64 },
}

/// The ranks of one partition, compared with those of the others.
pub(super) struct Precedence {
    partition: usize,
    shared: Arc<SharedRanks>,
    /// The ranks as last published, by queue.
    published_ranks: BTreeMap<u32, i64>,
    /// Since when the partition yields, by queue, in Unix milliseconds.
    yielding: BTreeMap<u32, u64>,
    /// Newly compared queues, which all partitions are to reconsider.
    newly_compared: Vec<u32>,
}

impl Precedence {
    pub(crate) fn new(partition: usize, shared: Arc<SharedRanks>) -> Self {
        Self {
            partition,
            shared,
            published_ranks: BTreeMap::new(),
            yielding: BTreeMap::new(),
            newly_compared: Vec::new(),
        }
    }

    /// Compares the partitions of a queue that has tasks of several priorities, here or in another
    /// one.
    pub(crate) fn track(&mut self, queue: u32, state: &State) {
        let row = state.queue_by_id(queue);
        let has_priorities = row.is_some_and(|row| row.rings.has_priorities());
        if has_priorities && state.next_rank(queue).is_some() && self.shared.start_comparing(queue)
        {
            self.newly_compared.push(queue);
        }
        if has_priorities || self.shared.is_compared(queue) {
            self.publish_rise(queue, state);
        }
    }

    /// What may be handed out of a queue at this time. The rank of the present next task counts:
    /// the published one falls only once the tasks before it are delivered.
    pub(crate) fn allowance(&mut self, queue: u32, state: &State, now_ms: u64) -> Allowance {
        let rank = state.next_rank(queue);
        match rank.filter(|_| self.published_ranks.contains_key(&queue)) {
            Some(rank) => self.compare_allowance(queue, rank, now_ms),
            None => Allowance::AtLeast(i64::MIN),
        }
    }

    fn compare_allowance(&mut self, queue: u32, rank: i64, now_ms: u64) -> Allowance {
        let highest = self.shared.compare(queue, self.partition, rank).unwrap_or(i64::MIN);
        if highest <= rank {
            self.yielding.remove(&queue);
            return Allowance::AtLeast(highest);
        }
        let since_ms = *self.yielding.entry(queue).or_insert(now_ms);
        let until_ms = since_ms.saturating_add(self.shared.wait_max_ms);
        if now_ms < until_ms {
            return Allowance::Nothing { until_ms };
        }
        self.yielding.remove(&queue);
        Allowance::AtLeast(rank)
    }

    /// Publishes ranks that have risen: before a new task is acknowledged, so that none of lower
    /// rank that is handed out later goes before it. Returns the queues for which the partition may
    /// have to yield no more.
    pub(crate) fn publish_rises(&mut self, state: &State) -> Vec<u32> {
        let queues: Vec<u32> = self.published_ranks.keys().copied().collect();
        let has_risen = |queue: &u32| self.publish_rise(*queue, state);
        let risen: Vec<u32> = queues.into_iter().filter(has_risen).collect();
        risen.into_iter().filter(|queue| self.yielding.contains_key(queue)).collect()
    }

    fn publish_rise(&mut self, queue: u32, state: &State) -> bool {
        let rank = state.next_rank(queue);
        let previous = self.published_ranks.get(&queue).copied();
        let Some(rank) = rank.filter(|rank| previous < Some(*rank)) else {
            return false;
        };
        self.published_ranks.insert(queue, rank);
        self.shared.publish_rank(queue, self.partition, Some(rank));
        true
    }

    /// Publishes ranks that have fallen: after the tasks of higher rank are delivered. Returns the
    /// partitions that are to reconsider a queue.
    pub(crate) fn publish_falls(&mut self, state: &State) -> Vec<(PartitionSet, u32)> {
        let mut freed = Vec::new();
        self.published_ranks.retain(|queue, noted| {
            let rank = state.next_rank(*queue);
            if rank != Some(*noted) {
                let yielding = self.shared.publish_rank(*queue, self.partition, rank);
                if !yielding.is_empty() {
                    freed.push((PartitionSet::Listed(yielding), *queue));
                }
            }
            match rank {
                Some(rank) => *noted = rank,
                None => drop(self.yielding.remove(queue)),
            }
            rank.is_some()
        });
        let begun = self.newly_compared.drain(..);
        freed.extend(begun.map(|queue| (PartitionSet::AllExcept(self.partition), queue)));
        freed
    }

    /// After a step of the clock: forgets for which queues the partition yields.
    pub(crate) fn clear_yielding(&mut self) {
        self.yielding.clear();
    }

    /// Withdraws every rank: the partition hands nothing out. Returns the partitions that are to
    /// reconsider a queue.
    pub(crate) fn withdraw_ranks(&mut self) -> Vec<(PartitionSet, u32)> {
        self.yielding.clear();
        let queues = std::mem::take(&mut self.published_ranks).into_keys();
        queues
            .map(|queue| {
                let yielding = self.shared.publish_rank(queue, self.partition, None);
                (PartitionSet::Listed(yielding), queue)
            })
            .collect()
    }
}

/// The partitions that a message is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PartitionSet {
    /// Those of these numbers.
    Listed(BTreeSet<usize>),
    /// All but the one of this number.
    AllExcept(usize),
}

#[cfg(test)]
mod tests;
