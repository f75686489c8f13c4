//! Collects the outcomes of all items of a call.

use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use egret_queue::{EnqueueReceipt, InFlightPermit, ProduceSink, QueueError, ReportSink};
use tokio::sync::Notify;

/// Outcomes by the index of their item in the call.
pub(super) struct OutcomeCollector<T> {
    known: Mutex<OutcomeState<T>>,
    all: Notify,
    /// Held for as long as a partition refers to this collector: the items count as in flight until
    /// all of them are answered, even if the caller has gone.
    _in_flight: Arc<InFlightPermit>,
}

struct OutcomeState<T> {
    outcomes: Vec<Option<T>>,
    left: usize,
}

impl<T: Clone> OutcomeCollector<T> {
    pub(crate) fn new(count: usize, in_flight: Arc<InFlightPermit>) -> Arc<Self> {
        Arc::new(Self {
            known: Mutex::new(OutcomeState {
                outcomes: vec![None; count],
                left: count,
            }),
            all: Notify::new(),
            _in_flight: in_flight,
        })
    }

    pub(crate) fn put(&self, outcomes: &[(u64, T)]) {
        let mut known = lock(&self.known);
        for (number, outcome) in outcomes {
            known.outcomes[*number as usize] = Some(outcome.clone());
        }
        known.left -= outcomes.len();
        if known.left == 0 {
            self.all.notify_one();
        }
    }

    /// Waits until every item has an outcome.
    pub(crate) async fn all(&self) -> Vec<T> {
        let is_empty = self.take_outcomes(|known| known.outcomes.is_empty());
        if !is_empty {
            self.all.notified().await;
        }
        self.take_outcomes(|known| known.outcomes.drain(..).flatten().collect())
    }

    fn take_outcomes<R>(&self, take: impl FnOnce(&mut OutcomeState<T>) -> R) -> R {
        take(&mut lock(&self.known))
    }
}

impl ProduceSink for OutcomeCollector<Result<EnqueueReceipt, QueueError>> {
    fn outcomes(&self, outcomes: &[(u64, Result<EnqueueReceipt, QueueError>)]) {
        self.put(outcomes);
    }
}

impl ReportSink for OutcomeCollector<Result<(), QueueError>> {
    fn reported(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        self.put(outcomes);
    }
}
