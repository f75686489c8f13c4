//! kill -9 of the process that reads, before each of its steps.
//!
//! The test binary runs itself again as a child, which ends itself with SIGKILL just before the
//! step it is told; the parent then reads on with an engine on what is left.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use egret_base::lifecycle::Service;
use egret_postgres::tokio_postgres::Config;
use egret_postgres_test::TestDatabase;
use egret_queue::{DurabilityMode, OutboxSteps, QueueConfig};

use super::rig::{self, NoopOutboxSteps, payloads};

const DIRECTORY: &str = "EGRET_TEST_OUTBOX_DIRECTORY";
const DATABASE: &str = "EGRET_TEST_OUTBOX_DATABASE";
const STEP: &str = "EGRET_TEST_OUTBOX_STEP";

/// Ends the process before a step is taken for the time that the count says.
struct Crash {
    step: String,
    remaining: AtomicU32,
}

impl OutboxSteps for Crash {
    fn before(&self, step: &'static str) {
        if step == self.step && self.remaining.fetch_sub(1, Ordering::SeqCst) == 0 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    }
}

fn config() -> QueueConfig {
    QueueConfig {
        // What is acknowledged is there after a crash of the process, whatever the durability; this
        // is how it is by default.
        durability: DurabilityMode::Fsync,
        ..rig::config()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn child_that_crashes() {
    let (Ok(directory), Ok(database), Ok(step)) =
        (std::env::var(DIRECTORY), std::env::var(DATABASE), std::env::var(STEP))
    else {
        return;
    };
    let connection: Config = database.parse().unwrap();
    let queues = rig::queues_in(&PathBuf::from(directory), config()).await;
    let crash = Arc::new(Crash { step, remaining: AtomicU32::new(1) });
    let outbox = rig::outbox(&queues, connection, crash);
    outbox.start().await.unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_between_enqueue_and_delete_makes_no_second_task() {
    for (step, major) in [("delete", 15), ("enqueue", 18), ("reject", 18)] {
        let database = TestDatabase::create(major).await;
        let directory = tempfile::tempdir().unwrap();
        let queues = rig::queues_in(directory.path(), config()).await;
        let installing = rig::outbox(&queues, database.connection(), Arc::new(NoopOutboxSteps));
        installing.install(None, &[]).await.unwrap();
        queues.stop().await;
        let client = database.connect().await;
        // Some have a unique key of their own, whose window is over by then.
        client
            .batch_execute(
                "SELECT egret.enqueue('q', to_jsonb(n), unique_key => CASE WHEN n % 3 = 0 THEN 'u' || n END,
                                      unique_window => CASE WHEN n % 3 = 0 THEN interval '1 ms' END,
                                      ordering_key => 'k' || n % 5) FROM generate_series(1000, 3499) AS n;
                 SELECT egret.enqueue('nowhere', to_jsonb(n)) FROM generate_series(1, 1500) AS n",
            )
            .await
            .unwrap();
        let url = format!(
            "host='{}' port={} user=postgres dbname={} sslmode=disable application_name=egret/queue",
            database.server.socket_dir.display(),
            database.server.port,
            database.name
        );
        let url = url.replace(
            "user=postgres",
            &format!("user={}", database.connection().get_user().unwrap()),
        );
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "outbox::crashes::child_that_crashes", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .env(DATABASE, url)
            .env(STEP, step)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
            .wait()
            .unwrap();
        assert_eq!(status.signal(), Some(9), "{step}: {status}");

        let queues = rig::queues_in(directory.path(), config()).await;
        let before = rig::tasks(&queues, "q").await.len();
        let outbox = rig::outbox(&queues, database.connection(), Arc::new(NoopOutboxSteps));
        outbox.start().await.unwrap();
        rig::await_drained(&client).await;
        let expected: Vec<String> = (1_000..3_500).map(|number| number.to_string()).collect();
        assert_eq!(payloads(&queues, "q").await, expected, "{step}, {before} before");
        assert!(before > 0, "{step}");
        let rejected = "SELECT count(*) FROM egret.outbox_rejected";
        assert_eq!(rig::count(&client, rejected).await, 1_500, "{step}");
        outbox.stop().await;
        queues.stop().await;
    }
}
