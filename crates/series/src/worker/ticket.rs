//! What a request waits for: word from every shard that has a part of it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::error::SeriesError;
use crate::model::{Labels, TimeMs};

/// What became of the samples of a request that were not simply added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// They came late, and were added.
    pub late: u64,
    /// They were there.
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
    pub fn add(&mut self, other: Outcome) {
        self.late += other.late;
        self.same += other.same;
        self.conflicts += other.conflicts;
        self.histogram_conflicts += other.histogram_conflicts;
        self.nowhere += other.nowhere;
        self.first_conflict = self.first_conflict.take().or(other.first_conflict);
    }
}

type Told = Result<Outcome, SeriesError>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Shards that have not answered.
    left: usize,
    told: Told,
    tell: Option<oneshot::Sender<Told>>,
}

impl Ticket {
    /// A ticket for a request of so many parts, and what tells when all are done.
    pub fn new(parts: usize) -> (Arc<Self>, oneshot::Receiver<Told>) {
        let (tell, told) = oneshot::channel();
        let state = Mutex::new(State {
            left: parts,
            told: Ok(Outcome::default()),
            tell: Some(tell),
        });
        (Arc::new(Self { state }), told)
    }

    /// One part is done, or has failed.
    pub fn done(&self, outcome: Told) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
            // Whoever asked may have gone away.
            let _ = tell.send(told);
        }
    }
}
