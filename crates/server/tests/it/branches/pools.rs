//! The pools over HTTP, and sessions that waited for a client of the proxy.

use std::collections::BTreeSet;

use egret_base::settings::ConfigDuration;
use egret_base_test::eventually;
use egret_postgres::tokio_postgres::{Client, Config, NoTls};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use super::rig::{Rig, expect_status, psql, shared};
use crate::proxy::running_proxy::{
    client_program, expect_success, isolate_from_user_settings, run,
};
use crate::test_server::problem;

/// An Egret whose pools are filled at once.
async fn start_with_fast_refill() -> Rig {
    Rig::start_own(|config| {
        config.pool_min = 0;
        config.pool_quiet = ConfigDuration::ms(5);
    })
    .await
}

/// Sets the size of the pool of preset `small` and waits until it is full.
async fn fill_pool(rig: &Rig, size: u32) -> Value {
    let body = json!({"size": size});
    expect_status(rig.send(Method::PUT, "/v1/pools/small", body).await, 200).await;
    let pools = rig.get("/v1/pools?filled=true").await;
    pools["items"][0].clone()
}

/// Makes a branch of a pool that was filled after it learned what clients ask for.
async fn create_from_pool(rig: &Rig, name: &str) -> String {
    fill_pool(rig, 0).await;
    fill_pool(rig, 1).await;
    let made = rig.create_branch(name).await;
    assert_eq!(made["receipt"]["kind"], "pooled", "{made}");
    rig.url(name).await
}

