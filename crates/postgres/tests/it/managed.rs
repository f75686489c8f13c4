//! The lock of a managed server outlives an interruption.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use egret_base::CodedError;
use egret_base::lifecycle::{Readiness, Service};
use egret_base_test::{ConditionLog, eventually};
use egret_postgres::Databases;
use egret_postgres::managed::ManagedServer;
use egret_postgres_test::{TestDatabase, start_own_server};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_lost_with_its_connection_is_taken_again() {
    let database = TestDatabase::create(18).await;
    let mut connection = database.connection();
    connection.application_name("egret/lock-holder");
    let server = ManagedServer::new(connection);
    server.start().await.unwrap();
    assert_eq!(server.ready(), Readiness::Ready);
    let second = ManagedServer::new(database.connection());
    let refused = second.start().await.unwrap_err().to_string();
    assert!(refused.contains("egret/lock-holder"), "{refused}");

    let client = database.connect().await;
    let ended = client
        .execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
             WHERE application_name = 'egret/lock-holder'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(ended, 1);
    let held = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
                WHERE locktype = 'advisory' AND application_name = 'egret/lock-holder'";
    eventually("the lock is held again", async || {
        let row = client.query_one(held, &[]).await.unwrap();
        row.get::<_, i64>(0) > 0
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_is_one_line_at_its_start_and_one_at_its_end() {
    let database = TestDatabase::create(17).await;
    let direct = database.connection();
    let socket = match &direct.get_hosts()[0] {
        tokio_postgres::config::Host::Unix(directory) => {
            directory.join(format!(".s.PGSQL.{}", direct.get_ports()[0]))
        }
        host @ tokio_postgres::config::Host::Tcp(_) => panic!("{host:?} is no socket"),
    };
    // Hangs up on the first connections.
    let door = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = door.local_addr().unwrap().port();
    let refuses = Arc::new(AtomicU32::new(3));
    let left = refuses.clone();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = door.accept().await.unwrap();
            let refuse = |left: u32| left.checked_sub(1);
            if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, refuse).is_err() {
                let mut server = UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
            }
        }
    });
    let mut connection = tokio_postgres::Config::new();
    connection.host("127.0.0.1").port(port).user(direct.get_user().unwrap()).dbname(&database.name);
    let place = format!("127.0.0.1:{port}");
    let log = ConditionLog::watch("postgres_unreachable", &place);
    let server = ManagedServer::new(connection);
    server.start().await.unwrap();
    assert_ne!(server.ready(), Readiness::Ready);
    eventually("the server has been refused three times", async || {
        let is_over = refuses.load(Ordering::SeqCst) == 0;
        assert!(is_over || log.is_active());
        // Each part of an error is said once.
        let faults = egret_base::condition::active();
        for fault in faults
            .iter()
            .filter(|fault| fault.name == "postgres_unreachable" && fault.subject == place)
        {
            let reason = &fault.reason;
            assert!(reason.matches("error co").count() < 2, "{reason}");
        }
        is_over
    })
    .await;
    eventually("the server is ready", async || match server.ready() {
        Readiness::Ready => Ok(()),
        other => Err(other),
    })
    .await;
    assert!(!log.is_active());
    assert_eq!(log.levels(), ["WARN", "INFO"]);
    server.stop().await;
}

/// The connection that has the lock is open on both sides all the while.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_freezes_ends_what_waits_for_it_and_its_lock_is_taken_again() {
    let database = TestDatabase::create_in(start_own_server(18).await, "frozen".to_owned()).await;
    let server = Arc::new(ManagedServer::new(database.connection()));
    let (watched, lost) = (server.clone(), server.clone());
    let databases = Databases::single(database.connection())
        .with_readiness(move || watched.ready())
        .with_loss(move || lost.await_loss());
    server.start().await.unwrap();
    let client = databases.client(&database.name).await.unwrap();
    let mut attended = databases.connect_listening(&database.name, "news").await.unwrap();
    let frozen = database.server.freeze();
    // The first one is asked before it is known that the server is frozen.
    let sessions = [&client, &attended.client];
    for session in sessions {
        let ended = session.query_one("SELECT 1", &[]).await.unwrap_err();
        assert!(egret_postgres::retry::is_transient(&ended), "{ended}");
    }
    attended.wakeup.notified().await;
    let refused = databases.connect_listening(&database.name, "news").await;
    assert!(refused.map(|_| ()).unwrap_err().retryable());
    drop(frozen);
    eventually("the lock is taken again", async || match server.ready() {
        Readiness::Ready => Ok(()),
        Readiness::NotReady(reason) | Readiness::Failed(reason) => {
            assert!(!reason.contains("another Egret"), "{reason}");
            Err(reason)
        }
    })
    .await;
    attended = databases.connect_listening(&database.name, "news").await.unwrap();
    let answer = attended.client.query_one("SELECT 1", &[]).await.unwrap();
    assert_eq!(answer.get::<_, i32>(0), 1);
    server.stop().await;
}

/// What is in between may have become a pooler that gives sessions to others, which only taking the
/// lock finds out.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_opens_no_session_before_the_lock_is_taken() {
    let database = TestDatabase::create(18).await;
    let server = Arc::new(ManagedServer::new(database.connection()));
    let watched = server.clone();
    let mut connection = database.connection();
    connection.application_name("egret/early");
    let databases = Databases::single(connection).with_readiness(move || watched.ready());
    let Err(refused) = databases.client(&database.name).await else {
        panic!("a session was opened")
    };
    assert_eq!((refused.code(), refused.retryable()), ("postgres_not_running", true));
    assert_eq!(refused.to_string(), "PostgreSQL is not ready: stopped");
    server.start().await.unwrap();
    databases.client(&database.name).await.unwrap();
    server.stop().await;
}
