//! node-postgres, which speaks the protocol without libpq.

use crate::proxy::door::{CROWD, PASSWORD, RunningProxy, complaint, printed};

#[tokio::test]
async fn does_everything_it_can() {
    let _crowd = CROWD.lock().await;
    let door = RunningProxy::open().await;
    let program = include_str!("scripts/node.js");
    let output = door.node(program, PASSWORD, &door.database()).await;
    let expected = "prepared statements\nbig results\nerrors\nnotifications\ncancel\nrefusals\nfifty sessions\n";
    assert_eq!(printed(output), expected);
    door.close().await;
}

#[tokio::test]
async fn is_refused_with_a_wrong_password() {
    let door = RunningProxy::open().await;
    let program = "const { Client } = require('pg'); new Client().connect();";
    let complaint = complaint(door.node(program, "wrong", &door.database()).await);
    assert!(
        complaint.contains("password authentication failed for user \"egret_branch\""),
        "{complaint}"
    );
    door.close().await;
}
