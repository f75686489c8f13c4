//! A session that reads and writes documents, with its statements prepared.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Statement};
use futures_util::future::try_join_all;
use uuid::Uuid;

use crate::core::write::DeletedDocument;
use crate::error::DocumentsError;
use crate::model::{CollectionId, DocumentNumber, Epoch, TenantId};
use crate::store::owner::NOTICED;
use crate::store::query::BoundedChunks;
use crate::store::read::{
    self, AliasKeys, LookupQuery, LookupRows, NumberKeys, ReferrerCounts, StoredDocument,
    StoredReply,
};
use crate::store::write::{self, CommitOutcome, WriteRows};

/// Settings of sessions that look up rows by key. Generic plans with index scans suit any number of
/// documents, however few there are at the moment. Settings of a role or database must not override
/// the isolation level: each statement has to see what was committed before it.
pub(crate) const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET enable_bitmapscan = off; SET jit = off; SET max_parallel_workers_per_gather = 0; SET default_transaction_isolation = 'read committed'; \
    SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0";

/// Makes commits durable by default, unless a write requests less, whatever a database or a role
/// has set.
const FLUSHED: &str = "SELECT pg_catalog.set_config('synchronous_commit', 'on', false) WHERE pg_catalog.current_setting('synchronous_commit') = 'off'";

pub(crate) struct WriterSession {
    client: Client,
    by_alias: Statement,
    by_number: Statement,
    resolve: Statement,
    look: Statement,
    referrers: Statement,
    referring: Statement,
    answers: Statement,
    deleted: Statement,
    write: Statement,
}

impl WriterSession {
    /// Prepares all statements, in a database with the engine's part of schema `egret`.
    pub(crate) async fn new(client: Client) -> Result<Self, DocumentsError> {
        client.batch_execute(SETTINGS).await?;
        client.batch_execute(NOTICED).await?;
        client.batch_execute(FLUSHED).await?;
        let sql = [
            read::by_alias_sql(),
            read::by_number_sql(),
            read::RESOLVE.to_owned(),
            read::look_sql(),
            read::REFERRERS.to_owned(),
            read::referring_sql(),
            read::ANSWERS.to_owned(),
            read::DELETED.to_owned(),
            write::write_sql(),
        ];
        let prepared = try_join_all(sql.iter().map(|sql| client.prepare(sql))).await?;
        let [
            by_alias,
            by_number,
            resolve,
            look,
            referrers,
            referring,
            answers,
            deleted,
            write,
        ] = <[Statement; 9]>::try_from(prepared).expect("each statement is prepared");
        Ok(Self {
            client,
            by_alias,
            by_number,
            resolve,
            look,
            referrers,
            referring,
            answers,
            deleted,
            write,
        })
    }

    /// Executes a look-up in one round trip; an empty one needs none.
    pub(crate) async fn look(&self, asked: LookupQuery<'_>) -> Result<LookupRows, DocumentsError> {
        let is_asked = [
            !asked.by_alias.aliases.is_empty(),
            !asked.by_number.numbers.is_empty(),
            !asked.numbers.aliases.is_empty(),
        ];
        let mut seen = LookupRows::default();
        match is_asked {
            [false, false, false] => {}
            [true, false, false] => seen.by_alias = self.by_alias(asked.by_alias).await?,
            [false, true, false] => seen.by_number = self.by_number(asked.by_number).await?,
            [false, false, true] => seen.numbers = self.resolve(asked.numbers).await?,
            _ => seen = read::look(&self.client, &self.look, asked).await?,
        }
        Ok(seen)
    }

    async fn by_alias(
        &self,
        asked: AliasKeys<'_>,
    ) -> Result<Vec<Option<StoredDocument>>, DocumentsError> {
        Ok(read::by_alias(&self.client, &self.by_alias, asked).await?)
    }

