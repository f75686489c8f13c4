//! Scheduling of writes by their locks.
//!
//! A write *locks* keys: exclusively what it changes, shared what it depends on. Writes without
//! conflicts form a group, and groups without conflicts run concurrently. A waiting write also
//! blocks later writes that conflict with it, so none starves.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use crate::model::{AliasId, DocumentNumber, TenantId};

/// A key that writes can lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LockKey {
    /// An alias, taken or not.
    Alias(TenantId, AliasId),
    /// An idempotency key, as a UUIDv5.
    IdempotencyKey(TenantId, Uuid),
    /// A document, by its number.
    Document(TenantId, DocumentNumber),
}

/// The lock set of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LockSet {
    /// Exclusive lock on the whole database: the write runs when no other does.
    pub locks_database: bool,
    /// Keys that it locks exclusively.
    pub exclusive: Vec<LockKey>,
    /// Keys that it locks shared.
    pub shared: Vec<LockKey>,
}

impl LockSet {
    /// Lock set of a write that runs alone.
    pub(crate) fn whole_database() -> Self {
        Self { locks_database: true, ..Self::default() }
    }

    /// Removes duplicates; an exclusive lock on a key includes a shared one.
    pub(crate) fn normalize(&mut self) {
        self.exclusive.sort_unstable();
        self.exclusive.dedup();
        self.shared.sort_unstable();
        self.shared.dedup();
        let exclusive = &self.exclusive;
        self.shared.retain(|key| exclusive.binary_search(key).is_err());
    }

    /// Adds the locks of another set.
    pub(crate) fn extend(&mut self, other: Self) {
        self.locks_database |= other.locks_database;
        self.exclusive.extend(other.exclusive);
        self.shared.extend(other.shared);
    }
}

/// Position of a write in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// State of a locked key.
#[derive(Debug)]
enum LockState {
    Exclusive,
    Shared(usize),
}

/// All locked keys with their state.
#[derive(Debug, Default)]
struct LockTable {
    keys: HashMap<LockKey, LockState>,
    is_database_locked: bool,
}

impl LockTable {
    fn is_free_for(&self, locks: &LockSet) -> bool {
        if self.is_database_locked {
            return false;
        }
        if locks.locks_database {
            return self.keys.is_empty();
        }
        let is_shared =
            |key: &LockKey| matches!(self.keys.get(key), None | Some(LockState::Shared(_)));
        locks.exclusive.iter().all(|key| !self.keys.contains_key(key))
            && locks.shared.iter().all(is_shared)
    }

    fn acquire(&mut self, locks: &LockSet) {
        self.is_database_locked |= locks.locks_database;
        for key in &locks.exclusive {
            self.keys.insert(*key, LockState::Exclusive);
        }
        for key in &locks.shared {
            match self.keys.entry(*key).or_insert(LockState::Shared(0)) {
                LockState::Shared(count) => *count += 1,
                // The write's own exclusive lock includes a shared one.
                LockState::Exclusive => {}
            }
        }
    }

    fn release(&mut self, locks: &LockSet) {
        if locks.locks_database {
            self.is_database_locked = false;
        }
        for key in &locks.shared {
            if let Some(LockState::Shared(count)) = self.keys.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.keys.remove(key);
                }
            }
        }
        for key in &locks.exclusive {
            self.keys.remove(key);
        }
    }
}

/// A waiting write.
#[derive(Debug)]
struct QueueEntry<T> {
    locks: LockSet,
    weight: usize,
    write: T,
}

/// What a running write holds.
#[derive(Debug, Default)]
struct RunningEntry {
    locks: LockSet,
    weight: usize,
}

/// Waiting writes, and locks of running ones.
#[derive(Debug)]
pub(crate) struct ConflictScheduler<T> {
    waiting: BTreeMap<Ticket, QueueEntry<T>>,
    waiting_weight: usize,
    running: HashMap<Ticket, RunningEntry>,
    lock_table: LockTable,
    next_ticket: u64,
}

impl<T> Default for ConflictScheduler<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            waiting_weight: 0,
            running: HashMap::new(),
            lock_table: LockTable::default(),
            next_ticket: 0,
        }
    }
}

