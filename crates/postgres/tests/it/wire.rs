//! Sessions over the socket of a real server: statements, their limits, and what is left after.

use std::sync::Arc;

use egret_base::{CodedError, Kind};
use egret_base_test::eventually;
use egret_postgres::wire::{self, Answer, Session, Startup, WireError};
use egret_postgres_test::TestDatabase;
use expect_test::{Expect, expect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const MANY: u64 = 1_000_000;

fn startup(database: &TestDatabase) -> Startup {
    Startup {
        user: "egret".to_owned(),
        database: database.name.clone(),
        parameters: vec![("application_name".to_owned(), "egret/test".to_owned())],
    }
}

async fn open(major: u32) -> (TestDatabase, Session) {
    let database = TestDatabase::create(major).await;
    let session = connect(&database).await.unwrap();
    (database, session)
}

async fn connect(database: &TestDatabase) -> Result<Session, WireError> {
    let server = &database.server;
    Session::connect(&server.socket_dir, server.port, &startup(database)).await
}

async fn run(session: &mut Session, sql: &str) -> Result<Answer, WireError> {
    session.query(sql, &[], MANY, MANY).await
}

/// One value of a statement that returns one.
async fn value(session: &mut Session, sql: &str) -> String {
    let answer = run(session, sql).await.unwrap();
    answer.rows[0][0].clone().unwrap()
}

fn check(answer: &Answer, expected: Expect) {
    let columns: Vec<String> = answer
        .columns
        .iter()
        .map(|column| format!("{}:{}", column.name, column.type_oid))
        .collect();
    let mut text = format!("{} [{}]", answer.command_tag, columns.join(" "));
    for row in &answer.rows {
        let values: Vec<&str> =
            row.iter().map(|value| value.as_deref().unwrap_or("NULL")).collect();
        text.push_str(&format!(" ({})", values.join(",")));
    }
    expected.assert_eq(&text);
}

#[tokio::test]
async fn every_supported_version_answers() {
    for major in egret_postgres::provision::SUPPORTED_MAJORS {
        let (_database, mut session) = open(major).await;
        let version = value(&mut session, "show server_version_num").await;
        assert!(version.starts_with(&major.to_string()), "{version}");
        let reported = session.parameters().iter().find(|(name, _)| name == "server_version");
        assert!(reported.unwrap().1.starts_with(&major.to_string()));
        session.close().await;
    }
}

#[tokio::test]
async fn rows_come_as_text() {
    let (_database, mut session) = open(15).await;
    let answer = run(&mut session, "select 1 as n, null as nothing, 'ü' as t, true as b").await;
    check(&answer.unwrap(), expect!["SELECT 1 [n:23 nothing:25 t:25 b:16] (1,NULL,ü,t)"]);
    let answer = run(&mut session, "create table item (id int)").await.unwrap();
    check(&answer, expect!["CREATE TABLE []"]);
    let answer = run(&mut session, "insert into item select generate_series(1, 3) returning id");
    check(&answer.await.unwrap(), expect!["INSERT 0 3 [id:23] (1) (2) (3)"]);
    check(&run(&mut session, "").await.unwrap(), expect![" []"]);
    check(
        &run(&mut session, "select from item where id < 3").await.unwrap(),
        expect!["SELECT 2 [] () ()"],
    );
    let answer = run(&mut session, "do $$ begin raise notice 'dropped'; end $$").await;
    check(&answer.unwrap(), expect!["DO []"]);
}

#[tokio::test]
async fn parameters_are_text_too() {
    let (_database, mut session) = open(15).await;
    let params = [Some("41".to_owned()), None, Some("it's".to_owned())];
    let sql = "select $1::int + 1 as a, $2::text as b, $3::text as c";
    let answer = session.query(sql, &params, MANY, MANY).await.unwrap();
    check(&answer, expect!["SELECT 1 [a:23 b:25 c:25] (42,NULL,it's)"]);
    let too_few = session.query(sql, &params[..2], MANY, MANY).await.unwrap_err();
    assert_eq!(too_few.server().unwrap().sqlstate, "08P01");
    let several = session.query("select $1::int; select 2", &params[..1], MANY, MANY).await;
    assert_eq!(several.unwrap_err().server().unwrap().sqlstate, "42601");
    assert_eq!(value(&mut session, "select 'usable'").await, "usable");
}

#[tokio::test]
async fn several_statements_give_the_last_rows() {
    let (_database, mut session) = open(15).await;
    let answer = run(&mut session, "select 1 as a; select 2 as b, 3 as c; create table item ()");
    check(&answer.await.unwrap(), expect!["CREATE TABLE [b:23 c:23] (2,3)"]);
    let failed = run(&mut session, "create table other (); select 1 / 0; select 2").await;
    assert_eq!(failed.unwrap_err().server().unwrap().sqlstate, "22012");
    let answer =
        run(&mut session, "select relname from pg_class where relname in ('item', 'other')");
    check(&answer.await.unwrap(), expect!["SELECT 1 [relname:19] (item)"]);
}

#[tokio::test]
async fn what_the_server_refuses_keeps_its_details() {
    let (_database, mut session) = open(15).await;
    let error = run(&mut session, "select * from nowhere").await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind(), error.retryable()),
        ("sql_error", Kind::Invalid, false)
    );
    expect![[r#"relation "nowhere" does not exist (SQLSTATE 42P01, at character 15)"#]]
        .assert_eq(&error.to_string());
    run(&mut session, "create table item (id int primary key)").await.unwrap();
    run(&mut session, "insert into item values (1)").await.unwrap();
    let error = run(&mut session, "insert into item values (1)").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Conflict);
    let error = error.server().unwrap();
    assert_eq!(error.severity, "ERROR");
    assert_eq!(error.detail.as_deref(), Some("Key (id)=(1) already exists."));
    let error = run(&mut session, "select lenght('x')").await.unwrap_err();
    assert!(error.server().unwrap().hint.as_deref().unwrap().starts_with("No function matches"));
    assert_eq!(value(&mut session, "select 'usable'").await, "usable");
}

