//! Many documents in, and all out.

use egret_base::Coded;
use egret_documents::api::Caller;
use serde_json::{Value, json};

use crate::world::{FLIGHTS, World, code, named};

fn lines(all: &[Value]) -> Vec<u8> {
    let each = all.iter().map(|one| format!("{one}\n"));
    each.collect::<String>().into_bytes()
}

#[tokio::test]
async fn lines_become_documents_and_come_again_without_effect() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let airports = named("airports");
    let text = lines(&[
        json!({"faa": "JFK"}),
        json!({"faa": "LGA", "name": "La Guardia"}),
    ]);
    let import = || world.documents.import(&world.caller, &airports, &text);
    let told = import().await.unwrap();
    assert_eq!((told.created, told.changed, told.unchanged), (2, 0, 0));
    let told = import().await.unwrap();
    assert_eq!((told.created, told.changed, told.unchanged), (0, 0, 2));
    let mut export = world
        .documents
        .export(&world.caller, &airports)
        .await
        .unwrap();
    let mut out = String::new();
    loop {
        let page = export.next().await.unwrap();
        if page.is_empty() {
            break;
        }
        page.iter().for_each(|one| out.push_str(&one.body));
    }
    let documents: Vec<Value> = serde_json::Deserializer::from_str(&out)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        documents,
        [
            json!({"faa": "JFK"}),
            json!({"faa": "LGA", "name": "La Guardia"})
        ]
    );
    drop(export);
    world.stop().await;
}

#[tokio::test]
async fn lines_that_are_refused_say_why_and_the_others_are_done() {
    let world = World::new(15).await;
    world.apply(FLIGHTS).await.unwrap();
    world.made("airports", &json!({"faa": "JFK"})).await;
    let text = b"{\"number\": 1, \"origin\": \"JFK\"}\n\n{\"number\": \"x\"}\nnonsense\n{\"number\": 2, \"origin\": \"XXX\"}\r\n{\"number\": 3, \"origin\": \"JFK\"}";
    let flights = named("flights");
    let told = world
        .documents
        .import(&world.caller, &flights, text)
        .await
        .unwrap();
    assert_eq!(told.created, 2);
    let refused = told
        .refused
        .iter()
        .map(|(place, error)| (*place, error.code()));
    assert_eq!(
        refused.collect::<Vec<_>>(),
        [
            (2, "validation_failed"),
            (3, "validation_failed"),
            (4, "unresolved_reference")
        ]
    );
    let many = "{}\n".repeat(egret_documents::api::IMPORT_LINES_MAX + 1);
    let refused = world
        .documents
        .import(&world.caller, &flights, many.as_bytes());
    assert_eq!(code(refused.await), "payload_too_large");
    world.stop().await;
}

#[tokio::test]
async fn an_export_is_of_one_moment() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let airports = named("airports");
    for number in 0..10 {
        world
            .made("airports", &json!({"faa": format!("A{number}")}))
            .await;
    }
    let mut export = world
        .documents
        .export(&world.caller, &airports)
        .await
        .unwrap();
    let first = export.next().await.unwrap();
    for number in 0..10 {
        world
            .made("airports", &json!({"faa": format!("B{number}")}))
            .await;
    }
    assert_eq!(first.len(), 10);
    assert_eq!(export.next().await.unwrap().len(), 0);
    drop(export);
    world.stop().await;
}

#[tokio::test]
async fn a_load_that_can_be_repeated_waits_for_no_disk() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let relaxed = Caller {
        is_relaxed: true,
        ..world.caller.clone()
    };
    let airports = named("airports");
    let flushed = "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint";
    let before = world.number(flushed).await;
    // What the server writes on its own account comes between now and then.
    let mut was_left = false;
    for number in 0..50 {
        let text = lines(&[json!({"faa": format!("A{number}")})]);
        world
            .documents
            .import(&relaxed, &airports, &text)
            .await
            .unwrap();
        let written = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), pg_current_wal_flush_lsn())::bigint";
        was_left |= world.number(written).await > 0;
    }
    assert!(was_left, "flushed from {before} on after each");
    world.stop().await;
}
