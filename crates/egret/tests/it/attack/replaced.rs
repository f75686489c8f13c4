//! Storage that was removed, replaced or exchanged by hand while Egret was stopped: what is missed, and what goes on.

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::Value;

use super::storage::{TASKS, ask, count, failed, place, stopped_with_tasks};

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
