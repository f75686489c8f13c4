//! Batches: several writes by one request.

use egret_base::CodedError;
use egret_documents::api::{BatchWrite, WriteOp};
use egret_documents::core::decision::Condition;
use egret_documents::model::DocumentId;
use serde_json::{Value, json};

use crate::world::{FLIGHTS, World, collection_name};

fn put(collection: &str, body: &Value) -> BatchWrite {
    BatchWrite {
        collection: collection_name(collection),
        op: WriteOp::Put(None, body.to_string().into_bytes()),
        condition: Condition::Always,
    }
}

fn delete(collection: &str, id: DocumentId) -> BatchWrite {
    BatchWrite {
        collection: collection_name(collection),
        op: WriteOp::Delete(id),
        condition: Condition::Always,
    }
}

#[tokio::test]
async fn an_atomic_batch_is_written_entirely_or_not_at_all() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let atomic = async |operations| world.documents.batch_atomic(&world.caller, operations).await;
    let flight = put("flights", &json!({"number": 1, "origin": "JFK", "stops": ["LAX"]}));
    let (jfk, lax) =
        (put("airports", &json!({"faa": "JFK"})), put("airports", &json!({"faa": "LAX"})));
    let rejection = atomic(vec![jfk.clone(), flight.clone()]).await.unwrap_err();
    assert_eq!((rejection.operation, rejection.error.code()), (Some(1), "unresolved_reference"));
    assert_eq!(
        world.query_number("SELECT coalesce(max(position), 0) FROM egret.document_feed").await,
        0
    );
    let made = atomic(vec![jfk.clone(), flight, lax]).await.unwrap();
    assert_eq!(made.len(), 3);
    // A document can be deleted together with its referrers, and not without them.
    let refused = atomic(vec![delete("airports", made[0].id), delete("airports", made[2].id)])
        .await
        .unwrap_err();
    assert_eq!((refused.operation, refused.error.code()), (Some(0), "still_referenced"));
    let other = put("flights", &json!({"number": 1, "origin": "JFK"}));
    atomic(vec![delete("airports", made[2].id), other]).await.unwrap();
    atomic(vec![delete("airports", made[0].id), delete("flights", made[1].id)]).await.unwrap();
    assert_eq!(world.query_number("SELECT count(*) FROM egret.document").await, 0);
    let refused = atomic(vec![jfk.clone(), jfk]).await.unwrap_err();
    assert_eq!(
        refused.error.to_string(),
        "operation 0 concerns the same document or identity: each may occur only once"
    );
    assert_eq!(atomic(vec![]).await, Ok(vec![]));
    let many = vec![put("airports", &json!({"faa": "A"})); 1_001];
    let refused = atomic(many).await.unwrap_err();
    assert_eq!(refused.error.code(), "payload_too_large");
    world.stop().await;
}

#[tokio::test]
async fn independent_writes_keep_their_order_where_one_needs_another() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let operations = vec![
        put("airports", &json!({"faa": "JFK"})),
        put("flights", &json!({"number": 1, "origin": "JFK"})),
        put("flights", &json!({"number": "one", "origin": "JFK"})),
        put("flights", &json!({"number": 2, "origin": "LAX"})),
        put("airports", &json!({"faa": "JFK", "name": "Kennedy"})),
        put("airports", &json!({"faa": "LAX"})),
    ];
    let each = world.documents.batch_each(&world.caller, operations).await.unwrap();
    let outcomes: Vec<&str> = each
        .iter()
        .map(|one| match one {
            Ok(written) => written.outcome.as_str(),
            Err(error) => egret_base::CodedError::code(error),
        })
        .collect();
    assert_eq!(
        outcomes,
        ["created", "created", "validation_failed", "unresolved_reference", "changed", "created"]
    );
    world.stop().await;
}

#[tokio::test]
async fn conflicting_writes_of_a_batch_keep_their_order() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    for round in 0..20 {
        let body = |name: &str| json!({"faa": format!("N{round}"), "name": name});
        let made = world.create("airports", &body("first")).await;
        let write = put("airports", &body("second"));
        let remove = delete("airports", made.id);
        // The document of the upsert is known only after the look-up.
        let (operations, left) = match round % 2 {
            0 => (vec![write, remove], 0),
            _ => (vec![remove, write], 1),
        };
        let done = world.documents.batch_each(&world.caller, operations).await;
        assert!(done.unwrap().iter().all(Result::is_ok));
        let there =
            format!("SELECT count(*) FROM egret.document WHERE body ->> 'faa' = 'N{round}'");
        assert_eq!(world.query_number(&there).await, left);
    }
    world.stop().await;
}

#[tokio::test]
async fn removed_references_do_not_block_later_deletions_of_a_batch() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let batch_outcomes = async |operations| {
        let done = world.documents.batch_each(&world.caller, operations).await;
        let done = done.unwrap().into_iter();
        let outcomes = done.map(|one| match one {
            Ok(written) => written.outcome.as_str(),
            Err(error) => egret_base::CodedError::code(&error),
        });
        outcomes.collect::<Vec<_>>()
    };
    let refer = |to: &str| json!({"number": 1, "origin": to});
    let jfk = world.create("airports", &json!({"faa": "JFK"})).await.id;
    world.create("airports", &json!({"faa": "LGA"})).await;
    let flight = world.create("flights", &refer("JFK")).await.id;
    // In the other order the deletion is rejected.
    let wrong = vec![delete("airports", jfk), put("flights", &refer("LGA"))];
    assert_eq!(batch_outcomes(wrong).await, ["still_referenced", "changed"]);
    world.create("flights", &refer("JFK")).await;
    let let_go = vec![put("flights", &refer("LGA")), delete("airports", jfk)];
    assert_eq!(batch_outcomes(let_go).await, ["changed", "removed"]);
    let lga = world.create("airports", &json!({"faa": "LGA"})).await.id;
    let all = vec![delete("flights", flight), delete("airports", lga)];
    assert_eq!(batch_outcomes(all).await, ["removed", "removed"]);
    world.stop().await;
}
