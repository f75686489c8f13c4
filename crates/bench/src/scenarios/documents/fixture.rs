//! Surroundings of the measurement: a database of its own with collections, and the counters of its
//! server.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio_postgres::Client;

use crate::postgres::ConnectionTarget;
use crate::server::Server;

/// A session tells what it counts at most so often.
const STATISTICS_FLUSH_DELAY: Duration = Duration::from_millis(1_500);

pub(super) struct DocumentsFixture {
    pub(super) server: Server,
    pub(super) database: String,
    target: ConnectionTarget,
    admin: ConnectionTarget,
}

/// Counters of the PostgreSQL server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) transactions: i64,
    pub(super) buffers: i64,
    pub(super) flushes: i64,
    pub(super) wal_bytes: i64,
}

impl Counts {
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            transactions: self.transactions - before.transactions,
            buffers: self.buffers - before.buffers,
            flushes: self.flushes - before.flushes,
            wal_bytes: self.wal_bytes - before.wal_bytes,
        }
    }
}

impl DocumentsFixture {
    /// Makes the database and the collections.
    ///
    /// # Errors
    /// When a server cannot be reached or refuses.
    pub(super) async fn open(server: &Server, references: u32) -> Result<Self> {
        let database = format!("egret_bench_{}", std::process::id());
        let url = server.superuser_url().await?;
        let admin = ConnectionTarget::parse(&format!("{url}/postgres?sslmode=disable"))?;
        let client = admin.connect_client().await?;
        client.batch_execute(&format!("CREATE DATABASE {database}")).await?;
        let target = ConnectionTarget::parse(&format!("{url}/{database}?sslmode=disable"))?;
        let fixture = Self { server: server.clone(), database, target, admin };
        let reply = fixture
            .server
            .post(&fixture.path("v1/collections"), &collection_definitions(references))
            .await;
        reply.context("declare the collections")?;
        Ok(fixture)
    }

    /// A path in the database.
    pub(super) fn path(&self, path: &str) -> String {
        format!("{path}?database={}", self.database)
    }

    /// A session in the database.
    pub(super) async fn connect(&self) -> Result<Client> {
        self.target.connect_client().await
    }

    /// What the server has counted, when all sessions have told it.
    pub(super) async fn read_counts(&self, client: &Client) -> Result<Counts> {
        tokio::time::sleep(STATISTICS_FLUSH_DELAY).await;
        let version: i32 = client
            .query_one("SELECT current_setting('server_version_num')::int", &[])
            .await?
            .get(0);
        let flushes = if version >= 180_000 {
            "(SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal')"
        } else {
            "(SELECT wal_sync FROM pg_stat_wal)"
        };
        let sql = format!(
            "SELECT xact_commit + xact_rollback, blks_hit + blks_read, coalesce({flushes}, 0), \
                 pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint \
             FROM pg_stat_database WHERE datname = current_database()"
        );
        let row = client.query_one(&sql, &[]).await?;
        Ok(Counts {
            transactions: row.get(0),
            buffers: row.get(1),
            flushes: row.get(2),
            wal_bytes: row.get(3),
        })
    }

    /// Whether everything agrees: how many findings there are.
    pub(super) async fn fsck(&self) -> Result<u64> {
        let report = self.server.post(&self.path("v1/document-checks"), &Value::Null).await?;
        report["findings_count"].as_u64().context("a check that counts nothing")
    }

    /// Removes everything that was made.
    pub(super) async fn remove(&self) -> Result<()> {
        let admin = self.admin.connect_client().await?;
        let statement = format!("DROP DATABASE {} WITH (FORCE)", self.database);
        Ok(admin.batch_execute(&statement).await?)
    }
}

/// Things, and documents that refer to them.
fn collection_definitions(references: u32) -> Value {
    let text = json!({"type": "string"});
    let reference_definitions: Vec<Value> = (0..references)
        .map(|index| json!({"name": format!("r{index}"), "to": "things", "paths": {format!("/r{index}"): "/code"}}))
        .collect();
    let mut properties = serde_json::Map::new();
    properties.insert("code".to_owned(), text.clone());
    properties.insert("group".to_owned(), json!({"type": "integer"}));
    properties.insert("text".to_owned(), text.clone());
    let thing = json!({"type": "object", "required": ["code"], "properties": properties.clone()});
    for at in 0..references {
        properties.insert(format!("r{at}"), text.clone());
    }
    let item = json!({"type": "object", "required": ["code"], "properties": properties});
    json!({"collections": [
        {"collection": "things", "identity": ["/code"], "schema": thing},
        {"collection": "items", "identity": ["/code"], "query": ["/group"], "references": reference_definitions, "schema": item},
    ]})
}
