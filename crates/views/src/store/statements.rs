//! Prepared statements of a session, so that refreshes do not parse and plan them again.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{join_all, join3};

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row, Statement};

use super::catalog_fingerprint::CatalogFingerprint;
use crate::error::ViewsError;

/// A query with its parameters.
pub type Query<'a> = (&'a str, &'a [&'a (dyn ToSql + Sync)]);

/// Queries that are sent without waiting in between (pipelining). The server executes them in
/// order; none may depend on the result of one before it.
#[derive(Clone, Copy, Default)]
pub struct Pipeline<'a> {
    /// Prepared queries that are sent first.
    pub first_queries: &'a [Query<'a>],
    /// Statements that are not prepared, sent after those; may be empty.
    pub unprepared_sql: &'a str,
    /// Prepared queries that are sent last.
    pub queries: &'a [Query<'a>],
}

/// The rows or the error of each query, in the order in which they were sent.
pub type Answers = Vec<Result<Vec<Row>, ViewsError>>;

/// Number of statements beyond which all are discarded.
const STATEMENTS_MAX: usize = 512;

/// The prepared statements of one session.
#[derive(Default)]
pub struct Statements {
    prepared: HashMap<String, Statement>,
    /// The server and database of the session, once they are known.
    server: Option<String>,
    /// Fingerprints of views that are refreshed together, by their numbers.
    fingerprints: HashMap<Vec<i64>, Arc<CatalogFingerprint>>,
    /// Whether the session must be closed and not be used again.
    pub is_spoiled: bool,
}

impl Statements {
    async fn prepare_cached(
        &mut self,
        client: &impl GenericClient,
        sql: &str,
    ) -> Result<Statement, ViewsError> {
        if let Some(found) = self.prepared.get(sql) {
            return Ok(found.clone());
        }
        if self.prepared.len() >= STATEMENTS_MAX {
            self.prepared.clear();
        }
        let statement = client.prepare(sql).await?;
        self.prepared.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Discards the prepared statements, and has the session closed after its use.
    pub(crate) fn mark_spoiled(&mut self) {
        self.prepared.clear();
        self.is_spoiled = true;
    }

    /// Executes a query and returns its rows.
    pub async fn query(
        &mut self,
        client: &impl GenericClient,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, ViewsError> {
        let statement = self.prepare_cached(client, sql).await?;
        Ok(client.query(&statement, values).await?)
    }

    /// Sends a pipeline and returns the results of its queries.
    ///
    /// # Errors
    /// A statement cannot be prepared, or one of the plain statements fails.
    pub(crate) async fn execute_pipeline(
        &mut self,
        client: &impl GenericClient,
        pipeline: Pipeline<'_>,
    ) -> Result<Answers, ViewsError> {
        let Pipeline { first_queries: before, unprepared_sql: plain, queries } = pipeline;
        let is_prepared = |(sql, _): &Query<'_>| self.prepared.contains_key(*sql);
        let mut answers = Vec::new();
        // Preparing a statement may take a snapshot, and there must be none before the plain
        // statements are done.
        if !plain.is_empty() && !queries.iter().all(is_prepared) {
            for (sql, values) in before {
                answers.push(self.query(client, sql, values).await);
                if answers.last().is_some_and(Result::is_err) {
                    return Ok(answers);
                }
            }
            client.batch_execute(plain).await?;
            answers.extend(self.query_all(client, queries).await?);
            return Ok(answers);
        }
        let before = self.prepare_all(client, before).await?;
        let queries = self.prepare_all(client, queries).await?;
        let plain_result =
            async { if plain.is_empty() { Ok(()) } else { client.batch_execute(plain).await } };
        // Each is sent when it is first polled.
        let (first_results, plain_result, results) = join3(
            join_all(send_all(client, &before)),
            plain_result,
            join_all(send_all(client, &queries)),
        )
        .await;
        answers.extend(first_results);
        // If a query before it failed, that error is the cause.
        if answers.iter().all(Result::is_ok) {
            plain_result?;
        }
        answers.extend(results);
        Ok(answers)
    }

    /// Sends several queries at once and returns their results.
    ///
    /// # Errors
    /// A statement cannot be prepared.
    pub(crate) async fn query_all(
        &mut self,
        client: &impl GenericClient,
        queries: &[Query<'_>],
    ) -> Result<Answers, ViewsError> {
        let prepared = self.prepare_all(client, queries).await?;
        Ok(join_all(send_all(client, &prepared)).await)
    }

    async fn prepare_all<'a>(
        &mut self,
        client: &impl GenericClient,
        queries: &[Query<'a>],
    ) -> Result<Vec<Prepared<'a>>, ViewsError> {
        let mut prepared = Vec::new();
        for (sql, values) in queries {
            prepared.push((self.prepare_cached(client, sql).await?, *values));
        }
        Ok(prepared)
    }

    /// The server and database of the session, as `egret.view_place()` begins.
    pub(crate) async fn server_identity(
        &mut self,
        client: &impl GenericClient,
    ) -> Result<String, ViewsError> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        let row = client.query_one(include_str!("sql/server.sql"), &[]).await?;
        Ok(self.server.insert(row.get("server")).clone())
    }

    /// The fingerprint of these views, if it is known.
    pub(crate) fn fingerprint(&self, views: &[i64]) -> Option<Arc<CatalogFingerprint>> {
        self.fingerprints.get(views).cloned()
    }

    /// Stores the fingerprint of these views.
    pub(crate) fn store_fingerprint(&mut self, views: Vec<i64>, fingerprint: CatalogFingerprint) {
        if self.fingerprints.len() >= STATEMENTS_MAX {
            self.fingerprints.clear();
        }
        self.fingerprints.insert(views, Arc::new(fingerprint));
    }

    /// Sends a query without waiting for its answer.
    ///
    /// # Errors
    /// The statement cannot be prepared, or the connection is closed.
    pub async fn send(
        &mut self,
        client: &impl GenericClient,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<(), ViewsError> {
        let statement = self.prepare_cached(client, sql).await?;
        match client.query(&statement, values).now_or_never() {
            None => Ok(()),
            Some(answer) => Ok(answer.map(|_| ())?),
        }
    }

    /// Executes a query that returns exactly one row.
    pub async fn query_one(
        &mut self,
        client: &impl GenericClient,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, ViewsError> {
        let statement = self.prepare_cached(client, sql).await?;
        Ok(client.query_one(&statement, values).await?)
    }
}

type Prepared<'a> = (Statement, &'a [&'a (dyn ToSql + Sync)]);

fn send_all<'a>(
    client: &'a impl GenericClient,
    prepared: &'a [Prepared<'a>],
) -> impl Iterator<Item = impl Future<Output = Result<Vec<Row>, ViewsError>>> {
    prepared.iter().map(move |(statement, values)| async move {
        let rows = client.query(statement, values).await;
        rows.map_err(ViewsError::from)
    })
}
