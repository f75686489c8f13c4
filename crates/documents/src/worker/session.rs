//! A session that reads and writes documents, with its statements prepared.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Statement};
use futures_util::future::try_join_all;
use uuid::Uuid;

use crate::core::write::DeletedDocument;
use crate::error::DocumentsError;
use crate::model::{CollectionId, DocumentNumber, Epoch, TenantId};
use crate::store::owner::KEEPALIVE_SETTINGS;
use crate::store::query::BoundedChunks;
use crate::store::read::{
    self, AliasKeys, LookupQuery, LookupRows, NumberKeys, ReferrerCounts, StoredDocument,
    StoredReply,
};
use crate::store::write::{self, CommitOutcome, WriteRows};

/// Settings of sessions that look up rows by key. Generic plans with index scans suit any number of
/// documents, however few there are at the moment. Settings of a role or database must not override
/// the isolation level: each statement has to see what was committed before it.
pub(crate) const SESSION_SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET enable_bitmapscan = off; SET jit = off; SET max_parallel_workers_per_gather = 0; SET default_transaction_isolation = 'read committed'; \
    SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0";

/// Makes commits durable by default, unless a write requests less, whatever a database or a role
/// has set.
const DURABLE_COMMITS: &str = "SELECT pg_catalog.set_config('synchronous_commit', 'on', false) WHERE pg_catalog.current_setting('synchronous_commit') = 'off'";

pub(crate) struct WriterSession {
    client: Client,
    by_alias: Statement,
    by_number: Statement,
    resolve: Statement,
    look_up: Statement,
    count_referrers: Statement,
    read_referrers: Statement,
    stored_replies: Statement,
    deleted: Statement,
    write: Statement,
}

impl WriterSession {
    /// Prepares all statements, in a database with the engine's part of schema `egret`.
    pub(crate) async fn new(client: Client) -> Result<Self, DocumentsError> {
        client.batch_execute(SESSION_SETTINGS).await?;
        client.batch_execute(KEEPALIVE_SETTINGS).await?;
        client.batch_execute(DURABLE_COMMITS).await?;
        let sql = [
            read::by_alias_sql(),
            read::by_number_sql(),
            read::RESOLVE_ALIASES_SQL.to_owned(),
            read::look_up_sql(),
            read::COUNT_REFERRERS_SQL.to_owned(),
            read::referrers_sql(),
            read::STORED_REPLIES_SQL.to_owned(),
            read::DELETED_SQL.to_owned(),
            write::write_sql(),
        ];
        let prepared = try_join_all(sql.iter().map(|sql| client.prepare(sql))).await?;
        let [
            by_alias,
            by_number,
            resolve,
            look_up,
            count_referrers,
            read_referrers,
            stored_replies,
            deleted,
            write,
        ] = <[Statement; 9]>::try_from(prepared).expect("each statement is prepared");
        Ok(Self {
            client,
            by_alias,
            by_number,
            resolve,
            look_up,
            count_referrers,
            read_referrers,
            stored_replies,
            deleted,
            write,
        })
    }

    /// Executes a look-up in one round trip; an empty one needs none.
    pub(crate) async fn look_up(
        &self,
        query: LookupQuery<'_>,
    ) -> Result<LookupRows, DocumentsError> {
        let requested = [
            !query.by_alias.aliases.is_empty(),
            !query.by_number.numbers.is_empty(),
            !query.alias_numbers.aliases.is_empty(),
        ];
        let mut rows = LookupRows::default();
        match requested {
            [false, false, false] => {}
            [true, false, false] => rows.by_alias = self.by_alias(query.by_alias).await?,
            [false, true, false] => rows.by_number = self.by_number(query.by_number).await?,
            [false, false, true] => {
                rows.alias_numbers = self.resolve_aliases(query.alias_numbers).await?
            }
            _ => rows = read::look_up(&self.client, &self.look_up, query).await?,
        }
        Ok(rows)
    }

    async fn by_alias(
        &self,
        keys: AliasKeys<'_>,
    ) -> Result<Vec<Option<StoredDocument>>, DocumentsError> {
        Ok(read::by_alias(&self.client, &self.by_alias, keys).await?)
    }

