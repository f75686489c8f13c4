//! What the doors say when the volume is full, a statement runs too long, the source cannot be
//! branched, or the engine is stopping.

use egret_base::settings::{ByteSize, ConfigDuration};
use egret_base_test::eventually;
use reqwest::Method;
use serde_json::json;

use super::rig::Rig;
use crate::proxy::running_proxy::expect_failure;
use crate::test_server::problem;

/// What is to stay free in the volume that is filled here.
const FREE_MIN: ByteSize = ByteSize::mib(200);

#[tokio::test]
async fn each_fault_has_its_code_and_its_sqlstate() {
    let rig = Rig::start_own(|config| {
        config.free_min = FREE_MIN;
        config.query_timeout = ConfigDuration::ms(500);
        config.branches_max = 2;
    })
    .await;
    rig.create_branch("first").await;
    rig.create_branch("second").await;
    let wish = json!({"name": "third"});
    let problem =
        rig.expect_problem(Method::POST, "/v1/branches", wish, 429, "limit_exceeded").await;
    assert!(
        problem["detail"].as_str().unwrap().contains("branches.branches_max is 2"),
        "{problem}"
    );
    assert_eq!(problem["retryable"], true);

    let body = json!({"sql": "SELECT pg_sleep(600)"});
    let path = "/v1/branches/first/query";
    rig.expect_problem(Method::POST, path, body, 504, "query_timeout").await;
    let answer = rig
        .query("first", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
        .await;
    assert_eq!(answer["rows"], json!([[0]]), "the statement still runs");

    check_full_volume(&rig).await;

    let url = rig.url("first").await;
    rig.stop_engine().await;
    let response = rig.send(Method::GET, "/v1/branches", json!({})).await;
    assert!(response.headers().contains_key("retry-after"));
    crate::test_server::problem(response, 503, "stopping").await;
    let text = expect_failure(rig.psql(&url, "select 1").await);
    assert!(text.contains("egret is starting or stopping"), "{text}");
    rig.stop().await;
    // The volume was full: one line, however often it was looked at.
    let worries = rig.warnings();
    assert_eq!(worries.len(), 1, "{worries:?}");
    assert!(worries[0].contains("\"branches_volume_full\""), "{worries:?}");
}

async fn check_full_volume(rig: &Rig) {
    let url = rig.url("second").await;
    rig.post("/v1/branches/second/suspend", json!({})).await;
    rig.destroy("first").await;
    rig.assert_settled().await;
    let ballast = rig.directory.join("volume").join("ballast");
    let file = std::fs::File::create(&ballast).unwrap();
    let free = rig.branches.volume().unwrap().free_bytes;
    let take = free - (100 << 20);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, take).unwrap();
    file.sync_all().unwrap();
    for (path, body) in [
        ("/v1/branches", json!({"name": "third"})),
        ("/v1/templates", json!({})),
        ("/v1/branches/second/resume", json!({})),
    ] {
        let response = rig.send(Method::POST, path, body).await;
        assert!(response.headers().contains_key("retry-after"), "{path}");
        problem(response, 503, "volume_full").await;
    }
    let text = expect_failure(rig.psql(&url, "select 1").await);
    assert!(text.contains("branch \"second\" cannot be resumed: the volume has"), "{text}");
    assert!(text.contains("HINT:  destroy branches"), "{text}");
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    let directory = std::fs::File::open(rig.directory.join("volume")).unwrap();
    // The file system gives the room back with a later transaction of its own.
    eventually("the room is given back", async || {
        rustix::fs::syncfs(&directory).unwrap();
        let free_bytes = rig.branches.volume().unwrap().free_bytes;
        if free_bytes < FREE_MIN.bytes() { Err(free_bytes) } else { Ok(()) }
    })
    .await;
    rig.create_branch("first").await;
}

#[tokio::test]
async fn a_source_that_cannot_be_copied_is_refused_by_name() {
    let rig = Rig::start_own(|_| ()).await;
    let source = rig.source("postgres").await;
    let path = rig.directory.join("elsewhere");
    let owner = egret_postgres_test::owner();
    egret_postgres::cluster::create_private_directory(&path, &owner).unwrap();
    let make = format!("CREATE TABLESPACE elsewhere LOCATION '{}'", path.display());
    source.batch_execute(&make).await.unwrap();
    let wish = json!({});
    let problem =
        rig.expect_problem(Method::POST, "/v1/templates", wish, 409, "source_unusable").await;
    assert!(problem["detail"].as_str().unwrap().contains("elsewhere"), "{problem}");
    rig.stop().await;
    rig.assert_no_warnings();
}
