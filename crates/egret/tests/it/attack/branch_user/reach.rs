//! What a superuser of a branch reaches: no file, program, server, process or disk outside of it.

use std::fs;

use rustix::process::Signal;

use super::{ask, assert_refused, hostile};
use crate::place::{Place, Server};

/// Without root a branch has no root file system of its own: what is outside is there and closed.
const OUTSIDE: [(&str, &str); 2] =
    [("58P01", "No such file or directory"), ("42501", "Permission denied")];

fn assert_outside(url: &str, sql: &str) {
    let is_root = rustix::process::geteuid().is_root();
    let (sqlstate, words) = OUTSIDE[usize::from(!is_root)];
    assert_refused(url, sql, sqlstate, words);
}

fn with_hostile(purpose: &str) -> (Place, Server, String) {
    let place = Place::new(purpose);
    let server = place.start(&["serve"]);
    let url = hostile(&place, "admin");
    (place, server, url)
}

#[test]
fn a_superuser_of_a_branch_reads_no_file_and_runs_no_program() {
    let (place, server, url) = with_hostile("branch-files");
    ask(&url, "CREATE TABLE lines (line text)").unwrap();
    let data = place.data_dir();
    let neighbour = place.json(&["branch", "create", "neighbour"]);
    let id = neighbour["branch"]["id"].as_str().or(neighbour["id"].as_str());
    let neighbour = id.expect("an id").replace('-', "");
    for file in [
        data.join("volume/source/PG_VERSION"),
        data.join("volume/source/global/pg_control"),
        data.join("volume/branches").join(&neighbour).join("PG_VERSION"),
        data.join("state.db"),
        data.join("admin.token"),
        data.join("superuser.password"),
        data.join("branch.key"),
        "/etc/shadow".into(),
        "/etc/hostname".into(),
        "/proc/self/environ".into(),
        "/proc/1/status".into(),
    ] {
        let file = file.display();
        assert_outside(&url, &format!("SELECT pg_read_binary_file('{file}')"));
        assert_outside(&url, &format!("SELECT lo_import('{file}')"));
        assert_outside(&url, &format!("COPY lines FROM '{file}'"));
    }
    for directory in ["/", "/etc", "..", "../.."] {
        let list = format!("SELECT pg_ls_dir('{directory}')");
        assert_refused(&url, &list, "42501", "Permission denied");
    }
    for copy in ["COPY lines TO PROGRAM 'id'", "COPY lines FROM PROGRAM '/bin/sh -c id'"] {
        assert_refused(&url, copy, "53200", "could not execute command");
    }
    for location in ["/tmp".to_owned(), data.join("volume").display().to_string()] {
        let create = format!("CREATE TABLESPACE t LOCATION '{location}'");
        assert_refused(&url, &create, "42501", "could not set permissions on directory");
    }
    server.stop(Signal::TERM);
}

#[test]
fn a_superuser_of_a_branch_loads_and_fills_nothing() {
    let (place, server, url) = with_hostile("branch-load");
    let find = "SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR'";
    let libraries = ask(&url, find).unwrap();
    let import =
        format!("SELECT lo_from_bytea(4242, pg_read_binary_file('{libraries}/plpgsql.so'))");
    ask(&url, &import).unwrap();
    let setting = |name: &str| ask(&url, &format!("SHOW {name}")).unwrap();
    let (own, sockets) = (setting("data_directory"), setting("unix_socket_directories"));
    for directory in [&own, &sockets] {
        ask(&url, &format!("SELECT lo_export(4242, '{directory}/x.so')")).unwrap();
        // The SQLSTATE is that of whichever system call failed last.
        let error = ask(&url, &format!("LOAD '{directory}/x.so'")).unwrap_err();
        assert!(error.contains("failed to map segment"), "{error}");
    }
    for directory in ["/tmp", "/dev/shm", "", &libraries] {
        let export = format!("SELECT lo_export(4242, '{directory}/x.so')");
        let error = ask(&url, &export).unwrap_err();
        let is_expected =
            ["Read-only file system", "No such file or directory", "Permission denied"]
                .iter()
                .any(|words| error.contains(words));
        assert!(is_expected, "{export}: {error}");
    }
    let fill = format!(
        "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 1000000)) TO '{sockets}/fill'"
    );
    assert_refused(&url, &fill, "53100", "No space left on device");
    // Neither the volume nor what others need there has noticed.
    place.json(&["branch", "create", "neighbour"]);
    server.stop(Signal::TERM);
}

#[test]
fn a_superuser_of_a_branch_connects_to_nothing_and_ends_no_process_of_others() {
    let (place, server, url) = with_hostile("branch-network");
    ask(&url, "CREATE EXTENSION dblink").unwrap();
    let password = fs::read_to_string(place.data_dir().join("superuser.password")).unwrap();
    let run = place.data_dir().join("run");
    let source = run.join("source").display().to_string();
    let hosts = [
        ("127.0.0.1", place.ports[0]),
        ("127.0.0.1", place.ports[1]),
        ("127.0.0.1", place.ports[2]),
        ("::1", place.ports[2]),
        (source.as_str(), place.ports[2]),
    ];
    for (host, port) in hosts {
        let dsn = format!(
            "host={host} port={port} user=egret password={} dbname=postgres",
            password.trim()
        );
        let connect = format!("SELECT dblink_connect('{dsn}')");
        assert_refused(&url, &connect, "08001", "could not establish connection");
        let subscribe = format!("CREATE SUBSCRIPTION s CONNECTION '{dsn}' PUBLICATION p");
        assert_refused(&url, &subscribe, "08006", "could not connect to the publisher");
    }
    let sessions = place
        .psql(&place.source("postgres"), "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity")
        .unwrap();
    let others = sessions.split(' ').map(str::to_owned);
    for pid in others.chain([server.pid().to_string(), "1".to_owned()]) {
        for function in ["pg_terminate_backend", "pg_cancel_backend"] {
            let signalled = ask(&url, &format!("SELECT {function}({pid})"));
            assert_eq!(signalled.unwrap(), "f", "{pid}");
        }
    }
    // Its own sessions it may end, Egret's among them.
    let all =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
    ask(&url, all).unwrap();
    place.json(&["branch", "query", "admin", "SELECT 1", "--database", "postgres"]);
    place.psql(&place.source("postgres"), "SELECT 1").unwrap();
    server.stop(Signal::TERM);
}
