//! What documents were before, and those that are gone.

use std::time::SystemTime;

use egret_postgres::tokio_postgres::Row;

use super::read::Text;
use crate::model::DocumentId;

/// Earlier versions of a document, the last first, before one of them.
pub const VERSIONS: &str = "SELECT v.id, v.version, v.body, v.modified_at, v.modified_by, v.trace_id, v.replaced_at, v.replaced_by, v.is_deleted \
     FROM egret.document_version AS v \
     WHERE v.tenant_id = $1 AND v.collection_id = $2 AND v.number = $3 AND v.version < $4 ORDER BY v.version DESC LIMIT $5";

/// Documents that are gone and can be restored, in the order in which they were made.
pub const DELETED: &str = "SELECT v.id, v.version, v.body, v.modified_at, v.modified_by, v.trace_id, v.replaced_at, v.replaced_by, v.is_deleted \
     FROM egret.document_version AS v \
     WHERE v.tenant_id = $1 AND v.collection_id = $2 AND v.number > $3 AND v.is_deleted ORDER BY v.number LIMIT $4";

/// What a document was.
#[derive(Clone, Debug)]
pub struct Version {
    /// The document.
    pub id: DocumentId,
    /// At which version.
    pub version: i32,
    /// JSON.
    pub body: String,
    /// When that was written.
    pub modified_at: SystemTime,
    /// Who did.
    pub modified_by: Option<String>,
    /// The request that did, as its trace calls it.
    pub trace: Option<String>,
    /// Until when the document was so.
    pub replaced_at: SystemTime,
    /// Who changed or deleted it.
    pub replaced_by: Option<String>,
    /// Whether it was deleted.
    pub is_deleted: bool,
}

impl Version {
    /// That of a row.
    pub fn of(row: &Row) -> Self {
        Self {
            id: DocumentId::stored(row.get(0)),
            version: row.get(1),
            body: row.get::<_, Text>(2).0,
            modified_at: row.get(3),
            modified_by: row.get(4),
            trace: row.get(5),
            replaced_at: row.get(6),
            replaced_by: row.get(7),
            is_deleted: row.get(8),
        }
    }
}