#[tokio::test]
async fn a_failure_at_the_commit_is_a_failure() {
    let (_database, mut session) = open(15).await;
    let table = "create table item (id int unique deferrable initially deferred)";
    run(&mut session, table).await.unwrap();
    let error = run(&mut session, "insert into item values (1), (1)").await.unwrap_err();
    assert_eq!(error.server().unwrap().sqlstate, "23505");
    assert_eq!(value(&mut session, "select count(*) from item").await, "0");
}

#[tokio::test]
async fn an_answer_over_its_limit_is_an_error_and_changes_nothing() {
    let (_database, mut session) = open(15).await;
    run(&mut session, "create table item (id int)").await.unwrap();
    let insert = "insert into item select generate_series(1, 100) returning id";
    let error = session.query(insert, &[], 99, MANY).await.unwrap_err();
    assert!(!error.retryable());
    expect!["limit query_rows_max is 99, but 100 is needed: ask for less or raise the setting"]
        .assert_eq(&error.to_string());
    assert_eq!(value(&mut session, "select count(*) from item").await, "0");
    let answer = session.query(insert, &[], 100, MANY).await.unwrap();
    assert_eq!(answer.rows.len(), 100);
    assert_eq!(value(&mut session, "select count(*) from item").await, "100");

    let wide = "select repeat('x', 100000000)";
    let error = session.query(wide, &[], MANY, 1000).await.unwrap_err().to_string();
    assert!(error.contains("query_bytes_max is 1000"), "{error}");
    let endless = "select generate_series(1, 1000000000)";
    let error = session.query(endless, &[], 1000, MANY).await.unwrap_err().to_string();
    assert!(error.contains("query_rows_max is 1000"), "{error}");
    let several = "select 1; select generate_series(1, 1000000000); create table other ()";
    let error = session.query(several, &[], 1000, MANY).await.unwrap_err().to_string();
    assert!(error.contains("query_rows_max is 1000"), "{error}");
    assert_eq!(value(&mut session, "select 'usable'").await, "usable");
}

