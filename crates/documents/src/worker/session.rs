//! A session that reads and writes documents, with its statements prepared.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Statement};
use futures_util::future::try_join_all;
use uuid::Uuid;

use crate::core::group::Deleted;
use crate::error::DocumentsError;
use crate::store::owner::NOTICED;
use crate::store::query::Portions;
use crate::store::read::{self, Answered, Counted, Looked, Seen, Stored};
use crate::store::write::{self, Outcome, Writes};

/// Plans are made once, for any number of documents: rows are found by their keys, however few there are at the moment. What a role or a database
/// has set otherwise does not hold: each statement sees what has committed before it.
pub(crate) const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; \
    SET enable_mergejoin = off; SET enable_bitmapscan = off; SET jit = off; SET max_parallel_workers_per_gather = 0; SET default_transaction_isolation = 'read committed'; \
    SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0";

/// Who does not ask for less is answered when it has reached the disk, whatever a database or a role has set.
const FLUSHED: &str = "SELECT pg_catalog.set_config('synchronous_commit', 'on', false) WHERE pg_catalog.current_setting('synchronous_commit') = 'off'";

/// See the module.
pub struct Session {
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

impl Session {
    /// In a database where the engine's part of schema `egret` is.
    ///
    /// # Errors
    /// What the server says.
    pub async fn new(client: Client) -> Result<Self, DocumentsError> {
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
        ] = <[Statement; 9]>::try_from(prepared).expect("each is prepared");
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

    /// Looks up all of it, by one statement; what is not asked for costs nothing.
    ///
    /// # Errors
    /// What the server says.
    pub async fn look(&self, asked: Looked<'_>) -> Result<Seen, DocumentsError> {
        let is_asked = [
            !asked.by_alias.1.is_empty(),
            !asked.by_number.2.is_empty(),
            !asked.numbers.1.is_empty(),
        ];
        let mut seen = Seen::default();
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
        asked: (&[i32], &[Uuid]),
    ) -> Result<Vec<Option<Stored>>, DocumentsError> {
        Ok(read::by_alias(&self.client, &self.by_alias, asked).await?)
    }

    /// Documents by numbers; where none is asked for, that costs nothing.
    ///
    /// # Errors
    /// What the server says.
    pub async fn by_number(
        &self,
        asked: (&[i32], &[i32], &[i64]),
    ) -> Result<Vec<Option<Stored>>, DocumentsError> {
        match asked.2.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(read::by_number(&self.client, &self.by_number, asked).await?),
        }
    }

    /// The numbers of documents by identities.
    ///
    /// # Errors
    /// What the server says.
    pub async fn resolve(
        &self,
        asked: (&[i32], &[Uuid]),
    ) -> Result<Vec<Option<i64>>, DocumentsError> {
        match asked.1.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(read::resolve(&self.client, &self.resolve, asked).await?),
        }
    }

    /// Who refers to documents, those aside that let them go: of each the first so many, and how many there are, counted so far.
    ///
    /// # Errors
    /// What the server says.
    pub async fn referrers(
        &self,
        asked: (&[i32], &[i64]),
        let_go: &[i64],
        bounds: (i64, i64),
    ) -> Result<Vec<Counted>, DocumentsError> {
        match asked.1.is_empty() {
            true => Ok(Vec::new()),
            false => {
                Ok(read::referrers(&self.client, &self.referrers, asked, let_go, bounds).await?)
            }
        }
    }

    /// The answers of requests that came before.
    ///
    /// # Errors
    /// What the server says.
    pub async fn answers(
        &self,
        asked: (&[i32], &[Uuid]),
    ) -> Result<Vec<Option<Answered>>, DocumentsError> {
        match asked.1.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(read::answers(&self.client, &self.answers, asked).await?),
        }
    }

    /// The last versions of documents that are deleted, of those that are.
    ///
    /// # Errors
    /// What the server says.
    pub async fn deleted(
        &self,
        asked: (&[i32], &[i32], &[i64]),
    ) -> Result<Vec<Option<Deleted>>, DocumentsError> {
        match asked.2.is_empty() {
            true => Ok(Vec::new()),
            false => Ok(read::deleted(&self.client, &self.deleted, asked).await?),
        }
    }

    /// Documents that refer to one, in the order of their numbers from one on.
    ///
    /// # Errors
    /// What the server says.
    pub async fn referring(
        &self,
        (tenant, target): (i32, i64),
        after: i64,
        portions: &mut Portions,
    ) -> Result<Vec<Stored>, DocumentsError> {
        let after: [&(dyn ToSql + Sync); 3] = [&tenant, &target, &after];
        let rows = portions.next(&self.client, &self.referring, &after).await?;
        Ok(rows.iter().map(Stored::of).collect())
    }

    /// Writes, in one transaction.
    ///
    /// # Errors
    /// What the server says.
    pub async fn write(&self, writes: &Writes, of: (i64, i64)) -> Result<Outcome, DocumentsError> {
        Ok(writes.run(&self.client, &self.write, of).await?)
    }
}
