//! The change feed: polling, waiting, and changes with relaxed durability.

use std::sync::Arc;

use egret_documents::api::{Caller, Change, ChangesQuery};
use egret_documents::core::decision::Condition;
use egret_documents::model::{ChangeKind, FeedPosition};
use egret_postgres_test::{Termination, TestDatabase, start_own_server};
use futures_util::future::join_all;
use serde_json::json;

use crate::world::{FLIGHTS, World, collection_name, engine, error_code};

#[tokio::test]
async fn changes_are_returned_in_order_after_any_position() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let jfk = world.create("airports", &json!({"faa": "JFK"})).await;
    let flight = world.create("flights", &json!({"number": 1, "origin": "JFK"})).await;
    let later = json!({"number": 1, "origin": "JFK", "delay": 5});
    world.put("flights", flight.id, &later, Condition::Always).await.unwrap();
    world.create("flights", &later).await;
    world.delete("flights", flight.id).await.unwrap();
    world.delete("airports", jfk.id).await.unwrap();
    let changes_after = async |following: &ChangesQuery, limit| {
        let changes = world.documents.changes(&world.caller, following, limit).await.unwrap();
        let each =
            |one: &Change| (one.position.0, one.kind, one.collection.to_string(), one.version);
        (changes.items.iter().map(each).collect::<Vec<_>>(), changes.position.0)
    };
    let from = |after| ChangesQuery { collection: None, after: Some(FeedPosition(after)) };
    let all = [
        (1, ChangeKind::Create, "airports".to_owned(), 1),
        (2, ChangeKind::Create, "flights".to_owned(), 1),
        (3, ChangeKind::Update, "flights".to_owned(), 2),
        (4, ChangeKind::Delete, "flights".to_owned(), 2),
        (5, ChangeKind::Delete, "airports".to_owned(), 1),
    ];
    assert_eq!(changes_after(&from(0), None).await, (all.to_vec(), 5));
    assert_eq!(changes_after(&from(2), Some(2)).await, (all[2..4].to_vec(), 4));
    assert_eq!(changes_after(&from(5), None).await, (vec![], 5));
    assert_eq!(changes_after(&ChangesQuery::default(), None).await, (vec![], 5));
    let of_airports = ChangesQuery {
        collection: Some(collection_name("airports")),
        after: Some(FeedPosition(0)),
    };
    assert_eq!(changes_after(&of_airports, None).await, (vec![all[0].clone(), all[4].clone()], 5));
    let unknown =
        ChangesQuery { collection: Some(collection_name("planes")), after: Some(FeedPosition(0)) };
    assert_eq!(
        error_code(world.documents.changes(&world.caller, &unknown, None).await),
        "collection_not_found"
    );
    world.stop().await;
}

#[tokio::test]
async fn followers_receive_changes_as_they_are_committed() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let mut query = ChangesQuery { collection: None, after: Some(FeedPosition(0)) };
    for faa in ["JFK", "LAX", "ORD"] {
        let airport = json!({ "faa": faa });
        let (made, page) = tokio::join!(
            world.create("airports", &airport),
            world.documents.next_changes(&world.caller, &mut query)
        );
        assert_eq!(page.unwrap().items[0].id, made.id);
    }
    assert_eq!(query.after, Some(FeedPosition(3)));
    world.stop().await;
}

#[tokio::test]
async fn one_session_serves_all_followers() {
    let world = World::new(15).await;
    world.apply(FLIGHTS).await.unwrap();
    let follow_changes = async || {
        let mut following = ChangesQuery { collection: None, after: Some(FeedPosition(0)) };
        let mut positions = Vec::new();
        while positions.len() < 20 {
            let changes = world.documents.next_changes(&world.caller, &mut following).await;
            positions.extend(changes.unwrap().items.iter().map(|one| one.position.0));
        }
        positions
    };
    let write = async {
        for number in 0..20 {
            let airport = json!({"faa": format!("A{number}")});
            world.create("airports", &airport).await;
        }
    };
    let (all, ()) = tokio::join!(join_all((0..30).map(|_| follow_changes())), write);
    for told in all {
        assert_eq!(told, Vec::from_iter(1..=20));
    }
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND query LIKE '%is_relaxed FROM egret.document_feed%' AND pid <> pg_backend_pid()";
    assert_eq!(world.query_number(sessions).await, 1);
    world.stop().await;
}

#[tokio::test]
async fn relaxed_changes_are_returned_once_flushed() {
    let server = start_own_server(18).await;
    let database = TestDatabase::create_in(server, "relaxed".to_owned()).await;
    let database = Arc::new(database);
    let documents = engine(&database);
    let mut world = World::on_database(database.clone(), documents).await;
    // The server delays flushing for longer than the feed waits.
    for sql in ["ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()"] {
        world.client.batch_execute(sql).await.unwrap();
    }
    world.apply(FLIGHTS).await.unwrap();
    let relaxed = Caller { is_relaxed: true, ..world.caller.clone() };
    let airports = collection_name("airports");
    let mut query = ChangesQuery { collection: None, after: Some(FeedPosition(0)) };
    let written = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
    let flushed = "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint";
    for faa in ["JFK", "LAX"] {
        let body = json!({ "faa": faa }).to_string();
        let made = world
            .documents
            .upsert(&relaxed, &airports, body.as_bytes(), Condition::Always)
            .await
            .unwrap();
        let written = world.query_number(written).await;
        let page = world.documents.next_changes(&world.caller, &mut query).await;
        assert_eq!(page.unwrap().items[0].id, made.id);
        assert!(world.query_number(flushed).await >= written);
    }
    let body = json!({"faa": "ORD"}).to_string();
    let made = world.documents.upsert(&relaxed, &airports, body.as_bytes(), Condition::Always);
    made.await.unwrap();
    // The end of the feed is reported only once flushed, too.
    let last = ChangesQuery::default();
    let now = world.documents.changes(&world.caller, &last, None).await;
    assert_eq!(now.unwrap().position, FeedPosition(3));
    database.server.restart(Termination::Kill).await;
    world.client = database.connect().await;
    let position = "SELECT max(position) FROM egret.document_feed";
    assert_eq!(world.query_number(position).await, 3);
    let made = world.create("airports", &json!({"faa": "EWR"})).await;
    query.after = Some(FeedPosition(3));
    let told = world.documents.next_changes(&world.caller, &mut query).await;
    let told = &told.unwrap().items[0];
    assert_eq!((told.position.0, told.id), (4, made.id));
    world.stop().await;
}
