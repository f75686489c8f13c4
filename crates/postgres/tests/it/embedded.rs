//! The embedded server: first start, adoption, restart, refusal, relocation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_base::condition;
use egret_base::lifecycle::{Readiness, Service};
use egret_base::{SystemClock, SystemEntropy};
use egret_base_test::eventually;
use egret_postgres::embedded::Layout;
use egret_postgres::pidfile::PidFile;
use egret_postgres::postmaster::{Postmaster, pids_in_directory};
use egret_postgres::retry::{Policy, retry_transient};
use egret_postgres::supervise::CRASH_LOOP_EXITS_MIN;
use egret_postgres::{EmbeddedServer, PostgresConfig, PostgresError, pool};
use egret_postgres_test::{Guardian, free_port, test_directory};
use rustix::process::{Pid, Signal};

struct Home {
    directory: PathBuf,
    config: PostgresConfig,
    _guardian: Guardian,
}

impl Home {
    fn new(purpose: &str) -> Self {
        let directory = test_directory(purpose);
        let guardian = Guardian::new(&directory);
        let config =
            PostgresConfig { port: free_port(), sessions_max: 20, ..PostgresConfig::default() };
        Self { directory, config, _guardian: guardian }
    }

    fn server(&self) -> EmbeddedServer {
        let layout = Layout {
            data: self.directory.join("data"),
            socket_dir: self.directory.join("run"),
            log_file: self.directory.join("start.log"),
            password_file: self.directory.join("superuser.password"),
        };
        EmbeddedServer::new(
            self.config.clone(),
            layout,
            Arc::new(SystemClock),
            Arc::new(SystemEntropy),
        )
    }

    fn pid(&self) -> i32 {
        let file = PidFile::read(&self.directory.join("data"));
        file.expect("the server runs").pid
    }
}

