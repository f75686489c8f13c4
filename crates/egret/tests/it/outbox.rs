//! `egret.enqueue` with the whole program: an embedded server with a branch, and an external
//! server.

use std::io::{Read, Write};
use std::net::TcpStream;

use egret_base_test::eventually_blocking;
use rustix::process::Signal;

use crate::place::{Place, text};

fn place(purpose: &str) -> Place {
    let mut place = Place::new(purpose);
    let variables = [("EGRET_QUEUE_CREATE_ON_DEMAND", "true"), ("EGRET_QUEUE_OUTBOX_POLL", "50ms")];
    let variables = variables.map(|(name, value)| (name, value.to_owned()));
    place.variables.extend(variables);
    place
}

/// Number of rows of outboxes that were made tasks.
fn enqueued(place: &Place) -> u64 {
    let token = std::fs::read_to_string(place.data_dir().join("admin.token")).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", place.ports[0])).unwrap();
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nhost: egret\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
        token.trim()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let name = "egret_queue_outbox_rows_total{outcome=\"enqueued\"} ";
    let line = answer.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |count| count.parse().unwrap())
}

#[track_caller]
fn await_enqueued(place: &Place, rows: u64) {
    eventually_blocking("rows of outboxes become tasks", || {
        let enqueued = enqueued(place);
        if enqueued < rows { Err(enqueued) } else { Ok(()) }
    });
}

const WAITING: &str = "SELECT count(*) FROM egret.outbox";

#[track_caller]
fn await_empty_outbox(place: &Place, url: &str) {
    eventually_blocking("the outbox is empty", || {
        let waiting = place.psql(url, WAITING).unwrap();
        if waiting == "0" { Ok(()) } else { Err(waiting) }
    });
}

/// The rest of a command's answer, or of its refusal.
fn said(place: &Place, arguments: &[&str]) -> String {
    let output = place.run(arguments);
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn the_outbox_of_the_source_is_read_and_that_of_a_branch_is_not() {
    let place = place("outbox");
    let server = place.start(&["serve"]);
    let maintenance = place.source("postgres");
    place.psql(&maintenance, "CREATE DATABASE shop").unwrap();
    place.psql(&maintenance, "CREATE ROLE app").unwrap();
    let status = ["queue", "outbox", "status"];
    assert_eq!(said(&place, &status).trim(), "DATABASE  WAITING  OLDEST  REJECTED  READER");
    let none = said(&place, &["queue", "outbox", "remove"]);
    assert!(none.contains("no database has an outbox"), "{none}");
    let installed = said(&place, &["queue", "outbox", "install", "--grant", "app"]);
    assert_eq!(
        installed.trim(),
        "the outbox of shop is installed; egret.enqueue may be called by app"
    );
    let shop = place.source("shop");
    let as_app = "SET ROLE app; SELECT egret.enqueue('mail', '{\"to\": 1}')";
    place.psql(&shop, as_app).unwrap();
    await_enqueued(&place, 1);

    // The same in a branch stays there.
    place.json(&["branch", "create", "copy", "--from", "head"]);
    let copy = place.connection_string("copy", "shop");
    let enqueue = "SELECT egret.enqueue('mail', '{\"to\": 2}')";
    place.psql(&copy, enqueue).unwrap();
    place.psql(&shop, enqueue).unwrap();
    await_enqueued(&place, 2);
    await_empty_outbox(&place, &shop);
    assert_eq!(place.psql(&copy, WAITING).unwrap(), "1");
    // What Egret has there is the branch role's, so that nothing in it runs with more rights.
    let owners = "SELECT string_agg(DISTINCT proowner::regrole::text, ',') FROM pg_proc WHERE pronamespace = 'egret'::regnamespace AND prorettype <> 'event_trigger'::regtype";
    assert_eq!(place.psql(&copy, owners).unwrap(), "egret_branch");
    let listed = place.json(&status);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
    assert_eq!(listed["items"][0]["reader"], "reading");

    server.kill();
    let server = place.start(&["serve"]);
    assert_eq!(place.psql(&copy, WAITING).unwrap(), "1");
    place.psql(&shop, enqueue).unwrap();
    await_empty_outbox(&place, &shop);
    assert_eq!(enqueued(&place), 1);
    let removed = said(&place, &["queue", "outbox", "remove"]);
    assert_eq!(removed.trim(), "the outbox of shop is removed");
    // Nothing keeps a database from being dropped once its outbox is gone.
    eventually_blocking("the database is dropped", || {
        let dropped = place.psql(&maintenance, "DROP DATABASE shop");
        if let Err(error) = &dropped {
            assert!(error.contains("being accessed by other users"), "{error}");
        }
        dropped
    });
    server.stop(Signal::TERM);
    assert_eq!(place.left_behind(), Vec::<String>::new());
}

#[test]
fn the_outbox_of_an_external_server_is_read() {
    let external = crate::server::PostgresServer::start();
    let mut place = place("outbox-external");
    place.variables.push(("EGRET_POSTGRES_URL", external.url()));
    let server = place.start(&["serve"]);
    place.json(&["queue", "outbox", "install"]);
    let url = external.url();
    place.psql(&url, "SELECT egret.enqueue('mail', '{}')").unwrap();
    await_empty_outbox(&place, &url);
    assert_eq!(enqueued(&place), 1);
    let reader = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'egret/queue'";
    assert_eq!(place.psql(&url, reader).unwrap(), "1");
    server.stop(Signal::TERM);
    assert_eq!(place.psql(&url, reader).unwrap(), "0");
}
