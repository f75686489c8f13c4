//! Collects the outcomes of all items of a call.

use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use egret_queue::{EnqueueReceipt, InFlightPermit, ProduceSink, QueueError, ReportSink};
use tokio::sync::Notify;

/// Outcomes by the index of their item in the call.
pub(super) struct OutcomeCollector<T> {
    state: Mutex<OutcomeState<T>>,
    completed: Notify,
    /// Held for as long as a partition refers to this collector: the items count as in flight until
    /// all of them are answered, even if the caller has gone.
    _in_flight: Arc<InFlightPermit>,
}

struct OutcomeState<T> {
    outcomes: Vec<Option<T>>,
    remaining: usize,
}

impl<T: Clone> OutcomeCollector<T> {
    pub(crate) fn new(count: usize, in_flight: Arc<InFlightPermit>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(OutcomeState { outcomes: vec![None; count], remaining: count }),
            completed: Notify::new(),
            _in_flight: in_flight,
        })
    }

    pub(crate) fn record(&self, outcomes: &[(u64, T)]) {
        let mut state = lock(&self.state);
        for (number, outcome) in outcomes {
            state.outcomes[*number as usize] = Some(outcome.clone());
        }
        state.remaining -= outcomes.len();
        if state.remaining == 0 {
            self.completed.notify_one();
        }
    }

    /// Waits until every item has an outcome.
    pub(crate) async fn await_all(&self) -> Vec<T> {
        let is_empty = self.with_state(|state| state.outcomes.is_empty());
        if !is_empty {
            self.completed.notified().await;
        }
        self.with_state(|known| known.outcomes.drain(..).flatten().collect())
    }

    fn with_state<R>(&self, take: impl FnOnce(&mut OutcomeState<T>) -> R) -> R {
        take(&mut lock(&self.state))
    }
}

impl ProduceSink for OutcomeCollector<Result<EnqueueReceipt, QueueError>> {
    fn deliver_receipts(&self, outcomes: &[(u64, Result<EnqueueReceipt, QueueError>)]) {
        self.record(outcomes);
    }
}

impl ReportSink for OutcomeCollector<Result<(), QueueError>> {
    fn deliver_outcomes(&self, outcomes: &[(u64, Result<(), QueueError>)]) {
        self.record(outcomes);
    }
}
