//! A database that is restored from an older dump brings rows back that are tasks already.

use std::process::Command;

use egret_base::lifecycle::Service;
use egret_postgres_test::client_programs;

use super::rig::{self, NoopOutboxSteps, Rig, payloads};

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_dump_makes_no_second_task() {
    let (major, programs) = client_programs();
    let rig = Rig::install(major).await;
    let enqueue = "SELECT egret.enqueue('q', to_jsonb(n)) FROM generate_series(10, 99) AS n";
    rig.client.batch_execute(enqueue).await.unwrap();
    let (name, server) = (&rig.database.name, &rig.database.server);
    let user = rig.database.connection();
    let run = |program: &str, more: &[&str]| {
        let output = Command::new(programs.join(program))
            .arg("-h")
            .arg(&server.socket_dir)
            .args(["-p", &server.port.to_string(), "-U", user.get_user().unwrap()])
            .args(more)
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let dump = tempfile::NamedTempFile::new().unwrap();
    let file = dump.path().to_str().unwrap();
    run("pg_dump", &["-Fc", "-f", file, name]);

    rig.outbox.start().await.unwrap();
    rig.await_drained().await;
    let later = "SELECT egret.enqueue('q', '100')";
    rig.client.batch_execute(later).await.unwrap();
    rig.await_drained().await;
    rig.outbox.stop().await;
    assert_eq!(rig.tasks("q").await.len(), 91);

    run("dropdb", &["--force", name]);
    run("createdb", &[name]);
    run("pg_restore", &["-d", name, file]);
    let client = rig.database.connect().await;
    assert_eq!(rig::count(&client, "SELECT count(*) FROM egret.outbox").await, 90);
    let outbox =
        rig::outbox(&rig.queues, rig.database.connection(), std::sync::Arc::new(NoopOutboxSteps));
    outbox.start().await.unwrap();
    // Keys go on from the clock: what is new is not taken for what was.
    client.batch_execute("SELECT egret.enqueue('q', '101')").await.unwrap();
    rig::await_drained(&client).await;
    let found = payloads(&rig.queues, "q").await;
    assert_eq!(found.len(), 92, "{found:?}");
    outbox.stop().await;
    rig.stop().await;
}
