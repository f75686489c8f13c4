//! Clients and queries that arrive while a branch is being suspended.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use egret_base_test::eventually;
use egret_postgres::tokio_postgres;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::rig::{Rig, shared};
use crate::proxy::running_proxy::connect;

/// How many clients and queries come at a time.
const CALLERS: usize = 4;
/// How often each of them comes.
const ROUNDS: usize = 12;

/// Suspends a branch repeatedly, each time after at least one call was served since the last time.
async fn suspend_repeatedly(rig: &Rig, branch: &str, served: &AtomicUsize, over: &AtomicBool) {
    let path = format!("/v1/branches/{branch}/suspend");
    let mut before = 0;
    loop {
        eventually("a call is served", async || {
            over.load(Ordering::SeqCst) || served.load(Ordering::SeqCst) != before
        })
        .await;
        if over.load(Ordering::SeqCst) {
            return;
        }
        before = served.load(Ordering::SeqCst);
        rig.post(&path, json!({})).await;
    }
}

/// Runs the work of several callers while the branch is suspended under them.
async fn run_during_suspends(rig: &Rig, branch: &str, call: impl AsyncFn(&AtomicUsize)) {
    let (served, over) = (AtomicUsize::new(1), AtomicBool::new(false));
    let callers = async {
        let caller = async || {
            for _ in 0..ROUNDS {
                call(&served).await;
            }
        };
        join_all((0..CALLERS).map(|_| caller())).await;
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(callers, suspend_repeatedly(rig, branch, &served, &over));
}

#[tokio::test]
async fn clients_that_arrive_during_a_suspend_are_held_and_served() {
    let rig = shared();
    rig.create_branch("dozing").await;
    let config: tokio_postgres::Config = rig.url("dozing").await.parse().unwrap();
    run_during_suspends(rig, "dozing", async |served| {
        let client = connect(&config).await;
        let client = client.unwrap_or_else(|error| panic!("a client was refused: {error:?}"));
        served.fetch_add(1, Ordering::SeqCst);
        // The session may be ended by the next suspend at any moment.
        if let Err(error) = client.simple_query("SELECT 1").await {
            let code = error.code().map(|code| code.code());
            assert!(error.is_closed() || code == Some("57P01"), "{error:?}");
        }
    })
    .await;
    rig.destroy("dozing").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn queries_that_arrive_during_a_suspend_are_held_and_answered() {
    let rig = shared();
    rig.create_branch("drowsy").await;
    let path = "/v1/branches/drowsy/query";
    run_during_suspends(rig, "drowsy", async |served| {
        let body = json!({"sql": "SELECT 1"});
        let response = rig.send(Method::POST, path, body).await;
        served.fetch_add(1, Ordering::SeqCst);
        let status = response.status();
        let body: Value = response.json().await.unwrap();
        // A suspend ends what is being run, too.
        let is_ended = body["code"] == "postgres_connection_lost"
            || body["detail"].as_str().is_some_and(|detail| detail.contains("57P01"));
        assert!(status == 200 || is_ended, "{status}: {body}");
    })
    .await;
    rig.destroy("drowsy").await;
    rig.assert_no_warnings();
}
