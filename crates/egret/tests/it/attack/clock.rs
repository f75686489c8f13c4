//! Clocks that jump: nothing is lost, repeated or brought forward.
//!
//! The server runs under libfaketime, which lies about the wall clock alone and reads by how much
//! from a file, so that the clock jumps while it runs.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use egret_base::{Clock, SystemClock, Timestamp};
use egret_base_test::eventually_blocking;
use rustix::process::Signal;
use serde_json::Value;

use crate::place::{Place, Server, text};

/// Ten years, and two.
const AHEAD: &str = "+3650d";
const BEHIND: &str = "-730d";

/// An Egret whose wall clock is set by the test.
struct FakeTimeServer {
    place: Place,
    server: Option<Server>,
}

fn libfaketime() -> String {
    let libraries = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let candidates = libraries.map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    let found: Option<PathBuf> = candidates.into_iter().find(|path| path.exists());
    let found = found.expect("libfaketime is there: tests/clients/prepare installs it");
    found.to_str().unwrap().to_owned()
}

impl FakeTimeServer {
    fn start(purpose: &str) -> Self {
        let mut place = Place::new(purpose);
        let offset = place.directory.join("offset").to_str().unwrap().to_owned();
        place.variables.extend([
            ("LD_PRELOAD", libfaketime()),
            ("FAKETIME_TIMESTAMP_FILE", offset),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_ONLY_CMDS", "egret".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("EGRET_DOCUMENTS_SWEEP_INTERVAL", "100ms".to_owned()),
        ]);
        let mut faked = Self { place, server: None };
        faked.set("+0");
        faked.server = Some(faked.place.start(&["serve"]));
        faked
    }

    /// Sets the wall clock to so far from the real one. The file is replaced as a whole: it may be
    /// read now.
    fn set(&self, offset: &str) {
        let (new, path) = ("offset.new", "offset");
        let directory = &self.place.directory;
        std::fs::write(directory.join(new), format!("{offset}\n")).unwrap();
        std::fs::rename(directory.join(new), directory.join(path)).unwrap();
    }

    /// Sets the wall clock while no server runs.
    fn set_and_restart(&mut self, offset: &str, crash: bool) {
        let server = self.server.take().unwrap();
        if crash {
            server.kill();
        } else {
            server.stop(Signal::TERM);
        }
        self.set(offset);
        self.server = Some(self.place.start(&["serve"]));
    }

    fn clock_state(&self) -> Value {
        self.place.json(&["clock", "show"])["state"].clone()
    }

    /// A token with one hour to live, in a file.
    fn token(&self) -> String {
        let create = ["token", "create", "hour", "--scope", "queue:*", "--ttl", "1h"];
        let token = self.place.json(&create)["token"].as_str().unwrap().to_owned();
        let path = self.place.directory.join("hour.token");
        std::fs::write(&path, token).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn is_accepted(&self, token_file: &str) -> bool {
        let listed = self.place.run(&["--token-file", token_file, "queue", "list", "--json"]);
        let out = text(&listed.stdout) + &text(&listed.stderr);
        assert!(listed.status.success() || out.contains("token_expired"), "{out}");
        listed.status.success()
    }

    fn tasks(&self, state: &str) -> u64 {
        let status = self.place.json(&["status"]);
        status["queue"]["tasks"][state].as_u64().unwrap()
    }

    /// What the source answers in database `postgres`.
    fn sql(&self, sql: &str) -> String {
        self.place.psql(&self.place.source("postgres"), sql).unwrap()
    }

    /// Waits until documents that are too old have been looked for once more, from beginning to
    /// end.
    fn await_sweeps(&self) {
        let scans = || {
            let sql = "SELECT seq_scan + coalesce(idx_scan, 0) FROM pg_stat_all_tables \
                WHERE relid = 'egret.document_request'::regclass";
            self.sql(sql).parse::<u64>().unwrap()
        };
        let before = scans();
        eventually_blocking("a sweep is over", || scans() >= before + 2);
    }

    /// Waits until so many tasks are delayed and ready.
    fn await_tasks(&self, delayed: u64, ready: u64) {
        eventually_blocking("tasks are delayed and ready as expected", || {
            let seen = (self.tasks("delayed"), self.tasks("ready"));
            if seen == (delayed, ready) { Ok(()) } else { Err(seen) }
        });
    }

    /// Waits until the watch of the clock has seen what it is.
    fn await_held_metric(&self, held: &str) {
        let token = std::fs::read_to_string(self.place.data_dir().join("admin.token")).unwrap();
        let request = format!(
            "GET /metrics HTTP/1.1\r\nhost: egret\r\nconnection: close\r\nauthorization: Bearer {}\r\n\r\n",
            token.trim()
        );
        let wanted = format!("egret_clock_held {held}\n");
        eventually_blocking(&wanted, || {
            let mut stream = TcpStream::connect(("127.0.0.1", self.place.ports[0])).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer.contains(&wanted)
        });
    }
}

impl Drop for FakeTimeServer {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }
}

