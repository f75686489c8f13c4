//! Queues that take nothing in at the moment: their rows wait, those of others go on.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use egret_postgres::retry::Policy;
use tokio::time::Instant;

use crate::error::QueueError;

/// How long a queue is left alone that took nothing in.
const LEFT_ALONE: Policy = Policy {
    attempts: u32::MAX,
    first_wait: Duration::from_millis(100),
    longest_wait: Duration::from_secs(10),
};

/// See the module.
#[derive(Default)]
pub(super) struct Holds(HashMap<String, Hold>);

struct Hold {
    until: Instant,
    refusals: u32,
    reason: String,
}

impl Holds {
    /// How many queues are held, or were and have not been tried again.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Those that are to be left alone now.
    pub fn names(&self) -> Vec<String> {
        let now = Instant::now();
        let held = self.0.iter().filter(|(_, hold)| hold.until > now);
        held.map(|(name, _)| name.clone()).collect()
    }

    /// Only these have rows.
    pub fn keep(&mut self, names: &[String]) {
        self.0.retain(|name, _| names.contains(name));
    }

    /// Those with the reason.
    pub fn reasons(&self) -> BTreeMap<String, String> {
        let held = self.0.iter();
        held.map(|(name, hold)| (name.clone(), hold.reason.clone()))
            .collect()
    }

    /// A row was refused. True when the queue had taken everything before.
    pub fn hold(&mut self, queue: &str, error: &QueueError) -> bool {
        let now = Instant::now();
        let known = self.0.get_mut(queue);
        let is_news = known.is_none();
        let hold = match known {
            // The other rows of the same batch.
            Some(hold) if hold.until > now => return false,
            Some(hold) => hold,
            None => self.0.entry(queue.to_owned()).or_insert(Hold {
                until: now,
                refusals: 0,
                reason: String::new(),
            }),
        };
        hold.refusals += 1;
        hold.until = now + LEFT_ALONE.wait(hold.refusals);
        hold.reason = error.to_string();
        is_news
    }

    /// A row was taken.
    pub fn release(&mut self, queue: &str) {
        let now = Instant::now();
        // One of the same batch may have been refused.
        if self.0.get(queue).is_some_and(|hold| hold.until <= now) {
            self.0.remove(queue);
        }
    }

    /// How long until one of them is to be tried again.
    pub fn wait(&self) -> Duration {
        let now = Instant::now();
        let waits = self
            .0
            .values()
            .map(|hold| hold.until.saturating_duration_since(now));
        waits.min().unwrap_or(Duration::MAX)
    }
}