impl<T> ConflictScheduler<T> {
    /// Number of waiting writes.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting_weight
    }

    /// Queues a write, or a request of several with their number as weight.
    pub(crate) fn push(&mut self, locks: LockSet, weight: usize, write: T) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let entry = QueueEntry { locks, weight, write };
        self.enqueue(ticket, entry);
    }

    fn enqueue(&mut self, ticket: Ticket, entry: QueueEntry<T>) {
        self.waiting_weight += entry.weight;
        self.waiting.insert(ticket, entry);
    }

    /// Admits the next group: the first waiting writes that conflict neither with running ones, nor
    /// with each other, nor with earlier ones that keep waiting; at most of weight `weight_max`, or
    /// a single one that exceeds it.
    pub(crate) fn admit(&mut self, weight_max: usize) -> Vec<(Ticket, T)> {
        let (mut tickets, mut weight) = (Vec::new(), 0);
        let mut queued_locks = QueuedLocks::default();
        for (ticket, entry) in &self.waiting {
            let is_full = !tickets.is_empty() && weight + entry.weight > weight_max;
            if is_full || queued_locks.has_database_lock || self.lock_table.is_database_locked {
                break;
            }
            let is_idle = self.running.is_empty() && tickets.is_empty();
            let is_free = self.lock_table.is_free_for(&entry.locks)
                && queued_locks.is_free_for(&entry.locks)
                && (is_idle || !entry.locks.locks_database);
            if is_free {
                self.lock_table.acquire(&entry.locks);
                tickets.push(*ticket);
                weight += entry.weight;
                continue;
            }
            queued_locks.add(&entry.locks);
        }
        let admitted = tickets.into_iter().map(|ticket| {
            let entry = self.waiting.remove(&ticket).expect("the ticket was just found there");
            self.waiting_weight -= entry.weight;
            let running = RunningEntry { locks: entry.locks, weight: entry.weight };
            self.running.insert(ticket, running);
            (ticket, entry.write)
        });
        admitted.collect()
    }

    /// Extends the lock sets of running writes of a group, in order. Returns for each whether it
    /// succeeded. Those that failed must be put back, and so must later ones that conflict with
    /// them.
    #[must_use]
    pub(crate) fn extend_locks(&mut self, group: &[(Ticket, LockSet)]) -> Vec<bool> {
        let mut queued_locks: Option<QueuedLocks> = None;
        let granted = group.iter().map(|(ticket, added)| {
            // Usually all succeed, and no `queued_locks` are needed.
            if queued_locks.is_none() && self.try_extend(*ticket, added) {
                return true;
            }
            let running = self.running.get(ticket);
            let mut combined = running.map(|entry| entry.locks.clone()).unwrap_or_default();
            combined.extend(added.clone());
            let blocked = queued_locks.get_or_insert_default();
            let is_granted = blocked.is_free_for(&combined) && self.try_extend(*ticket, added);
            if !is_granted {
                blocked.add(&combined);
            }
            is_granted
        });
        granted.collect()
    }

    fn try_extend(&mut self, ticket: Ticket, added: &LockSet) -> bool {
        let mut more = added.clone();
        let Some(RunningEntry { locks, .. }) = self.running.get_mut(&ticket) else {
            return false;
        };
        if locks.locks_database {
            return true;
        }
        more.exclusive.retain(|key| !locks.exclusive.contains(key));
        more.shared.retain(|key| !locks.shared.contains(key) && !locks.exclusive.contains(key));
        if !self.lock_table.is_free_for(&more) {
            return false;
        }
        self.lock_table.acquire(&more);
        locks.extend(more);
        true
    }

    /// Puts a running write back into its position of the queue, with an extended lock set.
    pub(crate) fn put_back(&mut self, ticket: Ticket, write: T, added: LockSet) {
        let RunningEntry { mut locks, weight } = self.remove_running(ticket);
        locks.extend(added);
        let entry = QueueEntry { locks, weight, write };
        self.enqueue(ticket, entry);
    }

    /// Whether a running write holds the exclusive lock on the database.
    pub(crate) fn holds_database(&self, ticket: Ticket) -> bool {
        let running = self.running.get(&ticket);
        running.is_some_and(|entry| entry.locks.locks_database)
    }

    /// Ends a write and releases its locks.
    pub(crate) fn release(&mut self, ticket: Ticket) {
        self.remove_running(ticket);
    }

    /// Removes all waiting writes from the queue.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_weight = 0;
        waiting.into_values().map(|entry| entry.write).collect()
    }

    fn remove_running(&mut self, ticket: Ticket) -> RunningEntry {
        let running = self.running.remove(&ticket).unwrap_or_default();
        self.lock_table.release(&running.locks);
        running
    }
}

/// Locks of waiting writes.
#[derive(Default)]
struct QueuedLocks {
    has_database_lock: bool,
    exclusive: HashSet<LockKey>,
    shared: HashSet<LockKey>,
}

impl QueuedLocks {
    fn is_free_for(&self, locks: &LockSet) -> bool {
        if locks.locks_database {
            return self.exclusive.is_empty() && self.shared.is_empty();
        }
        let mut exclusive = locks.exclusive.iter();
        let mut shared = locks.shared.iter();
        exclusive.all(|key| !self.exclusive.contains(key) && !self.shared.contains(key))
            && shared.all(|key| !self.exclusive.contains(key))
    }

    fn add(&mut self, locks: &LockSet) {
        self.has_database_lock |= locks.locks_database;
        self.exclusive.extend(&locks.exclusive);
        self.shared.extend(&locks.shared);
    }
}

#[cfg(test)]
mod tests;