/// A queue with a task that is delayed for an hour and one that is due in an hour by the time of
/// day.
fn enqueue(faked: &FakeTimeServer) {
    let place = &faked.place;
    place.json(&["queue", "create", "mail"]);
    place.json(&["queue", "enqueue", "mail", "{}", "--delay", "1h"]);
    let accepted = place.json(&["clock", "show"])["accepted_at"].clone();
    let accepted: Timestamp = accepted.as_str().unwrap().parse().unwrap();
    let run_at = accepted.plus(Duration::from_secs(3_600)).to_string();
    place.json(&["queue", "enqueue", "mail", "{}", "--run-at", &run_at]);
}

#[test]
fn a_wall_clock_that_jumps_while_egret_runs_ends_and_starts_nothing() {
    let faked = FakeTimeServer::start("attack-clock-running");
    let token = faked.token();
    enqueue(&faked);
    faked.place.json(&["branch", "create", "short", "--ttl", "1h"]);
    for (offset, state) in [(AHEAD, "held"), (BEHIND, "held"), ("+0", "following")] {
        faked.set(offset);
        assert_eq!(faked.clock_state(), state, "{offset}");
        faked.await_held_metric(if state == "held" { "1" } else { "0" });
        let readiness = faked.place.get("/readyz");
        assert!(readiness.starts_with("HTTP/1.1 200"), "{readiness}");
        assert_eq!(
            readiness.contains("\"conditions\":[\"clock_held\"]"),
            state == "held",
            "{readiness}"
        );
        assert!(faked.is_accepted(&token), "{offset}");
        assert_eq!((faked.tasks("delayed"), faked.tasks("ready")), (2, 0), "{offset}");
        let branches = faked.place.json(&["branch", "list"]);
        assert_eq!(branches["items"].as_array().unwrap().len(), 1, "{offset}");
    }
    let log = faked.place.log();
    assert_eq!(log.matches("the wall clock has jumped").count(), 1, "{log}");
    assert_eq!(log.matches("follows the wall clock again").count(), 1, "{log}");
}

#[test]
fn a_wall_clock_that_jumps_between_two_runs_ends_and_starts_nothing() {
    let mut faked = FakeTimeServer::start("attack-clock-restarted");
    let token = faked.token();
    enqueue(&faked);
    for (offset, state, crash) in [
        (AHEAD, "held", false),
        (BEHIND, "held", true),
        (AHEAD, "held", true),
        ("+0", "following", false),
    ] {
        faked.set_and_restart(offset, crash);
        assert_eq!(faked.clock_state(), state, "{offset}");
        assert!(faked.is_accepted(&token), "{offset}");
        assert_eq!((faked.tasks("delayed"), faked.tasks("ready")), (2, 0), "{offset}");
    }
}

