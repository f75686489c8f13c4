//! Starting on a taken port, and stopping with sessions of every kind.

use egret_base::lifecycle::{Readiness, Service};
use egret_base::settings::ConfigDuration;
use egret_server::proxy::{Proxy, ProxyConfig};
use prometheus_client::registry::Registry;

use crate::proxy::raw::Raw;
use crate::proxy::running_proxy::{self, RunningProxy};

const STOPPED: &str = "57P01 terminating connection due to administrator command";

#[tokio::test]
async fn a_taken_port_names_the_setting_to_change() {
    let door = RunningProxy::open().await;
    for (address, port, expected) in [
        ("127.0.0.1", door.port(), "set proxy.port (EGRET_PROXY_PORT)"),
        ("localhost", 0, "proxy.address: `localhost` is not an IP address"),
        ("192.0.2.1", 0, "check proxy.address and proxy.port"),
    ] {
        let config = ProxyConfig { address: address.to_owned(), port, ..ProxyConfig::default() };
        let options = running_proxy::options(config, &door.branches, None);
        let second = Proxy::new(options, &mut Registry::default());
        let error = second.start().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        second.stop().await;
    }
    door.close().await;
}

#[tokio::test]
async fn idle_sessions_end_and_transactions_may_finish() {
    let proxy = RunningProxy::open().await;
    let mut idle = Raw::connect(&proxy).await;
    idle.authenticate(&proxy).await;
    idle.await_ready().await;
    let mut working = Raw::connect(&proxy).await;
    working.authenticate(&proxy).await;
    working.await_ready().await;
    working.query("begin; create table kept ()").await;
    working.await_ready().await;
    let mut waking = Raw::connect(&proxy).await;
    proxy.branches.awake.send_replace(false);
    waking.authenticate(&proxy).await;
    proxy.await_guards(3).await;
    let (waking_error, ()) = tokio::join!(
        async {
            assert_eq!(idle.error().await, STOPPED);
            let waking_error = waking.error().await;
            working.query("commit").await;
            working.await_ready().await;
            assert_eq!(working.error().await, STOPPED);
            waking_error
        },
        proxy.proxy.stop(),
    );
    assert_eq!(waking_error, "57P03 the database system is shutting down");
    assert!(matches!(proxy.proxy.ready(), Readiness::NotReady(_)));
    let kept = proxy.database.connect().await;
    kept.query("select * from kept", &[]).await.unwrap();
    proxy.close().await;
}

#[tokio::test]
async fn sessions_that_do_not_finish_are_ended() {
    let config = ProxyConfig { stop_timeout: ConfigDuration::ms(20), ..ProxyConfig::default() };
    let proxy = RunningProxy::with(config, None).await;
    let mut open = Raw::connect(&proxy).await;
    open.authenticate(&proxy).await;
    open.await_ready().await;
    open.query("begin").await;
    open.await_ready().await;
    let mut deaf = Raw::connect(&proxy).await;
    deaf.authenticate(&proxy).await;
    deaf.await_ready().await;
    // More than all buffers on the way hold; the client does not read it.
    deaf.query("select repeat('x', 100000000)").await;
    let (open_error, ()) = tokio::join!(open.error(), proxy.proxy.stop());
    assert_eq!(open_error, STOPPED);
    proxy.close().await;
}
