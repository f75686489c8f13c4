//! psql, and with it libpq: how it gets in, what it is told when not, and what it does inside.

use egret_base_test::eventually;

use crate::proxy::running_proxy::{BRANCH, RunningProxy, expect_failure, expect_success};

#[tokio::test]
async fn gets_in_and_runs_statements() {
    let proxy = RunningProxy::open().await;
    let output = proxy.psql(&proxy.connection_string(""), &["--command", "select 6 * 7"], "").await;
    assert_eq!(expect_success(output), "42\n");
    assert_eq!(proxy.metric("egret_proxy_sessions_total"), 1.0);
    assert_eq!(proxy.metric("egret_proxy_connect_seconds_count"), 1.0);
    assert!(proxy.metric("egret_proxy_sent_bytes_total") > 0.0);
    assert!(proxy.metric("egret_proxy_received_bytes_total") > 0.0);
    proxy.close().await;
}

#[tokio::test]
async fn a_wrong_password_and_a_wrong_role_read_as_in_postgresql() {
    let proxy = RunningProxy::open().await;
    for (wrong, user) in [("password=wrong", "egret_branch"), ("user=postgres", "postgres")] {
        let output = proxy.psql(&proxy.connection_string(wrong), &[], "select 1").await;
        let expected = format!("FATAL:  password authentication failed for user \"{user}\"\n");
        let complaint = expect_failure(output);
        assert!(complaint.contains(&expected), "{complaint}");
    }
    assert_eq!(*proxy.branches.attaching.borrow(), 0, "nobody may wake a branch unauthenticated");
    assert_eq!(proxy.metric("egret_proxy_connections_refused_total{cause=\"password\"}"), 2.0);
    proxy.close().await;
}

#[tokio::test]
async fn is_told_what_is_wrong_with_the_branch() {
    let proxy = RunningProxy::open().await;
    let name = proxy.database.name.clone();
    for (database, expected) in [
        (
            format!("{name}@pr-43"),
            "FATAL:  password authentication failed for user \"egret_branch\"\nHINT:  a branch that does not exist",
        ),
        (name.clone(), "names no branch\nHINT:  write database@branch, for example"),
        (format!("@{BRANCH}"), "names no database"),
        (format!("nope@{BRANCH}"), "FATAL:  database \"nope\" does not exist"),
    ] {
        let conninfo = proxy.connection_string(&format!("dbname={database}"));
        let complaint = expect_failure(proxy.psql(&conninfo, &[], "select 1").await);
        assert!(complaint.contains(expected), "{complaint}");
    }
    proxy.close().await;
}

#[tokio::test]
async fn names_the_branch_in_its_options() {
    let proxy = RunningProxy::open().await;
    let name = &proxy.database.name;
    for option in ["-c egret.branch", "--egret.branch"] {
        let options = format!("options='{option}={BRANCH} -c statement_timeout=4711'");
        let conninfo = proxy.connection_string(&format!("dbname={name} {options}"));
        let output = proxy.psql(&conninfo, &["--command", "show statement_timeout"], "").await;
        assert_eq!(expect_success(output), "4711ms\n");
    }
    proxy.close().await;
}

#[tokio::test]
async fn its_own_settings_survive_discard_and_reset() {
    let proxy = RunningProxy::open().await;
    let conninfo =
        proxy.connection_string("client_encoding=LATIN1 options='-c geqo=off -c work_mem=4711kB'");
    let input = "set application_name = 'other'; set client_encoding = 'UTF8'; set geqo = on;
         set work_mem = '1MB'; discard all;
         show application_name; show client_encoding; show geqo; show work_mem;
         set application_name = 'other'; reset application_name; show application_name;";
    let output = proxy.psql(&conninfo, &[], input).await;
    assert_eq!(expect_success(output), "egret-test\nLATIN1\noff\n4711kB\negret-test\n");
    proxy.close().await;
}

#[tokio::test]
async fn copies_in_and_out() {
    let proxy = RunningProxy::open().await;
    let input = "create table item (id int, name text);
\\copy item from pstdin with (format csv)
1,eins
2,\"zwei, drei\"
\\.
insert into item select i, repeat('x', 1000) from generate_series(3, 20000) i;
\\copy (select * from item where id < 4 order by id) to pstdout with (format csv)
\\copy item to program 'wc -l | tr -d \" \"'
";
    let output = proxy.psql(&proxy.connection_string(""), &[], input).await;
    let expected = format!("1,eins\n2,\"zwei, drei\"\n3,{}\n20000\n", "x".repeat(1000));
    assert_eq!(expect_success(output), expected);
    proxy.close().await;
}

#[tokio::test]
async fn hears_notifications() {
    let proxy = RunningProxy::open().await;
    let input = "listen news;\nnotify news, 'rain';\nselect 1;\n";
    let output = expect_success(proxy.psql(&proxy.connection_string(""), &[], input).await);
    assert!(
        output.contains("Asynchronous notification \"news\" with payload \"rain\""),
        "{output}"
    );
    proxy.close().await;
}

#[tokio::test]
async fn interrupts_what_it_runs() {
    let proxy = RunningProxy::open().await;
    let watcher = proxy.database.connect().await;
    let mut command = proxy.psql_command(&proxy.connection_string("application_name=sleeper"));
    command.args(["--command", "select pg_sleep(600)"]);
    let child = command.spawn().unwrap();
    let running = "select 1 from pg_stat_activity
        where application_name = 'sleeper' and wait_event = 'PgSleep'";
    eventually("the statement runs", async || {
        !watcher.query(running, &[]).await.unwrap().is_empty()
    })
    .await;
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let complaint = expect_failure(child.wait_with_output().await.unwrap());
    assert!(complaint.contains("ERROR:  canceling statement due to user request"), "{complaint}");
    assert_eq!(proxy.metric("egret_proxy_cancel_requests_total"), 1.0);
    proxy.close().await;
}

#[tokio::test]
async fn cannot_replicate() {
    let proxy = RunningProxy::open().await;
    for mode in ["true", "database"] {
        let conninfo = proxy.connection_string(&format!("replication={mode}"));
        let complaint = expect_failure(proxy.psql(&conninfo, &[], "IDENTIFY_SYSTEM").await);
        assert!(complaint.contains("replication does not pass"), "{complaint}");
    }
    proxy.close().await;
}
