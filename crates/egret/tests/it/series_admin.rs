//! Deleting series and making snapshots: what is deleted stays so, and a snapshot is all there was.

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, text};
use crate::series::{series, start};
use crate::series_senders::{Sender, now_ms};

const DELETE: &str = "/prometheus/api/v1/admin/tsdb/delete_series";
const CLEAN: &str = "/prometheus/api/v1/admin/tsdb/clean_tombstones";
const SNAPSHOT: &str = "/prometheus/api/v1/admin/tsdb/snapshot";

/// Imports samples of two hosts, at these minutes before now.
fn import(place: &Place, now_ms: i64, minutes: impl Iterator<Item = i64>) {
    let mut file = String::new();
    for minute in minutes {
        let at = now_ms - minute * 60_000;
        for host in ["a", "b"] {
            file.push_str(&format!("load{{host=\"{host}\"}} {minute} {at}\n"));
        }
    }
    std::fs::write(place.directory.join("load.prom"), file).unwrap();
    series(place, &["import", "load.prom"]);
}

/// How many samples of each host there are.
fn counts(place: &Place, now_ms: i64) -> [Option<String>; 2] {
    let at = (now_ms / 1_000 + 1).to_string();
    ["a", "b"].map(|host| {
        let query = format!("count_over_time(load{{host=\"{host}\"}}[2d])");
        let answer = series(place, &["query", &query, "--at", &at]);
        let value = &answer["data"]["result"][0]["value"][1];
        value.as_str().map(str::to_owned)
    })
}

fn of(one: u32, other: u32) -> [Option<String>; 2] {
    [Some(one.to_string()), Some(other.to_string())]
}

fn said(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(&[&["series"], arguments].concat());
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {out}{err}");
    out.trim_end().to_owned()
}

#[test]
fn what_is_deleted_stays_deleted_and_a_snapshot_has_the_rest() {
    let place = Place::new("series-delete");
    let (server, token) = start(&place);
    let now = now_ms() / 1_000 * 1_000;
    // Some come late, and some lie a day back.
    import(&place, now, (1_440..1_460).rev());
    import(&place, now, (10..60).rev().filter(|minute| minute % 5 > 0));
    import(&place, now, (10..60).rev().filter(|minute| minute % 5 == 0));
    assert_eq!(counts(&place, now), of(70, 70));
    let time = |minute: i64| ((now - minute * 60_000) / 1_000).to_string();
    let (from, to) = (time(1_450), time(30));
    let delete = ["delete", "load{host=\"a\"}", "--start", &from, "--end", &to];
    let foretold = "nothing is deleted: --yes would delete samples of 1 series";
    assert_eq!(said(&place, &delete), foretold);
    assert_eq!(counts(&place, now), of(70, 70));
    let done = said(&place, &[&delete[..], &["--yes"]].concat());
    assert_eq!(done, "samples of 1 series are deleted");
    // Of the day before nine are left, of the last hour twenty.
    assert_eq!(counts(&place, now), of(29, 70));
    // What comes afterwards is kept, also where something was deleted.
    import(&place, now, [40, 50].into_iter());
    assert_eq!(counts(&place, now), of(31, 70));
    server.stop(Signal::TERM);
    let (server, _) = start(&place);
    assert_eq!(counts(&place, now), of(31, 70), "after a restart");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let sender = Sender::new(&place, token);
    let made = runtime.block_on(over_http(&sender, &place));
    let shown = series(&place, &["snapshot"]);
    let name = shown["name"].as_str().unwrap();
    assert_ne!(name, made);
    assert_eq!(shown["directory"], format!("series/snapshots/{name}"));
    import(&place, now, std::iter::once(5));
    // Another Egret begins with it.
    let other = Place::new("series-restore");
    let snapshots = place.data_dir().join("series/snapshots");
    std::fs::create_dir_all(other.data_dir()).unwrap();
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .args([snapshots.join(name), other.data_dir().join("series")])
        .status();
    assert!(copied.unwrap().success());
    server.kill();
    let (restored, _) = start(&other);
    assert_eq!(counts(&other, now), of(31, 70), "what there was, and no more");
    import(&other, now, std::iter::once(5));
    assert_eq!(counts(&other, now), of(32, 71), "it takes samples");
    restored.stop(Signal::TERM);
    let (server, _) = start(&place);
    assert_eq!(counts(&place, now), of(32, 71), "it is no worse for it");
    server.stop(Signal::TERM);
}

