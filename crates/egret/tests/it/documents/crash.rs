//! Egret and PostgreSQL are killed while documents are written: what was answered is there, and
//! nothing is there in part. `EGRET_CRASHES` sets how often.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use egret_base_test::eventually_blocking;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{COLLECTIONS, DocumentsClient};
use crate::place::{Place, crashes};

/// Clients at a time.
const CLIENTS: u64 = 4;

/// What a client was answered: of each flight that was made the id, and of each whether it was
/// deleted.
#[derive(Default)]
struct AckedChanges {
    made: BTreeMap<u64, String>,
    gone: BTreeMap<u64, String>,
}

impl DocumentsClient {
    /// The status and the body of an answer; none: the connection was lost.
    fn tried(&self, method: Method, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let request = self.request(method, path).bearer_auth(&self.token);
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        self.runtime.block_on(async {
            let response = request.send().await.ok()?;
            let status = response.status().as_u16();
            let body = response.text().await.ok()?;
            Some((status, serde_json::from_str(&body).unwrap_or_default()))
        })
    }
}

/// Makes flights in pairs, one that refers to what the same batch makes, and deletes some, until it
/// is over.
fn write(door: &DocumentsClient, client: u64, is_over: &AtomicBool) -> AckedChanges {
    let mut answered = AckedChanges::default();
    let mut number = client * 1_000_000;
    while !is_over.load(Ordering::SeqCst) {
        number += 1;
        let airport = format!("A{number}");
        let batch = json!({"atomic": true, "operations": [
            {"op": "upsert", "collection": "flights", "document": {"number": number, "origin": airport}},
            {"op": "upsert", "collection": "airports", "document": {"faa": airport}}]});
        let Some((200, made)) = door.tried(Method::POST, "batch", Some(&batch)) else {
            continue;
        };
        let id = made["items"][0]["id"].as_str().unwrap().to_owned();
        if number.is_multiple_of(3) {
            let path = format!("documents/flights/{id}");
            // Without an answer it may have been done or not.
            if let Some((204, _)) = door.tried(Method::DELETE, &path, None) {
                answered.gone.insert(number, id);
            }
            continue;
        }
        answered.made.insert(number, id);
    }
    answered
}

/// That everything is as it was answered, and agrees.
fn check(door: &DocumentsClient, all: &[AckedChanges]) {
    for answered in all {
        for (number, id) in &answered.made {
            let found = door.get(&format!("documents/flights/{id}"));
            assert_eq!(found.status, 200, "flight {number} is lost");
            assert_eq!(found.json()["number"], json!(number));
        }
        for (number, id) in &answered.gone {
            let found = door.get(&format!("documents/flights/{id}"));
            assert_eq!(found.status, 404, "flight {number} is there again");
        }
    }
    let checked = door.post("document-checks", &Value::Null);
    assert_eq!(checked.status, 200, "{}", checked.body);
    assert_eq!(checked.json()["findings"], json!([]));
    // Of each batch both are there or none: a flight without its airport would be a finding, and
    // here are the airports.
    let lone = door.get("collections/airports/export").body;
    let lone = lone.lines().filter(|line| !line.is_empty()).count();
    let flights = door.get("collections/flights/export").body;
    let flights = flights.lines().filter(|line| !line.is_empty()).count();
    let gone: usize = all.iter().map(|answered| answered.gone.len()).sum();
    assert!(lone >= flights && lone - flights >= gone, "{lone} {flights} {gone}");
}

/// Runs writers while `harm` is done again and again.
fn while_written(place: &Place, rounds: u64, mut harm: impl FnMut()) -> Vec<AckedChanges> {
    let collections: Value = serde_json::from_str(COLLECTIONS).unwrap();
    let door = DocumentsClient::of(place);
    assert_eq!(door.post("collections", &collections).status, 200);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let writers: Vec<_> = (1..=CLIENTS)
            .map(|client| scope.spawn(move || write(&DocumentsClient::of(place), client, is_over)))
            .collect();
        for _ in 0..rounds {
            // Some have been written by then, and more are under way.
            let before = position(&door);
            eventually_blocking("200 changes are written", || {
                let now = position(&door);
                if now < before + 200 { Err(now) } else { Ok(()) }
            });
            harm();
        }
        is_over.store(true, Ordering::SeqCst);
        let all = writers.into_iter().map(|writer| writer.join().unwrap());
        all.collect()
    })
}

/// How much has been written, as far as it is told.
fn position(door: &DocumentsClient) -> i64 {
    let told = door.tried(Method::GET, "document-changes", None);
    told.and_then(|(_, told)| told["position"].as_i64()).unwrap_or(0)
}

#[test]
fn what_was_answered_is_there_after_egret_was_killed() {
    let external = crate::server::PostgresServer::start();
    let mut place = Place::new("documents-kill");
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let mut server = Some(place.start(&["serve"]));
    let all = while_written(&place, crashes(4), || {
        server.take().unwrap().kill();
        server = Some(place.start(&["serve"]));
    });
    check(&DocumentsClient::of(&place), &all);
    server.unwrap().stop(Signal::INT);
}

#[test]
fn what_was_answered_is_there_after_postgresql_was_killed() {
    let place = Place::new("documents-kill-server");
    let server = place.start(&["serve"]);
    let url = place.source("postgres");
    let all = while_written(&place, crashes(3), || {
        place.kill_source();
        eventually_blocking("PostgreSQL answers", || place.psql(&url, "SELECT 1"));
    });
    check(&DocumentsClient::of(&place), &all);
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}
