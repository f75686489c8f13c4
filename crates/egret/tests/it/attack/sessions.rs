//! Sessions of the server underneath: requests leave enough of them to the application.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::channel;

use egret_base_test::eventually_blocking;
use rustix::process::Signal;

use crate::place::{Place, text};
use crate::server::PostgresServer;

/// Requests at a time.
const REQUESTS: usize = 100;

/// Three quarters of the sessions of the test.
const SHARE: usize = 3;

fn get(port: u16, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: egret\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A place for an Egret beside a server, in which requests have few sessions.
fn place_beside(url: &str) -> Place {
    let mut place = Place::new("attack-sessions");
    for (name, value) in [
        ("EGRET_POSTGRES_URL", url),
        ("EGRET_POSTGRES_POOL_CONNECTIONS_MAX", "5"),
        ("EGRET_VIEWS_LOCK_TIMEOUT", "10min"),
        ("EGRET_SERVER_CONCURRENCY_PER_TOKEN_MAX", "1000"),
        ("EGRET_SERVER_CONCURRENCY_PER_TENANT_MAX", "1000"),
        ("EGRET_SERVER_CONCURRENCY_MAX", "2000"),
    ] {
        place.variables.push((name, value.to_owned()));
    }
    place
}

/// Locks what reads of views ask, until `COMMIT` is written to the session.
fn lock_views(place: &Place, url: &str) -> (Child, ChildStdin) {
    let mut locker = Command::new("psql")
        .args(["-X", "-q", "-A", "-t", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = locker.stdin.take().unwrap();
    let lock = "BEGIN; LOCK TABLE egret.view IN ACCESS EXCLUSIVE MODE;\n";
    stdin.write_all(lock.as_bytes()).unwrap();
    let held = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
        AND relation = 'egret.view'::regclass";
    eventually_blocking("the lock is held", || place.psql(url, held).unwrap() == "1");
    (locker, stdin)
}

#[test]
fn reads_with_a_narrow_token_leave_sessions_to_the_application() {
    let external = PostgresServer::start();
    let url = external.url();
    let place = place_beside(&url);
    let server = place.start(&["serve"]);
    let table = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)";
    place.psql(&url, table).unwrap();
    let query = ["--sql", "select id from t", "--manual"];
    place.json(&[&["view", "create", "seen"][..], &query].concat());
    let token = place.json(&["token", "create", "narrow", "--scope", "views/seen:read"]);
    let token = token["token"].as_str().unwrap().to_owned();
    assert!(get(place.ports[0], "/v1/views/seen", &token).starts_with("HTTP/1.1 200"));

    let (locker, mut stdin) = lock_views(&place, &url);
    let (answers, answered) = channel();
    for _ in 0..REQUESTS {
        let (answers, token, port) = (answers.clone(), token.clone(), place.ports[0]);
        std::thread::spawn(move || answers.send(get(port, "/v1/views/seen", &token)));
    }
    let used = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'egret/views'";
    for _ in SHARE..REQUESTS {
        // The application comes in at any time.
        let used: usize = place.psql(&url, used).unwrap().parse().unwrap();
        assert!(used < 15, "{used} sessions");
        let refused = answered.recv().unwrap();
        assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
        assert!(refused.contains("limit postgres.pool_connections_max is 5"), "{refused}");
        assert!(refused.to_lowercase().contains("retry-after:"), "{refused}");
    }
    stdin.write_all(b"COMMIT;\n").unwrap();
    drop(stdin);
    let output = locker.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stdout));
    for _ in 0..SHARE {
        let served = answered.recv().unwrap();
        assert!(served.starts_with("HTTP/1.1 200"), "{served}");
    }
    let served = get(place.ports[0], "/v1/views/seen", &token);
    assert!(served.contains("public.seen"), "{served}");
    server.stop(Signal::TERM);
}
