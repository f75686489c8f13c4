//! What became of documents, in the order of commits.

use std::time::SystemTime;

use egret_postgres::tokio_postgres::types::PgLsn;
use egret_postgres::tokio_postgres::{Client, Error as PgError, Row, Statement};
use uuid::Uuid;

/// Groups after a position, in order.
pub const GROUPS: &str = "SELECT position, at, kinds, tenants, collections, ids, versions, is_relaxed FROM egret.document_feed \
     WHERE position > $1 ORDER BY position LIMIT $2";

/// The position of the last change.
pub const POSITION: &str = "SELECT coalesce(max(position), 0) FROM egret.document_feed";

/// Up to this position changes have been forgotten.
pub const FORGOTTEN: &str = "SELECT forgotten FROM egret.document_owner";

/// The position of the last change, and whether a crash of the server may have taken it back.
const LAST: &str =
    "SELECT position, is_relaxed FROM egret.document_feed ORDER BY position DESC LIMIT 1";

/// The position of the last change, and where the write-ahead log ends that has it: the place is asked for after the row has been seen. A server
/// that follows another has only what has reached the disk of that one.
const WRITTEN: &str = "SELECT coalesce((SELECT max(position) FROM egret.document_feed), 0), \
     CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_current_wal_insert_lsn() END";

/// Up to where the write-ahead log has reached the disk.
const FLUSHED: &str = "SELECT pg_catalog.pg_current_wal_flush_lsn()";

/// Commits a message that nobody reads: with it all that was written before reaches the disk.
const FLUSH: &str = "SELECT pg_catalog.set_config('synchronous_commit', 'local', true), \
     pg_catalog.pg_logical_emit_message(true, 'egret', ''::text)";

/// The changes of a transaction.
#[derive(Clone, Debug)]
pub struct Group {
    /// That of the last of them; those before it have the positions before.
    pub position: i64,
    /// When it was written.
    pub at: SystemTime,
    /// Each: what became of it, whose it is, of which collection, which, at which version.
    pub changes: Vec<(i8, i32, i32, Uuid, i32)>,
    /// Whether a crash of the server may have taken it back.
    pub is_relaxed: bool,
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
            is_relaxed: row.get(7),
        }
    }
}

/// A session by which the feed is read, with its statements prepared.
pub struct Feed {
    client: Client,
    groups: Statement,
    last: Statement,
    forgotten: Statement,
    written: Statement,
    flushed: Statement,
}

impl Feed {
    /// In a database where the engine's part of schema `egret` is.
    ///
    /// # Errors
    /// What the server says.
    pub async fn new(client: Client) -> Result<Self, PgError> {
        let groups = format!(
            "SELECT * FROM ({GROUPS}) AS f \
             WHERE f.position - pg_catalog.cardinality(f.ids) < $3 ORDER BY f.position"
        );
        Ok(Self {
            groups: client.prepare(&groups).await?,
            last: client.prepare(LAST).await?,
            forgotten: client.prepare(FORGOTTEN).await?,
            written: client.prepare(WRITTEN).await?,
            flushed: client.prepare(FLUSHED).await?,
            client,
        })
    }

    /// Whether the session is lost.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Groups after a position, in order: so many at most, and none whose changes all come after `end`.
    ///
    /// # Errors
    /// What the server says.
    pub async fn groups(&self, after: i64, limit: i64, end: i64) -> Result<Vec<Group>, PgError> {
        let rows = self
            .client
            .query(&self.groups, &[&after, &limit, &end])
            .await?;
        Ok(rows.iter().map(Group::of).collect())
    }

    /// The position of the last change, and whether a crash of the server may have taken it back.
    ///
    /// # Errors
    /// What the server says.
    pub async fn last(&self) -> Result<(i64, bool), PgError> {
        let row = self.client.query_opt(&self.last, &[]).await?;
        Ok(row.map_or((0, false), |row| (row.get(0), row.get(1))))
    }

    /// Up to which position changes have been forgotten.
    ///
    /// # Errors
    /// What the server says.
    pub async fn forgotten(&self) -> Result<i64, PgError> {
        Ok(self.client.query_one(&self.forgotten, &[]).await?.get(0))
    }

    /// The position of the last change, and where the write-ahead log ends that has it; none: it has reached the disk.
    ///
    /// # Errors
    /// What the server says.
    pub async fn written(&self) -> Result<(i64, Option<PgLsn>), PgError> {
        let row = self.client.query_one(&self.written, &[]).await?;
        Ok((row.get(0), row.get(1)))
    }

    /// Up to where the write-ahead log has reached the disk.
    ///
    /// # Errors
    /// What the server says.
    pub async fn flushed(&self) -> Result<PgLsn, PgError> {
        Ok(self.client.query_one(&self.flushed, &[]).await?.get(0))
    }

    /// Has all that was written until now reach the disk.
    ///
    /// # Errors
    /// What the server says.
    pub async fn flush(&self) -> Result<(), PgError> {
        self.client.batch_execute(FLUSH).await
    }
}
