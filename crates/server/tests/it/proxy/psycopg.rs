//! psycopg, with the libpq it brings along.

use crate::proxy::running_proxy::{LOAD_TEST_LOCK, RunningProxy, expect_success};

#[tokio::test]
async fn does_everything_it_can() {
    let proxy = RunningProxy::open().await;
    let output =
        proxy.python(&proxy.connection_string(""), include_str!("scripts/psycopg.py")).await;
    let expected = "prepared statements\npipeline\ncopy\nbig results\nerrors\nnotifications\n\
        cancel\nrefusals\nversion\n";
    assert_eq!(expect_success(output), expected);
    proxy.close().await;
}

#[tokio::test]
async fn opens_fifty_sessions_at_once() {
    let _crowd = LOAD_TEST_LOCK.lock().await;
    let proxy = RunningProxy::open().await;
    let output =
        proxy.python(&proxy.connection_string(""), include_str!("scripts/psycopg_many.py")).await;
    assert_eq!(expect_success(output), "50\n");
    assert_eq!(proxy.metric("egret_proxy_sessions_total"), 50.0);
    proxy.close().await;
}
