//! What the refreshes of the views of a batch share.

use std::collections::{BTreeMap, BTreeSet};

use egret_postgres::tokio_postgres::Client;

use crate::core::strategy::CostModel;
use crate::model::Limits;
use crate::store::change_sets::ViewDelta;
use crate::store::statements::Statements;
use crate::store::view_status::ViewStatus;

/// Session, inputs and deltas of a batch, whose transaction is open.
pub(super) struct RefreshContext<'a> {
    pub client: &'a Client,
    pub statements: &'a mut Statements,
    /// Status of each view at the snapshot of the transaction.
    pub statuses: &'a BTreeMap<i64, ViewStatus>,
    /// New changes of the views' tables.
    pub counts: &'a ChangeCounts,
    /// Durations of earlier refreshes, by view.
    pub costs: &'a BTreeMap<i64, CostModel>,
    pub limits: Limits,
    /// Deltas of the views of this batch that are already refreshed, for the views that read them.
    pub deltas: ViewDeltas,
    /// Current `work_mem` in kB.
    pub work_mem_kb: u64,
}

/// New changes by the number of the view and the index of the table among its sources.
pub(super) type ChangeCounts = BTreeMap<(i64, usize), TableChanges>;

/// New changes of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TableChanges {
    /// Number of recorded rows.
    pub rows: i64,
    /// Breaks among them: changes that rows do not describe, such as a TRUNCATE.
    pub breaks: i64,
}

/// Changes of the views that were refreshed in this transaction.
#[derive(Default)]
pub(super) struct ViewDeltas {
    /// By the view's number; none where nothing changed.
    pub views: BTreeMap<i64, Option<ViewDelta>>,
    /// Delta tables of stages, to be emptied.
    pub sinks: BTreeSet<String>,
}
