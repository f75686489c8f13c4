//! Bounds on one refresh.

use crate::error::ViewsError;

/// Bounds on one refresh.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most changes that are applied; with more the view is suspended. 0: no bound.
    pub fuse_changes: u64,
    /// Most rows of a change set; a larger one is replaced by a reset of the followers.
    pub change_set_rows_max: u64,
    /// Most bytes of a change set, with the same consequence.
    pub change_set_bytes_max: u64,
    /// Most rows of a join of changes; with more the view is recomputed.
    pub delta_rows_max: u64,
    /// Bytes of memory for sorts and hashes of a statement.
    pub memory_max: u64,
}

impl Limits {
    /// Checks the number of changes.
    ///
    /// # Errors
    /// [`ViewsError::FuseBlown`] with more changes than allowed.
    pub fn check_changes(&self, changes: i64) -> Result<(), ViewsError> {
        let changes_max = self.fuse_changes;
        if changes_max > 0 && changes.unsigned_abs() > changes_max {
            Err(ViewsError::FuseBlown { changes, changes_max })
        } else {
            Ok(())
        }
    }
}
