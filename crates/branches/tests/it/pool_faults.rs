//! What must not stop a pool: sessions that end, databases that refuse sessions, steady demand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use egret_base::settings::ConfigDuration;
use egret_base_test::eventually;
use egret_branches::CrashPoints;
use egret_postgres::wire::{Session, Startup};

use crate::home::{alive, await_backends, backends};
use crate::pool::{brisk, count, kind};

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_ended_are_connected_again_and_the_branch_is_kept() {
    let home = brisk("pool-idle");
    let egret = home.start().await;
    egret.make_app().await;
    egret.fill(1).await;
    let ready = home.pooled(&egret).await;
    let (id, postmaster) = ready.iter().next().unwrap();
    let before: Vec<i32> = backends(*postmaster).into_keys().collect();
    assert_eq!(before.len(), 2);
    // As `idle_session_timeout` does it.
    let socket = home.directory.join("run/branches").join(id);
    let startup =
        Startup { user: "egret_branch".to_owned(), database: "app".to_owned(), parameters: vec![] };
    let mut session = Session::connect(&socket, 5432, &startup).await.unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE usename = 'egret_branch' AND pid <> pg_backend_pid()";
    session.query(end, &[], 10, 1_000).await.unwrap();
    session.close().await;
    let fresh = eventually("both sessions are connected again", async || {
        let now: Vec<i32> = backends(*postmaster).into_keys().collect();
        let is_fresh = now.len() == 2 && now.iter().all(|pid| !before.contains(pid));
        is_fresh.then_some(now)
    })
    .await;
    egret.filled().await;
    let branch = egret.branch("one").await;
    assert_eq!((kind(&branch), &branch.id.hex()), ("pooled", id));
    assert_eq!(count(&egret, "one").await, "1000");
    assert!(fresh.iter().all(|pid| alive(*pid)));
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_lets_nobody_in_has_a_pool_without_sessions() {
    let home = brisk("pool-limit");
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("postgres").await;
    let limit = "ALTER DATABASE app CONNECTION LIMIT 0";
    source.batch_execute(limit).await.unwrap();
    egret.fill(1).await;
    let ready = home.pooled(&egret).await;
    assert!(backends(*ready.values().next().unwrap()).is_empty());
    let branch = egret.branch("one").await;
    assert_eq!(kind(&branch), "pooled");
    let refused = egret.ask("one", "SELECT 1").await.unwrap_err();
    assert!(refused.to_string().contains("too many connections"), "{refused}");
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

/// Stops each refill before its last phase until it is released.
struct Demand {
    reached: Sender<()>,
    go_on: Mutex<Receiver<()>>,
    over: AtomicBool,
}

impl CrashPoints for Demand {
    fn before(&self, step: &'static str) {
        if step == "pool.connect" && !self.over.load(Ordering::SeqCst) {
            self.reached.send(()).unwrap();
            self.go_on.lock().unwrap().recv().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_deleted_though_the_pool_is_never_full() {
    let mut home = brisk("pool-busy");
    home.config.pool_min = 0;
    home.config.pool_patience = ConfigDuration::ms(1);
    let (reached, refills) = channel();
    let (release, go_on) = channel();
    let demand =
        Arc::new(Demand { reached, go_on: Mutex::new(go_on), over: AtomicBool::new(true) });
    let egret = home.start_with(Some(demand.clone())).await;
    egret.make_app().await;
    egret.fill(2).await;
    demand.over.store(false, Ordering::SeqCst);
    let first = egret.branch("first").await;
    let files = home.directory.join("volume/branches").join(first.id.hex());
    // One is being connected, the other is taken: after each refill one is missing again.
    for number in 0..20 {
        refills.recv().unwrap();
        egret.branch(&format!("b{number}")).await;
        if number == 0 {
            egret.destroy("first").await;
        }
        if !files.exists() {
            break;
        }
        release.send(()).unwrap();
    }
    assert!(!files.exists(), "twenty refills were more urgent");
    demand.over.store(true, Ordering::SeqCst);
    release.send(()).unwrap();
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_sessions_in_the_pool_none_is_kept() {
    let mut home = brisk("pool-none");
    home.config.pool_sessions = 0;
    let egret = home.start().await;
    egret.make_app().await;
    egret.fill(1).await;
    let (postmaster, _) = egret.branch("one").await.postmaster.unwrap();
    for _ in 0..2 {
        assert_eq!(count(&egret, "one").await, "1000");
    }
    await_backends(postmaster, 0).await;
    egret.stop().await;
}
