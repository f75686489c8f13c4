//! An engine on a database of its own.

use std::sync::Arc;

use egret_base::lifecycle::Service;
use egret_base::{Clock, CodedError, Entropy, Signer, SystemClock, SystemEntropy, TaskSink};
use egret_base_test::eventually;
use egret_documents::api::{Caller, DeclarationResult, Documents, Options};
use egret_documents::core::decision::Condition;
use egret_documents::model::{CollectionName, DocumentId, WriteReceipt};
use egret_documents::{DocumentsConfig, DocumentsError};
use egret_postgres::Databases;
use egret_postgres::tokio_postgres::{Client, Config};
use egret_postgres_test::TestDatabase;
use prometheus_client::registry::Registry;
use serde_json::Value;

/// Airports, and flights between them.
pub const FLIGHTS: &str = r#"{"collections": [
    {"collection": "airports", "identity": ["/faa"], "schema": {"type": "object",
        "properties": {"faa": {"type": "string"}, "name": {"type": "string"}}, "required": ["faa"]}},
    {"collection": "flights", "identity": ["/number"],
        "references": [
            {"name": "origin", "to": "airports", "paths": {"/origin": "/faa"}},
            {"name": "stops", "to": "airports", "paths": {"/stops/*": "/faa"}}],
        "schema": {"type": "object", "properties": {"number": {"type": "integer"}, "origin": {"type": "string"},
            "stops": {"type": "array", "items": {"type": "string"}}, "delay": {"type": "integer"}},
            "required": ["number", "origin"]}}
]}"#;

/// Number of values that are missing, wrong or of no declared path.
pub const WRONG_VALUES: &str = "WITH expected AS (SELECT p.path_id, d.tenant_id, d.number, k.has_value, k.number_key, k.string_key \
         FROM egret.document AS d JOIN egret.query_path AS p ON p.collection_id = d.collection_id AND p.state <> 'd' \
         CROSS JOIN LATERAL egret.document_key(d.body, p.path, p.kind, p.is_plain) AS k), \
     stored AS (SELECT path_id, tenant_id, number, has_value, number_key, string_key FROM egret.document_value \
         WHERE path_id NOT IN (SELECT path_id FROM egret.query_path WHERE state = 'd')) \
     SELECT count(*) FROM ((TABLE expected EXCEPT TABLE stored) UNION ALL (TABLE stored EXCEPT TABLE expected)) AS wrong";

pub struct World {
    pub database: Arc<TestDatabase>,
    pub documents: Documents,
    pub client: Client,
    pub caller: Caller,
}

impl World {
    pub async fn new(version: u32) -> Self {
        Self::with(version, default_parts()).await
    }

    pub async fn with(version: u32, parts: EngineParts) -> Self {
        let database = Arc::new(TestDatabase::create(version).await);
        let documents = engine_with(&database, parts, None);
        Self::on_database(database, documents).await
    }

    pub async fn on_database(database: Arc<TestDatabase>, documents: Documents) -> Self {
        let client = database.connect().await;
        let caller = Caller {
            tenant: "default".to_owned(),
            author: Some("tester".to_owned()),
            ..Caller::default()
        };
        Self { database, documents, client, caller }
    }

    pub async fn apply(&self, file: &str) -> Result<Vec<DeclarationResult>, DocumentsError> {
        self.documents.apply(&self.caller, file.as_bytes()).await
    }

    pub async fn post(
        &self,
        collection: &str,
        body: &Value,
    ) -> Result<WriteReceipt, DocumentsError> {
        let body = body.to_string();
        let name = collection_name(collection);
        self.documents.upsert(&self.caller, &name, body.as_bytes(), Condition::Always).await
    }

    /// Like [`World::post`], and expects success.
    pub async fn create(&self, collection: &str, body: &Value) -> WriteReceipt {
        self.post(collection, body).await.unwrap()
    }

    pub async fn put(
        &self,
        collection: &str,
        id: DocumentId,
        body: &Value,
        condition: Condition,
    ) -> Result<WriteReceipt, DocumentsError> {
        let body = body.to_string();
        let name = collection_name(collection);
        self.documents.replace(&self.caller, &name, id, body.as_bytes(), condition).await
    }

    pub async fn delete(
        &self,
        collection: &str,
        id: DocumentId,
    ) -> Result<WriteReceipt, DocumentsError> {
        let name = collection_name(collection);
        self.documents.delete(&self.caller, &name, id, Condition::Always).await
    }

    pub async fn get(&self, collection: &str, id: DocumentId) -> Result<Value, DocumentsError> {
        let name = collection_name(collection);
        let found = self.documents.get(&self.caller, &name, id).await?;
        Ok(serde_json::from_str(&found.body).unwrap())
    }

