//! node-postgres, which speaks the protocol without libpq.

use crate::proxy::running_proxy::{
    LOAD_TEST_LOCK, PASSWORD, RunningProxy, expect_failure, expect_success,
};

#[tokio::test]
async fn does_everything_it_can() {
    let _crowd = LOAD_TEST_LOCK.lock().await;
    let proxy = RunningProxy::open().await;
    let program = include_str!("scripts/node.js");
    let output = proxy.node(program, PASSWORD, &proxy.database()).await;
    let expected = "prepared statements\nbig results\nerrors\nnotifications\ncancel\nrefusals\nfifty sessions\n";
    assert_eq!(expect_success(output), expected);
    proxy.close().await;
}

#[tokio::test]
async fn is_refused_with_a_wrong_password() {
    let proxy = RunningProxy::open().await;
    let program = "const { Client } = require('pg'); new Client().connect();";
    let complaint = expect_failure(proxy.node(program, "wrong", &proxy.database()).await);
    assert!(
        complaint.contains("password authentication failed for user \"egret_branch\""),
        "{complaint}"
    );
    proxy.close().await;
}
