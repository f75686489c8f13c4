//! Starting on a taken port, and stopping with sessions of every kind.

use egret_base::lifecycle::{Readiness, Service};
use egret_base::settings::ConfigDuration;
use egret_server::proxy::{Proxy, ProxyConfig};
use prometheus_client::registry::Registry;

use crate::proxy::door::{self, RunningProxy};
use crate::proxy::raw::Raw;

const STOPPED: &str = "57P01 terminating connection due to administrator command";

#[tokio::test]
async fn a_taken_port_names_the_setting_to_change() {
    let door = RunningProxy::open().await;
    for (address, port, expected) in [
        (
            "127.0.0.1",
            door.port(),
            "set proxy.port (EGRET_PROXY_PORT)",
        ),
        (
            "localhost",
            0,
            "proxy.address: `localhost` is not an IP address",
        ),
        ("192.0.2.1", 0, "check proxy.address and proxy.port"),
    ] {
        let config = ProxyConfig {
            address: address.to_owned(),
            port,
            ..ProxyConfig::default()
        };
        let options = door::options(config, &door.branches, None);
        let second = Proxy::new(options, &mut Registry::default());
        let error = second.start().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        second.stop().await;
    }
    door.close().await;
}

#[tokio::test]
async fn idle_sessions_end_and_transactions_may_finish() {
    let door = RunningProxy::open().await;
    let mut idle = Raw::connect(&door).await;
    idle.authenticate(&door).await;
    idle.ready().await;
    let mut working = Raw::connect(&door).await;
    working.authenticate(&door).await;
    working.ready().await;
    working.query("begin; create table kept ()").await;
    working.ready().await;
    let mut waking = Raw::connect(&door).await;
    door.branches.awake.send_replace(false);
    waking.authenticate(&door).await;
    door.guards(3).await;
    let (waking_error, ()) = tokio::join!(
        async {
            assert_eq!(idle.error().await, STOPPED);
            let waking_error = waking.error().await;
            working.query("commit").await;
            working.ready().await;
            assert_eq!(working.error().await, STOPPED);
            waking_error
        },
        door.proxy.stop(),
    );
    assert_eq!(waking_error, "57P03 the database system is shutting down");
    assert!(matches!(door.proxy.ready(), Readiness::NotReady(_)));
    let kept = door.database.connect().await;
    kept.query("select * from kept", &[]).await.unwrap();
    door.close().await;
}

#[tokio::test]
async fn sessions_that_do_not_finish_are_ended() {
    let config = ProxyConfig {
        stop_timeout: ConfigDuration::ms(20),
        ..ProxyConfig::default()
    };
    let door = RunningProxy::with(config, None).await;
    let mut open = Raw::connect(&door).await;
    open.authenticate(&door).await;
    open.ready().await;
    open.query("begin").await;
    open.ready().await;
    let mut deaf = Raw::connect(&door).await;
    deaf.authenticate(&door).await;
    deaf.ready().await;
    // More than all buffers on the way hold; the client does not read it.
    deaf.query("select repeat('x', 100000000)").await;
    let (open_error, ()) = tokio::join!(open.error(), door.proxy.stop());
    assert_eq!(open_error, STOPPED);
    door.close().await;
}
