//! Waiting for as many outcomes as a call has items.

use std::sync::{Arc, Mutex, PoisonError};

use egret_queue::{Enqueued, InFlightPermit, ProduceSink, QueueError, ReportSink};
use tokio::sync::Notify;

/// Outcomes by the places of their items.
pub(super) struct Gathered<T> {
    known: Mutex<Known<T>>,
    all: Notify,
    /// Partitions have the outcomes' place until everything is answered, and with it the room that the items
    /// take, whether or not the caller is still there.
    _in_flight: Arc<InFlightPermit>,
}

struct Known<T> {
    outcomes: Vec<Option<T>>,
    left: usize,
}

impl<T: Clone> Gathered<T> {
    /// For `count` items.
    pub fn new(count: usize, in_flight: Arc<InFlightPermit>) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::new(Known {
                outcomes: vec![None; count],
                left: count,
            }),
            all: Notify::new(),
            _in_flight: in_flight,
        })
    }

    /// Takes outcomes down.
    pub fn put(&self, outcomes: &[(u64, T)]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, outcome) in outcomes {
            known.outcomes[*number as usize] = Some(outcome.clone());
        }
        known.left -= outcomes.len();
        if known.left == 0 {
            self.all.notify_one();
        }
    }

    /// Waits for the last one.
    pub async fn all(&self) -> Vec<T> {
        let is_empty = self.take_outcomes(|known| known.outcomes.is_empty());
        if !is_empty {
            self.all.notified().await;
        }
        self.take_outcomes(|known| known.outcomes.drain(..).flatten().collect())
    }

    fn take_outcomes<R>(&self, take: impl FnOnce(&mut Known<T>) -> R) -> R {
        take(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ProduceSink for Gathered<Result<Enqueued, QueueError>> {
    fn outcomes(&self, outcomes: &[(u64, Result<Enqueued, QueueError>)]) {
        self.put(outcomes);
    }
}

impl ReportSink for Gathered<Result<(), QueueError>> {
    fn reported(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        self.put(outcomes);
    }
}
