//! Sessions from waking a branch to their end, their limits, and cancel requests.

use std::sync::atomic::Ordering;

use egret_base::settings::ConfigDuration;
use egret_base_test::eventually;
use egret_postgres::tokio_postgres::{self, NoTls, error::SqlState};
use egret_server::proxy::ProxyConfig;
use tokio::io::AsyncWriteExt;

use crate::proxy::raw::Raw;
use crate::proxy::running_proxy::{RunningProxy, connect};

#[tokio::test]
async fn a_session_waits_for_its_branch_to_wake() {
    let proxy = RunningProxy::open().await;
    proxy.branches.awake.send_replace(false);
    let config = proxy.driver();
    let connecting = tokio::spawn(async move { connect(&config).await.unwrap() });
    let mut attaching = proxy.branches.attaching.subscribe();
    attaching.wait_for(|count| *count == 1).await.unwrap();
    assert!(!connecting.is_finished());
    proxy.branches.awake.send_replace(true);
    let client = connecting.await.unwrap();
    assert_eq!(client.query_one("select 1", &[]).await.unwrap().get::<_, i32>(0), 1);
    assert_eq!(*proxy.branches.guards.borrow(), 1);
    drop(client);
    proxy.await_guards(0).await;
    assert_eq!(proxy.branches.lookups.load(Ordering::SeqCst), 1);
    proxy.close().await;
}

#[tokio::test]
async fn a_client_that_leaves_while_waiting_is_not_waited_for() {
    let proxy = RunningProxy::open().await;
    proxy.branches.awake.send_replace(false);
    let mut raw = Raw::connect(&proxy).await;
    raw.authenticate(&proxy).await;
    proxy.await_guards(1).await;
    drop(raw);
    proxy.await_guards(0).await;
    proxy.close().await;
}

#[tokio::test]
async fn a_branch_that_does_not_wake_in_time_is_an_error() {
    let config = ProxyConfig { attach_timeout: ConfigDuration::ms(20), ..ProxyConfig::default() };
    let door = RunningProxy::with(config, None).await;
    door.branches.awake.send_replace(false);
    let mut raw = Raw::connect(&door).await;
    raw.authenticate(&door).await;
    assert_eq!(
        raw.error().await,
        "57P03 branch \"pr-42\" was not ready within proxy.attach_timeout, which is 20ms"
    );
    door.await_guards(0).await;
    door.close().await;
}

#[tokio::test]
async fn what_a_client_sends_early_is_not_lost() {
    let proxy = RunningProxy::open().await;
    proxy.branches.awake.send_replace(false);
    let mut raw = Raw::connect(&proxy).await;
    raw.authenticate(&proxy).await;
    raw.query("select 'early'").await;
    proxy.await_guards(1).await;
    proxy.branches.awake.send_replace(true);
    raw.await_ready().await;
    raw.await_ready().await;
    drop(raw);
    proxy.await_guards(0).await;
    proxy.close().await;
}

#[tokio::test]
async fn sessions_have_a_named_limit() {
    let config = ProxyConfig { sessions_max: 2, ..ProxyConfig::default() };
    let door = RunningProxy::with(config, None).await;
    let (first, _second) = (door.connect().await, door.connect().await);
    let error = connect(&door.driver()).await.err().unwrap();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code(), &SqlState::TOO_MANY_CONNECTIONS);
    assert_eq!(error.message(), "too many sessions: limit proxy.sessions_max is 2");
    // A cancel request is no session and must get through a full house.
    let token = first.cancel_token();
    let (asleep, cancelled) = tokio::join!(first.simple_query("select pg_sleep(600)"), async {
        await_sleeping_sessions(&door, 1).await;
        token.cancel_query(NoTls).await
    });
    assert_eq!(asleep.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    cancelled.unwrap();
    drop(first);
    door.await_guards(1).await;
    door.connect().await;
    door.close().await;
}

#[tokio::test]
async fn unauthenticated_connections_have_a_named_limit() {
    let config = ProxyConfig { handshakes_max: 1, ..ProxyConfig::default() };
    let door = RunningProxy::with(config, None).await;
    let mut first = Raw::connect(&door).await;
    first.start_session(&door).await;
    let mut second = Raw::connect(&door).await;
    assert_eq!(
        second.error().await,
        "53300 too many connections waiting for authentication: limit proxy.handshakes_max is 1"
    );
    drop(first);
    let mut first = Raw::connect_with_retries(&door).await;
    first.await_ready().await;
    door.connect().await;
    door.close().await;
}

#[tokio::test]
async fn a_branch_that_is_suspended_meanwhile_is_attached_again() {
    let proxy = RunningProxy::open().await;
    // As its server's socket is when it has just stopped.
    let gone = proxy.branches.socket_dir.join("gone");
    *proxy.branches.elsewhere_once.lock().unwrap() = Some(gone);
    proxy.connect().await;
    assert_eq!(*proxy.branches.attaching.borrow(), 2);
    proxy.close().await;
}

#[tokio::test]
async fn clients_that_stop_in_their_proof_keep_no_other_address_out() {
    let config = ProxyConfig { handshakes_max: 2, ..ProxyConfig::default() };
    let proxy = RunningProxy::with(config, None).await;
    let mut stopped = Vec::new();
    for _ in 0..2 {
        let mut client = Raw::connect_from("127.0.0.2", &proxy).await;
        assert!(client.start_session(&proxy).await);
        stopped.push(client);
    }
    proxy.connect().await;
    assert_eq!(stopped[0].error().await, "53300 too many connections waiting for authentication");
    proxy.close().await;
}

