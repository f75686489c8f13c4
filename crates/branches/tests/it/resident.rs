//! Warm sessions, connected before a client asks: they cannot be told from fresh ones.

use std::collections::BTreeMap;

use egret_base::CodedError;
use egret_base::settings::ConfigDuration;
use egret_base_test::eventually;
use egret_branches::model::{BranchState, DEFAULT_TENANT};
use egret_branches::{BranchEndpoint, BranchesError, ROLE};
use egret_postgres::wire::{RawSession, Session, Startup};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::home::{Egret, Home, alive, await_backends, backends, kill, name};
use crate::pool::brisk;

/// A home with one branch made by the pool, named `one`, and its postmaster's pid.
pub async fn leased(purpose: &str) -> (Home, Egret, i32) {
    leased_at(brisk(purpose)).await
}

async fn leased_at(home: Home) -> (Home, Egret, i32) {
    let egret = home.start().await;
    egret.make_app().await;
    let source = egret.source("app").await;
    source.batch_execute("CREATE ROLE other").await.unwrap();
    drop(source);
    egret.fill(1).await;
    let branch = egret.branch("one").await;
    let (postmaster, _) = branch.postmaster.unwrap();
    (home, egret, postmaster)
}

/// The first value of an answer in some database of branch `one`.
async fn ask_in(egret: &Egret, database: &str, sql: &str) -> Result<String, BranchesError> {
    let one = name("one");
    let asked = egret.branches.query(DEFAULT_TENANT, &one, database, sql, &[], None);
    let rows = asked.await?.rows;
    let first = rows.into_iter().next().and_then(|row| row.into_iter().next());
    Ok(first.flatten().unwrap_or_else(|| "null".to_owned()))
}

async fn ask(egret: &Egret, sql: &str) -> String {
    ask_in(egret, "app", sql).await.unwrap()
}

pub fn psql() -> Vec<(String, String)> {
    parameters(&[("application_name", "psql"), ("client_encoding", "UTF8")])
}