    /// Documents by number; an empty list needs no round trip.
    pub(crate) async fn by_number(
        &self,
        keys: NumberKeys<'_>,
    ) -> Result<Vec<Option<StoredDocument>>, DocumentsError> {
        if keys.numbers.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(read::by_number(&self.client, &self.by_number, keys).await?)
        }
    }

    /// Numbers of documents by alias.
    pub(crate) async fn resolve_aliases(
        &self,
        keys: AliasKeys<'_>,
    ) -> Result<Vec<Option<DocumentNumber>>, DocumentsError> {
        if keys.aliases.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(read::resolve_aliases(&self.client, &self.resolve, keys).await?)
        }
    }

    /// Referrers of documents, except those in `ignored`: of each at most `first_max` are listed
    /// and `count_max` counted. Where the server refuses some, each of these has its error.
    pub(crate) async fn count_referrers(
        &self,
        tenants: &[TenantId],
        numbers: &[DocumentNumber],
        ignored: &[DocumentNumber],
        first_max: i64,
        count_max: i64,
    ) -> Result<Vec<Result<ReferrerCounts, DocumentsError>>, DocumentsError> {
        if numbers.is_empty() {
            return Ok(Vec::new());
        }
        let (client, statement) = (&self.client, &self.count_referrers);
        let counts = read::count_referrers(
            client, statement, tenants, numbers, ignored, first_max, count_max,
        );
        let error = match counts.await {
            Ok(all) => return Ok(all.into_iter().map(Ok).collect()),
            Err(error) => DocumentsError::from(error),
        };
        if !self.is_usable_after(&error).await {
            return Err(error);
        }
        let mut results = Vec::with_capacity(numbers.len());
        for (tenant, number) in tenants.chunks(1).zip(numbers.chunks(1)) {
            let counted = read::count_referrers(
                client, statement, tenant, number, ignored, first_max, count_max,
            );
            match counted.await.map_err(DocumentsError::from) {
                Err(error) if error.is_session_lost() => return Err(error),
                counted => results.push(counted.map(|mut rows| rows.pop().unwrap_or_default())),
            }
        }
        Ok(results)
    }

    /// Whether a look-up failed because of its keys, rather than because of the session or the
    /// database: others still succeed.
    pub(super) async fn is_usable_after(&self, error: &DocumentsError) -> bool {
        !error.is_session_lost() && !error.is_removed() && self.probe().await.is_ok()
    }

    /// Executes each look-up statement with keys that do not exist.
    async fn probe(&self) -> Result<(), DocumentsError> {
        let (tenants, collections, numbers, aliases) =
            ([TenantId(0)], [CollectionId(0)], [DocumentNumber(0)], [Uuid::nil()]);
        let alias_keys = AliasKeys { tenants: &tenants, aliases: &aliases };
        let number_keys =
            NumberKeys { tenants: &tenants, collections: &collections, numbers: &numbers };
        let query =
            LookupQuery { by_alias: alias_keys, by_number: number_keys, alias_numbers: alias_keys };
        self.look_up(query).await?;
        self.by_alias(alias_keys).await?;
        self.by_number(number_keys).await?;
        self.resolve_aliases(alias_keys).await?;
        self.stored_replies(&tenants, &aliases).await?;
        self.deleted(number_keys).await?;
        let (client, statement) = (&self.client, &self.count_referrers);
        read::count_referrers(client, statement, &tenants, &numbers, &[], 1, 1).await?;
        Ok(())
    }

    /// Stored replies to requests by idempotency key.
    pub(crate) async fn stored_replies(
        &self,
        tenants: &[TenantId],
        keys: &[Uuid],
    ) -> Result<Vec<Option<StoredReply>>, DocumentsError> {
        if keys.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(read::stored_replies(&self.client, &self.stored_replies, tenants, keys).await?)
        }
    }

    /// The last versions of these documents, where they are deleted and kept.
    pub(crate) async fn deleted(
        &self,
        keys: NumberKeys<'_>,
    ) -> Result<Vec<Option<DeletedDocument>>, DocumentsError> {
        if keys.numbers.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(read::deleted_documents(&self.client, &self.deleted, keys).await?)
        }
    }

    /// Documents that refer to `target`, in order of their numbers, after a number.
    pub(crate) async fn read_referrers(
        &self,
        tenant: TenantId,
        target: DocumentNumber,
        after: DocumentNumber,
        chunks: &mut BoundedChunks,
    ) -> Result<Vec<StoredDocument>, DocumentsError> {
        let parameters: [&(dyn ToSql + Sync); 3] = [&tenant, &target, &after];
        let rows = chunks.next(&self.client, &self.read_referrers, &parameters).await?;
        Ok(rows.iter().map(StoredDocument::from_row).collect())
    }

    /// Writes a batch in one transaction, for an epoch and a batch number.
    pub(crate) async fn write(
        &self,
        rows: &WriteRows,
        epoch: Epoch,
        batch: i64,
    ) -> Result<CommitOutcome, DocumentsError> {
        Ok(rows.execute(&self.client, &self.write, epoch, batch).await?)
    }
}
