//! Statements that a session has prepared, so that they are not parsed and planned anew with every refresh.

use std::collections::HashMap;

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{GenericClient, Row, Statement};

use crate::error::ViewsError;

/// Beyond so many they are given up.
const STATEMENTS_MAX: usize = 512;

/// The prepared statements of one session.
#[derive(Default)]
pub struct Statements {
    prepared: HashMap<String, Statement>,
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
