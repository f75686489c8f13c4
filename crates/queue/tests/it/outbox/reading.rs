//! The reader: nothing passed over, nothing twice, whatever the order of commits; what the queue
//! does not take; whose turn it is.

use std::collections::BTreeSet;
use std::sync::Arc;

use egret_base::lifecycle::{Readiness, Service};
use egret_base::settings::ConfigDuration;
use egret_base::{Entropy, SeededEntropy, TaskRequest, TaskSink};
use egret_base_test::{ConditionLog, eventually};
use egret_queue::{QueueConfig, SettingsChange};

use super::rig::{self, NoopOutboxSteps, Rig, TENANT, payloads};

fn below(entropy: &SeededEntropy, bound: u64) -> u64 {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    u64::from_le_bytes(bytes) % bound
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_commit_in_any_order_are_each_a_task_once() {
    const TRANSACTIONS: usize = 50;
    for major in [15, 18] {
        let rig = Rig::start(major).await;
        let entropy = SeededEntropy::new(major.into());
        let mut open = Vec::new();
        let mut committed = BTreeSet::new();
        // All are begun, and have their keys, before the first is committed.
        for number in 0..TRANSACTIONS {
            let client = rig.database.connect().await;
            let sql = format!("BEGIN; SELECT egret.enqueue('q', '{number}')");
            client.batch_execute(&sql).await.unwrap();
            open.push((number, client));
        }
        while !open.is_empty() {
            let at = below(&entropy, open.len() as u64) as usize;
            let (number, client) = open.swap_remove(at);
            match below(&entropy, 3) {
                0 => client.batch_execute("ROLLBACK").await.unwrap(),
                1 => {
                    client.batch_execute("COMMIT").await.unwrap();
                    committed.insert(number.to_string());
                }
                _ => {
                    let more = format!("SELECT egret.enqueue('q', '{}'); COMMIT", number + 100);
                    client.batch_execute(&more).await.unwrap();
                    committed.insert(number.to_string());
                    committed.insert((number + 100).to_string());
                }
            }
        }
        rig.await_drained().await;
        let found = payloads(&rig.queues, "q").await;
        assert!(found.iter().eq(&committed), "{major}: {found:?} {committed:?}");
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_the_queue_refuses_for_good_are_put_aside() {
    let rig = Rig::start(18).await;
    rig.client
        .batch_execute(
            r#"SELECT egret.enqueue('nowhere', '1');
               SELECT egret.enqueue('q', '2');
               INSERT INTO egret.outbox (queue, payload, is_json) VALUES ('q', '{"', true), ('a b', '', false);
               INSERT INTO egret.outbox (queue, payload, is_json, priority) VALUES ('q', '', false, 99);
               INSERT INTO egret.outbox (queue, payload, is_json, metadata) VALUES ('q', '', false, '[1]')"#,
        )
        .await
        .unwrap();
    rig.await_drained().await;
    assert_eq!(payloads(&rig.queues, "q").await, ["2"]);
    let rows = "SELECT queue, code, reason FROM egret.outbox_rejected ORDER BY queue, reason";
    let rows = rig.client.query(rows, &[]).await.unwrap();
    let found: Vec<(String, String, String)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let codes: Vec<(&str, &str)> =
        found.iter().map(|(queue, code, _)| (&**queue, &**code)).collect();
    let invalid = "invalid_request";
    assert_eq!(
        codes,
        [
            ("a b", "queue_not_found"),
            ("nowhere", "queue_not_found"),
            ("q", invalid),
            ("q", invalid),
            ("q", invalid)
        ],
        "{found:?}"
    );
    assert_eq!(rig.view().await.rejected, 5);

    let settings = SettingsChange::default();
    let made = rig.queues.put_queue(TENANT, "nowhere", &settings);
    made.await.unwrap();
    let (_, again) = rig.outbox.retry_rejected(None).await.unwrap();
    assert_eq!(again, 5);
    rig.await_view("four rows are rejected", |view| view.rejected >= 4).await;
    assert_eq!(payloads(&rig.queues, "nowhere").await, ["1"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_takes_nothing_in_holds_its_rows_and_no_others() {
    let rig = Rig::start(15).await;
    let log = ConditionLog::watch("outbox_rows_waiting", &rig.database.name);
    let settings = SettingsChange::default();
    let made = rig.queues.put_queue(TENANT, "drained", &settings);
    made.await.unwrap();
    let draining = rig.queues.set_queue_flags(TENANT, "drained", None, Some(true));
    draining.await.unwrap();
    // More than a batch of them, and older than the others.
    rig.client
        .batch_execute(
            "SELECT egret.enqueue('drained', to_jsonb(n)) FROM generate_series(1, 1500) AS n;
             SELECT egret.enqueue('q', to_jsonb(n)) FROM generate_series(1, 1500) AS n",
        )
        .await
        .unwrap();
    let others = "SELECT count(*) FROM egret.outbox WHERE queue = 'q'";
    rig.await_count("all other rows are read", others, |count| count == 0).await;
    let view = rig.view().await;
    assert_eq!((view.waiting, &*view.reader), (1_500, "reading"));
    assert!(view.held["drained"].contains("draining"), "{view:?}");
    assert!(log.reason().is_some_and(|reason| reason.contains("draining")));
    let resumed = rig.queues.set_queue_flags(TENANT, "drained", None, Some(false));
    resumed.await.unwrap();
    rig.await_drained().await;
    assert_eq!(rig.tasks("drained").await.len(), 1_500);
    assert_eq!(rig.tasks("q").await.len(), 1_500);
    // Waiting for that queue is no fault of the outbox.
    assert!(!log.is_active());
    // Partitions resume one after the other: a batch between two of them is partly taken, so that
    // the condition may end and begin once more.
    let levels = log.levels();
    assert!(levels.len() >= 2 && levels.iter().all(|level| level == "INFO"), "{levels:?}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_egret_reads_and_another_takes_over() {
    let rig = Rig::start(18).await;
    let log = ConditionLog::watch("outbox_unreachable", &rig.database.name);
    rig.await_reading().await;
    let directory = tempfile::tempdir().unwrap();
    let other_queues = rig::queues_in(directory.path(), rig::config()).await;
    let other = rig::outbox(&other_queues, rig.database.connection(), Arc::new(NoopOutboxSteps));
    other.start().await.unwrap();
    eventually("the other outbox names the Egret that reads", async || {
        let views = other.list().await.unwrap().outboxes;
        if views[0].reader.contains("another egret reads this outbox") {
            Ok(())
        } else {
            Err(views)
        }
    })
    .await;
    let enqueue = "SELECT egret.enqueue('q', '1')";
    rig.client.batch_execute(enqueue).await.unwrap();
    rig.await_drained().await;
    assert_eq!(rig.tasks("q").await.len(), 1);
    assert!(log.is_active());
    rig.outbox.stop().await;
    rig.client.batch_execute(enqueue).await.unwrap();
    rig.await_drained().await;
    assert_eq!(rig::tasks(&other_queues, "q").await.len(), 1);
    eventually("the condition ends", async || !log.is_active()).await;
    assert_eq!(log.levels(), ["WARN", "INFO"]);
    other.stop().await;
    other_queues.stop().await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_comes_back_after_its_connection_is_lost() {
    let rig = Rig::start(18).await;
    let reader = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
                  WHERE application_name = 'egret/queue' AND datname = current_database() AND query LIKE '%RECURSIVE writer%'";
    rig.await_count("the reader's session is ended", reader, |count| count > 0).await;
    let enqueue = "SELECT egret.enqueue('q', '1')";
    rig.client.batch_execute(enqueue).await.unwrap();
    rig.await_drained().await;
    assert_eq!(rig.tasks("q").await.len(), 1);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_engines_make_tasks_through_the_sink() {
    let directory = tempfile::tempdir().unwrap();
    let queues = rig::queues_in(directory.path(), rig::config()).await;
    let sink: Arc<dyn TaskSink> = Arc::new(queues.clone());
    let request = TaskRequest {
        tenant: TENANT,
        queue: "q",
        payload: b"{}",
        key: "views/orders/1",
        ..TaskRequest::default()
    };
    let other = TaskRequest { key: "views/orders/2", ..request };
    let unknown = TaskRequest { queue: "nowhere", ..request };
    let first = sink.enqueue(&[request, other, unknown, request]).await;
    let ids: Vec<_> = first.iter().flatten().map(|receipt| receipt.id).collect();
    assert_eq!((ids.len(), ids[0]), (3, ids[2]), "{first:?}");
    let refused = first[2].as_ref().unwrap_err();
    assert_eq!((refused.code, refused.retryable), ("queue_not_found", false));
    let again = sink.enqueue(&[request]).await;
    let receipt = again[0].as_ref().unwrap();
    assert!(receipt.replayed && receipt.id == ids[0]);
    assert_eq!(rig::tasks(&queues, "q").await.len(), 2);
    queues.stop().await;
    let stopped = sink.enqueue(&[request]).await;
    let refused = stopped[0].as_ref().unwrap_err();
    assert!(refused.retryable, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_of_a_reader_ends_with_its_outbox() {
    let rig = Rig::install_with(
        18,
        QueueConfig { outbox_poll: ConfigDuration::secs(86_400), ..rig::config() },
    )
    .await;
    rig.outbox.start().await.unwrap();
    let enqueue = "SELECT egret.enqueue('q', '1')";
    rig.client.batch_execute(enqueue).await.unwrap();
    rig.await_drained().await;
    rig.outbox.remove(None, false).await.unwrap();
    let sessions = "SELECT count(*) FROM pg_stat_activity
                    WHERE application_name = 'egret/queue' AND datname = current_database()";
    rig.await_count("the reader's session ends", sessions, |count| count == 0).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_is_made_again_is_read_again() {
    let rig = Rig::start(15).await;
    let log = ConditionLog::watch("outbox_unreachable", &rig.database.name);
    for round in 1..=3 {
        let enqueue = "SELECT egret.enqueue('q', '1')";
        rig.client.batch_execute(enqueue).await.unwrap();
        rig.await_drained().await;
        assert_eq!(rig.tasks("q").await.len(), round);
        rig.outbox.remove(None, false).await.unwrap();
        rig.outbox.install(None, &[]).await.unwrap();
    }
    // To remove it is no fault.
    assert!(log.levels().is_empty(), "{:?}", log.levels());
    // Rows that are held and then deleted leave nothing to wait for.
    let settings = SettingsChange::default();
    let made = rig.queues.put_queue(TENANT, "drained", &settings);
    made.await.unwrap();
    let draining = rig.queues.set_queue_flags(TENANT, "drained", None, Some(true));
    draining.await.unwrap();
    let enqueue = "SELECT egret.enqueue('drained', '1')";
    rig.client.batch_execute(enqueue).await.unwrap();
    rig.await_view("the row is held", |view| !view.held.is_empty()).await;
    let delete = "DELETE FROM egret.outbox";
    rig.client.batch_execute(delete).await.unwrap();
    rig.await_view("no row is held", |view| view.held.is_empty()).await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_outboxes_cannot_be_looked_for_readiness_says_so_and_takes_requests() {
    let rig = Rig::install(18).await;
    let elsewhere = egret_postgres_test::TestDatabase::create(18).await;
    let elsewhere = elsewhere.connect().await;
    let allow = async |answer: &str| {
        let name = &rig.database.name;
        let sql = format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS {answer}");
        elsewhere.batch_execute(&sql).await.unwrap();
    };
    assert_eq!(rig.outbox.failed_parts(), []);
    allow("false").await;
    rig.outbox.start().await.unwrap();
    let failed = eventually("a part has failed", async || rig.outbox.failed_parts().pop()).await;
    assert_eq!(failed.part, "outbox/databases");
    assert!(failed.reason.contains("cannot find out"), "{failed:?}");
    // It is open to all, and names no database.
    let said = format!("{} {}", failed.reason, failed.remedy);
    assert!(!said.contains(&rig.database.name), "{said}");
    let reason = eventually("the outbox is not ready", async || match rig.outbox.ready() {
        Readiness::Ready => None,
        Readiness::NotReady(reason) | Readiness::Failed(reason) => Some(reason),
    })
    .await;
    assert!(!reason.contains(&rig.database.name), "{reason}");
    allow("true").await;
    eventually("the outbox is ready", async || {
        rig.outbox.failed_parts().is_empty() && rig.outbox.ready() == Readiness::Ready
    })
    .await;
    rig.stop().await;
}