/// Status and answer of a request.
async fn call(sender: &Sender, method: Method, path: String, token: &str) -> (u16, Value) {
    let request = sender.client.request(method, format!("{}{path}", sender.base));
    let response = request.bearer_auth(token).send().await.unwrap();
    let status = response.status().as_u16();
    let body = response.bytes().await.unwrap();
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    (status, body)
}

fn is_bad_data(status: u16, told: &Value) {
    assert_eq!((status, &told["errorType"]), (400, &json!("bad_data")), "{told}");
}

/// Prometheus's own forms. Returns the name of a snapshot.
async fn over_http(sender: &Sender, place: &Place) -> String {
    let admin = async |method, path: String| call(sender, method, path, &sender.token).await;
    let without = json!({"status": "error", "errorType": "bad_data", "error": "no match[] parameter provided"});
    assert_eq!(admin(Method::POST, DELETE.into()).await, (400, without));
    let (status, told) = admin(Method::PUT, format!("{DELETE}?match[]=up{{")).await;
    is_bad_data(status, &told);
    let reversed = format!("{DELETE}?match[]=up&start=5&end=4");
    let (status, told) = admin(Method::POST, reversed).await;
    is_bad_data(status, &told);
    let nothing = format!("{DELETE}?match[]=nothing&match[]=nobody&start=5");
    assert_eq!(admin(Method::PUT, nothing).await, (204, Value::Null));
    assert_eq!(admin(Method::POST, CLEAN.into()).await, (204, Value::Null));
    assert_eq!(admin(Method::GET, CLEAN.into()).await.0, 405);
    let (status, told) = admin(Method::POST, format!("{SNAPSHOT}?skip_head=perhaps")).await;
    is_bad_data(status, &told);
    let (status, made) = admin(Method::POST, format!("{SNAPSHOT}?skip_head=true")).await;
    assert_eq!((status, &made["status"]), (200, &json!("success")), "{made}");
    let writer = place.json(&["token", "create", "writer", "--scope", "series:write"]);
    let writer = writer["secret"].as_str().or(writer["token"].as_str());
    let (status, told) = call(sender, Method::POST, CLEAN.into(), writer.unwrap()).await;
    assert_eq!((status, &told["errorType"]), (403, &json!("forbidden")), "{told}");
    statistics(sender).await;
    let name = made["data"]["name"].as_str().unwrap();
    let snapshot = place.data_dir().join("series/snapshots").join(name);
    assert!(snapshot.join("blocks").is_dir(), "{}", snapshot.display());
    name.to_owned()
}

async fn statistics(sender: &Sender) {
    let asked = async |limit: &str| {
        let path = format!("/prometheus/api/v1/status/tsdb?limit={limit}");
        call(sender, Method::GET, path, &sender.token).await
    };
    let (status, told) = asked("1").await;
    assert_eq!(status, 200, "{told}");
    let head = &told["data"]["headStats"];
    for number in ["numSeries", "numLabelPairs", "chunkCount", "minTime", "maxTime"] {
        assert!(head[number].is_i64(), "{number}: {told}");
    }
    for list in [
        "seriesCountByMetricName",
        "labelValueCountByLabelName",
        "memoryInBytesByLabelName",
        "seriesCountByLabelValuePair",
    ] {
        let listed = told["data"][list].as_array().unwrap();
        assert!(listed.len() <= 1, "{list}: {told}");
    }
    for limit in ["0", "-1", "x", "10001"] {
        let (status, told) = asked(limit).await;
        is_bad_data(status, &told);
    }
}
