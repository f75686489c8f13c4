//! Damaged, missing and full storage: what stops, what goes on, and what is said of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, text};

pub(super) const PARTITIONS: usize = 2;
/// So many that every partition has some.
pub(super) const TASKS: usize = 40;

pub(super) fn place(purpose: &str) -> Place {
    let mut place = Place::new(purpose);
    place.variables = vec![
        ("EGRET_QUEUE_PARTITIONS", PARTITIONS.to_string()),
        ("EGRET_SERIES_SHARDS", PARTITIONS.to_string()),
        ("EGRET_SERIES_SCRAPE_POSTGRES", "false".to_owned()),
        ("EGRET_BRANCHES_VOLUME", "copy".to_owned()),
    ];
    place
}

pub(super) async fn ask(
    place: &Place,
    method: Method,
    path: &str,
    body: Value,
) -> (StatusCode, Value) {
    let (status, text) = ask_text(place, method, path, body).await;
    (status, serde_json::from_str(&text).unwrap_or_default())
}

async fn ask_text(place: &Place, method: Method, path: &str, body: Value) -> (StatusCode, String) {
    // Another test may have installed the same provider before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let token = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
    let url = format!("http://127.0.0.1:{}{path}", place.ports[0]);
    let request = reqwest::Client::new().request(method, url).bearer_auth(token.trim()).json(&body);
    let response = request.send().await.unwrap();
    (response.status(), response.text().await.unwrap())
}

/// Makes a queue with tasks in every partition and returns their ids.
async fn fill(place: &Place) -> Vec<String> {
    let (status, _) = ask(place, Method::PUT, "/v1/queues/q", json!({})).await;
    assert!(status.is_success(), "{status}");
    let mut ids = Vec::with_capacity(TASKS);
    for number in 0..TASKS {
        // The key decides on the partition.
        let task =
            json!({"payload": format!("payload {number}"), "ordering_key": number.to_string()});
        let (status, answer) = ask(place, Method::POST, "/v1/queues/q/tasks", task).await;
        assert!(status.is_success(), "{status}: {answer}");
        ids.push(answer["id"].as_str().unwrap().to_owned());
    }
    ids
}

/// How many of the tasks can be read, and how many are refused as unavailable.
pub(super) async fn count(place: &Place, ids: &[String]) -> (usize, usize) {
    let (mut there, mut refused) = (0, 0);
    for id in ids {
        let path = format!("/v1/tasks/{id}");
        match ask(place, Method::GET, &path, Value::Null).await.0 {
            StatusCode::OK => there += 1,
            StatusCode::SERVICE_UNAVAILABLE => refused += 1,
            other => panic!("task {id}: {other}"),
        }
    }
    (there, refused)
}

/// The parts that `/readyz` says have failed.
pub(super) async fn failed(place: &Place) -> Vec<String> {
    let (status, answer) = ask(place, Method::GET, "/readyz", Value::Null).await;
    let items = answer["failed"].as_array().unwrap();
    let failed: Vec<String> =
        items.iter().map(|item| item["part"].as_str().unwrap().to_owned()).collect();
    // A part of a service leaves the others, and with them the server, ready.
    let is_ready = failed.iter().all(|part| part.contains('/'));
    assert_eq!(status == StatusCode::OK, is_ready, "{answer}");
    assert_eq!(answer["ready"], is_ready);
    failed
}

pub(super) fn newest_segment(log: &Path) -> PathBuf {
    let entries = std::fs::read_dir(log).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let segments = paths.filter(|path| path.extension().is_some_and(|ext| ext == "log"));
    segments.max().unwrap()
}

/// Changes one bit of the last byte of a file that is not zero.
pub(super) fn flip_last_byte(path: &Path) {
    let mut content = std::fs::read(path).unwrap();
    let at = content.iter().rposition(|byte| *byte != 0).unwrap();
    content[at] ^= 1;
    std::fs::write(path, content).unwrap();
}

pub(super) async fn stopped_with_tasks(place: &Place) -> Vec<String> {
    let server = place.start(&["serve"]);
    let ids = fill(place).await;
    assert_eq!(failed(place).await, Vec::<String>::new());
    server.stop(Signal::TERM);
    ids
}

