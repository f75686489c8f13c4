//! Followers of views while Egret is killed: the deltas that they receive add up, and every change
//! is one task.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use egret_base_test::eventually_blocking;
use rustix::process::Signal;
use serde_json::Value;

use crate::place::{Place, Server, text};

const TABLES: &str = "CREATE TABLE orders (id int PRIMARY KEY, shop int, amount int);
    INSERT INTO orders SELECT i, i % 50, i % 97 FROM generate_series(1, 500) AS i";

const QUERY: &str = "select shop, count(*) as n, sum(amount) as total from orders group by shop";

fn write(place: &Place, url: &str, round: usize) {
    let from = 10_000 + round * 7;
    let sql = format!(
        "BEGIN; INSERT INTO orders SELECT i, i % 61, i % 13 FROM generate_series({from}, {from} + 9) AS i ON CONFLICT DO NOTHING;
         DELETE FROM orders WHERE id = {round} * 3 OR id % 83 = {round} % 83; COMMIT"
    );
    place.psql(url, &sql).unwrap();
}

/// Rows by their shops, as change sets add up.
#[derive(Debug, Default)]
struct Mirror(BTreeMap<i64, (i64, i64)>);

impl Mirror {
    fn take_in(&mut self, changes: &Value) {
        for changed in changes["rows"].as_array().unwrap() {
            let row = &changed["row"];
            let number = |name: &str| row[name].as_i64().unwrap();
            let (shop, rest) = (number("shop"), (number("n"), number("total")));
            match changed["weight"].as_i64() {
                Some(1) => assert_eq!(self.0.insert(shop, rest), None, "{changes}"),
                Some(-1) => assert_eq!(self.0.remove(&shop), Some(rest), "{changes}"),
                _ => panic!("{changes}"),
            }
        }
    }

    /// What the command shows, from one change set to another.
    fn of_tail(tail: &mut Server, begun: i64, last: i64) -> Self {
        let mut mirror = Self::default();
        for expected in begun + 1..=last {
            let line = tail.read_until(&format!("\"sequence\":{expected}"));
            let changes: Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
            assert_eq!(changes["sequence"], expected);
            mirror.take_in(&changes);
        }
        mirror
    }

    /// What the workers of the queue are given.
    fn of_tasks(place: &Place, begun: i64, last: i64) -> Self {
        let script = "cat >> tasks; echo >> tasks";
        let work = ["queue", "work", "shops", "--until-empty", "--", "sh", "-c", script];
        let worked = place.run(&work);
        assert!(worked.status.success(), "{}", text(&worked.stderr));
        let tasks = std::fs::read_to_string(place.directory.join("tasks")).unwrap();
        let tasks: Vec<Value> =
            tasks.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let sequences = tasks.iter().map(|task| task["sequence"].as_i64().unwrap());
        let expected: Vec<i64> = (begun + 1..=last).collect();
        assert_eq!(sequences.collect::<Vec<_>>(), expected);
        let mut mirror = Self::default();
        tasks.iter().for_each(|task| mirror.take_in(task));
        mirror
    }

    fn text(&self) -> String {
        let rows = self.0.iter().map(|(shop, (n, total))| format!("{shop} {n} {total}"));
        rows.collect::<Vec<_>>().join(", ")
    }
}

const SHOWN: &str =
    "SELECT string_agg(format('%s %s %s', shop, n, total), ', ' ORDER BY shop) FROM by_shop";