async fn ask(server: &EmbeddedServer, sql: &str) -> String {
    let client = pool::connect_with_defaults(server.connection("postgres", "test").options(""))
        .await
        .unwrap();
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Asks until the server is back after a restart.
async fn ask_again(server: &EmbeddedServer, sql: &str) -> String {
    let policy = Policy { attempts: 60, ..Policy::default() };
    retry_transient(policy, async || {
        let doing = |error| PostgresError::Server { doing: "ask", error };
        let client = pool::connect_with_defaults(server.connection("postgres", "test").options(""))
            .await
            .map_err(|error| match error {
                PostgresError::Server { .. } => {
                    PostgresError::NotRunning { reason: "no connection".into() }
                }
                other => other,
            })?;
        Ok::<_, PostgresError>(client.query_one(sql, &[]).await.map_err(doing)?.get(0))
    })
    .await
    .unwrap()
}

fn kill(pid: i32) {
    signal(pid, Signal::KILL);
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_configured_restarts_after_a_crash_and_stops_cleanly() {
    let home = Home::new("embedded");
    let server = home.server();
    server.start().await.unwrap();
    assert_eq!(server.ready(), Readiness::Ready);
    assert_eq!(ask(&server, "SHOW password_encryption").await, "scram-sha-256");
    assert_eq!(ask(&server, "SHOW data_checksums").await, "on");
    assert_eq!(ask(&server, "SHOW max_connections").await, "20");
    assert_eq!(ask(&server, "SHOW listen_addresses").await, "127.0.0.1");
    assert_eq!(ask(&server, "SHOW application_name").await, "egret/test");
    assert_eq!(server.binaries().unwrap().major, 18);

    let first = home.pid();
    kill(first);
    let back = ask_again(&server, "SELECT 'back'").await;
    assert_eq!(back, "back");
    assert_ne!(home.pid(), first);

    server.stop().await;
    assert_eq!(PidFile::read(&home.directory.join("data")), None);
    assert!(matches!(server.ready(), Readiness::NotReady(_)));
}

/// Returns when the readiness is as `wanted` says.
async fn until(server: &EmbeddedServer, wanted: impl Fn(&Readiness) -> bool) -> Readiness {
    eventually("the readiness is as wanted", async || {
        let readiness = server.ready();
        if wanted(&readiness) { Ok(readiness) } else { Err(readiness) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_loop_is_reported_while_the_attempts_go_on() {
    let home = Home::new("crashloop");
    let server = home.server();
    server.start().await.unwrap();
    for end in 1..=CRASH_LOOP_EXITS_MIN + 1 {
        let pid = home.pid();
        kill(pid);
        let state = until(&server, |state| *state != Readiness::Ready).await;
        let Readiness::NotReady(reason) = state else {
            unreachable!("it was waited for");
        };
        assert!(reason.contains("exited unexpectedly"), "{reason}");
        let looping = end >= CRASH_LOOP_EXITS_MIN;
        assert_eq!(reason.starts_with("crash loop: "), looping, "{end}: {reason}");
        if looping {
            assert!(reason.contains(&format!("{end} exits within five minutes")));
        }
        // The attempts go on: it is back each time, but for the last, when it is stopped waiting.
        if end <= CRASH_LOOP_EXITS_MIN {
            until(&server, |state| *state == Readiness::Ready).await;
            assert_ne!(home.pid(), pid);
        }
    }
    server.stop().await;
    assert_eq!(server.ready(), Readiness::NotReady("stopped".to_owned()));
    assert_eq!(pids_in_directory(&home.directory.join("data")), Vec::<i32>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_server_is_adopted_and_a_stale_pid_file_is_not() {
    let home = Home::new("adopt");
    // A runtime that is thrown away takes the supervisor with it, as kill -9 of Egret does; the
    // postmaster runs on.
    let (first, crashed) = (home.server(), tokio::runtime::Runtime::new().unwrap());
    let started = crashed.spawn(async move { first.start().await });
    started.await.unwrap().unwrap();
    crashed.shutdown_background();
    let pid = home.pid();

    let second = home.server();
    second.start().await.unwrap();
    assert_eq!(home.pid(), pid, "the running postmaster was taken over");
    assert_eq!(ask(&second, "SELECT 'here'").await, "here");
    second.stop().await;

    // A pid file that names a live process which is no postmaster: a recycled pid.
    let pid_file = home.directory.join("data/postmaster.pid");
    let text = format!(
        "{}\n{}\n1\n1\n/\n\n0 0\nready\n",
        std::process::id(),
        home.directory.join("data").display()
    );
    std::fs::write(&pid_file, text).unwrap();
    let third = home.server();
    third.start().await.unwrap();
    assert_eq!(ask(&third, "SELECT 'clean'").await, "clean");
    third.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_named() {
    let home = Home::new("port");
    let _holder = std::net::TcpListener::bind(("127.0.0.1", home.config.port)).unwrap();
    let error = home.server().start().await.unwrap_err().to_string();
    assert!(
        error.contains(&format!("port {} on 127.0.0.1 is in use", home.config.port)),
        "{error}"
    );
    assert!(error.contains("postgres.port"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_superuser_enters_over_tcp_by_password_only() {
    let home = Home::new("password");
    let server = home.server();
    server.start().await.unwrap();
    let password = std::fs::read_to_string(home.directory.join("superuser.password")).unwrap();
    let mut connection = tokio_postgres::Config::new();
    connection.host("127.0.0.1").port(home.config.port).user("egret").dbname("postgres");
    pool::connect(&connection).await.map(|_| ()).unwrap_err();
    connection.password("wrong");
    let error = pool::connect(&connection).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("28P01"), "{error}");
    connection.password(password.trim());
    pool::connect(&connection).await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_directory_can_move_while_sessions_wait() {
    let home = Home::new("relocate");
    let server = home.server();
    server.start().await.unwrap();
    let client = pool::connect_with_defaults(server.connection("postgres", "test").options(""))
        .await
        .unwrap();
    client.batch_execute("CREATE TABLE kept AS SELECT 'kept' AS what").await.unwrap();
    let target = home.directory.join("moved");
    server
        .relocate(async |from: PathBuf| -> Result<PathBuf, PostgresError> {
            std::fs::rename(&from, &target).unwrap();
            Ok(target.clone())
        })
        .await
        .unwrap();
    assert_eq!(ask(&server, "SELECT what FROM kept").await, "kept");
    assert!(Path::new(&ask(&server, "SHOW data_directory").await).ends_with("moved"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_cannot_serve_are_refused_by_name() {
    let mut home = Home::new("bin");
    home.config.bin = Some(home.directory.clone());
    let error = home.server().start().await.unwrap_err().to_string();
    assert!(error.contains("there is no postgres"), "{error}");
}

/// The process of the server whose title begins with `title`.
fn process_titled(home: &Home, title: &str) -> i32 {
    let titled = |pid: &i32| {
        let title_of = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        title_of.is_ok_and(|text| text.starts_with(title))
    };
    let pids = pids_in_directory(&home.directory.join("data"));
    pids.into_iter().find(titled).expect("the server has it")
}

fn signal(pid: i32, signal: Signal) {
    let pid = Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Waits until the server is not ready for this reason. Another may come before: the first session
/// of the probe may just be opened.
async fn await_unreadiness(server: &EmbeddedServer, expected: &str) {
    let is_expected = |state: &Readiness| match state {
        Readiness::NotReady(reason) => reason.contains(expected),
        _ => false,
    };
    until(server, is_expected).await;
}

async fn await_readiness(server: &EmbeddedServer) {
    until(server, |state| *state == Readiness::Ready).await;
}

fn is_condition_active() -> bool {
    let active = condition::active();
    active.iter().any(|active| active.name == "postgres_not_accepting")
}

#[tokio::test(flavor = "multi_thread")]
async fn is_not_ready_while_it_recovers_from_the_end_of_one_of_its_processes() {
    let home = Home::new("recovers");
    let server = home.server();
    server.start().await.unwrap();
    let postmaster = home.pid();
    // A process that does not end holds recovery up, for the five seconds that the postmaster
    // allows it.
    let checkpointer = process_titled(&home, "postgres: checkpointer");
    signal(checkpointer, Signal::STOP);
    kill(process_titled(&home, "postgres: walwriter"));
    await_unreadiness(&server, "(SQLSTATE 57P03)").await;
    assert!(is_condition_active());
    signal(checkpointer, Signal::CONT);
    await_readiness(&server).await;
    assert_eq!(home.pid(), postmaster);
    assert_eq!(ask(&server, "SELECT 'recovered'").await, "recovered");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_not_ready_while_its_postmaster_is_stopped_by_a_signal() {
    let home = Home::new("sigstop");
    let server = home.server();
    server.start().await.unwrap();
    let postmaster = home.pid();
    let connection = server.connection("postgres", "test");
    let session = server.open_session(&connection).await.unwrap();
    const PROBES: &str =
        "SELECT count(*)::text FROM pg_stat_activity WHERE application_name = 'egret/postgres'";
    eventually("the probe has a session", async || ask(&server, PROBES).await != "0").await;
    signal(postmaster, Signal::STOP);
    await_unreadiness(&server, "SIGCONT").await;
    assert!(is_condition_active());
    // Sessions that are open are answered, and stay.
    let row = session.query_one("SELECT 'answered'", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "answered");
    signal(postmaster, Signal::CONT);
    await_readiness(&server).await;
    assert_eq!(ask(&server, "SELECT 'back'").await, "back");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_in_a_session_ends_with_a_server_that_freezes() {
    let home = Home::new("freezes");
    let server = home.server();
    server.start().await.unwrap();
    let connection = server.connection("postgres", "test");
    let session = server.open_session(&connection).await.unwrap();
    let postmaster = Postmaster::adopt(&server.layout().data).unwrap().unwrap();
    let frozen = postmaster.freeze().unwrap();
    let ended = session.query_one("SELECT 1", &[]).await.unwrap_err();
    assert!(egret_postgres::retry::is_transient(&ended), "{ended}");
    drop(frozen);
    await_readiness(&server).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_ended_alone_leaves_the_server_ready() {
    let home = Home::new("terminated");
    let server = home.server();
    server.start().await.unwrap();
    const END_PROBE: &str = "SELECT count(pg_terminate_backend(pid, 10000))::text FROM pg_stat_activity \
        WHERE application_name = 'egret/postgres'";
    // The probe connects again.
    for _ in 0..2 {
        eventually("a session of the probe is ended", async || {
            let is_ended = ask(&server, END_PROBE).await != "0";
            assert!(is_ended || server.ready() == Readiness::Ready);
            is_ended
        })
        .await;
    }
    server.stop().await;
}