#[tokio::test]
async fn copy_is_refused_both_ways() {
    let (_database, mut session) = open(15).await;
    run(&mut session, "create table item (id int)").await.unwrap();
    for sql in [
        "copy item from stdin",
        "copy item to stdout",
        "copy (select generate_series(1, 1000000)) to stdout",
        "select 1; copy item from stdin; select 2",
        "select 1; copy item to stdout; select 2",
    ] {
        let error = run(&mut session, sql).await.unwrap_err();
        assert_eq!(error.code(), "copy_refused", "{sql}: {error}");
        assert_eq!(value(&mut session, "select 'usable'").await, "usable");
    }
}

#[tokio::test]
async fn transaction_blocks_span_queries() {
    let (_database, mut session) = open(15).await;
    run(&mut session, "begin").await.unwrap();
    run(&mut session, "create table item (id int); insert into item values (1)").await.unwrap();
    assert_eq!(value(&mut session, "select count(*) from item").await, "1");
    run(&mut session, "rollback").await.unwrap();
    let gone = run(&mut session, "select from item").await.unwrap_err();
    assert_eq!(gone.server().unwrap().sqlstate, "42P01");
    run(&mut session, "begin").await.unwrap();
    assert_eq!(session.into_raw().err().unwrap().code(), "postgres_session_broken");
}

#[tokio::test]
async fn statements_that_allow_no_transaction_work() {
    let (database, mut session) = open(15).await;
    let other = format!("{}_other", database.name);
    run(&mut session, &format!("create database {other}")).await.unwrap();
    run(&mut session, "vacuum").await.unwrap();
    run(&mut session, &format!("drop database {other}")).await.unwrap();
}

#[tokio::test]
async fn text_that_is_not_utf_8_is_refused() {
    let (database, mut session) = open(15).await;
    let name = format!("{}_ascii", database.name);
    let create =
        format!("create database {name} encoding 'SQL_ASCII' locale 'C' template template0");
    run(&mut session, &create).await.unwrap();
    let server = database.server.clone();
    let startup = Startup { database: name, ..startup(&database) };
    let mut ascii = Session::connect(&server.socket_dir, server.port, &startup).await.unwrap();
    let error = run(&mut ascii, r"select 'ok' as a, E'\xff' as b").await.unwrap_err();
    assert_eq!(error.code(), "value_not_utf8");
    assert!(error.to_string().starts_with("column b holds"), "{error}");
    assert_eq!(value(&mut ascii, "select 'usable'").await, "usable");
}

#[tokio::test]
async fn what_cannot_be_sent_is_not_sent() {
    let (_database, mut session) = open(15).await;
    let error = run(&mut session, "select 'a\0b'").await.unwrap_err();
    assert_eq!(error.code(), "statement_unsendable");
    let params = vec![None; 70_000];
    let error = session.query("select 1", &params, MANY, MANY).await.unwrap_err();
    assert_eq!(error.code(), "statement_unsendable");
    assert_eq!(value(&mut session, "select 'usable'").await, "usable");
}

#[tokio::test]
async fn a_statement_is_cancelled_from_outside() {
    let (database, mut session) = open(15).await;
    let (server, key) = (database.server.clone(), session.key());
    let watcher = database.connect().await;
    let (asleep, ()) = tokio::join!(run(&mut session, "select pg_sleep(600)"), async {
        let running = "select 1 from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'";
        eventually("the statement runs", async || {
            let rows = watcher.query(running, &[&key.pid]).await;
            !rows.unwrap().is_empty()
        })
        .await;
        wire::cancel(&server.socket_dir, server.port, key).await.unwrap();
    });
    let error = asleep.unwrap_err();
    assert_eq!(error.kind(), Kind::TimedOut);
    assert_eq!(error.server().unwrap().sqlstate, "57014");
    assert_eq!(value(&mut session, "select 'usable'").await, "usable");
}

