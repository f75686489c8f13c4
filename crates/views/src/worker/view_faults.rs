//! Lasting faults of single views, as conditions.

use egret_base::condition::ConditionSet;

/// Lasting faults of single views, by [`ViewRefreshWorker::subject`].
pub(super) struct ViewFaults {
    pub refresh: ConditionSet,
    pub compare: ConditionSet,
}

impl ViewFaults {
    pub(crate) fn new() -> Self {
        Self {
            refresh: ConditionSet::new("views_refresh_failing"),
            compare: ConditionSet::new("views_compare_failing"),
        }
    }

    /// Removes the faults of dropped views.
    pub(crate) fn retain(&self, exists: impl Fn(&str) -> bool) {
        self.refresh.retain(&exists);
        self.compare.retain(&exists);
    }
}
