//! Storage that was removed, replaced or exchanged by hand while Egret was stopped: what is missed,
//! and what goes on.

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::storage::{
    PARTITIONS, TASKS, ask, count, failed, newest_segment, place, stopped_with_tasks,
};
use crate::place::Place;

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
    assert!(!place.data_dir().join("volume").exists(), "it is not begun anew");
    let found = place.json(&["repair", "postgres", "--yes"]);
    assert_eq!(found["items"][0]["part"], "postgres", "{found}");
    assert!(!place.data_dir().join("superuser.password").exists());
    // As was asked for.
    let server = place.start(&["serve"]);
    assert_eq!(count(&place, &ids).await, (TASKS, 0));
    server.stop(Signal::TERM);
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
        assert_eq!(failed(&place).await, ["monitor", "outbox", "queue", "series"]);
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

#[tokio::test]
async fn a_partition_in_the_place_of_another_is_noticed() {
    let place = place("exchanged");
    let ids = stopped_with_tasks(&place).await;
    let queue = place.data_dir().join("queue");
    let exchange = || {
        std::fs::rename(queue.join("000"), queue.join("aside")).unwrap();
        std::fs::rename(queue.join("001"), queue.join("000")).unwrap();
        std::fs::rename(queue.join("aside"), queue.join("001")).unwrap();
    };
    exchange();
    let server = place.start_partly(&["serve"]);
    let status = place.json(&["status"]).to_string();
    for stated in ["queue/000", "queue/001"] {
        let said = format!("it is the directory of {stated}, copied or moved");
        assert!(status.contains(&said), "{status}");
    }
    server.stop(Signal::TERM);
    let found = place.json(&["repair"]);
    assert_eq!(found["items"][0]["part"], "queue/000", "{found}");
    exchange();
    assert_eq!(place.json(&["repair"])["items"], json!([]));
    // One that was copied over the other.
    std::fs::rename(queue.join("001"), place.directory.join("001")).unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-a")
        .args([queue.join("000"), queue.join("001")])
        .status();
    assert!(copied.unwrap().success());
    let server = place.start_partly(&["serve"]);
    assert_eq!(failed(&place).await, ["queue/001"]);
    let (there, refused) = count(&place, &ids).await;
    assert!(there > 0 && refused > 0, "{there} {refused}");
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn an_end_mark_that_is_gone_is_missed() {
    let place = place("gone-mark");
    let ids = stopped_with_tasks(&place).await;
    let ends = ["queue/000/log/end", "series/001/log/end"].map(|end| place.data_dir().join(end));
    for end in &ends {
        std::fs::remove_file(end).unwrap();
    }
    let server = place.start_partly(&["serve"]);
    assert_eq!(failed(&place).await, ["queue/000", "series/001"]);
    let (there, refused) = count(&place, &ids).await;
    assert!(there > 0 && refused > 0, "{there} {refused}");
    server.stop(Signal::TERM);
    let found = place.json(&["repair", "--yes"]);
    assert_eq!(found["items"][0]["part"], "queue/000", "{found}");
    let server = place.start(&["serve"]);
    assert_eq!(count(&place, &ids).await, (TASKS, 0));
    server.stop(Signal::TERM);
    assert!(ends.iter().all(|end| end.exists()));
}

/// The reason of a condition that lasts, empty where it does not.
fn reason_of(place: &Place, condition: &str) -> String {
    let status = place.json(&["status"]);
    let conditions = status["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|one| one["name"] == condition);
    found.map_or_else(String::new, |one| one["reason"].to_string())
}

#[tokio::test]
async fn a_damaged_or_missing_key_stops_nothing_and_is_said() {
    let place = place("keys");
    let server = place.start(&["serve"]);
    place.json(&["branch", "create", "pr-42"]);
    for condition in ["queue_callback_key_lost", "branches_key_lost"] {
        assert_eq!(reason_of(&place, condition), "");
    }
    server.stop(Signal::TERM);
    let callback_key = place.data_dir().join("queue/callback.key");
    std::fs::write(&callback_key, "zz\n").unwrap();
    let server = place.start(&["serve"]);
    assert_eq!(failed(&place).await, Vec::<String>::new());
    let reason = reason_of(&place, "queue_callback_key_lost");
    assert!(reason.contains("64 hexadecimal digits"), "{reason}");
    server.stop(Signal::TERM);
    std::fs::remove_file(&callback_key).unwrap();
    std::fs::remove_file(place.data_dir().join("branch.key")).unwrap();
    let server = place.start(&["serve"]);
    for condition in ["queue_callback_key_lost", "branches_key_lost"] {
        let reason = reason_of(&place, condition);
        assert!(reason.contains("the key was missing"), "{condition}: {reason}");
    }
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn a_log_that_became_shorter_or_longer_is_repaired_up_to_its_last_whole_record() {
    let place = place("length");
    let ids = stopped_with_tasks(&place).await;
    let queue = place.data_dir().join("queue");
    for (part, garbage) in [("000", 300), ("001", 0)] {
        let path = newest_segment(&queue.join(part).join("log"));
        let mut content = std::fs::read(&path).unwrap();
        let last = content.iter().rposition(|byte| *byte != 0).unwrap();
        content.truncate(if garbage == 0 { last } else { content.len() });
        content.extend(vec![0x55_u8; garbage]);
        std::fs::write(&path, content).unwrap();
        let server = place.start_partly(&["serve"]);
        assert_eq!(failed(&place).await, [format!("queue/{part}")]);
        server.stop(Signal::TERM);
        let found = place.json(&["repair", "--yes"]);
        let loss = found["items"][0]["loss"].as_str().unwrap();
        assert_eq!(loss == "nothing", garbage > 0, "{found}");
    }
    let server = place.start(&["serve"]);
    let mut there = 0;
    for id in &ids {
        let path = format!("/v1/tasks/{id}");
        let (status, _) = ask(&place, Method::GET, &path, Value::Null).await;
        there += usize::from(status.is_success());
    }
    assert!(there >= TASKS - 1, "{there}");
    server.stop(Signal::TERM);
}
