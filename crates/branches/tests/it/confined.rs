//! A superuser of a branch reaches nothing outside of it.

use std::path::PathBuf;

use egret_branches::model::Branch;
use egret_postgres::provision::DEFAULT_MAJOR;
use egret_postgres::superuser::socket_connection;
use egret_postgres::tokio_postgres::Client;

use crate::home::{Egret, Home};

/// A session of the branch's bootstrap superuser, which a hostile user may have become.
async fn superuser(home: &Home, branch: &Branch) -> Client {
    let socket_dir = home.directory.join("run/branches").join(branch.id.hex());
    let mut connection = socket_connection(&socket_dir, 5432, DEFAULT_MAJOR, "app", "test");
    connection.options("");
    egret_postgres::pool::connect_with_defaults(&connection).await.unwrap()
}

/// Something outside of a branch that is reached for, and how it is refused.
struct Attempt {
    sql: String,
    sqlstate: &'static str,
    words: &'static str,
}

/// Without root a branch has no root file system of its own: what is outside is there and closed.
fn outside(sql: String) -> Attempt {
    let (sqlstate, words) = if rustix::process::geteuid().is_root() {
        ("58P01", "No such file or directory")
    } else {
        ("42501", "Permission denied")
    };
    Attempt { sql, sqlstate, words }
}

fn refused(sql: impl Into<String>, sqlstate: &'static str, words: &'static str) -> Attempt {
    Attempt { sql: sql.into(), sqlstate, words }
}

/// Statements that reach for what is not the branch's.
fn attempts(home: &Home, egret: &Egret, neighbour: &Branch) -> Vec<Attempt> {
    let data = &home.directory;
    let layout = egret.source.layout();
    let files: Vec<PathBuf> = vec![
        layout.data.join("PG_VERSION"),
        layout.data.join("global/pg_control"),
        layout.password_file.clone(),
        data.join("state.db"),
        data.join("branch.key"),
        data.join("volume/branches").join(neighbour.id.hex()).join("PG_VERSION"),
        "/etc/hostname".into(),
        "/etc/group".into(),
        "/proc/self/environ".into(),
        "/proc/1/status".into(),
        format!("/proc/{}/environ", std::process::id()).into(),
        format!("/proc/{}/status", neighbour.postmaster.unwrap().0).into(),
        "/dev/shm".into(),
    ];
    let mut attempts = Vec::new();
    for file in files {
        let file = file.display();
        attempts.push(outside(format!("SELECT pg_read_binary_file('{file}')")));
        attempts.push(outside(format!("SELECT lo_import('{file}')")));
        attempts.push(outside(format!("COPY lines FROM '{file}'")));
    }
    // Those that lead to what is its own are there.
    for directory in ["/", "/etc", "/tmp"] {
        let sql = format!("SELECT pg_ls_dir('{directory}')");
        attempts.push(refused(sql, "42501", "Permission denied"));
    }
    for directory in ["/proc", "/root", "/dev/shm"] {
        attempts.push(outside(format!("SELECT pg_ls_dir('{directory}')")));
    }
    for program in ["id", "/bin/sh -c true", "psql -c \"select 1\"", "cat /etc/passwd"] {
        for copy in ["FROM", "TO"] {
            let sql = format!("COPY lines {copy} PROGRAM '{program}'");
            attempts.push(refused(sql, "53200", "could not execute command"));
        }
    }
    let closed = if rustix::process::geteuid().is_root() {
        "Read-only file system"
    } else {
        "Permission denied"
    };
    for write in [
        "COPY lines TO '{}/egret-branch-was-here'",
        "SELECT lo_export(1, '{}/egret-branch-was-here')",
    ] {
        attempts.push(refused(write.replace("{}", "/tmp"), "42501", closed));
        attempts.push(outside(write.replace("{}", "/dev/shm")));
    }
    let library = data.join("state.db");
    attempts.push(outside(format!("LOAD '{}'", library.display())));
    attempts.extend(connections(home, egret, neighbour));
    attempts
}

