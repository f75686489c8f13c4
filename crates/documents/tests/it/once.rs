//! Idempotent requests.

use egret_documents::api::{BatchWrite, Caller, PatchFormat, WriteOp};
use egret_documents::core::decision::Condition;
use egret_documents::model::WriteOutcome;
use serde_json::json;

use crate::world::{FLIGHTS, World, collection_name, error_code};

fn with_key(world: &World, key: &str) -> Caller {
    Caller { idempotency_key: Some(key.to_owned()), ..world.caller.clone() }
}

#[tokio::test]
async fn a_repeated_request_gets_the_stored_reply() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let airports = collection_name("airports");
    let caller = with_key(&world, "first");
    let body = json!({"faa": "JFK"}).to_string();
    let put = || {
        let body = body.as_bytes();
        world.documents.upsert(&caller, &airports, body, Condition::Always)
    };
    let first = put().await.unwrap();
    assert_eq!(first.outcome, WriteOutcome::Created);
    // The answer stays the same after the document has changed.
    let other = json!({"faa": "JFK", "name": "Kennedy"});
    assert_eq!(world.create("airports", &other).await.version, 2);
    assert_eq!(put().await.unwrap(), first);
    assert_eq!(world.get("airports", first.id).await.unwrap(), other);
    // And after it was deleted.
    world.delete("airports", first.id).await.unwrap();
    assert_eq!(put().await.unwrap(), first);
    assert_eq!(error_code(world.get("airports", first.id).await), "not_found");
    world.stop().await;
}

#[tokio::test]
async fn unchanged_results_are_stored_too() {
    let world = World::new(15).await;
    world.apply(FLIGHTS).await.unwrap();
    let airports = collection_name("airports");
    let first = json!({"faa": "JFK"});
    world.create("airports", &first).await;
    let position = "SELECT coalesce(max(position), 0) FROM egret.document_feed";
    let before = world.query_number(position).await;
    let caller = with_key(&world, "same");
    let text = first.to_string();
    let put = || {
        let text = text.as_bytes();
        world.documents.upsert(&caller, &airports, text, Condition::Always)
    };
    let told = put().await.unwrap();
    assert_eq!(told.outcome, WriteOutcome::Unchanged);
    assert_eq!(world.query_number(position).await, before);
    let other = json!({"faa": "JFK", "name": "Kennedy"});
    world.create("airports", &other).await;
    assert_eq!(put().await.unwrap(), told);
    assert_eq!(world.get("airports", told.id).await.unwrap(), other);
    world.stop().await;
}

#[tokio::test]
async fn a_key_belongs_to_one_request_and_rejected_ones_may_be_retried() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let caller = with_key(&world, "key");
    let flights = collection_name("flights");
    let flight = json!({"number": 1, "origin": "JFK"}).to_string();
    let put = |body: String| {
        let (caller, flights, documents) = (&caller, &flights, &world.documents);
        async move { documents.upsert(caller, flights, body.as_bytes(), Condition::Always).await }
    };
    assert_eq!(error_code(put(flight.clone()).await), "unresolved_reference");
    world.create("airports", &json!({"faa": "JFK"})).await;
    assert_eq!(put(flight.clone()).await.unwrap().outcome, WriteOutcome::Created);
    let other = json!({"number": 2, "origin": "JFK"}).to_string();
    assert_eq!(error_code(put(other.clone()).await), "idempotency_key_reused");
    // The same key of another author is another key.
    let somebody = Caller { author: Some("somebody".to_owned()), ..caller.clone() };
    let told = world.documents.upsert(&somebody, &flights, other.as_bytes(), Condition::Always);
    assert_eq!(told.await.unwrap().outcome, WriteOutcome::Created);
    world.stop().await;
}

#[tokio::test]
async fn patches_and_batches_are_done_once() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    world.create("airports", &json!({"faa": "JFK"})).await;
    let flight = world.create("flights", &json!({"number": 1, "origin": "JFK", "stops": []})).await;
    let flights = collection_name("flights");
    let patch = json!([{"op": "add", "path": "/stops/-", "value": "JFK"}]).to_string();
    let caller = with_key(&world, "patch");
    for _ in 0..3 {
        let told = world
            .documents
            .patch(
                &caller,
                &flights,
                flight.id,
                PatchFormat::Json,
                patch.as_bytes(),
                Condition::Always,
            )
            .await;
        assert_eq!(told.unwrap().version, 2);
    }
    let body = world.get("flights", flight.id).await.unwrap();
    assert_eq!(body["stops"], json!(["JFK"]));
    let operations: Vec<BatchWrite> = (10..13)
        .map(|number| BatchWrite {
            collection: flights.clone(),
            op: WriteOp::Put(
                None,
                json!({"number": number, "origin": "JFK"}).to_string().into_bytes(),
            ),
            condition: Condition::IfNotThere,
        })
        .collect();
    let caller = with_key(&world, "batch");
    let first = world.documents.batch_atomic(&caller, operations.clone()).await;
    let again = world.documents.batch_atomic(&caller, operations.clone()).await;
    assert_eq!(first.unwrap(), again.unwrap());
    let caller = with_key(&world, "each");
    let first = world.documents.batch_each(&caller, operations.clone()).await;
    let again = world.documents.batch_each(&caller, operations).await;
    assert_eq!(first.unwrap(), again.unwrap());
    world.stop().await;
}