#[tokio::test]
async fn a_flipped_bit_in_the_last_record_stops_only_its_partition() {
    let place = place("flipped");
    let ids = stopped_with_tasks(&place).await;
    flip_last_byte(&newest_segment(&place.data_dir().join("queue/001/log")));
    let server = place.start_partly(&["serve"]);
    assert_eq!(failed(&place).await, ["queue/001"]);
    let (there, refused) = count(&place, &ids).await;
    assert!(there > 0 && refused > 0, "{there} {refused}");
    assert_eq!(there + refused, TASKS);
    let (_, metrics) = ask_text(&place, Method::GET, "/metrics", Value::Null).await;
    let sample = "egret_part_failed{part=\"queue/001\"} 1";
    assert!(metrics.contains(sample), "{metrics}");
    let status = place.json(&["status"]);
    let reason = status["failed"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("corrupt segment"), "{reason}");
    // Lists say that they are not whole.
    for list in [&["queue", "list"][..], &["queue", "show", "q"], &["queue", "tasks", "q"]] {
        let listed = place.run(list);
        let said = text(&listed.stderr);
        assert!(said.contains("failed partitions are missing here: 1"), "{list:?}: {said}");
    }
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn where_every_partition_is_damaged_no_answer_says_that_there_is_nothing() {
    let place = place("all-flipped");
    stopped_with_tasks(&place).await;
    for part in ["000", "001"] {
        let log = place.data_dir().join("queue").join(part).join("log");
        flip_last_byte(&newest_segment(&log));
    }
    let server = place.start_partly(&["serve"]);
    for path in
        ["/v1/queues", "/v1/queues/q", "/v1/queues/q/tasks", "/v1/schedules", "/v1/schedules/s"]
    {
        let (status, answer) = ask(&place, Method::GET, path, Value::Null).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{path}: {answer}");
        assert_eq!(answer["code"], "queue_partition_failed", "{path}");
    }
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn repair_says_what_it_cuts_and_keeps_the_original() {
    let place = place("repair");
    let ids = stopped_with_tasks(&place).await;
    flip_last_byte(&newest_segment(&place.data_dir().join("queue/001/log")));
    let queue = place.data_dir().join("queue");
    let found = place.json(&["repair"]);
    assert_eq!(found["items"][0]["part"], "queue/001", "{found}");
    let loss = found["items"][0]["loss"].as_str().unwrap();
    assert!(loss.contains("changes to tasks"), "{loss}");
    let mistyped = place.run(&["repair", "queue/1", "--yes"]);
    let stderr = String::from_utf8(mistyped.stderr).unwrap();
    assert!(
        !mistyped.status.success() && stderr.contains("damaged or missing: queue/001"),
        "{stderr}"
    );
    place.json(&["repair", "queue/001", "--yes"]);
    let kept = std::fs::read_dir(&queue)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(kept.filter(|name| name.starts_with("001.damaged-")).count(), 1);
    let server = place.start(&["serve"]);
    let (status, _) = ask(&place, Method::GET, "/v1/queues/q", Value::Null).await;
    assert!(status.is_success(), "{status}");
    let mut there = 0;
    for id in &ids {
        let path = format!("/v1/tasks/{id}");
        there += usize::from(ask(&place, Method::GET, &path, Value::Null).await.0.is_success());
    }
    assert!(there > 0, "{there}");
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn a_partition_whose_directory_is_gone_is_missed() {
    let place = place("gone");
    let ids = stopped_with_tasks(&place).await;
    std::fs::remove_dir_all(place.data_dir().join("queue/001")).unwrap();
    let server = place.start_partly(&["serve"]);
    assert_eq!(failed(&place).await, ["queue/001"]);
    let (there, refused) = count(&place, &ids).await;
    assert!(there > 0 && refused > 0, "{there} {refused}");
    server.stop(Signal::TERM);
    assert!(!place.data_dir().join("queue/001").exists());
}

#[tokio::test]
async fn engines_whose_directories_are_gone_are_missed() {
    let place = place("missing");
    stopped_with_tasks(&place).await;
    std::fs::remove_dir_all(place.data_dir().join("queue")).unwrap();
    std::fs::remove_dir_all(place.data_dir().join("volume/source")).unwrap();
    let server = place.start_partly(&["serve"]);
    let failed = failed(&place).await;
    let (_, answer) = ask(&place, Method::GET, "/readyz", Value::Null).await;
    assert_eq!(failed, ["branches", "outbox", "postgres", "queue", "volume"], "{answer}");
    assert!(answer.to_string().contains("is a file system not mounted?"), "{answer}");
    let (status, problem) = ask(&place, Method::GET, "/v1/queues", Value::Null).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(problem["code"], "part_failed");
    let query = "/prometheus/api/v1/query?query=1";
    assert_eq!(ask(&place, Method::GET, query, Value::Null).await.0, StatusCode::OK);
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn a_shard_with_a_damaged_log_is_repaired_at_the_start_and_answers_say_so() {
    let place = place("shard");
    let ids = stopped_with_tasks(&place).await;
    let log = newest_segment(&place.data_dir().join("series/000/log"));
    let mut content = std::fs::read(&log).unwrap();
    content[100] ^= 1;
    std::fs::write(&log, content).unwrap();
    let server = place.start(&["serve"]);
    assert_eq!(failed(&place).await, Vec::<String>::new());
    assert_eq!(count(&place, &ids).await, (TASKS, 0));
    let series = std::fs::read_dir(place.data_dir().join("series")).unwrap();
    let names = series.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("000.damaged-")).count(), 1);
    let query = "/prometheus/api/v1/query?query=up";
    let (status, answer) = ask(&place, Method::GET, query, Value::Null).await;
    assert_eq!(status, StatusCode::OK);
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(warning.starts_with("partial data: the log of shard 0"), "{warning}");
    server.stop(Signal::TERM);
}

const SNAPSHOT: &str = "/prometheus/api/v1/admin/tsdb/snapshot";

const HOUR_MS: u128 = 3_600_000;

/// Imports samples of the first hour of a day so many days ago, and has them written to a block of
/// their own. Returns the names of all files of blocks.
async fn write_block(place: &Place, host: &str, days_ago: u128) -> Vec<String> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let day = now.unwrap().as_millis() / (24 * HOUR_MS) - days_ago;
    let lines = (0..20).map(|minute| {
        let at = day * 24 * HOUR_MS + minute * 60_000;
        format!("load{{host=\"{host}\"}} {minute} {at}\n")
    });
    let file = place.directory.join(format!("{host}.prom"));
    std::fs::write(&file, lines.collect::<String>()).unwrap();
    let imported = place.run(&["series", "import", file.to_str().unwrap()]);
    assert!(imported.status.success(), "{}", text(&imported.stderr));
    let (status, answer) = ask(place, Method::POST, SNAPSHOT, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let entries = std::fs::read_dir(place.data_dir().join("series/blocks")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("block-")).collect()
}

/// The hosts of which samples are found, and the warnings of the answer.
async fn hosts(place: &Place) -> (Vec<String>, String) {
    let query = "/prometheus/api/v1/query?query=count_over_time(load%5B5d%5D)";
    let (status, answer) = ask(place, Method::GET, query, Value::Null).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let found = answer["data"]["result"].as_array().unwrap().iter();
    let name = |series: &Value| series["metric"]["host"].as_str().unwrap().to_owned();
    (found.map(name).collect(), answer["warnings"].to_string())
}

#[tokio::test]
async fn a_damaged_block_stops_only_itself_and_answers_say_so() {
    let mut place = place("block");
    let without_own = ("EGRET_SERIES_SCRAPE_EGRET", "false".to_owned());
    place.variables.push(without_own);
    let server = place.start(&["serve"]);
    let ids = fill(&place).await;
    let old = write_block(&place, "old", 3).await;
    let [old] = old.as_slice() else {
        panic!("{old:?}");
    };
    assert!(write_block(&place, "new", 2).await.len() > 1);
    assert_eq!(hosts(&place).await.0.len(), 2);
    server.stop(Signal::TERM);
    let blocks = place.data_dir().join("series/blocks");
    flip_last_byte(&blocks.join(old));
    let server = place.start_partly(&["serve"]);
    let part = format!("series/blocks/quarantine-{old}");
    assert_eq!(failed(&place).await, [part.as_str()]);
    assert_eq!(count(&place, &ids).await, (TASKS, 0));
    let (found, warnings) = hosts(&place).await;
    assert_eq!(found, ["new"]);
    assert!(warnings.contains("partial data: 1 damaged files of blocks"), "{warnings}");
    let status = place.json(&["status"]);
    assert_eq!(status["failed"][0]["part"], part, "{status}");
    // Samples are still taken and written to blocks.
    write_block(&place, "newer", 1).await;
    assert_eq!(hosts(&place).await.0.len(), 2);
    server.stop(Signal::TERM);
    let found = place.json(&["repair", "--yes"]);
    assert_eq!(found["items"][0]["part"], part, "{found}");
    let server = place.start(&["serve"]);
    let (found, warnings) = hosts(&place).await;
    assert_eq!((found.len(), warnings.as_str()), (2, "null"));
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn series_whose_directory_is_gone_are_missed() {
    let place = place("gone-series");
    let ids = stopped_with_tasks(&place).await;
    let series = place.data_dir().join("series");
    std::fs::remove_dir_all(&series).unwrap();
    let server = place.start_partly(&["serve"]);
    assert_eq!(failed(&place).await, ["monitor", "series"]);
    assert_eq!(count(&place, &ids).await, (TASKS, 0));
    let (_, answer) = ask(&place, Method::GET, "/readyz", Value::Null).await;
    assert!(answer.to_string().contains("is missing, although there was one"), "{answer}");
    let query = "/prometheus/api/v1/query?query=1";
    let (status, _) = ask(&place, Method::GET, query, Value::Null).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    server.stop(Signal::TERM);
    assert!(!series.exists(), "it is not begun anew");
}

#[tokio::test]
async fn queue_and_series_serve_when_postgres_does_not_start() {
    let place = place("nopg");
    let ids = stopped_with_tasks(&place).await;
    std::fs::remove_file(place.data_dir().join("volume/source/global/pg_control")).unwrap();
    let server = place.start_partly(&["serve"]);
    assert_eq!(failed(&place).await, ["branches", "postgres"]);
    assert_eq!(count(&place, &ids).await, (TASKS, 0));
    let (status, problem) = ask(&place, Method::GET, "/v1/branches", Value::Null).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(problem["code"], "part_failed");
    server.stop(Signal::TERM);
}

#[tokio::test]
async fn a_lost_number_of_parts_stops_only_its_engine_and_is_found_again() {
    let place = place("count");
    let ids = stopped_with_tasks(&place).await;
    std::fs::write(place.data_dir().join("queue/partitions"), "\u{fffd}?").unwrap();
    std::fs::remove_file(place.data_dir().join("series/shards")).unwrap();
    let server = place.start_partly(&["serve"]);
    assert_eq!(failed(&place).await, ["monitor", "outbox", "queue", "series"]);
    let branches = ask(&place, Method::GET, "/v1/branches", Value::Null).await;
    assert_eq!(branches.0, StatusCode::OK);
    server.stop(Signal::TERM);
    let found = place.json(&["repair", "--yes"]);
    let parts: Vec<&str> = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["part"].as_str().unwrap())
        .collect();
    assert_eq!(parts, ["queue/partitions", "series/shards"]);
    let server = place.start(&["serve"]);
    assert_eq!(count(&place, &ids).await, (TASKS, 0));
    server.stop(Signal::TERM);
}

/// A file system that holds the data directory alone, so that it can be filled.
struct DataVolume(PathBuf);

impl DataVolume {
    /// Nothing where only root may mount.
    fn mount(place: &Place) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            egret_base_test::not_checked("a volume of its own takes root");
            return None;
        }
        let path = place.data_dir();
        std::fs::create_dir(&path).unwrap();
        let options = "size=700m,mode=0700";
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).status();
        assert!(mounted.unwrap().success());
        Some(Self(path))
    }

    /// Takes all the space that is left.
    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.0.join("filling")).unwrap();
        let block = vec![1_u8; 1 << 20];
        while file.write_all(&block).is_ok() {}
        while file.write_all(&block[..512]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.0.join("filling")).unwrap();
    }
}

impl Drop for DataVolume {
    fn drop(&mut self) {
        // A process of the server may still have a file open for a moment.
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

#[tokio::test]
async fn a_full_disk_does_not_keep_egret_from_starting() {
    let place = place("full");
    let Some(volume) = DataVolume::mount(&place) else {
        return;
    };
    let ids = stopped_with_tasks(&place).await;
    let reserve = place.data_dir().join("reserve");
    assert!(reserve.exists());
    volume.fill();
    let server = place.start(&["serve"]);
    assert!(!reserve.exists());
    assert_eq!(count(&place, &ids).await, (TASKS, 0));
    volume.make_room();
    server.stop(Signal::TERM);
    assert!(reserve.exists());
    // A repair finds room as well.
    flip_last_byte(&newest_segment(&place.data_dir().join("queue/001/log")));
    volume.fill();
    place.json(&["repair", "queue/001", "--yes"]);
    volume.make_room();
    let server = place.start(&["serve"]);
    assert_eq!(failed(&place).await, Vec::<String>::new());
    server.stop(Signal::TERM);
}
