//! Acknowledgement of a write request: collects the outcomes of all shards with a part of it.

use std::sync::{Arc, Mutex};

use egret_base::sync::lock;
use egret_metrics_model::{Labels, TimeMs};
use tokio::sync::oneshot;

use crate::error::SeriesError;

/// What became of the samples of a request that were not simply added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Samples that came late, and were added.
    pub late: u64,
    /// They were there already, with the same value.
    pub duplicates: u64,
    /// Their series has another value at their time.
    pub conflicts: u64,
    /// Of these, native histograms.
    pub histogram_conflicts: u64,
    /// The first of those.
    pub first_conflict: Option<(Labels, TimeMs)>,
    /// Their series went away while the request was under way: it has to be looked up again.
    pub unknown_series: u64,
}

impl Outcome {
    pub(crate) fn merge(&mut self, other: Outcome) {
        self.late += other.late;
        self.duplicates += other.duplicates;
        self.conflicts += other.conflicts;
        self.histogram_conflicts += other.histogram_conflicts;
        self.unknown_series += other.unknown_series;
        self.first_conflict = self.first_conflict.take().or(other.first_conflict);
    }
}

type WriteResult = Result<Outcome, SeriesError>;

#[derive(Debug)]
pub(crate) struct WriteAck {
    state: Mutex<AckState>,
}

#[derive(Debug)]
struct AckState {
    /// Shards that have not answered.
    parts_left: usize,
    result: WriteResult,
    sender: Option<oneshot::Sender<WriteResult>>,
}

impl WriteAck {
    /// An acknowledgement for a request of `part_count` parts, and the receiver of its result.
    pub(crate) fn new(part_count: usize) -> (Arc<Self>, oneshot::Receiver<WriteResult>) {
        let (sender, receiver) = oneshot::channel();
        let state = Mutex::new(AckState {
            parts_left: part_count,
            result: Ok(Outcome::default()),
            sender: Some(sender),
        });
        (Arc::new(Self { state }), receiver)
    }

    /// Records the outcome of one part. The last one completes the request.
    pub(crate) fn complete_part(&self, outcome: WriteResult) {
        let mut state = lock(&self.state);
        state.parts_left -= 1;
        match (&mut state.result, outcome) {
            (Ok(total), Ok(outcome)) => total.merge(outcome),
            (Ok(_), Err(error)) => state.result = Err(error),
            (Err(_), _) => {}
        }
        if state.parts_left == 0
            && let Some(sender) = state.sender.take()
        {
            let result = std::mem::replace(&mut state.result, Ok(Outcome::default()));
            // The caller may have gone away.
            let _ = sender.send(result);
        }
    }
}
