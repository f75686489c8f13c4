//! An earlier state of a part, for a repair whose newest snapshot is damaged.

use crate::Seq;

/// An earlier state of a part, of which the log makes the present one if it still has all records
/// since.
#[derive(Clone, Debug)]
pub struct OlderState {
    /// The first record that it does not have: the first of all where there is no older snapshot.
    pub replay_from: Seq,
    /// The names of the snapshots in its place that are damaged.
    pub left_out: Vec<String>,
    /// The first record that the newest of those did not have, by its name: the log had every one
    /// before it.
    pub reached: Seq,
}
