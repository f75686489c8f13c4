//! The change feed: changes of documents in the order of commits.

use std::time::SystemTime;

use crate::model::{ChangeKind, CollectionId, DocumentId, FeedPosition, TenantId};
use egret_postgres::tokio_postgres::types::PgLsn;
use egret_postgres::tokio_postgres::{Client, Error as PgError, Row, Statement};
use uuid::Uuid;

/// Groups after a position, in order.
pub(crate) const GROUPS_SQL: &str = "SELECT position, at, kinds, tenants, collections, ids, versions, is_relaxed FROM egret.document_feed \
     WHERE position > $1 ORDER BY position LIMIT $2";

/// The last position of the feed.
pub(crate) const LAST_POSITION_SQL: &str =
    "SELECT coalesce(max(position), 0) FROM egret.document_feed";

/// The last position up to which changes were deleted.
pub(crate) const FORGOTTEN_SQL: &str = "SELECT forgotten FROM egret.document_owner";

/// The last position, and whether it was committed with relaxed durability.
const LAST_GROUP_SQL: &str =
    "SELECT position, is_relaxed FROM egret.document_feed ORDER BY position DESC LIMIT 1";

/// The last position, and an LSN at or after its commit: the LSN is read after the row was seen. On
/// a replica it is null, because a replica only has what its primary has flushed.
const WRITTEN_LSN_SQL: &str = "SELECT coalesce((SELECT max(position) FROM egret.document_feed), 0), \
     CASE WHEN NOT pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_current_wal_insert_lsn() END";

/// The LSN up to which the write-ahead log is flushed.
const FLUSHED_LSN_SQL: &str = "SELECT pg_catalog.pg_current_wal_flush_lsn()";

/// Commits an empty logical message durably, which flushes everything written before.
const FLUSH_SQL: &str = "SELECT pg_catalog.set_config('synchronous_commit', 'local', true), \
     pg_catalog.pg_logical_emit_message(true, 'egret', ''::text)";

/// The change of one document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeedChange {
    /// None: a kind that this version of Egret does not know.
    pub kind: Option<ChangeKind>,
    pub tenant: TenantId,
    pub collection: CollectionId,
    pub id: DocumentId,
    /// Version of the document after the change.
    pub version: i32,
}

/// The changes of one transaction.
#[derive(Clone, Debug)]
pub(crate) struct FeedGroup {
    /// Position of the last change; the changes before it have the preceding positions.
    pub position: FeedPosition,
    /// Time at which it was written.
    pub at: SystemTime,
    pub changes: Vec<FeedChange>,
    /// Whether it was committed with relaxed durability, so that a crash of the server may lose it.
    pub is_relaxed: bool,
}

impl FeedGroup {
    /// The position before its first change.
    pub(crate) fn start_position(&self) -> FeedPosition {
        FeedPosition(self.position.0 - self.changes.len() as i64)
    }

    /// The changes, each with its position.
    pub(crate) fn changes_with_positions(
        &self,
    ) -> impl Iterator<Item = (FeedPosition, FeedChange)> {
        let positions = (self.start_position().0 + 1..).map(FeedPosition);
        positions.zip(self.changes.iter().copied())
    }

    /// Reads a group from a row of [`GROUPS_SQL`].
    pub(crate) fn from_row(row: &Row) -> Self {
        let (kinds, tenants): (Vec<i8>, Vec<TenantId>) = (row.get(2), row.get(3));
        let (collections, ids): (Vec<CollectionId>, Vec<Uuid>) = (row.get(4), row.get(5));
        let versions: Vec<i32> = row.get(6);
        let keys = kinds.into_iter().zip(tenants).zip(collections);
        let rows = keys.zip(ids).zip(versions);
        let changes = rows.map(|((((kind, tenant), collection), id), version)| FeedChange {
            kind: ChangeKind::from_letter(kind),
            tenant,
            collection,
            id: DocumentId::from_stored(id),
            version,
        });
        Self {
            position: row.get(0),
            at: row.get(1),
            changes: changes.collect(),
            is_relaxed: row.get(7),
        }
    }
}

/// A session for reading the feed, with prepared statements.
pub(crate) struct Feed {
    client: Client,
    groups: Statement,
    last: Statement,
    forgotten: Statement,
    written: Statement,
    flushed: Statement,
}

impl Feed {
    /// Prepares the statements, in a database with the engine's part of schema `egret`.
    pub(crate) async fn new(client: Client) -> Result<Self, PgError> {
        let groups = format!(
            "SELECT * FROM ({GROUPS_SQL}) AS f \
             WHERE f.position - pg_catalog.cardinality(f.ids) < $3 ORDER BY f.position"
        );
        Ok(Self {
            groups: client.prepare(&groups).await?,
            last: client.prepare(LAST_GROUP_SQL).await?,
            forgotten: client.prepare(FORGOTTEN_SQL).await?,
            written: client.prepare(WRITTEN_LSN_SQL).await?,
            flushed: client.prepare(FLUSHED_LSN_SQL).await?,
            client,
        })
    }

    /// Whether the connection is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Groups after a position, in order: at most `limit`, and none that begins at or after `end`.
    pub(crate) async fn read_groups(
        &self,
        after: FeedPosition,
        limit: i64,
        end: FeedPosition,
    ) -> Result<Vec<FeedGroup>, PgError> {
        let rows = self.client.query(&self.groups, &[&after, &limit, &end]).await?;
        Ok(rows.iter().map(FeedGroup::from_row).collect())
    }

    /// The last position, and whether it was committed with relaxed durability.
    pub(crate) async fn read_last(&self) -> Result<(FeedPosition, bool), PgError> {
        let row = self.client.query_opt(&self.last, &[]).await?;
        Ok(row.map_or((FeedPosition::default(), false), |row| (row.get(0), row.get(1))))
    }

    /// The last position up to which changes were deleted.
    pub(crate) async fn read_forgotten(&self) -> Result<FeedPosition, PgError> {
        Ok(self.client.query_one(&self.forgotten, &[]).await?.get(0))
    }

    /// The last position, and an LSN whose flush makes it durable; none on a replica, where
    /// everything is flushed on the primary.
    pub(crate) async fn read_written(&self) -> Result<(FeedPosition, Option<PgLsn>), PgError> {
        let row = self.client.query_one(&self.written, &[]).await?;
        Ok((row.get(0), row.get(1)))
    }

    /// The LSN up to which the write-ahead log is flushed.
    pub(crate) async fn read_flushed_lsn(&self) -> Result<PgLsn, PgError> {
        Ok(self.client.query_one(&self.flushed, &[]).await?.get(0))
    }

    /// Flushes everything written so far.
    pub(crate) async fn flush(&self) -> Result<(), PgError> {
        self.client.batch_execute(FLUSH_SQL).await
    }
}
