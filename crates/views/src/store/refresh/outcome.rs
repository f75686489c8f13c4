//! What a refresh did with each view.

use crate::core::strategy::RefreshStrategy;
use crate::error::ViewsError;
use crate::model::RefreshReport;

/// The state of its sources that a view shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefreshPoint {
    /// Snapshot of the rows that it shows, as text of `pg_snapshot`.
    pub snapshot: String,
    /// Server, tables, partitions and files at that time, as one text.
    pub stamp: String,
}

/// Rows of a view and of its query, compared at one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Rows that both have.
    pub same: i64,
    /// Rows that only the query has.
    pub missing: i64,
    /// Rows that only the view has.
    pub extra: i64,
}

/// What a refresh did with one view.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RefreshOutcome {
    /// The state of the sources that the view shows now.
    pub refresh_point: RefreshPoint,
    /// Recorded change rows that were applied.
    pub changes: i64,
    /// Rows that were added to the last stage.
    pub added: i64,
    /// Rows of the last stage that were changed in place.
    pub changed: i64,
    /// Rows that were removed from the last stage.
    pub removed: i64,
    /// Whether the query was recomputed.
    pub is_full: bool,
    /// Whether there were no changes.
    pub is_unchanged: bool,
    /// Why it was incremental or full, in words.
    pub reason: String,
    /// The comparison with its query, if there was one.
    pub comparison: Option<Comparison>,
    /// Error of a sampled comparison, which does not fail the refresh.
    pub verify_error: Option<String>,
    /// Whether a change set was written for followers.
    pub has_change_set: bool,
    /// Plans of its statements, if they were asked for.
    pub plans: Option<String>,
    /// Time spent waiting for locks, in milliseconds.
    pub waited_ms: f64,
    /// Time spent computing and writing, in milliseconds.
    pub applied_ms: f64,
    /// Duration of the whole refresh up to the commit, in milliseconds.
    pub took_ms: f64,
}

impl RefreshOutcome {
    /// The report of this refresh, for users and the history.
    pub fn report(&self, at_ms: i64) -> RefreshReport {
        RefreshReport {
            at_ms,
            outcome: self.strategy().map_or("nothing", RefreshStrategy::as_str).to_owned(),
            strategy_reason: self.reason.clone(),
            snapshot: self.refresh_point.snapshot.clone(),
            changes: self.changes,
            added: self.added,
            changed: self.changed,
            removed: self.removed,
            took_ms: self.took_ms,
            waited_ms: self.waited_ms,
            applied_ms: self.applied_ms,
            error: None,
            plans: self.plans.clone(),
        }
    }

    /// The strategy that was used; none if there was nothing to do.
    pub fn strategy(&self) -> Option<RefreshStrategy> {
        match (self.is_unchanged, self.is_full) {
            (true, _) => None,
            (false, true) => Some(RefreshStrategy::Full),
            (false, false) => Some(RefreshStrategy::Incremental),
        }
    }
}

/// Outcome of each view, by its number.
pub type Outcomes = Vec<(i64, Result<RefreshOutcome, ViewsError>)>;
