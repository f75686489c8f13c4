//! Storage that was removed, replaced or exchanged by hand while Egret was stopped: what is missed, and what goes on.

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::Value;

use super::storage::{PARTITIONS, TASKS, ask, count, failed, place, stopped_with_tasks};

#[tokio::test]
async fn a_volume_whose_directory_is_gone_is_missed() {
    let place = place("gone-volume");
    let ids = stopped_with_tasks(&place).await;
    std::fs::remove_dir_all(place.data_dir().join("volume")).unwrap();
    let server = place.start_partly(&["serve"]);
    assert_eq!(failed(&place).await, ["branches", "postgres", "volume"]);
    assert_eq!(count(&place, &ids).await, (TASKS, 0));
    let (status, _) = ask(&place, Method::GET, "/v1/branches", Value::Null).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    server.stop(Signal::TERM);
    assert!(
        !place.data_dir().join("volume").exists(),
        "it is not begun anew"
    );
}

#[tokio::test]
async fn a_wrong_number_of_parts_stops_only_its_engine_and_is_restored() {
    let place = place("wrong-count");
    let ids = stopped_with_tasks(&place).await;
    let partitions = place.data_dir().join("queue/partitions");
    let shards = place.data_dir().join("series/shards");
    for wrong in [PARTITIONS - 1, PARTITIONS + 1] {
        std::fs::write(&partitions, format!("{wrong}\n")).unwrap();
        std::fs::write(&shards, format!("{wrong}\n")).unwrap();
        let server = place.start_partly(&["serve"]);
        assert_eq!(
            failed(&place).await,
            ["monitor", "outbox", "queue", "series"]
        );
        let status = place.json(&["status"]).to_string();
        assert!(status.contains("egret repair"), "{status}");
        server.stop(Signal::TERM);
        let found = place.json(&["repair", "--yes"]);
        assert_eq!(found["items"][0]["part"], "queue/partitions", "{found}");
        assert_eq!(found["items"][1]["part"], "series/shards", "{found}");
        let server = place.start(&["serve"]);
        assert_eq!(count(&place, &ids).await, (TASKS, 0));
        server.stop(Signal::TERM);
    }
}
