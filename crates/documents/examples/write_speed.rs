//! How many documents a second one engine writes and reads: `cargo run --release -p egret-documents
//! --example write_speed -- CLIENTS SECONDS`.
//!
//! Each client makes a document of about 1 KB with 8 references, changes it, reads it and deletes
//! it, again and again. The server is one of the tests', which does not wait for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use egret_base::lifecycle::Service;
use egret_base::{SystemClock, SystemEntropy};
use egret_documents::DocumentsConfig;
use egret_documents::api::{Caller, Documents, Options};
use egret_documents::core::decision::Condition;
use egret_documents::model::CollectionName;
use egret_outgoing::Destinations;
use egret_postgres::Databases;
use egret_postgres_test::TestDatabase;
use prometheus_client::registry::Registry;
use serde_json::json;

const TARGETS: u64 = 1_000;

const COLLECTIONS: &str = r#"{"collections": [
    {"collection": "targets", "identity": ["/code"], "schema": {"type": "object", "properties": {"code": {"type": "integer"}}, "required": ["code"]}},
    {"collection": "items", "identity": ["/client", "/number"],
        "references": [{"name": "targets", "to": "targets", "paths": {"/targets/*/code": "/code"}}],
        "schema": {"type": "object", "properties": {"client": {"type": "integer"}, "number": {"type": "integer"}, "text": {"type": "string"},
            "targets": {"type": "array", "items": {"type": "object", "properties": {"code": {"type": "integer"}}}}}, "required": ["client", "number"]}}]}"#;

fn argument(place: usize, usual: u64) -> u64 {
    let given = std::env::args().nth(place);
    given.map_or(usual, |given| given.parse().expect("a number"))
}

fn options(database: &TestDatabase) -> Options {
    Options {
        config: DocumentsConfig::default(),
        databases: Databases::single(database.connection()),
        destinations: Destinations::allow_all(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
        tasks: None,
        signer: None,
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let (clients, seconds) = (argument(1, 64), argument(2, 10));
    let database = TestDatabase::create(18).await;
    let documents = Documents::new(options(&database), &mut Registry::default());
    let caller = Caller { tenant: "default".to_owned(), ..Caller::default() };
    documents.apply(&caller, COLLECTIONS.as_bytes()).await.expect("it is declared");
    let name = |name: &str| name.parse::<CollectionName>().expect("a name");
    let targets = name("targets");
    for code in 0..TARGETS {
        let body = json!({ "code": code }).to_string();
        let made = documents.upsert(&caller, &targets, body.as_bytes(), Condition::Always);
        made.await.expect("it is made");
    }
    let (counted, end) =
        (Arc::new([const { AtomicU64::new(0) }; 4]), Instant::now() + Duration::from_secs(seconds));
    let begun = Instant::now();
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let (documents, caller, items, counted) = (documents.clone(), caller.clone(), name("items"), counted.clone());
            tokio::spawn(async move {
                let mut number = 0;
                while Instant::now() < end {
                    number += 1;
                    let body = |text: char| {
                        let targets: Vec<_> = (0..8).map(|at| json!({"code": (client * 31 + number * 8 + at) % TARGETS})).collect();
                        json!({"client": client, "number": number, "text": text.to_string().repeat(800), "targets": targets}).to_string()
                    };
                    let made = documents.upsert(&caller, &items, body('a').as_bytes(), Condition::Always).await.expect("it is made");
                    counted[0].fetch_add(1, Ordering::Relaxed);
                    documents.replace(&caller, &items, made.id, body('b').as_bytes(), Condition::Always).await.expect("it is changed");
                    counted[1].fetch_add(1, Ordering::Relaxed);
                    documents.get(&caller, &items, made.id).await.expect("it is read");
                    counted[2].fetch_add(1, Ordering::Relaxed);
                    documents.delete(&caller, &items, made.id, Condition::Always).await.expect("it is deleted");
                    counted[3].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("it ends");
    }
    let took = begun.elapsed().as_secs_f64();
    let rate = |place: usize| counted[place].load(Ordering::Relaxed) as f64 / took;
    let all: f64 = (0..4).map(rate).sum();
    println!(
        "{clients} clients: {all:.0} requests/s, of which {:.0} made, {:.0} changed, {:.0} read, {:.0} deleted",
        rate(0),
        rate(1),
        rate(2),
        rate(3)
    );
    documents.stop().await;
}