#[test]
fn changes_are_told_and_made_tasks_once_each_though_egret_is_killed() {
    let external = crate::server::PostgresServer::start();
    let mut place = Place::new("views-follow");
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let url = external.url();
    let mut server = Some(place.start(&["serve"]));
    place.psql(&url, TABLES).unwrap();
    let create = [
        "view",
        "create",
        "by_shop",
        "--sql",
        QUERY,
        "--lag",
        "20ms",
        "--on-change-enqueue",
        "shops",
    ];
    place.json(&["queue", "create", "shops"]);
    let made = place.json(&create);
    let sequence = "SELECT sequence FROM egret.view";
    let begun = "SELECT min(sequence) FROM egret.view_change_set";
    let begun: i64 = place.psql(&url, begun).unwrap().parse().unwrap();
    assert_eq!(made["changes"]["queue"], "shops");
    let from = begun.to_string();
    let mut tail = place.spawn(&["view", "tail", "by_shop", "--after", &from, "--json"]);
    // Only the first connection ends the command when it fails.
    tail.await_error("following changes after");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut round = 0;
            while !is_over.load(Ordering::SeqCst) {
                write(&place, &url, round);
                round += 1;
            }
        });
        for _ in 0..4 {
            let before = place.psql(&url, sequence).unwrap();
            eventually_blocking("the view changes", || {
                place.psql(&url, sequence).unwrap() != before
            });
            server.take().unwrap().kill();
            server = Some(place.start(&["serve"]));
        }
        is_over.store(true, Ordering::SeqCst);
        writer.join().unwrap();
    });
    place.json(&["view", "refresh", "by_shop"]);
    let last: i64 = place.psql(&url, sequence).unwrap().parse().unwrap();
    let shown = place.psql(&url, SHOWN).unwrap();
    assert_eq!(Mirror::of_tail(&mut tail, begun, last).text(), shown);
    tail.interrupt();
    // What the workers of the queue are given.
    let handed = "SELECT sequence FROM egret.view_handed_over";
    eventually_blocking("all changes are handed over", || {
        let sequence = place.psql(&url, handed).unwrap();
        if sequence == last.to_string() { Ok(()) } else { Err(sequence) }
    });
    assert_eq!(Mirror::of_tasks(&place, begun, last).text(), shown);
    server.unwrap().stop(Signal::TERM);
}

#[test]
fn changes_are_shown_as_lines() {
    let external = crate::server::PostgresServer::start();
    let mut place = Place::new("views-tail");
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let url = external.url();
    let server = place.start(&["serve"]);
    place.psql(&url, "CREATE TABLE orders (id int PRIMARY KEY, shop int, amount int)").unwrap();
    let create = ["view", "create", "by_shop", "--sql", QUERY, "--manual", "--keep-changes", "1h"];
    let made = place.json(&create);
    let begun = made["changes"]["sequence"].as_i64().unwrap();
    for amount in [3, 4] {
        let sql = format!("INSERT INTO orders VALUES ({amount}, 1, {amount})");
        place.psql(&url, &sql).unwrap();
        place.json(&["view", "refresh", "by_shop"]);
    }
    let from = begun.to_string();
    let tail = ["view", "tail", "by_shop", "--after", &from, "--limit", "2"];
    let shown = place.run(&tail);
    let lines = text(&shown.stdout);
    let lines: Vec<&str> = lines.lines().collect();
    let (one, two) = (r#"{"shop":1,"n":1,"total":3}"#, r#"{"shop":1,"n":2,"total":7}"#);
    assert!(lines[0].ends_with(&(begun + 1).to_string()), "{lines:?}");
    assert!(lines[2].ends_with(&(begun + 2).to_string()), "{lines:?}");
    let rows = [lines[1], lines[3], lines[4]].map(str::to_owned);
    assert_eq!(rows, [format!("+ {one}"), format!("- {one}"), format!("+ {two}")]);
    let refused = |arguments: &[&str], code: &str| {
        let output = place.run(arguments);
        let all = text(&output.stdout) + &text(&output.stderr);
        assert!(!output.status.success() && all.contains(code), "{arguments:?}: {all}");
    };
    refused(&["view", "tail", "nothing"], "does not exist");
    refused(&["view", "tail", "by_shop", "--after", "9999999999999"], "are not kept");
    refused(&["view", "alter", "by_shop", "--on-change-enqueue", "no name"], "queue");
    refused(&["view", "alter", "by_shop", "--keep-changes", "long"], "--keep-changes");
    let off = place.json(&["view", "alter", "by_shop", "--keep-changes", "off"]);
    assert_eq!(off["changes"], Value::Null);
    server.stop(Signal::TERM);
}
