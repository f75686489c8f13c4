//! The queue between tenants: quotas, floods, chains.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use egret_base_test::eventually_blocking;
use serde_json::{Value, json};

use crate::place::Place;

/// A request over a connection of its own; `None` when the server went away meanwhile.
fn call(place: &Place, token: &str, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(("127.0.0.1", place.ports[0])).ok()?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: egret\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    Some((status, serde_json::from_str(body).unwrap_or_default()))
}

fn admin(place: &Place) -> String {
    let token = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
    token.trim().to_owned()
}

fn token_of(place: &Place, tenant: &str) -> String {
    let arguments = ["token", "create", tenant, "--tenant", tenant, "--scope", "queue:*"];
    let made = place.json(&arguments);
    made["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_tenant_cannot_take_every_queue() {
    let mut place = Place::new("attack-queues");
    let limit = ("EGRET_QUEUE_QUEUES_MAX", "20".to_owned());
    place.variables.push(limit);
    let server = place.start(&["serve"]);
    let (greedy, other) = (token_of(&place, "greedy"), token_of(&place, "other"));
    let mut made = 0;
    let refusal = loop {
        let path = format!("/v1/queues/q{made}");
        let (status, answer) = call(&place, &greedy, "PUT", &path, "{}").unwrap();
        if status >= 300 {
            break answer;
        }
        made += 1;
    };
    assert!(made < 20, "{made}");
    assert!(refusal.to_string().contains("queue.tenant_queues_max"), "{refusal}");
    let (status, answer) = call(&place, &other, "PUT", "/v1/queues/mine", "{}").unwrap();
    assert!(status < 300, "{answer}");
    server.stop(rustix::process::Signal::TERM);
}

/// Tasks of a chain.
const LENGTH: usize = 6;

/// Chains whose tasks carry the chain's tag; of every other one the tasks have unique keys, which
/// lie in several partitions.
fn make_chains(place: &Place, token: &str, caller: usize, stop: &AtomicBool, acked: &AtomicUsize) {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let tag = format!("{caller}.{number}");
        let task = |at: usize| {
            let after: Vec<String> =
                at.checked_sub(1).map(|at| format!("#{at}")).into_iter().collect();
            match number % 2 {
                0 => json!({"tags": [tag], "after": after}),
                _ => json!({"tags": [tag], "after": after, "unique_key": format!("{tag}.{at}")}),
            }
        };
        let body: Value = (0..LENGTH).map(task).collect();
        let answered = call(place, token, "POST", "/v1/queues/c/tasks", &body.to_string());
        if answered.is_some_and(|(status, _)| status == 200) {
            acked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How many tasks each chain has.
fn count_chains(place: &Place, token: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/queues/c/tasks?limit=1000&cursor={cursor}");
        let (status, page) = call(place, token, "GET", &path, "").unwrap();
        assert_eq!(status, 200, "{page}");
        for task in page["items"].as_array().unwrap() {
            let tag = task["tags"][0].as_str().unwrap().to_owned();
            *counts.entry(tag).or_default() += 1;
        }
        match page["next_cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return counts,
        }
    }
}

#[test]
fn a_chain_is_whole_or_absent_after_kill_9() {
    let mut place = Place::new("attack-chains");
    let partitions = ("EGRET_QUEUE_PARTITIONS", "2".to_owned());
    place.variables.push(partitions);
    let mut server = Some(place.start(&["serve"]));
    let token = admin(&place);
    call(&place, &token, "PUT", "/v1/queues/c", "{}").unwrap();
    let (stop, acked) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (place, token) = (&place, &*token);
    std::thread::scope(|threads| {
        for caller in 0..6 {
            let (stop, acked) = (&stop, &acked);
            threads.spawn(move || make_chains(place, token, caller, stop, acked));
        }
        for round in 1..=4 {
            let enough = acked.load(Ordering::Relaxed) + 20 * round;
            eventually_blocking("more chains are acknowledged", || {
                acked.load(Ordering::Relaxed) >= enough
            });
            server.take().unwrap().kill();
            server = Some(place.start(&["serve"]));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let counts = count_chains(place, token);
    let half: Vec<_> = counts.iter().filter(|(_, count)| **count != LENGTH).collect();
    assert!(half.is_empty(), "{half:?}");
    assert!(counts.len() >= acked.load(Ordering::Relaxed));
    server.unwrap().stop(rustix::process::Signal::TERM);
}
