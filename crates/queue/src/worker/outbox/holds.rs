//! Queues that take nothing in at the moment: their rows wait, those of others go on.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use egret_base::Condition;
use egret_postgres::retry::Policy;
use tokio::time::Instant;

use crate::error::QueueError;

/// How long a queue is left alone that took nothing in.
const LEFT_ALONE: Policy = Policy {
    attempts: u32::MAX,
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(10),
};

/// Queues held at a time that do not exist. Their names are made up by whoever writes rows, as many as there
/// are rows, while existing ones are bounded by `queue.queues_max`.
const MISSING_HELD_MAX: usize = 100;

/// Whether a queue exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    Existing,
    /// It could not be created on demand.
    Missing,
}

/// See the module.
pub(super) struct Holds {
    database: String,
    by_queue: HashMap<String, Hold>,
}

struct Hold {
    until: Instant,
    refusals: u32,
    reason: String,
    presence: Presence,
    waiting: Condition,
}

impl Holds {
    pub fn new(database: &str) -> Self {
        Self {
            database: database.to_owned(),
            by_queue: HashMap::new(),
        }
    }

    /// How many queues are held, or were and have not been tried again.
    pub fn len(&self) -> usize {
        self.by_queue.len()
    }

    /// Those that are to be left alone now.
    pub fn names(&self) -> Vec<String> {
        let now = Instant::now();
        let held = self.by_queue.iter().filter(|(_, hold)| hold.until > now);
        held.map(|(name, _)| name.clone()).collect()
    }

    /// Only these have rows.
    pub fn keep(&mut self, names: &[String]) {
        self.by_queue.retain(|name, _| names.contains(name));
    }

    /// Those with the reason.
    pub fn reasons(&self) -> BTreeMap<String, String> {
        let held = self.by_queue.iter();
        held.map(|(name, hold)| (name.clone(), hold.reason.clone()))
            .collect()
    }

    /// Holds a queue of which a row was refused. Returns whether it is held: not where too many are that do
    /// not exist.
    pub fn hold(&mut self, queue: &str, presence: Presence, error: &QueueError) -> bool {
        let is_known = self.by_queue.contains_key(queue);
        if !is_known && presence == Presence::Missing && self.missing() >= MISSING_HELD_MAX {
            return false;
        }
        let (now, subject) = (Instant::now(), format!("{}, queue {queue}", self.database));
        let known = self.by_queue.entry(queue.to_owned());
        let hold = match known {
            // The other rows of the same batch.
            Entry::Occupied(known) if known.get().until > now => return true,
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(Hold {
                until: now,
                refusals: 0,
                reason: String::new(),
                presence,
                waiting: Condition::new("outbox_rows_waiting", subject.as_str()),
            }),
        };
        hold.refusals += 1;
        hold.until = now + LEFT_ALONE.wait(hold.refusals);
        hold.reason = error.to_string();
        hold.presence = presence;
        // A queue that takes nothing in at present is no fault of the outbox.
        if hold.waiting.begin(error) {
            let condition = "outbox_rows_waiting";
            tracing::info!(condition, subject, %error, "rows of the outbox wait for their queue");
        }
        true
    }

    fn missing(&self) -> usize {
        let held = self.by_queue.values();
        held.filter(|hold| hold.presence == Presence::Missing)
            .count()
    }

    /// A row was taken.
    pub fn release(&mut self, queue: &str) {
        let now = Instant::now();
        // One of the same batch may have been refused.
        if self
            .by_queue
            .get(queue)
            .is_some_and(|hold| hold.until <= now)
            && let Some(hold) = self.by_queue.remove(queue)
        {
            hold.waiting
                .recover("the queue takes rows of the outbox again");
        }
    }

    /// How long until one of them is to be tried again.
    pub fn wait(&self) -> Duration {
        let now = Instant::now();
        let waits = self
            .by_queue
            .values()
            .map(|hold| hold.until.saturating_duration_since(now));
        waits.min().unwrap_or(Duration::MAX)
    }
}