/// Statements that connect to the source and to another branch.
fn connections(home: &Home, egret: &Egret, neighbour: &Branch) -> Vec<Attempt> {
    let layout = egret.source.layout();
    let password = std::fs::read_to_string(&layout.password_file).unwrap();
    let password = password.trim();
    let port = egret.source.port();
    let data = &home.directory;
    let mut attempts = Vec::new();
    let neighbours_socket = data.join("run/branches").join(neighbour.id.hex());
    for host in [&layout.socket_dir, &neighbours_socket, &PathBuf::from("127.0.0.1")] {
        let (host, port) = (host.display(), if host == &neighbours_socket { 5432 } else { port });
        let dsn = format!("host={host} port={port} user=egret password={password} dbname=postgres");
        let sql = format!("SELECT dblink_connect('{dsn}')");
        attempts.push(refused(sql, "08001", "could not establish connection"));
        let sql = format!("CREATE SUBSCRIPTION s CONNECTION '{dsn}' PUBLICATION p");
        attempts.push(refused(sql, "08006", "could not connect to the publisher"));
    }
    attempts
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superuser_of_a_branch_reaches_nothing_outside_of_it() {
    let home = Home::new("confined");
    let egret = home.start().await;
    egret.make_app().await;
    let (one, other) = (egret.branch("one").await, egret.branch("other").await);
    let hostile = superuser(&home, &one).await;
    for sql in ["CREATE TABLE lines (line text)", "CREATE EXTENSION dblink", "SELECT lo_create(1)"]
    {
        hostile.batch_execute(sql).await.unwrap();
    }
    for attempt in attempts(&home, &egret, &other) {
        let error = hostile.batch_execute(&attempt.sql).await.expect_err(&attempt.sql);
        let error = error.as_db_error().expect(&attempt.sql);
        let is_expected =
            error.code().code() == attempt.sqlstate && error.message().contains(attempt.words);
        assert!(is_expected, "{}: {error}", attempt.sql);
    }
    // What is done inside goes on to work, workers and large sorts included.
    for sql in [
        "CREATE TABLE large AS SELECT i, md5(i::text) FROM generate_series(1, 100000) i",
        "SET debug_parallel_query = on; SET work_mem = '64kB'; SELECT count(*) FROM (SELECT * FROM large ORDER BY md5) s",
        "COPY large TO '/dev/null'",
        "CHECKPOINT",
    ] {
        hostile.batch_execute(sql).await.unwrap();
    }
    // Neither source nor neighbour has noticed.
    egret.ask("other", "SELECT count(*) FROM item").await.unwrap();
    egret.source("app").await;
    egret.assert_consistent().await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_superuser_of_a_branch_writes_nothing_to_the_disk_of_egret() {
    let home = Home::new("scratch");
    let egret = home.start().await;
    egret.make_app().await;
    let one = egret.branch("one").await;
    let hostile = superuser(&home, &one).await;
    let sql =
        "SELECT current_setting('unix_socket_directories'), current_setting('data_directory'),
        (SELECT setting FROM pg_config WHERE name = 'PKGLIBDIR') || '/plpgsql.so'";
    let row = hostile.query_one(sql, &[]).await.unwrap();
    let (sockets, data, library): (String, String, String) = (row.get(0), row.get(1), row.get(2));
    let fill = format!(
        "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 100000)) TO '{sockets}/fill'"
    );
    let full = hostile.batch_execute(&fill).await.unwrap_err();
    let full = full.as_db_error().unwrap().message().to_owned();
    assert!(full.contains("No space left"), "{full}");
    assert!(!std::path::Path::new(&sockets).join("fill").exists());
    // A library that loads from where PostgreSQL has it does not from where the branch may write.
    hostile
        .batch_execute(&format!("LOAD '{library}'; COPY (SELECT) TO '{sockets}/fill'"))
        .await
        .unwrap();
    let import = format!("SELECT lo_from_bytea(4242, pg_read_binary_file('{library}'))");
    hostile.batch_execute(&import).await.unwrap();
    for directory in [&sockets, &data] {
        let export = format!("SELECT lo_export(4242, '{directory}/copy.so')");
        hostile.batch_execute(&export).await.unwrap();
        let load = format!("LOAD '{directory}/copy.so'");
        let refused = hostile.batch_execute(&load).await.unwrap_err();
        let refused = refused.as_db_error().unwrap().message().to_owned();
        assert!(refused.contains("failed to map segment"), "{refused}");
    }
    egret.assert_consistent().await;
    egret.stop().await;
}
