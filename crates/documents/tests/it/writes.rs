//! Single writes, successful and rejected.

use std::sync::Arc;

use egret_documents::api::Caller;
use egret_documents::core::decision::Condition;
use egret_documents::model::{Etag, WriteOutcome};
use egret_postgres::tokio_postgres::IsolationLevel;
use serde_json::json;

use crate::world::{FLIGHTS, World, collection_name, error_code};

#[tokio::test]
async fn documents_are_made_changed_and_deleted() {
    for version in [15, 18] {
        let world = World::new(version).await;
        world.apply(FLIGHTS).await.unwrap();
        let jfk = world.create("airports", &json!({"faa": "JFK"})).await;
        assert_eq!((jfk.outcome, jfk.version), (WriteOutcome::Created, 1));
        let again = world.create("airports", &json!({"faa": "JFK"})).await;
        assert_eq!((again.outcome, again.version, again.id), (WriteOutcome::Unchanged, 1, jfk.id));
        let named = json!({"name": "Kennedy", "faa": "JFK"});
        let changed = world.create("airports", &named).await;
        assert_eq!(
            (changed.outcome, changed.version, changed.id),
            (WriteOutcome::Changed, 2, jfk.id)
        );
        assert_eq!(world.get("airports", jfk.id).await.unwrap(), named);
        let at = Condition::IfAt(vec![Etag::new(jfk.id, 1)]);
        assert_eq!(error_code(world.put("airports", jfk.id, &named, at).await), "version_mismatch");
        let at = Condition::IfAt(vec![Etag::new(jfk.id, 2)]);
        let back = world.put("airports", jfk.id, &json!({"faa": "JFK"}), at).await.unwrap();
        assert_eq!(back.version, 3);
        let gone = world.delete("airports", jfk.id).await.unwrap();
        assert_eq!((gone.outcome, gone.version), (WriteOutcome::Removed, 3));
        assert_eq!(error_code(world.get("airports", jfk.id).await), "not_found");
        assert_eq!(error_code(world.delete("airports", jfk.id).await), "not_found");
        let anew = world.create("airports", &json!({"faa": "JFK"})).await;
        assert_ne!(anew.id, jfk.id);
        world.stop().await;
    }
}

#[tokio::test]
async fn references_never_dangle() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let flight =
        |origin: &str, stops: &[&str]| json!({"number": 1, "origin": origin, "stops": stops});
    let refused = world.post("flights", &flight("JFK", &["ORD", "ORD"])).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "`airports` has no document with /faa \"JFK\" (and 1 more): create it first, or omit the reference"
    );
    for faa in ["JFK", "ORD", "LAX"] {
        world.create("airports", &json!({"faa": faa})).await;
    }
    let made = world.create("flights", &flight("JFK", &["ORD", "ORD"])).await;
    let ord = world.create("airports", &json!({"faa": "ORD"})).await;
    let lax = world.create("airports", &json!({"faa": "LAX"})).await;
    let refused = world.delete("airports", ord.id).await.unwrap_err();
    assert_eq!(refused.to_string(), "a document refers to it: change or delete them first");
    world.delete("flights", made.id).await.unwrap();
    for airport in [ord, lax] {
        world.delete("airports", airport.id).await.unwrap();
    }
    world.stop().await;
}

#[tokio::test]
async fn rejected_writes_leave_edges_unchanged() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let flight =
        |origin: &str, stops: &[&str]| json!({"number": 1, "origin": origin, "stops": stops});
    world.create("airports", &json!({"faa": "JFK"})).await;
    let ord = world.create("airports", &json!({"faa": "ORD"})).await;
    let lax = world.create("airports", &json!({"faa": "LAX"})).await;
    let made = world.create("flights", &flight("JFK", &["ORD", "ORD"])).await;
    assert_eq!(
        error_code(
            world.put("flights", made.id, &flight("JFK", &["XXX"]), Condition::Always).await
        ),
        "unresolved_reference"
    );
    assert_eq!(error_code(world.delete("airports", ord.id).await), "still_referenced");
    world.put("flights", made.id, &flight("JFK", &["LAX"]), Condition::Always).await.unwrap();
    world.delete("airports", ord.id).await.unwrap();
    assert_eq!(error_code(world.delete("airports", lax.id).await), "still_referenced");
    assert_eq!(
        error_code(world.post("flights", &flight("JFK", &["ORD"])).await),
        "unresolved_reference"
    );
    world.delete("flights", made.id).await.unwrap();
    world.delete("airports", lax.id).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn an_unchanged_document_writes_nothing() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let made = world.create("airports", &json!({"faa": "JFK", "name": "Kennedy"})).await;
    let position = "SELECT coalesce(max(position), 0) FROM egret.document_feed";
    let before = world.query_number(position).await;
    // Every transaction that writes locks this row, even if it changes nothing.
    let locked = "SELECT xmax::text::bigint FROM egret.document_owner";
    let last = world.query_number(locked).await;
    let same = json!({"name": "Kennedy", "faa": "JFK"});
    world.create("airports", &same).await;
    world.put("airports", made.id, &same, Condition::Always).await.unwrap();
    assert_eq!(world.query_number(position).await, before);
    assert_eq!(world.query_number(locked).await, last);
    // A durable write that changes nothing flushes the relaxed write on which its result depends.
    let relaxed = Caller { is_relaxed: true, ..world.caller.clone() };
    let (airports, lga) = (collection_name("airports"), json!({"faa": "LGA"}).to_string());
    let put = async |caller: &Caller| {
        let put = world.documents.upsert(caller, &airports, lga.as_bytes(), Condition::Always);
        put.await.unwrap().outcome
    };
    assert_eq!(put(&relaxed).await, WriteOutcome::Created);
    let last = world.query_number(locked).await;
    assert_eq!(put(&relaxed).await, WriteOutcome::Unchanged);
    assert_eq!(world.query_number(locked).await, last);
    assert_eq!(put(&world.caller).await, WriteOutcome::Unchanged);
    assert_ne!(world.query_number(locked).await, last);
    world.stop().await;
}

