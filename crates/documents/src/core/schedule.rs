//! Which writes run beside each other.
//!
//! A write *claims* keys: what it changes it has for itself, what it only relies on it shares. Writes whose claims do not conflict form a
//! group, and groups that do not conflict run side by side. A write that has to wait makes those wait that came later and conflict with it:
//! nobody starves.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use crate::model::TenantId;

/// What a write may claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An identity, or an idempotency key: by the UUID of version 5 of either.
    Name(TenantId, Uuid),
    /// A document, by its number.
    Document(TenantId, i64),
}

/// The claims of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Everything: it runs when nothing else does.
    pub everything: bool,
    /// What it has for itself.
    pub alone: Vec<Key>,
    /// What others may rely on as well.
    pub shared: Vec<Key>,
}

impl Claims {
    /// Everything.
    pub fn everything() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// Each key once: whoever has one for himself may rely on it.
    pub fn normalize(&mut self) {
        self.alone.sort_unstable();
        self.alone.dedup();
        self.shared.sort_unstable();
        self.shared.dedup();
        let alone = &self.alone;
        self.shared.retain(|key| alone.binary_search(key).is_err());
    }

    /// Takes more on.
    pub fn extend(&mut self, more: Self) {
        self.everything |= more.everything;
        self.alone.extend(more.alone);
        self.shared.extend(more.shared);
    }
}

/// The place of a write in the order in which writes came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// A write that may run.
#[derive(Debug)]
pub struct Taken<T> {
    /// Its place.
    pub ticket: Ticket,
    /// How many writes it counts as.
    pub weight: usize,
    /// It.
    pub write: T,
}

/// Who holds a key.
#[derive(Debug)]
enum Holder {
    Alone,
    Shared(usize),
}

/// Keys, and who holds them.
#[derive(Debug, Default)]
struct Held {
    keys: HashMap<Key, Holder>,
    everything: bool,
}

impl Held {
    fn is_free_for(&self, claims: &Claims) -> bool {
        if self.everything {
            return false;
        }
        if claims.everything {
            return self.keys.is_empty();
        }
        let is_shared = |key: &Key| matches!(self.keys.get(key), None | Some(Holder::Shared(_)));
        claims.alone.iter().all(|key| !self.keys.contains_key(key))
            && claims.shared.iter().all(is_shared)
    }

    fn hold(&mut self, claims: &Claims) {
        self.everything |= claims.everything;
        for key in &claims.alone {
            self.keys.insert(*key, Holder::Alone);
        }
        for key in &claims.shared {
            match self.keys.entry(*key).or_insert(Holder::Shared(0)) {
                Holder::Shared(count) => *count += 1,
                // What a write has for itself it may rely on.
                Holder::Alone => {}
            }
        }
    }

    fn release(&mut self, claims: &Claims) {
        if claims.everything {
            self.everything = false;
        }
        for key in &claims.shared {
            if let Some(Holder::Shared(count)) = self.keys.get_mut(key) {
                *count -= 1;
                if *count == 0 {
                    self.keys.remove(key);
                }
            }
        }
        for key in &claims.alone {
            self.keys.remove(key);
        }
    }
}

/// A write that waits.
#[derive(Debug)]
struct Waiting<T> {
    claims: Claims,
    weight: usize,
    write: T,
    /// Whether it had to wait for another one.
    is_deferred: bool,
}

/// Writes that wait and claims of those that run.
#[derive(Debug)]
pub struct Schedule<T> {
    waiting: BTreeMap<Ticket, Waiting<T>>,
    waiting_weight: usize,
    running: HashMap<Ticket, Claims>,
    held: Held,
    next: u64,
    deferred: u64,
}

impl<T> Default for Schedule<T> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            waiting_weight: 0,
            running: HashMap::new(),
            held: Held::default(),
            next: 0,
            deferred: 0,
        }
    }
}

impl<T> Schedule<T> {
    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting_weight
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// How many writes had to wait for others since the start.
    pub fn deferred(&self) -> u64 {
        self.deferred
    }

    /// A write that came, or several that are done together.
    pub fn push(&mut self, claims: Claims, weight: usize, write: T) {
        let ticket = Ticket(self.next);
        self.next += 1;
        let one = Waiting {
            claims,
            weight,
            write,
            is_deferred: false,
        };
        self.wait(ticket, one);
    }

    fn wait(&mut self, ticket: Ticket, one: Waiting<T>) {
        self.waiting_weight += one.weight;
        self.waiting.insert(ticket, one);
    }