    /// Documents by number; an empty list needs no round trip.
    pub(crate) async fn by_number(
        &self,
        asked: NumberKeys<'_>,
    ) -> Result<Vec<Option<StoredDocument>>, DocumentsError> {
        if asked.numbers.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(read::by_number(&self.client, &self.by_number, asked).await?)
        }
    }

    /// Numbers of documents by alias.
    pub(crate) async fn resolve(
        &self,
        asked: AliasKeys<'_>,
    ) -> Result<Vec<Option<DocumentNumber>>, DocumentsError> {
        if asked.aliases.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(read::resolve(&self.client, &self.resolve, asked).await?)
        }
    }

    /// Referrers of documents, except those in `ignored`: of each at most `first_max` are listed
    /// and `count_max` counted. Where the server refuses some, each of these has its error.
    pub(crate) async fn referrers(
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
        let (client, statement) = (&self.client, &self.referrers);
        let counted = read::referrers(
            client, statement, tenants, numbers, ignored, first_max, count_max,
        );
        let error = match counted.await {
            Ok(all) => return Ok(all.into_iter().map(Ok).collect()),
            Err(error) => DocumentsError::from(error),
        };
        if !self.is_usable_after(&error).await {
            return Err(error);
        }
        let mut each = Vec::with_capacity(numbers.len());
        for (tenant, number) in tenants.chunks(1).zip(numbers.chunks(1)) {
            let counted = read::referrers(
                client, statement, tenant, number, ignored, first_max, count_max,
            );
            match counted.await.map_err(DocumentsError::from) {
                Err(error) if error.is_of_session() => return Err(error),
                counted => each.push(counted.map(|mut one| one.pop().unwrap_or_default())),
            }
        }
        Ok(each)
    }

    /// Whether a look-up failed because of its keys, rather than because of the session or the
    /// database: others still succeed.
    pub(super) async fn is_usable_after(&self, error: &DocumentsError) -> bool {
        !error.is_of_session() && !error.is_removed() && self.probe().await.is_ok()
    }

    /// Executes each look-up statement with keys that do not exist.
    async fn probe(&self) -> Result<(), DocumentsError> {
        let (tenants, collections, numbers, names) = (
            [TenantId(0)],
            [CollectionId(0)],
            [DocumentNumber(0)],
            [Uuid::nil()],
        );
        let by_name = AliasKeys {
            tenants: &tenants,
            aliases: &names,
        };
        let by_number = NumberKeys {
            tenants: &tenants,
            collections: &collections,
            numbers: &numbers,
        };
        let together = LookupQuery {
            by_alias: by_name,
            by_number,
            numbers: by_name,
        };
        self.look(together).await?;
        self.by_alias(by_name).await?;
        self.by_number(by_number).await?;
        self.resolve(by_name).await?;
        self.answers(&tenants, &names).await?;
        self.deleted(by_number).await?;
        let (client, statement) = (&self.client, &self.referrers);
        read::referrers(client, statement, &tenants, &numbers, &[], 1, 1).await?;
        Ok(())
    }

    /// Stored replies to requests by idempotency key.
    pub(crate) async fn answers(
        &self,
        tenants: &[TenantId],
        keys: &[Uuid],
    ) -> Result<Vec<Option<StoredReply>>, DocumentsError> {
        if keys.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(read::answers(&self.client, &self.answers, tenants, keys).await?)
        }
    }

    /// The last versions of these documents, where they are deleted and kept.
    pub(crate) async fn deleted(
        &self,
        asked: NumberKeys<'_>,
    ) -> Result<Vec<Option<DeletedDocument>>, DocumentsError> {
        if asked.numbers.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(read::deleted(&self.client, &self.deleted, asked).await?)
        }
    }

    /// Documents that refer to `target`, in order of their numbers, after a number.
    pub(crate) async fn referring(
        &self,
        tenant: TenantId,
        target: DocumentNumber,
        after: DocumentNumber,
        portions: &mut BoundedChunks,
    ) -> Result<Vec<StoredDocument>, DocumentsError> {
        let after: [&(dyn ToSql + Sync); 3] = [&tenant, &target, &after];
        let rows = portions.next(&self.client, &self.referring, &after).await?;
        Ok(rows.iter().map(StoredDocument::of).collect())
    }

    /// Writes a batch in one transaction, for an epoch and a batch number.
    pub(crate) async fn write(
        &self,
        rows: &WriteRows,
        epoch: Epoch,
        batch: i64,
    ) -> Result<CommitOutcome, DocumentsError> {
        Ok(rows.run(&self.client, &self.write, epoch, batch).await?)
    }
}
