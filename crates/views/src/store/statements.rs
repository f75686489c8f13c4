//! Statements that a session has prepared, so that they are not parsed and planned anew with every refresh.

use std::collections::HashMap;

use futures_util::future::{join, join_all};

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row, Statement};

use crate::error::ViewsError;

/// A query with its values.
pub type Query<'a> = (&'a str, &'a [&'a (dyn ToSql + Sync)]);

/// The rows of queries, each or what the server said, in the order in which they were asked.
pub type Answers = Vec<Result<Vec<Row>, ViewsError>>;

/// Beyond so many they are given up.
const STATEMENTS_MAX: usize = 512;

/// The prepared statements of one session.
#[derive(Default)]
pub struct Statements {
    prepared: HashMap<String, Statement>,
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

    /// What the server says to several queries, after statements that are not prepared, `first`. It does one after the other, but is not
    /// waited for in between: a query must not depend on what another one says.
    ///
    /// # Errors
    /// What the server says of statements that it cannot prepare, and of `first`.
    pub async fn query_all(
        &mut self,
        client: &impl GenericClient,
        first: &str,
        queries: &[Query<'_>],
    ) -> Result<Answers, ViewsError> {
        let mut prepared = Vec::new();
        let mut first = first;
        let is_known = |(sql, _): &Query<'_>| self.prepared.contains_key(*sql);
        // To prepare one may take a snapshot, which nothing may that comes before the first.
        if !first.is_empty() && !queries.iter().all(is_known) {
            client.batch_execute(first).await?;
            first = "";
        }
        for (sql, values) in queries {
            prepared.push((self.prepared(client, sql).await?, values));
        }
        let begin = async {
            match first.is_empty() {
                true => Ok(()),
                false => client.batch_execute(first).await,
            }
        };
        let each = prepared.iter().map(|(statement, values)| async move {
            let rows = client.query(statement, values).await;
            rows.map_err(ViewsError::from)
        });
        let (begun, answers) = join(begin, join_all(each)).await;
        begun?;
        Ok(answers)
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