    /// The next group: of those that wait the first that conflict with nothing that runs, with none in the group, and with none that came
    /// earlier and wait on; `most` of them at most, or one that counts as more.
    pub fn take(&mut self, most: usize) -> Vec<Taken<T>> {
        let (mut tickets, mut weight) = (Vec::new(), 0);
        let mut blocked = Blocked::default();
        for (ticket, one) in &mut self.waiting {
            let is_full = !tickets.is_empty() && weight + one.weight > most;
            if is_full || blocked.everything || self.held.everything {
                break;
            }
            let is_alone = self.running.is_empty() && tickets.is_empty();
            let is_free = self.held.is_free_for(&one.claims)
                && blocked.is_free_for(&one.claims)
                && (is_alone || !one.claims.everything);
            if is_free {
                self.held.hold(&one.claims);
                tickets.push(*ticket);
                weight += one.weight;
                continue;
            }
            if !one.is_deferred {
                one.is_deferred = true;
                self.deferred += 1;
            }
            blocked.add(&one.claims);
        }
        let taken = tickets.into_iter().map(|ticket| {
            let one = self
                .waiting
                .remove(&ticket)
                .expect("it has just been found there");
            self.running.insert(ticket, one.claims);
            self.waiting_weight -= one.weight;
            Taken {
                ticket,
                weight: one.weight,
                write: one.write,
            }
        });
        taken.collect()
    }

    /// More claims of the writes of a group that runs, in their order, which they have found out. Tells of each whether it has them: those that have
    /// not are to be put back, and with them those that came later and conflict with one of these.
    #[must_use]
    pub fn claim(&mut self, group: Vec<(Ticket, Claims)>) -> Vec<bool> {
        let mut blocked: Option<Blocked> = None;
        let each = group.into_iter().map(|(ticket, more)| {
            // As a rule all have what they want.
            if blocked.is_none() && self.claim_one(ticket, &more) {
                return true;
            }
            let mut all = self.running.get(&ticket).cloned().unwrap_or_default();
            all.extend(more.clone());
            let blocked = blocked.get_or_insert_default();
            let is_had = blocked.is_free_for(&all) && self.claim_one(ticket, &more);
            if !is_had {
                blocked.add(&all);
            }
            is_had
        });
        each.collect()
    }

    fn claim_one(&mut self, ticket: Ticket, more: &Claims) -> bool {
        let mut more = more.clone();
        let Some(has) = self.running.get_mut(&ticket) else {
            return false;
        };
        if has.everything {
            return true;
        }
        more.alone.retain(|key| !has.alone.contains(key));
        more.shared
            .retain(|key| !has.shared.contains(key) && !has.alone.contains(key));
        if !self.held.is_free_for(&more) {
            return false;
        }
        self.held.hold(&more);
        has.extend(more);
        true
    }

    /// A write that runs waits again, at its place, with more claims.
    pub fn put_back(&mut self, taken: Taken<T>, more: Claims) {
        let mut claims = self.end(taken.ticket);
        claims.extend(more);
        self.deferred += 1;
        let one = Waiting {
            claims,
            weight: taken.weight,
            write: taken.write,
            is_deferred: true,
        };
        self.wait(taken.ticket, one);
    }

    /// Whether a write that runs does so alone.
    pub fn has_everything(&self, ticket: Ticket) -> bool {
        let claims = self.running.get(&ticket);
        claims.is_some_and(|claims| claims.everything)
    }

    /// A write has ended.
    pub fn release(&mut self, ticket: Ticket) {
        self.end(ticket);
    }

    /// All that wait, which then do so no more.
    pub fn drain(&mut self) -> Vec<T> {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_weight = 0;
        waiting.into_values().map(|one| one.write).collect()
    }

    fn end(&mut self, ticket: Ticket) -> Claims {
        let claims = self.running.remove(&ticket).unwrap_or_default();
        self.held.release(&claims);
        claims
    }
}

/// Claims of writes that wait.
#[derive(Default)]
struct Blocked {
    everything: bool,
    alone: HashSet<Key>,
    shared: HashSet<Key>,
}

impl Blocked {
    fn is_free_for(&self, claims: &Claims) -> bool {
        if claims.everything {
            return self.alone.is_empty() && self.shared.is_empty();
        }
        let mut alone = claims.alone.iter();
        let mut shared = claims.shared.iter();
        alone.all(|key| !self.alone.contains(key) && !self.shared.contains(key))
            && shared.all(|key| !self.alone.contains(key))
    }

    fn add(&mut self, claims: &Claims) {
        self.everything |= claims.everything;
        self.alone.extend(&claims.alone);
        self.shared.extend(&claims.shared);
    }
}

#[cfg(test)]
mod tests;
