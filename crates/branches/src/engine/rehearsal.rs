//! The statements by which a session of the pool warms up.

use std::sync::Arc;

use crate::model::TemplateId;
use crate::store::readahead::Range;

/// Warm-up of sessions in one database of a template's branches.
#[derive(Clone, Debug)]
pub(crate) struct Rehearsal {
    pub(crate) template: TemplateId,
    pub(crate) database: String,
    /// Plans of every busy table, as one text; empty without tables.
    pub(crate) explain_sql: String,
    /// Whether a table is made and rolled back.
    pub(crate) makes_table: bool,
    /// Parts of files that statements on busy tables will read.
    pub(crate) ranges: Arc<Vec<Range>>,
}
