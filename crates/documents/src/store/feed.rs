//! What became of documents, in the order of commits.

use std::time::SystemTime;

use egret_postgres::tokio_postgres::Row;
use uuid::Uuid;

/// Groups after a position, in order.
pub const GROUPS: &str = "SELECT position, at, kinds, tenants, collections, ids, versions FROM egret.document_feed \
     WHERE position > $1 ORDER BY position LIMIT $2";

/// The position of the last change.
pub const POSITION: &str = "SELECT position FROM egret.document_owner";

/// Up to this position changes have been forgotten.
pub const FORGOTTEN: &str = "SELECT forgotten FROM egret.document_owner";

/// The changes of a transaction.
#[derive(Clone, Debug)]
pub struct Group {
    /// That of the last of them; those before it have the positions before.
    pub position: i64,
    /// When it was written.
    pub at: SystemTime,
    /// Each: what became of it, whose it is, of which collection, which, at which version.
    pub changes: Vec<(i8, i32, i32, Uuid, i32)>,
}

impl Group {
    /// The position before its first change.
    pub fn before(&self) -> i64 {
        self.position - self.changes.len() as i64
    }

    /// The group of a row.
    pub fn of(row: &Row) -> Self {
        let (kinds, tenants): (Vec<i8>, Vec<i32>) = (row.get(2), row.get(3));
        let (collections, ids): (Vec<i32>, Vec<Uuid>) = (row.get(4), row.get(5));
        let versions: Vec<i32> = row.get(6);
        let owners = kinds.into_iter().zip(tenants).zip(collections);
        let each = owners.zip(ids).zip(versions);
        Self {
            position: row.get(0),
            at: row.get(1),
            changes: each
                .map(|((((kind, tenant), collection), id), version)| {
                    (kind, tenant, collection, id, version)
                })
                .collect(),
        }
    }
}
