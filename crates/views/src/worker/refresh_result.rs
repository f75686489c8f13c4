//! Results of a refresh of a component, as the worker returns them.

use std::collections::BTreeMap;

use crate::model::RefreshReport;
use crate::store::refresh::outcome::Comparison;

/// Result of a refresh for one view.
pub struct RefreshResult {
    pub report: RefreshReport,
    /// The comparison with its query, if there was one.
    pub comparison: Option<Comparison>,
}

/// Results by the number of the view.
pub type RefreshResults = BTreeMap<i64, RefreshResult>;
