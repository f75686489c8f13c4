//! What must not stop a pool: sessions that end, databases that let nobody in, steady demand.

use egret_base::settings::Span;
use egret_postgres::wire::{Session, Startup};

use crate::home::{alive, backends};
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
    let startup = Startup {
        user: "egret_branch".to_owned(),
        database: "app".to_owned(),
        parameters: vec![],
    };
    let mut session = Session::connect(&socket, 5432, &startup).await.unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE usename = 'egret_branch' AND pid <> pg_backend_pid()";
    session.query(end, &[], 10, 1_000).await.unwrap();
    session.close().await;
    let fresh = loop {
        let now: Vec<i32> = backends(*postmaster).into_keys().collect();
        if now.len() == 2 && now.iter().all(|pid| !before.contains(pid)) {
            break now;
        }
        tokio::task::yield_now().await;
    };
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
    assert!(
        refused.to_string().contains("too many connections"),
        "{refused}"
    );
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_deleted_though_nobody_ever_stops_asking() {
    let mut home = brisk("pool-busy");
    home.config.pool_patience = Span::ms(50);
    let egret = home.start().await;
    egret.make_app().await;
    egret.fill(3).await;
    let first = egret.branch("first").await;
    let files = home.directory.join("volume/branches").join(first.id.hex());
    assert!(files.exists());
    egret.destroy("first").await;
    for number in 0.. {
        let branch = format!("b{number}");
        egret.branch(&branch).await;
        egret.destroy(&branch).await;
        if !files.exists() {
            break;
        }
    }
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
    while !backends(postmaster).is_empty() {
        tokio::task::yield_now().await;
    }
    egret.stop().await;
}