/// The sessions that wait in a branch, by their processes.
async fn resident_sessions(rig: &Rig, branch: &str) -> BTreeSet<i64> {
    let sql = "SELECT pid FROM pg_stat_activity \
        WHERE usename = 'egret_branch' AND application_name <> 'egret/query'";
    let answer = rig.query(branch, sql).await;
    let rows = answer["rows"].as_array().unwrap();
    rows.iter().map(|row| row[0].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn pools_are_shown_and_resized() {
    let rig = start_with_fast_refill().await;
    let pools = rig.get("/v1/pools").await;
    let expected = |preset: &str| json!({"preset": preset, "target": 0, "chosen": false, "hot": 0, "filling": 0, "template": null});
    assert_eq!(pools["items"], json!([expected("small"), expected("medium"), expected("large")]));
    let pool = fill_pool(&rig, 2).await;
    let templates = rig.get("/v1/templates").await;
    assert_eq!(
        pool,
        json!({"preset": "small", "target": 2, "chosen": true, "hot": 2, "filling": 0,
            "template": templates["items"][0]["id"]})
    );
    // Branches in the pool belong to no tenant: no list, count or check includes them.
    assert_eq!(rig.get("/v1/branches").await["items"], json!([]));
    assert_eq!(templates["items"][0]["branches"], 0);
    let check = rig.post("/v1/verify", json!({})).await;
    assert_eq!((&check["branches"], &check["consistent"]), (&json!(0), &json!(true)));

    let made = rig.create_branch("one").await;
    assert_eq!(made["receipt"]["kind"], "pooled");
    assert_eq!(made["receipt"]["phases"][0]["name"], "lease");
    // Looking at every file would take longer than making the branch.
    assert_eq!(made["diverged_bytes"], Value::Null);
    assert!(rig.get("/v1/branches/one").await["diverged_bytes"].is_u64());
    let gone = rig.request(Method::DELETE, "/v1/branches/one").send().await;
    let gone = expect_status(gone.unwrap(), 202).await;
    assert_eq!((&gone["diverged_bytes"], &gone["state"]), (&Value::Null, &json!("destroying")));

    let answer = rig.send(Method::PUT, "/v1/pools/small", json!({"size": null})).await;
    let pools = expect_status(answer, 200).await;
    assert_eq!(
        (&pools["items"][0]["target"], &pools["items"][0]["chosen"]),
        (&json!(0), &json!(false))
    );
    rig.get("/v1/pools?filled=true").await;
    rig.assert_settled().await;
    rig.stop().await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn what_is_no_pool_or_size_is_refused() {
    let rig = shared();
    for (path, body, status, code, says) in [
        ("tiny", json!({"size": 1}), 400, "parameter_invalid", "tiny"),
        ("twin", json!({"size": 1}), 400, "invalid_request", "twin"),
        ("small", json!({"size": -1}), 400, "json_invalid", "size"),
        ("small", json!({"size": "x"}), 400, "json_invalid", "size"),
        ("small", json!({"count": 1}), 400, "json_invalid", "count"),
        ("small", json!({}), 400, "json_invalid", "size"),
        ("small", json!({"size": 999}), 400, "limit_exceeded", "max"),
    ] {
        let path = format!("/v1/pools/{path}");
        let asked = rig.expect_problem(Method::PUT, &path, body.clone(), status, code);
        let problem = asked.await;
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(says), "{path} {body}: {problem}");
    }
    for query in ["filled=maybe", "full=true"] {
        let request = rig.request(Method::GET, &format!("/v1/pools?{query}"));
        problem(request.send().await.unwrap(), 400, "parameter_invalid").await;
    }
    for (scope, method, path, needed) in [
        ("metrics:*", Method::GET, "/v1/pools", "branches:read"),
        ("branches:*", Method::PUT, "/v1/pools/small", "admin"),
    ] {
        let token = rig.token("default", &[scope]);
        let request = rig.with_token(&token, method, path).json(&json!({"size": 1}));
        let problem = problem(request.send().await.unwrap(), 403, "scope_missing").await;
        assert!(problem["detail"].as_str().unwrap().contains(needed), "{problem}");
    }
    let reader = rig.token("default", &["branches:read"]);
    let request = rig.with_token(&reader, Method::GET, "/v1/pools");
    expect_status(request.send().await.unwrap(), 200).await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn psql_gets_the_session_that_waited_for_it() {
    let rig = start_with_fast_refill().await;
    rig.create_branch("teacher").await;
    expect_success(rig.psql(&rig.url("teacher").await, "SELECT 1").await);
    let url = create_from_pool(&rig, "one").await;
    let ready = resident_sessions(&rig, "one").await;
    assert_eq!(ready.len(), 1);
    let script = "SELECT pg_backend_pid();
        SELECT backend_start < now() - interval '0' FROM pg_stat_activity WHERE pid = pg_backend_pid();
        SHOW application_name;
        SET application_name = 'mine'; SET work_mem = '9MB'; DISCARD ALL;
        SHOW application_name; SHOW work_mem;
        SET application_name = 'mine'; RESET application_name;
        SHOW application_name;
        SELECT count(*) FROM item;
        \\echo :ENCODING :USER";
    let output = expect_success(rig.psql(&url, script).await);
    let lines: Vec<&str> = output.lines().collect();
    assert!(ready.contains(&lines[0].parse().unwrap()), "{output}");
    let rest = ["t", "egret-test", "egret-test", "4MB", "egret-test", "1000"];
    assert_eq!(lines[1..7], rest, "{output}");
    assert_eq!(lines[7], "UTF8 egret_branch");

    // Another wish, another session: fresh, with the wish in force for good.
    let url = create_from_pool(&rig, "two").await;
    let ready = resident_sessions(&rig, "two").await;
    for (variable, value, show) in [
        ("PGAPPNAME", "mine", "application_name"),
        ("PGOPTIONS", "-c geqo_threshold=7", "geqo_threshold"),
        ("PGTZ", "Asia/Tokyo", "timezone"),
        ("PGDATESTYLE", "German", "datestyle"),
        ("PGCLIENTENCODING", "LATIN1", "client_encoding"),
    ] {
        let mut command = psql(&url);
        command.env(variable, value);
        let script =
            format!("SELECT pg_backend_pid(); DISCARD ALL; SHOW {show}; RESET {show}; SHOW {show}");
        let output = expect_success(run(command, &script).await);
        let lines: Vec<&str> = output.lines().collect();
        assert!(!ready.contains(&lines[0].parse().unwrap()), "{variable}: {output}");
        let wish = value.rsplit('=').next().unwrap();
        assert!(lines[1].starts_with(wish) && lines[2] == lines[1], "{variable}: {output}");
    }
    // The session of the last client ends a moment after the client has.
    let left = eventually("the session of the last client ends", async || {
        let left = resident_sessions(&rig, "two").await;
        if left.len() == ready.len() { Ok(left) } else { Err(left) }
    })
    .await;
    assert_eq!(left, ready, "nobody took what was not for him");
    rig.stop().await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn psycopg_gets_the_session_that_waited_for_it() {
    let rig = start_with_fast_refill().await;
    rig.create_branch("teacher").await;
    let program = "import os, psycopg\n\
        with psycopg.connect(os.environ['CONNINFO']) as session:\n    \
        info = session.info\n    \
        print(info.backend_pid, session.execute('select pg_backend_pid()').fetchone()[0])\n    \
        print(info.parameter_status('client_encoding'), info.parameter_status('session_authorization'),\n        \
            info.parameter_status('is_superuser'), info.parameter_status('standard_conforming_strings'))\n    \
        print(session.execute('select count(*) from item where id = any(%s)', ([1, 2],)).fetchone()[0])\n    \
        print(session.info.transaction_status.name)";
    let python = async |url: &str| {
        let mut python = Command::new(client_program("EGRET_TEST_PYTHON", "python/bin/python"));
        python.args(["-c", program]).env("CONNINFO", url);
        isolate_from_user_settings(&mut python);
        expect_success(run(python, "").await)
    };
    python(&rig.url("teacher").await).await;
    let url = create_from_pool(&rig, "one").await;
    let ready = resident_sessions(&rig, "one").await;
    let output = python(&url).await;
    let lines: Vec<&str> = output.lines().collect();
    let (known, asked) = lines[0].split_once(' ').unwrap();
    assert_eq!(known, asked);
    assert!(ready.contains(&known.parse().unwrap()), "{output}");
    assert_eq!(lines[1..], ["UTF8 egret_branch off on", "2", "INTRANS"], "{output}");
    rig.stop().await;
    rig.assert_no_warnings();
}

/// A session through the proxy, and what the server reported when it began.
async fn connect(url: &str) -> (Client, Vec<Option<String>>) {
    let mut config: Config = url.parse().unwrap();
    config.application_name("tests");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    let names = ["application_name", "client_encoding", "session_authorization", "TimeZone"];
    let reported = names.map(|name| connection.parameter(name).map(str::to_owned));
    tokio::spawn(connection);
    (client, reported.to_vec())
}

#[tokio::test]
async fn a_session_that_waited_is_cancelled_reported_and_closed_like_any() {
    let rig = start_with_fast_refill().await;
    rig.create_branch("teacher").await;
    let (teacher, fresh) = connect(&rig.url("teacher").await).await;
    drop(teacher);
    let url = create_from_pool(&rig, "one").await;
    let ready = resident_sessions(&rig, "one").await;
    let (client, reported) = connect(&url).await;
    assert_eq!(reported, fresh);
    assert_eq!(reported[0].as_deref(), Some("tests"));
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap();
    let pid = i64::from(row.get::<_, i32>(0));
    assert!(ready.contains(&pid), "{pid} of {ready:?}");

    let cancel = client.cancel_token();
    let sleeping = client.batch_execute("SELECT pg_sleep(600)");
    let cancelling = async {
        let runs = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        eventually("the statement runs", async || {
            rig.query("one", runs).await["rows"] == json!([[1]])
        })
        .await;
        cancel.cancel_query(NoTls).await.unwrap();
    };
    let (slept, ()) = tokio::join!(sleeping, cancelling);
    let error = slept.unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("57014"));
    client.batch_execute("UPDATE item SET name = 'x' WHERE id = 1").await.unwrap();

    // It serves one client and is gone.
    drop(client);
    eventually("the client's session ends", async || {
        !resident_sessions(&rig, "one").await.contains(&pid)
    })
    .await;
    let (client, _) = connect(&url).await;
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap();
    assert_ne!(i64::from(row.get::<_, i32>(0)), pid);
    // And it ends with its branch.
    rig.destroy("one").await;
    eventually("the session ends with its branch", async || {
        client.query("SELECT 1", &[]).await.is_err()
    })
    .await;
    rig.stop().await;
    rig.assert_no_warnings();
}

#[tokio::test]
async fn many_clients_at_once_each_get_a_session_of_their_own() {
    let rig = start_with_fast_refill().await;
    rig.create_branch("teacher").await;
    drop(connect(&rig.url("teacher").await).await);
    let url = create_from_pool(&rig, "one").await;
    let clients = (0..16).map(|_| connect(&url));
    let clients = futures_util::future::join_all(clients).await;
    let mut pids = BTreeSet::new();
    for (number, (client, _)) in clients.iter().enumerate() {
        let sql = format!("CREATE TEMP TABLE mine AS SELECT {number} AS number");
        client.batch_execute(&sql).await.unwrap();
    }
    for (number, (client, _)) in clients.iter().enumerate() {
        let row = client.query_one("SELECT number, pg_backend_pid() FROM mine", &[]).await.unwrap();
        assert_eq!(row.get::<_, i32>(0), i32::try_from(number).unwrap());
        pids.insert(row.get::<_, i32>(1));
    }
    assert_eq!(pids.len(), 16);
    rig.stop().await;
    rig.assert_no_warnings();
}
