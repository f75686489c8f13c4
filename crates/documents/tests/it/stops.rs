//! A stop waits for writes in progress, but for no other statement that a server does not answer.

use std::sync::Arc;
use std::time::Duration;

use egret_base::lifecycle::Service;
use egret_base::settings::ConfigDuration;
use egret_documents::DocumentsConfig;
use egret_postgres_test::TestDatabase;
use serde_json::json;

use crate::world::{FLIGHTS, World, collection_name, default_parts, engine, engine_at, error_code};

/// Sessions that wait for a lock with a statement like this one.
fn waiting(statement: &str) -> String {
    format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND wait_event_type = 'Lock' AND query LIKE '{statement}'"
    )
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_document_that_cannot_be_read() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let written = world.create("airports", &json!({"faa": "JFK"})).await;
    let locker = world.database.connect().await;
    let lock = "BEGIN; LOCK TABLE egret.document IN ACCESS EXCLUSIVE MODE";
    locker.batch_execute(lock).await.unwrap();
    let world = Arc::new(world);
    let reading = world.clone();
    let reading = tokio::spawn(async move { reading.get("airports", written.id).await });
    world.await_number(&waiting("%"), 1).await;
    world.documents.stop().await;
    assert_eq!(error_code(reading.await.unwrap()), "unavailable");
}

#[tokio::test]
async fn a_stop_does_not_wait_until_documents_may_be_written() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let written = world.create("airports", &json!({"faa": "JFK"})).await;
    world.documents.stop().await;
    let mut other = world.database.connect().await;
    let held = other.transaction().await.unwrap();
    let hold = "SELECT FROM egret.document_owner FOR UPDATE";
    held.query_one(hold, &[]).await.unwrap();
    let next = engine(&world.database);
    let airports = collection_name("airports");
    let found = next.get(&world.caller, &airports, written.id).await;
    assert_eq!(found.unwrap().version, 1);
    world.await_number(&waiting("%epoch = epoch + 1%"), 1).await;
    next.stop().await;
}

/// The sweeper waits for a table that is then dropped; the check whether all documents are gone
/// runs on a session that a trigger blocks.
#[tokio::test]
async fn a_stop_does_not_wait_for_what_a_sweep_has_failed_of() {
    let database = Arc::new(TestDatabase::create(18).await);
    let mut connection = database.connection();
    connection.connect_timeout(Duration::from_secs(3_600));
    let (_, clock, entropy) = default_parts();
    let config =
        DocumentsConfig { sweep_interval: ConfigDuration::ms(20), ..DocumentsConfig::default() };
    let documents = engine_at(connection, (config, clock, entropy), None);
    let world = World::on_database(database, documents).await;
    world.apply(FLIGHTS).await.unwrap();
    world.create("airports", &json!({"faa": "JFK"})).await;
    let locker = world.database.connect().await;
    let lock = "BEGIN; LOCK TABLE egret.document_request IN ACCESS EXCLUSIVE MODE";
    locker.batch_execute(lock).await.unwrap();
    let sweeping = waiting("DELETE FROM egret.document_request%");
    world.await_number(&sweeping, 1).await;
    let holder = world.database.connect().await;
    let hold = "SELECT pg_advisory_lock(1)";
    holder.batch_execute(hold).await.unwrap();
    let hinder = "CREATE FUNCTION public.hold_up() RETURNS event_trigger LANGUAGE plpgsql \
             AS 'BEGIN PERFORM pg_advisory_lock_shared(1); END'; \
         CREATE EVENT TRIGGER hold_up ON login EXECUTE FUNCTION public.hold_up(); \
         ALTER EVENT TRIGGER hold_up ENABLE ALWAYS; \
         DROP TABLE egret.document_request CASCADE; COMMIT";
    locker.batch_execute(hinder).await.unwrap();
    let held_up = "SELECT (count(*) > 0)::integer::bigint FROM pg_stat_activity \
         WHERE datname = current_database() AND wait_event = 'advisory'";
    world.await_number(held_up, 1).await;
    world.documents.stop().await;
    assert_eq!(world.query_number(held_up).await, 1);
}