#[tokio::test]
async fn a_dropped_query_leaves_a_broken_session() {
    let (_database, mut session) = open(15).await;
    {
        let query = run(&mut session, "select pg_sleep(600)");
        tokio::select! {
            biased;
            _ = query => panic!("nobody sleeps so short"),
            () = tokio::task::yield_now() => {}
        }
    }
    let error = run(&mut session, "select 1").await.unwrap_err();
    assert_eq!((error.code(), error.kind()), ("postgres_session_broken", Kind::Unavailable));
}

#[tokio::test]
async fn a_backend_that_dies_is_an_error() {
    let (database, mut session) = open(15).await;
    let watcher = database.connect().await;
    let terminate = "select pg_terminate_backend($1, 60000)";
    watcher.query(terminate, &[&session.key().pid]).await.unwrap();
    let error = run(&mut session, "select 1").await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.retryable());
}

#[tokio::test]
async fn a_statement_that_ends_its_session_is_answered_in_the_servers_words() {
    for major in egret_postgres::provision::SUPPORTED_MAJORS {
        let (_database, mut session) = open(major).await;
        let end = "select pg_terminate_backend(pg_backend_pid())";
        let error = run(&mut session, end).await.unwrap_err();
        let refusal = error.server().unwrap_or_else(|| panic!("{error:?}"));
        assert_eq!(refusal.sqlstate, "57P01");
        assert!(refusal.ends_session());
        let error = run(&mut session, "select 1").await.unwrap_err();
        assert_eq!(error.code(), "postgres_session_broken");
    }
}

#[tokio::test]
async fn refusals_to_connect_are_clear() {
    let database = Arc::new(TestDatabase::create(15).await);
    let server = &database.server;
    let refused = |startup: Startup| async move {
        let refused = Session::connect(&server.socket_dir, server.port, &startup).await;
        refused.err().unwrap()
    };
    let nowhere = Startup { database: "nowhere".to_owned(), ..startup(&database) };
    let error = refused(nowhere).await;
    assert_eq!(error.server().unwrap().sqlstate, "3D000");
    assert_eq!(error.server().unwrap().severity, "FATAL");
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(!error.server().unwrap().raw.is_empty());
    let stranger = Startup { user: "stranger".to_owned(), ..startup(&database) };
    let error = refused(stranger).await;
    assert_eq!(error.code(), "postgres_authentication_unsupported");
    assert!(error.to_string().contains("SCRAM password"), "{error}");
    let mut zero = startup(&database);
    zero.parameters.push(("application_name".to_owned(), "a\0b".to_owned()));
    assert_eq!(refused(zero).await.code(), "statement_unsendable");
    let absent = Session::connect(&server.socket_dir, 1, &startup(&database)).await;
    let error = absent.err().unwrap();
    assert_eq!(error.code(), "postgres_unreachable");
    assert!(error.to_string().contains(".s.PGSQL.1"), "{error}");
}

#[tokio::test]
async fn a_raw_session_is_a_socket_ready_for_a_query() {
    let (_database, mut session) = open(15).await;
    run(&mut session, "set application_name = 'changed'").await.unwrap();
    let key = session.key();
    let mut raw = session.into_raw().unwrap();
    assert!(raw.leftover.is_empty());
    assert_eq!(raw.key, key);
    let changed = ("application_name".to_owned(), "changed".to_owned());
    assert!(raw.parameters.contains(&changed));
    raw.stream.write_all(b"Q\0\0\0\x0eselect 1;\0").await.unwrap();
    let mut first = [0; 1];
    raw.stream.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"T");
}
