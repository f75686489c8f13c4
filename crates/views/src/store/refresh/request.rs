//! A request to refresh views.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::core::strategy::CostModel;
use crate::model::Limits;
use crate::store::refreshable::Refreshable;

/// Inputs of a refresh of several views.
#[derive(Clone, Copy)]
pub struct RefreshRequest<'a> {
    /// The views, each after those that it reads.
    pub views: &'a [&'a Refreshable],
    /// Durations of earlier refreshes, by view.
    pub costs: &'a BTreeMap<i64, CostModel>,
    /// Comparison and plans, in the same transaction.
    pub options: RefreshOptions,
    /// When the refresh began, in milliseconds of Unix time.
    pub at_ms: i64,
    /// When the refresh began on the monotonic clock, for durations.
    pub started_at: Instant,
    /// Reports that are kept of each view; none: this refresh is not recorded.
    pub history_max: Option<u32>,
    /// Bounds on changes, rows, bytes and memory.
    pub limits: Limits,
    /// Oid of the table of views, if it is known.
    pub registry_oid: Option<u32>,
    /// Whether changes are expected: the refresh then does not check first whether there are any.
    pub expects_changes: bool,
}

/// Additional work of a refresh.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefreshOptions {
    /// A view to compare with its query, and the reason.
    pub verified_view: Option<(i64, VerifyTrigger)>,
    /// Whether plans are collected, for which each statement runs twice.
    pub collects_plans: bool,
}

/// Why a view is compared with its query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyTrigger {
    /// A caller requested the comparison, and gets its error.
    Requested,
    /// The refresh was sampled by `views.verify_every`; it does not fail with the comparison.
    Sampled,
}