#[tokio::test]
async fn silent_connections_make_room_for_clients() {
    let config = ProxyConfig { connections_per_address_max: 3, ..ProxyConfig::default() };
    let proxy = RunningProxy::with(config, None).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(Raw::connect(&proxy).await);
    }
    let mut client = Raw::connect_with_retries(&proxy).await;
    client.await_ready().await;
    assert_eq!(silent[0].read_to_end().await, b"", "the oldest was closed");
    assert!(proxy.metric("egret_proxy_connections_refused_total{cause=\"handshakes_max\"}") >= 1.0);
    proxy.close().await;
}

/// Waits until as many sessions of this test's database are asleep.
async fn await_sleeping_sessions(proxy: &RunningProxy, wanted: i64) {
    let watcher = proxy.database.connect().await;
    let sleeping = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event = 'PgSleep'";
    let count = async || watcher.query_one(sleeping, &[]).await.unwrap().get::<_, i64>(0);
    eventually("the wanted number of sessions sleeps", async || {
        let count = count().await;
        if count == wanted { Ok(()) } else { Err(count) }
    })
    .await;
}

#[tokio::test]
async fn a_cancel_request_reaches_only_the_session_it_names() {
    let proxy = RunningProxy::open().await;
    let (one, other) = (proxy.connect().await, proxy.connect().await);
    let sleep = "select pg_sleep(600)";
    let stranger = unauthenticated_client(&proxy);
    let (first, second, ()) =
        tokio::join!(one.simple_query(sleep), other.simple_query(sleep), async {
            await_sleeping_sessions(&proxy, 2).await;
            stranger.await;
            one.cancel_token().cancel_query(NoTls).await.unwrap();
            await_sleeping_sessions(&proxy, 1).await;
            other.cancel_token().cancel_query(NoTls).await.unwrap();
        });
    for result in [first, second] {
        assert_eq!(result.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    }
    assert_eq!(proxy.metric("egret_proxy_cancel_requests_total"), 3.0);
    proxy.close().await;
}

/// A cancel request with a key of no session: like PostgreSQL, the proxy closes the connection
/// without a message.
async fn unauthenticated_client(proxy: &RunningProxy) {
    let mut raw = Raw::connect(proxy).await;
    let mut request = bytes::BytesMut::new();
    postgres_protocol::message::frontend::cancel_request(1, 2, &mut request);
    raw.send(&request).await;
    assert_eq!(raw.read_to_end().await, b"");
}

#[tokio::test]
async fn a_client_that_only_reads_on_still_gets_its_answer() {
    let proxy = RunningProxy::open().await;
    let mut raw = Raw::connect(&proxy).await;
    raw.authenticate(&proxy).await;
    raw.await_ready().await;
    raw.query("select repeat('x', 1000000)").await;
    raw.stream.shutdown().await.unwrap();
    let rest = raw.read_to_end().await;
    assert_eq!(rest.iter().filter(|byte| **byte == b'x').count(), 1_000_000);
    proxy.await_guards(0).await;
    proxy.close().await;
}

#[tokio::test]
async fn a_statement_of_a_disconnected_client_is_cancelled() {
    let config =
        ProxyConfig { half_close_timeout: ConfigDuration::ms(20), ..ProxyConfig::default() };
    let proxy = RunningProxy::with(config, None).await;
    let mut raw = Raw::connect(&proxy).await;
    raw.authenticate(&proxy).await;
    raw.await_ready().await;
    raw.query("select pg_sleep(600)").await;
    await_sleeping_sessions(&proxy, 1).await;
    drop(raw);
    proxy.await_guards(0).await;
    await_sleeping_sessions(&proxy, 0).await;
    proxy.close().await;
}

#[tokio::test]
async fn when_the_backend_ends_so_does_the_client() {
    let proxy = RunningProxy::open().await;
    let mut raw = Raw::connect(&proxy).await;
    raw.authenticate(&proxy).await;
    raw.await_ready().await;
    let watcher = proxy.database.connect().await;
    let terminate = "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    let terminated: i64 = watcher.query_one(terminate, &[]).await.unwrap().get(0);
    assert_eq!(terminated, 1);
    // PostgreSQL's own words, passed on.
    assert_eq!(raw.error().await, "57P01 terminating connection due to administrator command");
    assert_eq!(raw.read_to_end().await, b"");
    proxy.await_guards(0).await;
    proxy.close().await;
}

#[tokio::test]
async fn when_the_branch_goes_away_its_sessions_end() {
    let proxy = RunningProxy::open().await;
    let mut raw = Raw::connect(&proxy).await;
    raw.authenticate(&proxy).await;
    raw.await_ready().await;
    proxy.branches.present.send_replace(false);
    assert_eq!(raw.error().await, "57P01 terminating connection because the branch went away");
    assert_eq!(raw.read_to_end().await, b"");
    proxy.close().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_clear_error() {
    let proxy = RunningProxy::open().await;
    let gone = proxy.branches.socket_dir.join("nowhere");
    *proxy.branches.elsewhere.lock().unwrap() = Some(gone);
    let error: tokio_postgres::Error = connect(&proxy.driver()).await.err().unwrap();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "08006");
    assert!(error.message().contains("is the server running?"), "{error:?}");
    proxy.close().await;
}
