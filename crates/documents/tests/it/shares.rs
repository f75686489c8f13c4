//! Limits of one tenant on queries, exports and queued writes leave room for others.

use std::sync::Arc;

use egret_base::settings::ConfigDuration;
use egret_base::{CodedError, Kind};
use egret_base_test::eventually;
use egret_documents::api::{BatchWrite, Caller, FindQuery, WriteOp};
use egret_documents::core::decision::Condition;
use egret_documents::{DocumentsConfig, DocumentsError};
use futures_util::FutureExt;
use futures_util::future::join_all;
use serde_json::json;

use crate::world::{FLIGHTS, World, collection_name, default_parts};

/// Creates collections, and a document of each of two tenants.
async fn shared(config: DocumentsConfig) -> (World, Caller) {
    let (_, clock, entropy) = default_parts();
    let world = World::with(18, (config, clock, entropy)).await;
    world.apply(FLIGHTS).await.unwrap();
    let other = Caller { tenant: "other".to_owned(), ..world.caller.clone() };
    for caller in [&world.caller, &other] {
        let body = json!({"faa": "JFK"}).to_string();
        let airports = collection_name("airports");
        let made = world.documents.upsert(caller, &airports, body.as_bytes(), Condition::Always);
        made.await.unwrap();
    }
    (world, other)
}

/// Checks that a rejection names the limit, and whether it is that of one tenant.
#[track_caller]
fn check_refused<T>(answer: Result<T, DocumentsError>, limit: &str, is_share: bool) {
    let Err(refused) = answer else {
        panic!("{limit} has no effect");
    };
    let expected = if is_share {
        ("limit_exceeded", Kind::LimitReached)
    } else {
        ("overloaded", Kind::Unavailable)
    };
    assert_eq!((refused.code(), refused.kind()), expected);
    assert!(refused.retryable());
    let message = refused.to_string();
    assert!(message.starts_with(&format!("limit {limit} is ")), "{message}");
    assert_eq!(message.contains("one tenant"), is_share, "{message}");
}

#[tokio::test]
async fn one_tenant_does_not_take_all_exports() {
    let (world, other) = shared(DocumentsConfig { exports: 3, ..DocumentsConfig::default() }).await;
    let airports = collection_name("airports");
    let export = async |caller: &Caller| world.documents.export(caller, &airports).await;
    let first = export(&world.caller).await.unwrap();
    let _second = export(&world.caller).await.unwrap();
    check_refused(export(&world.caller).await, "documents.exports", true);
    let third = export(&other).await.unwrap();
    check_refused(export(&other).await, "documents.exports", false);
    drop(first);
    // Its session ends asynchronously.
    eventually("the export's session is given back", async || export(&world.caller).await).await;
    drop((_second, third));
    world.stop().await;
}

#[tokio::test]
async fn one_tenant_does_not_take_all_queries() {
    let (world, other) = shared(DocumentsConfig {
        queries: 3,
        query_timeout: ConfigDuration::secs(3_600),
        ..DocumentsConfig::default()
    })
    .await;
    let locker = world.database.connect().await;
    let lock = "BEGIN; LOCK TABLE egret.document IN ACCESS EXCLUSIVE MODE";
    locker.batch_execute(lock).await.unwrap();
    let world = Arc::new(world);
    let find = |caller: &Caller| {
        let (world, caller) = (world.clone(), caller.clone());
        tokio::spawn(async move {
            let (airports, find) = (collection_name("airports"), FindQuery::default());
            world.documents.find(&caller, &airports, &find).await
        })
    };
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let own: Vec<_> = (0..5).map(|_| find(&world.caller)).collect();
    world.await_number(waiting, 2).await;
    let others = find(&other);
    world.await_number(waiting, 3).await;
    locker.batch_execute("COMMIT").await.unwrap();
    for found in join_all(own.into_iter().chain([others])).await {
        assert_eq!(found.unwrap().unwrap().items.len(), 1);
    }
    Arc::into_inner(world).unwrap().stop().await;
}

/// Nothing is answered in between: neither readers nor writers run before this test awaits
/// something.
#[tokio::test]
async fn one_tenant_does_not_take_all_places_to_wait() {
    let (world, other) =
        shared(DocumentsConfig { waiting_max: 4, ..DocumentsConfig::default() }).await;
    let airports = collection_name("airports");
    let written = world.create("airports", &json!({"faa": "JFK"})).await;
    let id = written.id;
    let read = |caller: &Caller| {
        let reading = world.documents.get(caller, &airports, id);
        reading.now_or_never()
    };
    for _ in 0..3 {
        assert!(read(&world.caller).is_none());
    }
    check_refused(read(&world.caller).unwrap(), "documents.waiting_max", true);
    assert!(read(&other).is_none());
    check_refused(read(&other).unwrap(), "documents.waiting_max", false);

    let write = |caller: &Caller, number: i32| {
        let body = json!({"faa": format!("A{number}")}).to_string();
        let writing = world.documents.upsert(caller, &airports, body.as_bytes(), Condition::Always);
        writing.now_or_never()
    };
    // The limit also holds for one batch of a tenant without queued writes.
    let batch = |count: i32| {
        let operations = (0..count).map(|number| BatchWrite {
            collection: airports.clone(),
            op: WriteOp::Put(None, json!({"faa": format!("A{number}")}).to_string().into()),
            condition: Condition::Always,
        });
        let operations = operations.collect();
        let writing = world.documents.batch_atomic(&world.caller, operations);
        let written = writing.now_or_never();
        written.map(|written| written.map_err(|refused| refused.error))
    };
    let oversized = batch(4).unwrap().unwrap_err();
    let (code, retryable) = (oversized.code(), oversized.retryable());
    assert_eq!((code, retryable), ("limit_exceeded", false), "{oversized}");
    assert!(batch(3).is_none());
    check_refused(write(&world.caller, 3).unwrap(), "documents.waiting_max", true);
    assert!(write(&other, 4).is_none());
    check_refused(write(&other, 5).unwrap(), "documents.waiting_max", false);
    // All queued writes are done and have freed their slots.
    world.await_number("SELECT count(*) FROM egret.document", 6).await;
    world.create("airports", &json!({"faa": "A6"})).await;
    eventually("a slot for reads is free", async || {
        world.documents.get(&world.caller, &airports, id).await
    })
    .await;
    world.stop().await;
}