#[test]
fn an_operator_releases_the_clock_and_takes_that_back() {
    let mut faked = FakeTimeServer::start("attack-clock-released");
    let token = faked.token();
    enqueue(&faked);
    faked.set(AHEAD);
    assert_eq!(faked.clock_state(), "held");
    let refused = faked.place.run(&["--token-file", &token, "clock", "release"]);
    assert!(!refused.status.success());
    let released = faked.place.json(&["clock", "release"]);
    assert!(released["moved_ms"].as_i64().unwrap() > 9 * 365 * 86_400_000);
    assert_eq!(released["clock"]["state"], "following");
    // Times of day follow the clock; the delay counts what has elapsed.
    assert!(!faked.is_accepted(&token));
    faked.await_tasks(1, 1);
    // Right again, also after a crash, and the partition's time is what it was.
    faked.set_and_restart("+0", true);
    assert_eq!(faked.clock_state(), "held");
    faked.place.json(&["clock", "release"]);
    assert_eq!(faked.clock_state(), "following");
    faked.await_tasks(1, 1);
    let mail = ["queue", "enqueue", "mail", "{}", "--delay", "1ms"];
    let id = text(&faked.place.run(&mail).stdout);
    faked.await_tasks(1, 2);
    let task = faked.place.json(&["queue", "get", id.trim()]);
    let created: Timestamp = task["created_at"].as_str().unwrap().parse().unwrap();
    assert!(created < SystemClock.now().plus(Duration::from_secs(3_600)), "{task}");
}

/// Something of each engine that ends, runs or is deleted by time.
fn keep_something_of_each_engine(faked: &FakeTimeServer) {
    let place = &faked.place;
    let ran = |arguments: &[&str]| {
        let output = place.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    };
    place.json(&["queue", "create", "yearly"]);
    ran(&["queue", "cron", "put", "new-year", "yearly", "@yearly", "--missed", "all"]);
    let samples = place.directory.join("samples.prom");
    std::fs::write(&samples, "kept 1\n").unwrap();
    ran(&["series", "import", "--format", "prometheus", samples.to_str().unwrap()]);
    let collections = place.directory.join("collections.json");
    let definition = r#"{"collections": [{"collection": "notes", "identity": ["/id"], "retention_days": 1,
        "schema": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}}]}"#;
    std::fs::write(&collections, definition).unwrap();
    ran(&["collection", "apply", collections.to_str().unwrap()]);
    let note = place.directory.join("note.json");
    std::fs::write(&note, r#"{"id": 1}"#).unwrap();
    ran(&["document", "put", "notes", note.to_str().unwrap()]);
    faked.sql("CREATE TABLE public.base (id int PRIMARY KEY)");
    ran(&["view", "create", "copied", "--sql", "SELECT id FROM base", "--cron", "0 0 1 1 *"]);
    faked.sql("INSERT INTO public.base VALUES (1)");
}

/// What was kept is there, and nothing has run.
fn assert_kept(faked: &FakeTimeServer, offset: &str) {
    let place = &faked.place;
    faked.await_sweeps();
    let kept = place.json(&["series", "query", "kept"]);
    assert_eq!(kept["data"]["result"].as_array().unwrap().len(), 1, "{offset}: {kept}");
    let range = place.json(&["series", "range", "kept"]);
    assert_eq!(range["data"]["result"].as_array().unwrap().len(), 1, "{offset}: {range}");
    let notes = place.json(&["document", "query", "notes"]);
    assert_eq!(notes["items"].as_array().unwrap().len(), 1, "{offset}: {notes}");
    assert_eq!(faked.sql("SELECT count(*) FROM public.copied"), "0", "{offset}");
    assert_eq!(faked.tasks("ready"), 0, "{offset}");
}

#[test]
fn a_wall_clock_that_jumps_runs_no_schedule_and_deletes_nothing() {
    let mut faked = FakeTimeServer::start("attack-clock-engines");
    keep_something_of_each_engine(&faked);
    for offset in [AHEAD, BEHIND] {
        faked.set(offset);
        assert_eq!(faked.clock_state(), "held");
        assert_kept(&faked, offset);
    }
    for (offset, crash) in [(AHEAD, true), (BEHIND, false), ("+0", true)] {
        faked.set_and_restart(offset, crash);
        assert_kept(&faked, offset);
    }
    // Once the clock is released, what was due by then runs and what was to go goes.
    faked.set(AHEAD);
    faked.place.json(&["clock", "release"]);
    let is_over = || {
        let notes = faked.place.json(&["document", "query", "notes"]);
        notes["items"].as_array().unwrap().is_empty() && faked.tasks("ready") > 0
    };
    eventually_blocking("what was due is done", is_over);
}
