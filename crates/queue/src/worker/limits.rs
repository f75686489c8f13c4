//! Limits of a queue that hold over all its partitions: tasks leased at a time, tasks handed out in
//! a second. They are no part of a partition's state: a command contains the number of tasks that
//! its partition may claim.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;

use egret_base::sync::lock;

use crate::model::QueueSettings;

/// Maximum difference between the times of two partitions. A rate with a later refill was refilled
/// before the clock went back.
const SKEW_MAX_MS: u64 = 10_000;

/// State of the limits of one queue.
#[derive(Debug, Default)]
struct QueueLimitState {
    /// Leased tasks by partition.
    leased: Vec<u64>,
    /// Tasks that may be handed out by its rate, and when it was refilled, in Unix milliseconds.
    tokens: f64,
    refilled_ms: u64,
    /// Partitions that have tasks and got no permit.
    refused_partitions: BTreeSet<usize>,
}

/// The limits of all queues, shared by the partitions.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    queues: Mutex<HashMap<u32, QueueLimitState>>,
}

/// Permits of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permits {
    /// Tasks it may claim.
    pub count: u32,
    /// When to ask again, in Unix milliseconds; `None`: the partition is notified.
    pub retry_ms: Option<u64>,
}

/// Whether a queue has any limit.
pub(crate) fn is_limited(settings: &QueueSettings) -> bool {
    settings.concurrency > 0 || settings.rate_per_second > 0.0
}

impl QueueLimitState {
    fn refill(&mut self, settings: &QueueSettings, now_ms: u64) {
        let burst = match settings.rate_burst {
            0 => settings.rate_per_second.max(1.0),
            burst => f64::from(burst),
        };
        if self.refilled_ms == 0 {
            // After a start the time before is unknown: no more than one at once.
            (self.tokens, self.refilled_ms) = (1.0, now_ms);
        }
        if self.refilled_ms > now_ms + SKEW_MAX_MS {
            self.refilled_ms = now_ms;
        }
        let passed = now_ms.saturating_sub(self.refilled_ms) as f64 / 1e3;
        self.tokens = (self.tokens + passed * settings.rate_per_second).min(burst);
        self.refilled_ms = self.refilled_ms.max(now_ms);
    }
}

impl Limits {
    /// Takes permits for up to `wanted` tasks. Unused ones must be released.
    pub(crate) fn acquire(
        &self,
        queue: u32,
        partition: usize,
        wanted: u32,
        settings: &QueueSettings,
        now_ms: u64,
    ) -> Permits {
        let mut queues = lock(&self.queues);
        let limit_state = queues.entry(queue).or_default();
        let mut count = wanted;
        let mut retry_ms = None;
        if settings.concurrency > 0 {
            let leased: u64 = limit_state.leased.iter().sum();
            let available = u64::from(settings.concurrency).saturating_sub(leased);
            count = count.min(u32::try_from(available).unwrap_or(u32::MAX));
        }
        if count > 0 && settings.rate_per_second > 0.0 {
            limit_state.refill(settings, now_ms);
            let allowed = limit_state.tokens.floor().min(f64::from(u32::MAX)) as u32;
            if allowed == 0 {
                let missing = (1.0 - limit_state.tokens) / settings.rate_per_second;
                retry_ms = Some(now_ms + (missing * 1e3).ceil().max(1.0) as u64);
            }
            count = count.min(allowed);
            limit_state.tokens -= f64::from(count);
        }
        if count > 0 && settings.concurrency > 0 {
            *leased_count_mut(&mut limit_state.leased, partition) += u64::from(count);
        }
        if count == 0 && retry_ms.is_none() {
            limit_state.refused_partitions.insert(partition);
        }
        Permits { count, retry_ms }
    }

    /// Releases the permits that were not used.
    pub(crate) fn release_tokens(&self, queue: u32, count: u32) {
        if let Some(limit_state) = lock(&self.queues).get_mut(&queue) {
            limit_state.tokens += f64::from(count);
        }
    }

    /// Sets how many tasks of a queue are leased in a partition. Returns the partitions that got no
    /// permit before and may have one now.
    pub(crate) fn set_leased(&self, queue: u32, partition: usize, leased: u64) -> BTreeSet<usize> {
        let mut queues = lock(&self.queues);
        let limit_state = queues.entry(queue).or_default();
        let previous =
            std::mem::replace(leased_count_mut(&mut limit_state.leased, partition), leased);
        if leased < previous {
            std::mem::take(&mut limit_state.refused_partitions)
        } else {
            BTreeSet::new()
        }
    }

    /// After a change of a queue's limits: every partition that got no permit has to ask again.
    pub(crate) fn clear_refused(&self, queue: u32) {
        if let Some(limit_state) = lock(&self.queues).get_mut(&queue) {
            limit_state.refused_partitions.clear();
        }
    }
}

fn leased_count_mut(leased: &mut Vec<u64>, partition: usize) -> &mut u64 {
    if leased.len() <= partition {
        leased.resize(partition + 1, 0);
    }
    &mut leased[partition]
}

#[cfg(test)]
mod tests;
