//! Writes that would hurt each other.

use std::sync::Arc;

use egret_documents::DocumentsError;
use futures_util::future::join_all;
use serde_json::json;

use crate::world::{FLIGHTS, World, engine};

/// Clients at a time.
const CLIENTS: usize = 16;

/// What each does.
const ROUNDS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn targets_go_while_others_refer_to_them() {
    let world = Arc::new(World::new(18).await);
    world.apply(FLIGHTS).await.unwrap();
    let clients = (0..CLIENTS).map(|client| {
        let world = world.clone();
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let faa = format!("A{}", (client + round) % 5);
                match client % 3 {
                    0 => {
                        let made = world.made("airports", &json!({"faa": faa})).await;
                        allowed(
                            world.delete("airports", made.id).await,
                            &["still_referenced", "not_found"],
                        );
                    }
                    1 => {
                        let flight = json!({"number": client * 7 + round % 7, "origin": faa});
                        let made = allowed(
                            world.post("flights", &flight).await,
                            &["unresolved_reference"],
                        );
                        if let (Some(made), true) = (made, round % 3 == 0) {
                            allowed(world.delete("flights", made.id).await, &["not_found"]);
                        }
                    }
                    _ => {
                        world
                            .made("airports", &json!({"faa": faa, "name": round.to_string()}))
                            .await;
                    }
                }
            }
        })
    });
    for done in join_all(clients).await {
        done.unwrap();
    }
    let world = Arc::into_inner(world).unwrap();
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_identity_is_one_document_whoever_makes_it() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    for round in 0..20 {
        let body = json!({"faa": format!("R{round}")});
        let all = join_all((0..CLIENTS).map(|_| world.post("airports", &body))).await;
        let ids: std::collections::BTreeSet<_> = all
            .into_iter()
            .map(|made| made.unwrap().id.uuid())
            .collect();
        assert_eq!(ids.len(), 1);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_owner_writes_and_the_first_does_not() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    world.made("airports", &json!({"faa": "JFK"})).await;
    // Somebody takes over: what the first has not committed by then fails, and it looks who owns it now.
    let raised = world
        .client
        .batch_execute("UPDATE egret.document_owner SET epoch = epoch + 1")
        .await;
    raised.unwrap();
    let made = world.made("airports", &json!({"faa": "LAX"})).await;
    assert_eq!(
        world.number("SELECT epoch FROM egret.document_owner").await,
        3
    );
    assert_eq!(
        world.get("airports", made.id).await.unwrap(),
        json!({"faa": "LAX"})
    );
    let other = World {
        documents: engine(&world.database),
        client: world.database.connect().await,
        database: world.database.clone(),
        caller: world.caller.clone(),
    };
    let refused = other
        .post("airports", &json!({"faa": "ORD"}))
        .await
        .unwrap_err();
    assert!(
        matches!(refused, DocumentsError::OwnedElsewhere { .. }),
        "{refused:?}"
    );
    assert_eq!(
        other.get("airports", made.id).await.unwrap(),
        json!({"faa": "LAX"})
    );
    other.stop().await;
    world.stop().await;
}

/// What was done, or nothing where one of these refused it.
fn allowed<T: std::fmt::Debug>(done: Result<T, DocumentsError>, codes: &[&str]) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            let code = egret_base::Coded::code(&error);
            assert!(codes.contains(&code), "{error}");
            None
        }
    }
}
