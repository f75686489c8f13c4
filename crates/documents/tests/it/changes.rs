//! What becomes of documents, as it is told.

use egret_documents::api::{Change, Following};
use egret_documents::core::decide::Condition;
use egret_documents::model::ChangeKind;
use serde_json::json;

use crate::world::{FLIGHTS, World, code, named};

#[tokio::test]
async fn changes_are_told_in_order_from_anywhere_on() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let jfk = world.made("airports", &json!({"faa": "JFK"})).await;
    let flight = world
        .made("flights", &json!({"number": 1, "origin": "JFK"}))
        .await;
    let later = json!({"number": 1, "origin": "JFK", "delay": 5});
    world
        .put("flights", flight.id, &later, Condition::Always)
        .await
        .unwrap();
    world.made("flights", &later).await;
    world.delete("flights", flight.id).await.unwrap();
    world.delete("airports", jfk.id).await.unwrap();
    let told = async |following: &Following, limit| {
        let changes = world
            .documents
            .changes(&world.caller, following, limit)
            .await
            .unwrap();
        let each = |one: &Change| {
            (
                one.position,
                one.kind,
                one.collection.to_string(),
                one.version,
            )
        };
        (
            changes.items.iter().map(each).collect::<Vec<_>>(),
            changes.position,
        )
    };
    let from = |after| Following {
        collection: None,
        after: Some(after),
    };
    let all = [
        (1, ChangeKind::Create, "airports".to_owned(), 1),
        (2, ChangeKind::Create, "flights".to_owned(), 1),
        (3, ChangeKind::Update, "flights".to_owned(), 2),
        (4, ChangeKind::Delete, "flights".to_owned(), 2),
        (5, ChangeKind::Delete, "airports".to_owned(), 1),
    ];
    assert_eq!(told(&from(0), None).await, (all.to_vec(), 5));
    assert_eq!(told(&from(2), Some(2)).await, (all[2..4].to_vec(), 4));
    assert_eq!(told(&from(5), None).await, (vec![], 5));
    assert_eq!(told(&Following::default(), None).await, (vec![], 5));
    let of_airports = Following {
        collection: Some(named("airports")),
        after: Some(0),
    };
    assert_eq!(
        told(&of_airports, None).await,
        (vec![all[0].clone(), all[4].clone()], 5)
    );
    let unknown = Following {
        collection: Some(named("planes")),
        after: Some(0),
    };
    assert_eq!(
        code(world.documents.changes(&world.caller, &unknown, None).await),
        "collection_not_found"
    );
    world.stop().await;
}

#[tokio::test]
async fn who_follows_is_told_as_soon_as_it_is_written() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let mut following = Following {
        collection: None,
        after: Some(0),
    };
    for faa in ["JFK", "LAX", "ORD"] {
        let airport = json!({ "faa": faa });
        let (made, told) = tokio::join!(
            world.made("airports", &airport),
            world.documents.next_changes(&world.caller, &mut following)
        );
        assert_eq!(told.unwrap().items[0].id, made.id);
    }
    assert_eq!(following.after, Some(3));
    world.stop().await;
}
