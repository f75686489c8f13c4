//! Races between conflicting writes, and between owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use egret_base_test::eventually;
use egret_documents::DocumentsError;
use egret_documents::core::decision::Condition;
use egret_documents::model::{DocumentId, WriteOutcome};
use futures_util::future::{join, join_all, join3};
use serde_json::{Value, json};

use crate::world::{FLIGHTS, World, engine, error_code};

/// Number of concurrent clients.
const CLIENTS: usize = 16;

const ROUNDS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_race_with_references() {
    let world = Arc::new(World::new(18).await);
    world.apply(FLIGHTS).await.unwrap();
    let clients = (0..CLIENTS).map(|client| {
        let world = world.clone();
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let faa = format!("A{}", (client + round) % 5);
                match client % 3 {
                    0 => {
                        let made = world.create("airports", &json!({"faa": faa})).await;
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
                            .create("airports", &json!({"faa": faa, "name": round.to_string()}))
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
async fn concurrent_upserts_create_one_document() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    for round in 0..20 {
        let body = json!({"faa": format!("R{round}")});
        let all = join_all((0..CLIENTS).map(|_| world.post("airports", &body))).await;
        let ids: std::collections::BTreeSet<_> =
            all.into_iter().map(|made| made.unwrap().id.uuid()).collect();
        assert_eq!(ids.len(), 1);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_owner_writes_and_the_first_does_not() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    world.create("airports", &json!({"faa": "JFK"})).await;
    // Another owner takes over: uncommitted writes of the first one fail, and it determines the
    // owner again.
    let raised =
        world.client.batch_execute("UPDATE egret.document_owner SET epoch = epoch + 1").await;
    raised.unwrap();
    let made = world.create("airports", &json!({"faa": "LAX"})).await;
    assert_eq!(world.query_number("SELECT epoch FROM egret.document_owner").await, 3);
    assert_eq!(world.get("airports", made.id).await.unwrap(), json!({"faa": "LAX"}));
    let other = World {
        documents: engine(&world.database),
        client: world.database.connect().await,
        database: world.database.clone(),
        caller: world.caller.clone(),
    };
    let refused = other.post("airports", &json!({"faa": "ORD"})).await.unwrap_err();
    assert!(matches!(refused, DocumentsError::OwnedElsewhere { .. }), "{refused:?}");
    assert_eq!(other.get("airports", made.id).await.unwrap(), json!({"faa": "LAX"}));
    other.stop().await;
    world.stop().await;
}

/// Rounds of each of the races below.
const RACES: usize = 1_000;

/// Runs the rounds of a race, several at a time.
async fn races<F>(world: &Arc<World>, race: impl Fn(Arc<World>, usize) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let lanes: Vec<_> = (0..CLIENTS).map(|lane| (lane..RACES).step_by(CLIENTS)).collect();
    let mut running = tokio::task::JoinSet::new();
    for lane in lanes {
        let all: Vec<F> = lane.map(|round| race(world.clone(), round)).collect();
        running.spawn(async move {
            for one in all {
                one.await;
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}

/// Of two conflicting results, exactly one is a success; the other has its code.
fn one_of_two<A: std::fmt::Debug, B: std::fmt::Debug>(
    first: Result<A, DocumentsError>,
    second: Result<B, DocumentsError>,
    first_code: &str,
    second_code: &str,
) -> (Option<A>, Option<B>) {
    let first = allowed(first, &[first_code]);
    let second = allowed(second, &[second_code]);
    assert!(first.is_some() != second.is_some(), "{first:?} and {second:?}");
    (first, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_goes_or_is_referred_to_a_thousand_times() {
    let world = Arc::new(World::new(18).await);
    world.apply(FLIGHTS).await.unwrap();
    races(&world, |world, round| async move {
        let body = json!({"faa": format!("T{round}")});
        let airport = world.create("airports", &body).await.id;
        let flight = json!({"number": round, "origin": format!("T{round}")});
        let go = world.delete("airports", airport);
        let refer = world.post("flights", &flight);
        // The order of the requests does not always decide.
        let (gone, made) = match round % 2 {
            0 => join(go, refer).await,
            _ => {
                let (made, gone) = join(refer, go).await;
                (gone, made)
            }
        };
        let both = one_of_two(gone, made, "still_referenced", "unresolved_reference");
        if let (None, Some(made)) = both {
            world.delete("flights", made.id).await.unwrap();
            world.delete("airports", airport).await.unwrap();
        }
    })
    .await;
    assert_eq!(world.query_number("SELECT count(*) FROM egret.document").await, 0);
    Arc::into_inner(world).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_make_one_document_a_thousand_times() {
    let world = Arc::new(World::new(18).await);
    world.apply(FLIGHTS).await.unwrap();
    races(&world, |world, round| async move {
        let body = |name: &str| json!({"faa": format!("U{round}"), "name": name});
        let (first, second) = (body("first"), body("second"));
        let both = join(world.post("airports", &first), world.post("airports", &second));
        let (first, second) = both.await;
        let (first, second) = (first.unwrap(), second.unwrap());
        assert_eq!(first.id, second.id);
        let mut both = [(first.version, first.outcome), (second.version, second.outcome)];
        both.sort_by_key(|(version, _)| *version);
        assert_eq!(both, [(1, WriteOutcome::Created), (2, WriteOutcome::Changed)]);
    })
    .await;
    Arc::into_inner(world).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_is_called_differently_while_others_refer_to_it_a_thousand_times() {
    let world = Arc::new(World::new(18).await);
    let mutable = FLIGHTS
        .replace(r#""identity": ["/faa"]"#, r#""identity": ["/faa"], "identity_mutable": true"#);
    world.apply(&mutable).await.unwrap();
    races(&world, |world, round| async move {
        let (old, new) = (format!("O{round}"), format!("N{round}"));
        let airport = world.create("airports", &json!({"faa": old})).await.id;
        let flight = |number: usize, origin: &str| json!({"number": number, "origin": origin});
        let (by_old, by_new) = (flight(2 * round, &old), flight(2 * round + 1, &new));
        let renamed = json!({"faa": new});
        let (by_old, by_new, moved) = join3(
            world.post("flights", &by_old),
            world.post("flights", &by_new),
            world.put("airports", airport, &renamed, Condition::Always),
        )
        .await;
        moved.unwrap();
        for made in [by_old, by_new] {
            if let Some(made) = allowed(made, &["unresolved_reference"]) {
                let there = world.get("flights", made.id).await.unwrap();
                assert_eq!(there["origin"], json!(new));
            }
        }
    })
    .await;
    Arc::into_inner(world).unwrap().stop().await;
}

/// Number of changes of ownership under load.
const TAKEOVERS: usize = 5;

/// Creates airports and flights, each by either Egret until one succeeds. Returns those
/// acknowledged.
async fn make(
    worlds: Arc<[World; 2]>,
    is_over: Arc<AtomicBool>,
    client: usize,
) -> Vec<(&'static str, DocumentId, Value)> {
    let (mut acknowledged, mut round) = (Vec::new(), 0);
    while !is_over.load(Ordering::Relaxed) {
        round += 1;
        let faa = json!({"faa": format!("{client}-{round}")});
        let flight = json!({"number": client * 1_000_000 + round, "origin": faa["faa"]});
        for (collection, body) in [("airports", faa), ("flights", flight)] {
            for world in worlds.iter().cycle() {
                match world.post(collection, &body).await {
                    Ok(made) => {
                        acknowledged.push((collection, made.id, body));
                        break;
                    }
                    Err(error) => assert!(egret_base::CodedError::retryable(&error), "{error}"),
                }
                tokio::task::yield_now().await;
            }
        }
    }
    acknowledged
}

/// Ends the owner's lock session here; another Egret takes over and writes.
async fn take_over(world: &World, and_those_that_write: bool) {
    const OWNER: &str = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = \
         (SELECT oid FROM pg_database WHERE datname = current_database())";
    const WRITING: &str = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%document_write%' AND pid <> pg_backend_pid()";
    let end = |pids: &str| format!("SELECT count(pg_terminate_backend(pid)) FROM ({pids}) AS p");
    let epoch = "SELECT epoch FROM egret.document_owner";
    let position = "SELECT coalesce(max(position), 0) FROM egret.document_feed";
    let before = world.query_number(epoch).await;
    // The owner is not notified: its writes in progress run into the next epoch.
    world.await_number(&end(OWNER), 1).await;
    if and_those_that_write {
        // The outcome of writes in progress becomes unknown, too.
        world.query_number(&end(WRITING)).await;
    }
    eventually("the owner changes", async || world.query_number(epoch).await != before).await;
    let before = world.query_number(position).await;
    eventually("200 changes are written", async || {
        let now = world.query_number(position).await;
        if now < before + 200 { Err(now) } else { Ok(()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_outlasts_owners_that_change_under_load() {
    let world = World::new(18).await;
    world.apply(FLIGHTS).await.unwrap();
    let other = World {
        documents: engine(&world.database),
        client: world.database.connect().await,
        database: world.database.clone(),
        caller: world.caller.clone(),
    };
    let worlds = Arc::new([world, other]);
    let is_over = Arc::new(AtomicBool::new(false));
    let clients =
        (0..CLIENTS).map(|client| tokio::spawn(make(worlds.clone(), is_over.clone(), client)));
    let clients: Vec<_> = clients.collect();
    for round in 0..TAKEOVERS {
        take_over(&worlds[0], round % 2 == 1).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for client in clients {
        acknowledged.extend(client.await.unwrap());
    }
    let [world, other] = Arc::into_inner(worlds).unwrap();
    for (collection, id, body) in acknowledged {
        assert_eq!(world.get(collection, id).await.unwrap(), body);
    }
    let checked = world.documents.fsck(&world.caller, false).await.unwrap();
    assert_eq!(checked.findings, []);
    other.stop_documents().await;
    world.stop_documents().await;
}

/// A success, or none if the error has one of these codes.
fn allowed<T: std::fmt::Debug>(done: Result<T, DocumentsError>, codes: &[&str]) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(error) => {
            let code = egret_base::CodedError::code(&error);
            assert!(codes.contains(&code), "{error}");
            None
        }
    }
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_done_again_unless_others_wrote_since() {
    const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ~ ";
    for others_wrote in [false, true] {
        let world = World::new(18).await;
        world.apply(FLIGHTS).await.unwrap();
        world.create("airports", &json!({"faa": "JFK"})).await;
        let mut other = world.database.connect().await;
        let held = other.transaction().await.unwrap();
        let hold = "SELECT FROM egret.document_owner FOR UPDATE";
        held.query_one(hold, &[]).await.unwrap();
        let lose = async {
            let writing = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%document_write%'";
            let end = format!("SELECT count(pg_terminate_backend(pid)) FROM ({writing}) AS p");
            world.await_number(&end, 1).await;
            // The Egret that lost the answer becomes the owner again.
            world.await_number(&format!("{WAITING} 'epoch . 1'"), 1).await;
            if others_wrote {
                let write = "UPDATE egret.document_owner SET epoch = epoch + 1";
                held.batch_execute(write).await.unwrap();
            }
            held.commit().await.unwrap();
        };
        let lga = json!({"faa": "LGA"});
        let (told, ()) = join(world.post("airports", &lga), lose).await;
        if others_wrote {
            assert_eq!(error_code(told), "unavailable")
        } else {
            assert_eq!(told.unwrap().outcome, WriteOutcome::Created)
        }
        let expected = if others_wrote { WriteOutcome::Created } else { WriteOutcome::Unchanged };
        assert_eq!(world.create("airports", &lga).await.outcome, expected);
        world.stop().await;
    }
}
