//! Earlier versions of documents, and deleted documents.

use std::time::SystemTime;

use egret_postgres::tokio_postgres::Row;

use super::jsonb::ReceivedJson;
use crate::model::DocumentId;

/// Versions of a document before a given one, the latest first.
pub(crate) const VERSIONS_SQL: &str = "SELECT v.id, v.version, v.body, v.modified_at, v.modified_by, v.trace_id, v.replaced_at, v.replaced_by, v.is_deleted \
     FROM egret.document_version AS v \
     WHERE v.tenant_id = $1 AND v.collection_id = $2 AND v.number = $3 AND v.version < $4 ORDER BY v.version DESC LIMIT $5";

/// Deleted documents that can be restored, in order of creation.
pub(crate) const DELETED_SQL: &str = "SELECT v.id, v.version, v.body, v.modified_at, v.modified_by, v.trace_id, v.replaced_at, v.replaced_by, v.is_deleted \
     FROM egret.document_version AS v \
     WHERE v.tenant_id = $1 AND v.collection_id = $2 AND v.number > $3 AND v.is_deleted ORDER BY v.number LIMIT $4";

/// One earlier version of a document.
#[derive(Clone, Debug)]
pub struct Version {
    /// Id of the document.
    pub id: DocumentId,
    /// Version number, from 1.
    pub version: i32,
    /// Body of this version, as JSON.
    pub body: String,
    /// Time at which this version was written.
    pub modified_at: SystemTime,
    /// Author of this version, if known.
    pub modified_by: Option<String>,
    /// Trace id of the request that wrote this version.
    pub trace: Option<String>,
    /// Time at which the version was replaced or deleted.
    pub replaced_at: SystemTime,
    /// Author of the change that replaced or deleted it.
    pub replaced_by: Option<String>,
    /// Whether the document was deleted with this version.
    pub is_deleted: bool,
}

impl Version {
    /// Reads a version from a row.
    pub(crate) fn from_row(row: &Row) -> Self {
        Self {
            id: DocumentId::from_stored(row.get(0)),
            version: row.get(1),
            body: row.get::<_, ReceivedJson>(2).0,
            modified_at: row.get(3),
            modified_by: row.get(4),
            trace: row.get(5),
            replaced_at: row.get(6),
            replaced_by: row.get(7),
            is_deleted: row.get(8),
        }
    }
}