pub fn parameters(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

async fn attach(egret: &Egret, database: &str, parameters: &[(String, String)]) -> BranchEndpoint {
    crate::home::attach(egret, "one", database, parameters).await.unwrap()
}

/// The session a client of the proxy would get, fresh where none waits.
async fn client(attached: &mut BranchEndpoint, database: &str) -> RawSession {
    if let Some(resident) = attached.warm_session.take() {
        return resident;
    }
    let startup =
        Startup { user: ROLE.to_owned(), database: database.to_owned(), parameters: psql() };
    let session = Session::connect(&attached.socket_dir, attached.port, &startup).await;
    session.unwrap().into_raw().unwrap()
}

/// The first value that a statement answers, or the error's text, as the server sends them.
async fn say(session: &mut RawSession, sql: &str) -> String {
    let mut message = vec![b'Q'];
    message.extend((sql.len() as u32 + 5).to_be_bytes());
    message.extend(sql.as_bytes());
    message.push(0);
    session.stream.write_all(&message).await.unwrap();
    let mut answer = "null".to_owned();
    loop {
        let tag = session.stream.read_u8().await.unwrap();
        let length = session.stream.read_u32().await.unwrap() as usize;
        let mut body = vec![0; length - 4];
        session.stream.read_exact(&mut body).await.unwrap();
        match tag {
            b'D' => answer = String::from_utf8_lossy(&body[6..]).into_owned(),
            b'E' => answer = String::from_utf8_lossy(&body).replace('\0', "|"),
            b'Z' => return answer,
            _ => {}
        }
    }
}

const PID: &str = "SELECT pg_backend_pid()";

/// What a query may leave in its session, a look at it, and what a fresh session shows.
const LEAVINGS: &[(&str, &str, &str)] = &[
    ("SET work_mem = '5MB'", "SHOW work_mem", "4MB"),
    ("SET search_path = nowhere", "SHOW search_path", "\"$user\", public"),
    ("SET application_name = 'mine'", "SHOW application_name", "egret/query"),
    ("SET client_encoding = 'LATIN1'", "SHOW client_encoding", "UTF8"),
    ("SET ROLE other", "SELECT current_user", "egret_branch"),
    ("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY", "SHOW transaction_read_only", "off"),
    ("CREATE TEMP TABLE item (id int)", "SELECT count(*) FROM item", "1000"),
    ("PREPARE mine AS SELECT 1", "SELECT count(*) FROM pg_prepared_statements", "0"),
    (
        "DECLARE mine CURSOR WITH HOLD FOR SELECT 1",
        "SELECT count(*) FROM pg_cursors WHERE name = 'mine'",
        "0",
    ),
    (
        "SELECT pg_advisory_lock(7)::text",
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
        "0",
    ),
    ("LISTEN news", "SELECT count(*) FROM pg_listening_channels()", "0"),
    ("BEGIN; DELETE FROM item", "SELECT count(*) FROM item", "1000"),
    ("SET app.tenant = 'mine'", "SELECT current_setting('app.tenant', true)", "null"),
    (
        "SELECT set_config('app.tenant', 'mine', false)",
        "SELECT current_setting('app.tenant', true)",
        "null",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn no_query_sees_what_an_earlier_one_left() {
    let (_home, egret, _) = leased("resident-query").await;
    let first = ask(&egret, PID).await;
    assert_eq!(ask(&egret, PID).await, first, "the session is used again");
    ask(&egret, "CREATE SEQUENCE counter").await;
    for (leave, look, fresh) in LEAVINGS {
        ask(&egret, leave).await;
        assert_eq!(ask(&egret, look).await, *fresh, "after {leave}");
    }
    ask(&egret, "SELECT nextval('counter')").await;
    for look in ["SELECT currval('counter')", "SELECT lastval()"] {
        let error = ask_in(&egret, "app", look).await.unwrap_err();
        assert_eq!(error.code(), "sql_error");
        assert!(error.to_string().contains("not yet defined in this session"), "{error}");
    }
    let mut dice = Vec::new();
    for _ in 0..2 {
        ask(&egret, "SELECT setseed(0.5)").await;
        dice.push(ask(&egret, "SELECT random()").await);
    }
    assert_ne!(dice[0], dice[1], "a seed is the session's own");
    egret.assert_consistent().await;
    egret.stop().await;
}

/// Changes of what a fresh session starts with, and what it then shows.
const DEFAULTS: [(&str, &str, &str); 4] = [
    ("ALTER ROLE CURRENT_USER SET work_mem = '6MB'", "SHOW work_mem", "6MB"),
    ("ALTER DATABASE app SET work_mem = '7MB'", "SHOW work_mem", "6MB"),
    ("ALTER ROLE CURRENT_USER IN DATABASE app SET work_mem = '8MB'", "SHOW work_mem", "8MB"),
    ("ALTER ROLE CURRENT_USER RESET ALL", "SHOW work_mem", "8MB"),
];

#[tokio::test(flavor = "multi_thread")]
async fn changed_defaults_of_role_and_database_are_in_force() {
    let (_home, egret, _) = leased("resident-defaults").await;
    for (change, look, fresh) in DEFAULTS {
        // The session that changes them is the one that would be used again.
        ask(&egret, change).await;
        assert_eq!(ask(&egret, look).await, fresh, "after {change}");
    }
    egret.destroy("one").await;
    // A cold branch, whose first session was connected for the change itself.
    egret.fill(0).await;
    egret.branch("one").await;
    ask(&egret, DEFAULTS[0].0).await;
    assert_eq!(ask(&egret, "SHOW work_mem").await, "6MB");
    egret.destroy("one").await;

    // Another session changes them, while a session waits for a client.
    egret.fill(1).await;
    for (change, look, fresh) in DEFAULTS {
        egret.branch("one").await;
        egret.filled().await;
        let mut other = attach(&egret, "app", &parameters(&[("geqo", "off")])).await;
        assert!(other.warm_session.is_none());
        let mut session = client(&mut other, "app").await;
        // All that came before, for each branch is new.
        for (earlier, ..) in DEFAULTS.iter().take_while(|(earlier, ..)| *earlier != change) {
            say(&mut session, earlier).await;
        }
        say(&mut session, change).await;
        assert_eq!(ask(&egret, look).await, fresh, "query after {change}");
        let mut attached = attach(&egret, "app", &psql()).await;
        let mut session = client(&mut attached, "app").await;
        assert_eq!(say(&mut session, look).await, fresh, "client after {change}");
        egret.destroy("one").await;
    }
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_the_session_that_waits_for_just_such_a_one() {
    let (_home, egret, postmaster) = leased("resident-client").await;
    let waiting = backends(postmaster);
    assert_eq!(waiting.len(), 2, "{waiting:?}");
    assert!(waiting.values().all(|title| title.contains("egret_branch app [local] idle")));
    let purposes = "SELECT string_agg(application_name, ' ' ORDER BY application_name) \
        FROM pg_stat_activity WHERE usename = 'egret_branch' AND pid <> pg_backend_pid()";
    assert_eq!(ask(&egret, purposes).await, "psql");

    // Other parameters, another order, another database, or none: a fresh one.
    for other in [
        parameters(&[("application_name", "mine"), ("client_encoding", "UTF8")]),
        parameters(&[("client_encoding", "UTF8"), ("application_name", "psql")]),
        parameters(&[("application_name", "psql")]),
        parameters(&[]),
    ] {
        let attached = attach(&egret, "app", &other).await;
        assert!(attached.warm_session.is_none(), "{other:?}");
    }
    let mut attached = attach(&egret, "app", &psql()).await;
    let mut session = attached.warm_session.take().expect("one waits");
    assert!(waiting.contains_key(&session.key.pid));
    assert!(attach(&egret, "app", &psql()).await.warm_session.is_none(), "it serves one");
    let reported: BTreeMap<String, String> = session.parameters.iter().cloned().collect();
    for (parameter, value) in [
        ("application_name", "psql"),
        ("client_encoding", "UTF8"),
        ("is_superuser", "off"),
        ("session_authorization", "egret_branch"),
        ("in_hot_standby", "off"),
    ] {
        assert_eq!(reported[parameter], value, "{parameter}");
        assert_eq!(say(&mut session, &format!("SHOW {parameter}")).await, value);
    }
    // The parameters are the session's own, to which it returns.
    for reset in ["RESET ALL", "DISCARD ALL"] {
        say(&mut session, "SET application_name = 'changed'").await;
        say(&mut session, reset).await;
        assert_eq!(say(&mut session, "SHOW application_name").await, "psql", "{reset}");
    }
    assert_eq!(say(&mut session, "SELECT count(*) FROM item").await, "1000");
    let pid = session.key.pid;
    drop(session);
    eventually("the session's process ends", async || !alive(pid)).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pool_learns_what_clients_look_like() {
    let (home, egret, _) = leased("resident-learn").await;
    egret.destroy("one").await;
    egret.fill(0).await;
    let mine = parameters(&[("application_name", "mine"), ("TimeZone", "Europe/Berlin")]);
    egret.branch("one").await;
    assert!(attach(&egret, "app", &mine).await.warm_session.is_none());
    egret.destroy("one").await;
    egret.fill(1).await;
    egret.branch("one").await;
    let attached = attach(&egret, "app", &mine).await;
    let mut session = attached.warm_session.expect("one waits");
    assert_eq!(say(&mut session, "SHOW timezone").await, "Europe/Berlin");
    egret.destroy("one").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_a_database_keeps_nobody_from_dropping_or_copying_it() {
    let (_home, egret, postmaster) = leased("resident-drop").await;
    assert_eq!(backends(postmaster).len(), 2);
    ask_in(&egret, "postgres", "CREATE DATABASE copy TEMPLATE app").await.unwrap();
    ask_in(&egret, "postgres", "DROP DATABASE app").await.unwrap();
    let count = "SELECT count(*) FROM item";
    assert_eq!(ask_in(&egret, "copy", count).await.unwrap(), "1000");

    // The same for a client that is inside all the while.
    let mut attached = attach(&egret, "postgres", &psql()).await;
    let mut session = client(&mut attached, "postgres").await;
    assert_eq!(ask_in(&egret, "copy", count).await.unwrap(), "1000");
    assert_eq!(say(&mut session, "CREATE DATABASE app TEMPLATE copy").await, "null");
    assert_eq!(ask_in(&egret, "copy", count).await.unwrap(), "1000");
    assert_eq!(say(&mut session, "DROP DATABASE copy").await, "null");
    assert_eq!(ask(&egret, count).await, "1000");
    drop(attached);
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_run_beside_each_other() {
    let (home, egret, postmaster) = leased("resident-parallel").await;
    let mut attached = attach(&egret, "app", &psql()).await;
    let mut holder = client(&mut attached, "app").await;
    say(&mut holder, "SELECT pg_advisory_lock(1)").await;
    let queries: Vec<String> = (0..12)
        .map(|number| format!("SELECT {number}::text || pg_advisory_xact_lock_shared(1)::text"))
        .collect();
    let asked = queries.iter().map(|sql| ask(&egret, sql));
    let releasing = async {
        let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
        eventually("queries wait beside each other", async || {
            let count: u32 = say(&mut holder, waiting).await.parse().unwrap();
            if count > 1 { Ok(()) } else { Err(count) }
        })
        .await;
        say(&mut holder, "SELECT pg_advisory_unlock(1)").await;
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(asked), releasing);
    let expected: Vec<String> = (0..12).map(|number| number.to_string()).collect();
    assert_eq!(answers, expected);
    drop((holder, attached));
    // One session for queries is kept, and one for a client; the others go.
    await_backends(postmaster, 2).await;
    egret.destroy("one").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_nobody_uses_are_closed_and_hold_nothing_up() {
    let mut home = brisk("resident-idle");
    home.config.session_idle = ConfigDuration::ms(500);
    let (home, egret, postmaster) = leased_at(home).await;
    await_backends(postmaster, 0).await;
    ask(&egret, "SELECT 1").await;
    await_backends(postmaster, 0).await;
    // Those of branches in the pool stay.
    egret.filled().await;
    for postmaster in home.pooled(&egret).await.values() {
        assert_eq!(backends(*postmaster).len(), 2);
    }
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_is_suspended_though_sessions_wait_in_it() {
    let mut home = brisk("resident-suspend");
    home.config.idle_suspend = Some(ConfigDuration::secs(60));
    let (home, egret, postmaster) = leased_at(home).await;
    assert_eq!(backends(postmaster).len(), 2);
    let one = name("one");
    let suspended = egret.branches.suspend(DEFAULT_TENANT, &one).await.unwrap();
    assert_eq!(suspended.state, BranchState::Suspended);
    ask(&egret, "SELECT 1").await;
    assert_eq!(egret.branches.show(DEFAULT_TENANT, &one).await.unwrap().sessions, 0);
    home.clock.jump(120);
    let notice = eventually("the idle branch is suspended", async || {
        let shown = egret.branches.show(DEFAULT_TENANT, &one).await.unwrap();
        match shown.branch.state {
            BranchState::Suspended => Ok(shown.notice),
            state => Err(state),
        }
    })
    .await;
    assert_eq!(notice.as_deref(), Some("suspended: no session for 1min"));
    // What waits in the pool has not been used either, and it is ready all the same.
    assert_eq!(egret.filled().await.hot, 1);
    home.assert_nothing_leaks_but(&egret, 1).await;
    egret.stop().await;
    // The next Egret says why as well, until the branch runs again.
    let egret = home.start().await;
    let shown = egret.branches.show(DEFAULT_TENANT, &one).await.unwrap();
    assert_eq!(shown.notice, notice);
    ask(&egret, "SELECT 1").await;
    let shown = egret.branches.show(DEFAULT_TENANT, &one).await.unwrap();
    assert_eq!(shown.notice, None);
    egret.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_killed_is_not_used_again() {
    let (home, egret, postmaster) = leased("resident-kill").await;
    for _ in 0..3 {
        let victim = *backends(postmaster).keys().next().unwrap();
        kill(victim);
        // The server restarts its own processes; meanwhile it refuses sessions, as any does.
        let answer = eventually("the branch accepts sessions", async || {
            ask_in(&egret, "app", "SELECT count(*) FROM item").await
        })
        .await;
        assert_eq!(answer, "1000");
        let attached = attach(&egret, "app", &psql()).await;
        if let Some(resident) = &attached.warm_session {
            assert!(alive(resident.key.pid));
        }
    }
    egret.destroy("one").await;
    home.assert_nothing_leaks(&egret).await;
    egret.stop().await;
}
