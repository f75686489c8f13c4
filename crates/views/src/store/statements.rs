//! Statements that a session has prepared, so that they are not parsed and planned anew with every refresh.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{join_all, join3};

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row, Statement};

use super::footing::Footing;
use crate::error::ViewsError;

/// A query with its values.
pub type Query<'a> = (&'a str, &'a [&'a (dyn ToSql + Sync)]);

/// What is sent to the server at once. It does one after the other, but is not waited for in between: nothing must depend on what
/// something before it says.
#[derive(Clone, Copy, Default)]
pub struct Flight<'a> {
    /// Queries that come first, …
    pub before: &'a [Query<'a>],
    /// … statements that are not prepared, if any, …
    pub plain: &'a str,
    /// … and more queries.
    pub queries: &'a [Query<'a>],
}

/// The rows of queries, each or what the server said, in the order in which they were asked.
pub type Answers = Vec<Result<Vec<Row>, ViewsError>>;

/// Beyond so many they are given up.
const STATEMENTS_MAX: usize = 512;

/// The prepared statements of one session.
#[derive(Default)]
pub struct Statements {
    prepared: HashMap<String, Statement>,
    /// The server and database that the session is in, once they have been asked for.
    server: Option<String>,
    /// What was found of views that are refreshed together, by their numbers.
    footings: HashMap<Vec<i64>, Arc<Footing>>,
    /// Whether the session is not to be used any more.
    pub is_spoiled: bool,
}

impl Statements {
    async fn prepared(
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

    /// Uses none of what is prepared any more, and has the session closed after this.
    pub fn spoil(&mut self) {
        self.prepared.clear();
        self.is_spoiled = true;
    }

    /// The rows of a query.
    ///
    /// # Errors
    /// What the server says.
    pub async fn query(
        &mut self,
        client: &impl GenericClient,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, ViewsError> {
        let statement = self.prepared(client, sql).await?;
        Ok(client.query(&statement, values).await?)
    }

    /// What the server says to the queries of a flight.
    ///
    /// # Errors
    /// What the server says of statements that it cannot prepare, and of those that are not.
    pub async fn fly(
        &mut self,
        client: &impl GenericClient,
        flight: Flight<'_>,
    ) -> Result<Answers, ViewsError> {
        let Flight {
            before,
            plain,
            queries,
        } = flight;
        let is_known = |(sql, _): &Query<'_>| self.prepared.contains_key(*sql);
        let mut answers = Vec::new();
        // To prepare one may take a snapshot, which nothing may that comes before what is not prepared has been done.
        if !plain.is_empty() && !queries.iter().all(is_known) {
            for (sql, values) in before {
                answers.push(self.query(client, sql, values).await);
                if answers.last().is_some_and(Result::is_err) {
                    return Ok(answers);
                }
            }
            client.batch_execute(plain).await?;
            answers.extend(self.all(client, queries).await?);
            return Ok(answers);
        }
        let before = self.prepare_all(client, before).await?;
        let queries = self.prepare_all(client, queries).await?;
        let done = async {
            match plain.is_empty() {
                true => Ok(()),
                false => client.batch_execute(plain).await,
            }
        };
        // Each is sent when it is first polled.
        let (first, done, others) = join3(
            join_all(ask(client, &before)),
            done,
            join_all(ask(client, &queries)),
        )
        .await;
        answers.extend(first);
        // Where something failed before it, that says more.
        if answers.iter().all(Result::is_ok) {
            done?;
        }
        answers.extend(others);
        Ok(answers)
    }

    /// What the server says to several queries that are sent at once.
    ///
    /// # Errors
    /// What the server says of statements that it cannot prepare.
    pub async fn all(
        &mut self,
        client: &impl GenericClient,
        queries: &[Query<'_>],
    ) -> Result<Answers, ViewsError> {
        let prepared = self.prepare_all(client, queries).await?;
        Ok(join_all(ask(client, &prepared)).await)
    }

    async fn prepare_all<'a>(
        &mut self,
        client: &impl GenericClient,
        queries: &[Query<'a>],
    ) -> Result<Vec<Prepared<'a>>, ViewsError> {
        let mut all = Vec::new();
        for (sql, values) in queries {
            all.push((self.prepared(client, sql).await?, *values));
        }
        Ok(all)
    }

    /// The server and database that the session is in, as `egret.view_place()` begins.
    ///
    /// # Errors
    /// What the server says.
    pub async fn server(&mut self, client: &impl GenericClient) -> Result<String, ViewsError> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        let row = client
            .query_one(include_str!("sql/server.sql"), &[])
            .await?;
        Ok(self.server.insert(row.get("server")).clone())
    }

    /// What was found of these views.
    pub fn footing(&self, views: &[i64]) -> Option<Arc<Footing>> {
        self.footings.get(views).cloned()
    }

    /// Keeps what was found of these views.
    pub fn keep_footing(&mut self, views: Vec<i64>, footing: Footing) {
        if self.footings.len() >= STATEMENTS_MAX {
            self.footings.clear();
        }
        self.footings.insert(views, Arc::new(footing));
    }

    /// Sends a query whose answer nobody waits for.
    ///
    /// # Errors
    /// What the server says of a statement that it cannot prepare, and that it cannot be reached.
    pub async fn send(
        &mut self,
        client: &impl GenericClient,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<(), ViewsError> {
        let statement = self.prepared(client, sql).await?;
        match client.query(&statement, values).now_or_never() {
            None => Ok(()),
            Some(answer) => Ok(answer.map(|_| ())?),
        }
    }

    /// The row of a query that has exactly one.
    ///
    /// # Errors
    /// What the server says.
    pub async fn query_one(
        &mut self,
        client: &impl GenericClient,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, ViewsError> {
        let statement = self.prepared(client, sql).await?;
        Ok(client.query_one(&statement, values).await?)
    }
}

type Prepared<'a> = (Statement, &'a [&'a (dyn ToSql + Sync)]);

fn ask<'a>(
    client: &'a impl GenericClient,
    prepared: &'a [Prepared<'a>],
) -> impl Iterator<Item = impl Future<Output = Result<Vec<Row>, ViewsError>>> {
    prepared.iter().map(move |(statement, values)| async move {
        let rows = client.query(statement, values).await;
        rows.map_err(ViewsError::from)
    })
}
