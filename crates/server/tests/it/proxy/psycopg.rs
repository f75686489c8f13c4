//! psycopg, with the libpq it brings along.

use crate::proxy::door::{CROWD, RunningProxy, printed};

#[tokio::test]
async fn does_everything_it_can() {
    let door = RunningProxy::open().await;
    let output = door
        .python(&door.conninfo(""), include_str!("scripts/psycopg.py"))
        .await;
    let expected = "prepared statements\npipeline\ncopy\nbig results\nerrors\nnotifications\n\
        cancel\nrefusals\nversion\n";
    assert_eq!(printed(output), expected);
    door.close().await;
}

#[tokio::test]
async fn opens_fifty_sessions_at_once() {
    let _crowd = CROWD.lock().await;
    let door = RunningProxy::open().await;
    let output = door
        .python(&door.conninfo(""), include_str!("scripts/psycopg_many.py"))
        .await;
    assert_eq!(printed(output), "50\n");
    assert_eq!(door.metric("egret_proxy_sessions_total"), 50.0);
    door.close().await;
}
