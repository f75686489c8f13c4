//! Egret and PostgreSQL are killed while documents are written: what was answered is there, and nothing is there in part.
//! `EGRET_CRASHES` sets how often.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{COLLECTIONS, Door};
use crate::place::{Place, crashes};

/// Clients at a time.
const CLIENTS: u64 = 4;

/// What a client was answered: of each flight that was made the id, and of each whether it was deleted.
#[derive(Default)]
struct Answered {
    made: BTreeMap<u64, String>,
    gone: BTreeMap<u64, String>,
}

impl Door {
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

/// Makes flights in pairs, one that refers to what the same batch makes, and deletes some, until it is over.
fn write(door: &Door, client: u64, is_over: &AtomicBool) -> Answered {
    let mut answered = Answered::default();
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
fn check(door: &Door, all: &[Answered]) {
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
    // Of each batch both are there or none: a flight without its airport would be a finding, and here are the airports.
    let lone = door.get("collections/airports/export").body;
    let lone = lone.lines().filter(|line| !line.is_empty()).count();
    let flights = door.get("collections/flights/export").body;
    let flights = flights.lines().filter(|line| !line.is_empty()).count();
    let gone: usize = all.iter().map(|answered| answered.gone.len()).sum();
    assert!(
        lone >= flights && lone - flights >= gone,
        "{lone} {flights} {gone}"
    );
}

/// Writers beside somebody who does `harm` again and again.
fn while_written(place: &Place, rounds: u64, mut harm: impl FnMut()) -> Vec<Answered> {
    let collections: Value = serde_json::from_str(COLLECTIONS).unwrap();
    let door = Door::of(place);
    assert_eq!(door.post("collections", &collections).status, 200);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let is_over = &is_over;
        let writers: Vec<_> = (1..=CLIENTS)
            .map(|client| scope.spawn(move || write(&Door::of(place), client, is_over)))
            .collect();
        for _ in 0..rounds {
            // Some have been written by then, and more are under way.
            let before = position(&door);
            while position(&door) < before + 200 {}
            harm();
        }
        is_over.store(true, Ordering::SeqCst);
        let all = writers.into_iter().map(|writer| writer.join().unwrap());
        all.collect()
    })
}

/// How much has been written, as far as it is told.
fn position(door: &Door) -> i64 {
    let told = door.tried(Method::GET, "document-changes", None);
    told.and_then(|(_, told)| told["position"].as_i64())
        .unwrap_or(0)
}

#[test]
fn what_was_answered_is_there_after_egret_was_killed() {
    let external = crate::server::Server::start();
    let mut place = Place::new("documents-kill");
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let mut server = Some(place.start(&["serve"]));
    let all = while_written(&place, crashes(4), || {
        server.take().unwrap().kill();
        server = Some(place.start(&["serve"]));
    });
    check(&Door::of(&place), &all);
    server.unwrap().stop(Signal::INT);
}

#[test]
fn what_was_answered_is_there_after_postgresql_was_killed() {
    let place = Place::new("documents-kill-server");
    let server = place.start(&["serve"]);
    let password = std::fs::read_to_string(place.data_dir().join("superuser.password")).unwrap();
    let (password, port) = (password.trim(), place.ports[2]);
    let url = format!("postgres://egret:{password}@127.0.0.1:{port}/postgres");
    let all = while_written(&place, crashes(3), || {
        let pid = place.psql(
            &url,
            "SELECT (regexp_split_to_array(pg_read_file('postmaster.pid'), E'\\n'))[1]",
        );
        let pid = pid.unwrap().parse().ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        while place.psql(&url, "SELECT 1").is_err() {}
    });
    check(&Door::of(&place), &all);
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}