#[tokio::test]
async fn tenants_have_documents_of_their_own() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let made = world.create("airports", &json!({"faa": "JFK"})).await;
    let other = egret_documents::Caller { tenant: "other".to_owned(), ..world.caller.clone() };
    let world = World { caller: other, ..world };
    assert_eq!(error_code(world.get("airports", made.id).await), "not_found");
    assert_eq!(error_code(world.delete("airports", made.id).await), "not_found");
    assert_eq!(
        error_code(world.post("flights", &json!({"number": 1, "origin": "JFK"})).await),
        "unresolved_reference"
    );
    let own = world.create("airports", &json!({"faa": "JFK"})).await;
    assert_eq!(own.outcome, WriteOutcome::Created);
    world.stop().await;
}

#[tokio::test]
async fn replication_of_all_tables_blocks_no_write() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let publish = "CREATE PUBLICATION everything FOR ALL TABLES";
    world.client.batch_execute(publish).await.unwrap();
    let jfk = world.create("airports", &json!({"faa": "JFK"})).await;
    let flight = |delay: i64| json!({"number": 1, "origin": "JFK", "delay": delay});
    let made = world.create("flights", &flight(1)).await;
    world.create("flights", &flight(2)).await;
    world.delete("flights", made.id).await.unwrap();
    world.delete("airports", jfk.id).await.unwrap();
    world.stop().await;
}

#[tokio::test]
async fn old_snapshots_slow_no_writer() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let mut looking = world.database.connect().await;
    let snapshot = looking.build_transaction().read_only(true);
    let snapshot = snapshot.isolation_level(IsolationLevel::RepeatableRead);
    let snapshot = snapshot.start().await.unwrap();
    snapshot.query_one("SELECT 1", &[]).await.unwrap();
    // More row versions than fit into a page, if each write left one.
    for round in 0..500 {
        let airport = json!({"faa": "JFK", "name": round.to_string()});
        world.create("airports", &airport).await;
    }
    let size = "SELECT pg_relation_size('egret.document_owner')";
    assert_eq!(world.query_number(size).await, 8192);
    snapshot.rollback().await.unwrap();
    drop(looking);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writes_share_transactions() {
    const CLIENTS: usize = 64;
    const WRITES: usize = 20;
    let world = Arc::new(World::new(18).await);
    world.apply(FLIGHTS).await.unwrap();
    world.create("airports", &json!({"faa": "JFK"})).await;
    let clients = (0..CLIENTS).map(|client| {
        let world = world.clone();
        tokio::spawn(async move {
            for round in 0..WRITES {
                let flight = json!({"number": client * WRITES + round, "origin": "JFK"});
                world.create("flights", &flight).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    // Each group is a row of the feed, a commit and a flush.
    let groups = world.query_number("SELECT count(*) FROM egret.document_feed").await;
    assert!(groups * 4 < (CLIENTS * WRITES) as i64, "{groups} groups");
    Arc::into_inner(world).unwrap().stop().await;
}

#[tokio::test]
async fn a_document_may_refer_to_itself() {
    let file = r#"{"collections": [
        {"collection": "persons", "identity": ["/name"], "history": {"deleted": true},
            "references": [{"name": "friends", "to": "persons", "paths": {"/friends/*": "/name"}}],
            "schema": {"type": "object", "properties": {"name": {"type": "string"}, "friends": {"type": "array", "items": {"type": "string"}}},
                "required": ["name"]}}]}"#;
    let world = World::new(18).await;
    world.apply(file).await.unwrap();
    let ann = json!({"name": "Ann", "friends": ["Ann"]});
    let made = world.create("persons", &ann).await;
    let other = json!({"name": "Bea", "friends": ["Ann", "Bea", "Cleo"]});
    assert_eq!(error_code(world.post("persons", &other).await), "unresolved_reference");
    world.check_tables().await;
    // Only the document itself refers to it.
    world.delete("persons", made.id).await.unwrap();
    let persons = collection_name("persons");
    let restored = world.documents.restore(&world.caller, &persons, made.id, None).await.unwrap();
    assert_eq!(restored.id, made.id);
    assert_eq!(world.get("persons", made.id).await.unwrap(), ann);
    world.stop().await;
}
