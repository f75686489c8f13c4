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
    pub same: u64,
    /// Their series has another value at their time.
    pub conflicts: u64,
    /// Of these, native histograms.
    pub histogram_conflicts: u64,
    /// The first of those.
    pub first_conflict: Option<(Labels, TimeMs)>,
    /// Their series went away while the request was under way: it has to be looked up again.
    pub nowhere: u64,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Outcome) {
        self.late += other.late;
        self.same += other.same;
        self.conflicts += other.conflicts;
        self.histogram_conflicts += other.histogram_conflicts;
        self.nowhere += other.nowhere;
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
    left: usize,
    told: WriteResult,
    tell: Option<oneshot::Sender<WriteResult>>,
}

impl WriteAck {
    /// An acknowledgement for a request of `parts` parts, and the receiver of its result.
    pub(crate) fn new(parts: usize) -> (Arc<Self>, oneshot::Receiver<WriteResult>) {
        let (tell, told) = oneshot::channel();
        let state = Mutex::new(AckState {
            left: parts,
            told: Ok(Outcome::default()),
            tell: Some(tell),
        });
        (Arc::new(Self { state }), told)
    }

    /// Records the outcome of one part. The last one completes the request.
    pub(crate) fn done(&self, outcome: WriteResult) {
        let mut state = lock(&self.state);
        state.left -= 1;
        match (&mut state.told, outcome) {
            (Ok(so_far), Ok(outcome)) => so_far.add(outcome),
            (Ok(_), Err(error)) => state.told = Err(error),
            (Err(_), _) => {}
        }
        if state.left == 0
            && let Some(tell) = state.tell.take()
        {
            let told = std::mem::replace(&mut state.told, Ok(Outcome::default()));
            // The caller may have gone away.
            let _ = tell.send(told);
        }
    }
}