    pub async fn query_number(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// Waits until a query returns this number.
    pub async fn await_number(&self, sql: &str, expected: i64) {
        eventually(&format!("`{sql}` returns {expected}"), async || {
            let number = self.query_number(sql).await;
            if number == expected { Ok(()) } else { Err(number) }
        })
        .await;
    }

    /// Checks that every edge connects existing documents, and that every document has as many
    /// edges as stored targets, an alias, and a value at each query path.
    pub async fn check_tables(&self) {
        let inconsistencies = "SELECT (SELECT count(*) FROM egret.document_reference AS e WHERE NOT EXISTS (
                SELECT FROM egret.document AS d WHERE d.tenant_id = e.tenant_id AND d.number = e.target)
             OR NOT EXISTS (SELECT FROM egret.document AS d WHERE d.tenant_id = e.tenant_id AND d.number = e.source
                AND d.collection_id = e.collection_id AND e.target = ANY (d.targets)))
            + (SELECT count(*) FROM egret.document AS d WHERE cardinality(d.targets) <>
                (SELECT count(*) FROM egret.document_reference AS e WHERE e.tenant_id = d.tenant_id AND e.source = d.number))
            + (SELECT count(*) FROM egret.document AS d WHERE d.targets <> ARRAY(
                SELECT s.target FROM egret.document_edge AS e, unnest(ARRAY[e.target, e.target_2, e.target_3, e.target_4]) WITH ORDINALITY AS s (target, slot)
                WHERE e.tenant_id = d.tenant_id AND e.source = d.number AND s.target IS NOT NULL
                ORDER BY array_position(d.targets, e.target), s.slot))
            + (SELECT count(*) FROM egret.document_edge AS e WHERE target_2 IS NULL AND target_3 IS NOT NULL OR target_3 IS NULL AND target_4 IS NOT NULL)
            + (SELECT count(*) FROM egret.document AS d WHERE (cardinality(d.targets) + 3) / 4 <>
                (SELECT count(*) FROM egret.document_edge AS e WHERE e.tenant_id = d.tenant_id AND e.source = d.number))
            + (SELECT count(*) FROM egret.document AS d WHERE 0 =
                (SELECT count(*) FROM egret.document_alias AS a WHERE a.tenant_id = d.tenant_id AND a.number = d.number))
            + (SELECT count(*) FROM egret.document_alias AS a WHERE NOT EXISTS (
                SELECT FROM egret.document AS d WHERE d.tenant_id = a.tenant_id AND d.number = a.number AND d.collection_id = a.collection_id))
            + (SELECT count(*) FROM egret.document AS d WHERE d.number <> egret.document_number(d.id))";
        assert_eq!(self.query_number(inconsistencies).await, 0);
        assert_eq!(self.query_number(WRONG_VALUES).await, 0);
        let gaps = "SELECT count(*) FROM (SELECT position - row_number() OVER (ORDER BY position) AS gap FROM egret.document_change) AS c WHERE gap <> 0";
        assert_eq!(self.query_number(gaps).await, 0);
        if self.query_number("SELECT count(*) FROM egret.collection").await > 0 {
            let report = self.documents.fsck(&self.caller, false).await.unwrap();
            assert_eq!(report.findings, []);
        }
    }

    pub async fn stop(self) {
        self.check_tables().await;
        self.stop_documents().await;
    }

    /// Stops without the checks, for tests that damage the tables.
    pub async fn stop_documents(self) {
        self.documents.stop().await;
    }
}

/// A signer whose signatures a test can compute.
struct TestSigner;

impl Signer for TestSigner {
    fn sign(&self, tenant: &str, _at_seconds: u64, body: &[u8]) -> Result<String, String> {
        Ok(format!("{tenant} of {}", body.len()))
    }
}

/// An engine on a database.
pub fn engine(database: &TestDatabase) -> Documents {
    engine_with(database, default_parts(), None)
}

/// Settings and sources of time and randomness of an engine.
pub type EngineParts = (DocumentsConfig, Arc<dyn Clock>, Arc<dyn Entropy>);

pub fn default_parts() -> EngineParts {
    (DocumentsConfig::default(), Arc::new(SystemClock), Arc::new(SystemEntropy))
}

pub fn engine_with(
    database: &TestDatabase,
    parts: EngineParts,
    tasks: Option<Arc<dyn TaskSink>>,
) -> Documents {
    engine_at(database.connection(), parts, tasks)
}

/// Like [`engine_with`], with this connection.
pub fn engine_at(
    connection: Config,
    (config, clock, entropy): EngineParts,
    tasks: Option<Arc<dyn TaskSink>>,
) -> Documents {
    let options = Options {
        config,
        databases: Databases::single(connection),
        clock,
        entropy,
        tasks,
        signer: Some(Arc::new(TestSigner)),
        destinations: egret_outgoing::Destinations::allow_all(),
    };
    Documents::new(options, &mut Registry::default())
}

pub fn collection_name(collection: &str) -> CollectionName {
    collection.parse().unwrap()
}

/// The code of the expected error.
pub fn error_code<T: std::fmt::Debug>(result: Result<T, DocumentsError>) -> &'static str {
    result.unwrap_err().code()
}
