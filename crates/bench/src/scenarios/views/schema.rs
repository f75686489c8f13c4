//! Surroundings of the measurement: a schema of its own, in a database in which Egret keeps views.

use anyhow::{Context, Result};
use tokio_postgres::Client;

use super::api::Api;
use crate::postgres::ConnectionTarget;
use crate::server::Server;

/// The schema of a scenario, and the clients that work in it.
pub(super) struct ScenarioSchema {
    /// The views in the database.
    pub(super) api: Api,
    /// Schema of tables and views.
    pub(super) schema: String,
    target: ConnectionTarget,
    /// The database that was made for the measurement, and from where it is dropped.
    created_database: Option<(String, ConnectionTarget)>,
}

impl ScenarioSchema {
    /// Makes the schema: in the database that `url` names, else in one that is made on the embedded
    /// server.
    ///
    /// # Errors
    /// When the server cannot be reached, or its superuser's password not be read.
    pub(super) async fn open(server: &Server, url: Option<&str>) -> Result<Self> {
        let name = format!("egret_bench_{}", std::process::id());
        let (target, created_database) = match url {
            Some(url) => (ConnectionTarget::parse(url)?, None),
            None => {
                let url = server.superuser_url().await?;
                let admin = ConnectionTarget::parse(&format!("{url}/postgres?sslmode=disable"))?;
                let client = admin.connect_client().await?;
                client.batch_execute(&format!("CREATE DATABASE {name}")).await?;
                let target = ConnectionTarget::parse(&format!("{url}/{name}?sslmode=disable"))?;
                (target, Some((name.clone(), admin)))
            }
        };
        let client = target.connect_client().await?;
        let database = client.query_one("SELECT current_database()", &[]).await?;
        client
            .batch_execute(&format!("CREATE SCHEMA {name}"))
            .await
            .context("create a schema for the measurement")?;
        Ok(Self {
            api: Api::new(server.clone(), database.get(0))?,
            schema: name,
            target,
            created_database,
        })
    }

    /// A session in the database.
    pub(super) async fn connect(&self) -> Result<Client> {
        self.target.connect_client().await
    }

    /// Whether the server is on this machine.
    pub(super) fn is_local(&self) -> bool {
        self.target.is_local()
    }

    /// Whether the server is one that was named, not Egret's own.
    pub(super) fn is_external(&self) -> bool {
        self.created_database.is_none()
    }

    /// Something in the schema.
    pub(super) fn qualified_name(&self, name: &str) -> String {
        format!("{}.{name}", self.schema)
    }

    /// Has what was just made written out and counted, so that neither falls into what is measured.
    pub(super) async fn vacuum_and_checkpoint(
        &self,
        client: &Client,
        tables: &[&str],
    ) -> Result<()> {
        for table in tables {
            client.batch_execute(&format!("VACUUM (ANALYZE) {table}")).await?;
        }
        // A role that may not ask for one is measured without.
        let _ = client.batch_execute("CHECKPOINT").await;
        Ok(())
    }

    /// How many rows a table or view has too few or too many, as what a query gives.
    pub(super) async fn count_differing_rows(
        &self,
        client: &Client,
        name: &str,
        query: &str,
    ) -> Result<u64> {
        let sql = format!(
            "SELECT count(*) FROM (
                 (TABLE {name} EXCEPT ALL ({query})) UNION ALL (({query}) EXCEPT ALL TABLE {name})
             ) AS differing"
        );
        let rows: i64 = client.query_one(&sql, &[]).await?.get(0);
        Ok(u64::try_from(rows).unwrap_or_default())
    }

    /// Removes everything that was made.
    pub(super) async fn remove(&self) -> Result<()> {
        self.api.drop_all(&self.schema).await?;
        let client = self.connect().await?;
        client.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.schema)).await?;
        if let Some((database, admin)) = &self.created_database {
            let admin = admin.connect_client().await?;
            admin.batch_execute(&format!("DROP DATABASE {database} WITH (FORCE)")).await?;
        }
        Ok(())
    }
}
