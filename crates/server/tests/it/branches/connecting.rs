//! The connection string through the proxy, with psql and psycopg: entering, waking, cancelling,
//! being sent away.

use egret_base_test::eventually;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::rig::{Rig, expect_status, psql, shared};
use crate::proxy::running_proxy::{
    client_program, expect_failure, expect_success, isolate_from_user_settings, run,
};

#[tokio::test]
async fn the_connection_string_works_with_psql_and_psycopg() {
    let rig = shared();
    rig.create_branch("enter").await;
    let connection = rig.get("/v1/branches/enter/connection").await;
    assert_eq!(connection["host"], "127.0.0.1");
    assert_eq!(connection["port"], rig.proxy_port());
    assert_eq!(connection["database"], "app@enter");
    assert_eq!(connection["user"], "egret_branch");
    let url = connection["url"].as_str().unwrap();
    let output = rig.psql(url, "INSERT INTO item VALUES (0, 'psql') RETURNING name").await;
    assert_eq!(expect_success(output), "psql\n");
    let program = "import os, psycopg\n\
        with psycopg.connect(os.environ['CONNINFO']) as session:\n    \
        print(session.execute('select name from item where id = %s', (0,)).fetchone()[0])";
    let mut python = Command::new(client_program("EGRET_TEST_PYTHON", "python/bin/python"));
    python.args(["-c", program]).env("CONNINFO", url);
    isolate_from_user_settings(&mut python);
    assert_eq!(expect_success(run(python, "").await), "psql\n");
    let by_option = format!(
        "host=127.0.0.1 port={} dbname=app user=egret_branch password={} options='-c egret.branch=enter'",
        rig.proxy_port(),
        connection["password"].as_str().unwrap()
    );
    assert_eq!(expect_success(rig.psql(&by_option, "select current_database()").await), "app\n");
    expect_success(rig.psql(url, "CREATE ROLE worker LOGIN").await);
    let as_worker = url.replace("egret_branch", "worker");
    assert_eq!(expect_success(rig.psql(&as_worker, "SELECT session_user").await), "worker\n");
    let source = rig.source("app").await;
    let rows = source.query("SELECT 1 FROM item WHERE id = 0", &[]).await.unwrap();
    assert!(rows.is_empty(), "the source has what was written to the branch");
    rig.destroy("enter").await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn refused_clients_receive_the_reason() {
    let rig = shared();
    rig.create_branch("closed").await;
    let url = rig.url("closed").await;
    let told = async |url: String| expect_failure(rig.psql(&url, "select 1").await);
    let password = url.split([':', '@']).nth(2).unwrap();
    let text = told(url.replace(password, "wrong")).await;
    assert!(text.contains("password authentication failed for user \"egret_branch\""), "{text}");
    // Which branches there are is not told without a password of one.
    for branch in ["nobody", "closed.acme", "CLOSED", "..%2Fx", &"x".repeat(64)] {
        let other = told(url.replace("@closed", &format!("@{branch}"))).await;
        assert_eq!(other, text);
    }
    let text = told(url.replace("/app@", "/nowhere@")).await;
    assert!(text.contains("database \"nowhere\" does not exist"), "{text}");
    let text = told(url.replace("egret_branch", "egret")).await;
    assert!(text.contains("password authentication failed for user \"egret\""), "{text}");
    rig.destroy("closed").await;
    let text = told(url).await;
    assert!(text.contains("password authentication failed"), "{text}");
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_role_enters_with_its_password_of_the_source() {
    let rig = shared();
    let source = rig.source("app").await;
    let make = "CREATE ROLE own_password LOGIN PASSWORD 'of-the-source'";
    source.batch_execute(make).await.unwrap();
    let body = json!({"name": "own", "role_passwords": true, "from": "head"});
    let made = rig.send(Method::POST, "/v1/branches", body).await;
    assert_eq!(expect_status(made, 201).await["role_passwords"], true);
    let branch_url = rig.url("own").await;
    let password = branch_url.split([':', '@']).nth(2).unwrap();
    let as_role = branch_url.replace("egret_branch", "own_password");
    let url = as_role.replace(password, "of-the-source");
    let user = "SELECT session_user";
    assert_eq!(expect_success(rig.psql(&url, user).await), "own_password\n");
    let text = expect_failure(rig.psql(&as_role, user).await);
    assert!(text.contains("password authentication failed for user \"own_password\""), "{text}");
    assert_eq!(expect_success(rig.psql(&branch_url, user).await), "egret_branch\n");
    rig.destroy("own").await;
    source.batch_execute("DROP ROLE own_password").await.unwrap();
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_suspended_branch_wakes_and_a_reset_one_keeps_its_string() {
    let rig = shared();
    rig.create_branch("sleeper").await;
    let url = rig.url("sleeper").await;
    expect_success(rig.psql(&url, "UPDATE item SET name = 'changed' WHERE id = 1").await);
    let suspended = rig.post("/v1/branches/sleeper/suspend", json!({})).await;
    assert_eq!(suspended["state"], "suspended");
    let name = "SELECT name FROM item WHERE id = 1";
    assert_eq!(expect_success(rig.psql(&url, name).await), "changed\n");
    assert_eq!(rig.get("/v1/branches/sleeper").await["state"], "running");

    rig.post("/v1/branches/sleeper/suspend", json!({})).await;
    assert_eq!(rig.query("sleeper", name).await["rows"], json!([["changed"]]));

    let reset = rig.post("/v1/branches/sleeper/reset", json!({})).await;
    assert_eq!(reset["state"], "running");
    assert_eq!(rig.url("sleeper").await, url);
    assert_eq!(expect_success(rig.psql(&url, name).await), "item 1\n");
    rig.destroy("sleeper").await;
    rig.assert_no_warnings();
}

/// A psql that has printed a line and waits for more input.
struct PsqlSession {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
}

impl PsqlSession {
    async fn connect(url: &str) -> Self {
        let mut child = psql(url).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut inside = Self { child, lines };
        inside.send("SELECT 'inside';").await;
        assert_eq!(inside.read_line().await.as_deref(), Some("inside"));
        inside
    }

    async fn send(&mut self, sql: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(format!("{sql}\n").as_bytes()).await.unwrap();
        input.flush().await.unwrap();
    }

    async fn read_line(&mut self) -> Option<String> {
        self.lines.next_line().await.unwrap()
    }

    /// What it complains of when its session is gone.
    async fn final_error(mut self) -> String {
        let mut input = self.child.stdin.take().unwrap();
        // It may have noticed and left already.
        let _ = input.write_all(b"SELECT 1;\n").await;
        drop(input);
        assert!(!self.child.wait().await.unwrap().success());
        let mut text = String::new();
        let mut errors = self.child.stderr.take().unwrap();
        errors.read_to_string(&mut text).await.unwrap();
        text
    }
}

async fn sessions(rig: &Rig, branch: &str) -> u64 {
    let shown = rig.get(&format!("/v1/branches/{branch}")).await;
    shown["sessions"].as_u64().unwrap()
}

#[tokio::test]
async fn sessions_are_counted_and_end_with_their_branch() {
    let rig = shared();
    rig.create_branch("inside").await;
    let url = rig.url("inside").await;
    let mut idle = PsqlSession::connect(&url).await;
    idle.send("BEGIN; UPDATE item SET name = 'open'; SELECT 'open';").await;
    assert_eq!(idle.read_line().await.as_deref(), Some("open"));
    assert_eq!(sessions(rig, "inside").await, 1);
    rig.post("/v1/branches/inside/reset", json!({})).await;
    let text = idle.final_error().await;
    assert!(text.contains("terminating connection") || text.contains("server closed"), "{text}");

    let again = PsqlSession::connect(&url).await;
    rig.destroy("inside").await;
    let text = again.final_error().await;
    assert!(text.contains("terminating connection") || text.contains("server closed"), "{text}");
    let text = expect_failure(rig.psql(&url, "select 1").await);
    assert!(text.contains("password authentication failed"), "{text}");
    rig.assert_no_warnings();
}

#[tokio::test]
async fn an_expired_branch_refuses_new_sessions_and_ends_open_ones() {
    let rig = shared();
    rig.create_branch("brief").await;
    let url = rig.url("brief").await;
    let mut inside = PsqlSession::connect(&url).await;
    inside.send("BEGIN;\nSELECT pg_sleep(600);").await;
    let changed =
        rig.send(reqwest::Method::PATCH, "/v1/branches/brief", json!({"ttl_ms": 1})).await;
    assert_eq!(changed.status(), 200);
    // The end of its output is the end of its session.
    while inside.read_line().await.is_some() {}
    assert!(!inside.child.wait().await.unwrap().success());
    let text = expect_failure(rig.psql(&url, "select 1").await);
    assert!(
        text.contains("expired at") || text.contains("password authentication failed"),
        "{text}"
    );
    rig.assert_no_warnings();
}

#[tokio::test]
async fn a_statement_is_cancelled_through_the_proxy() {
    let rig = shared();
    rig.create_branch("cancel").await;
    let url = rig.url("cancel").await;
    let mut inside = PsqlSession::connect(&url).await;
    inside.send("SELECT pg_sleep(600);").await;
    let runs = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    eventually("the statement runs", async || {
        rig.query("cancel", runs).await["rows"] == json!([[1]])
    })
    .await;
    // psql turns SIGINT into a cancel request, on a connection of its own.
    let pid = rustix::process::Pid::from_raw(inside.child.id().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    drop(inside.child.stdin.take());
    let mut text = String::new();
    let mut errors = inside.child.stderr.take().unwrap();
    errors.read_to_string(&mut text).await.unwrap();
    assert!(text.contains("canceling statement due to user request"), "{text}");
    assert_eq!(rig.query("cancel", runs).await["rows"], json!([[0]]));
    rig.destroy("cancel").await;
    rig.assert_no_warnings();
}
