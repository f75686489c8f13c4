//! An outbox that cannot be brought up to date, or not be read then: the reader says why, and goes
//! on as soon as it can.

use std::sync::Arc;

use egret_base::CodedError;
use egret_base::lifecycle::Service;
use egret_base_test::{ConditionLog, eventually};
use egret_postgres::tokio_postgres::Client;
use egret_queue::OutboxView;

use super::rig::{self, NoopOutboxSteps, Rig, count};

/// Takes the step back by which the primary key begins with the role.
const BEFORE_ROLES: &str = "ALTER TABLE egret.outbox DROP CONSTRAINT outbox_pkey;
    ALTER TABLE egret.outbox ADD CONSTRAINT outbox_pkey PRIMARY KEY (queue, key);
    DELETE FROM egret.migration WHERE engine = 'queue' AND name = 'rows by role'";

/// Whether the primary key begins with the role.
const IS_BY_ROLE: &str =
    "SELECT count(*) FROM pg_constraint WHERE conrelid = 'egret.outbox'::regclass AND contype = 'p'
    AND pg_get_constraintdef(oid) = 'PRIMARY KEY (enqueued_by, queue, key)'";

const ENQUEUE: &str = "SELECT egret.enqueue('q', '1')";

/// A transaction that has the outbox open, and its process.
async fn open_transaction(rig: &Rig) -> (Client, i32) {
    let client = rig.database.connect().await;
    let read = "BEGIN; SELECT FROM egret.outbox";
    client.batch_execute(read).await.unwrap();
    let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
    let pid = row.unwrap().get(0);
    (client, pid)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_an_upgrade_waits_for_is_named_and_rows_are_written_meanwhile() {
    let rig = Rig::install(18).await;
    rig.client.batch_execute(BEFORE_ROLES).await.unwrap();
    let (holder, pid) = open_transaction(&rig).await;
    rig.outbox.start().await.unwrap();
    let named = format!("process {pid} of role ");
    let is_named = |view: &OutboxView| view.reader.contains(&named);
    rig.await_view("the transaction is named", is_named).await;
    rig.client.batch_execute(ENQUEUE).await.unwrap();
    assert_eq!(rig.tasks("q").await.len(), 0);
    assert_eq!(count(&rig.client, IS_BY_ROLE).await, 0);
    holder.batch_execute("COMMIT").await.unwrap();
    rig.await_drained().await;
    rig.await_reading().await;
    assert_eq!(rig.tasks("q").await.len(), 1);
    assert_eq!(count(&rig.client, IS_BY_ROLE).await, 1);
    rig.stop().await;
}

/// The statement goes on waiting in the server for a moment: a machine that stands still for longer
/// is given another chance.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_does_not_wait_for_an_upgrade() {
    const ATTEMPTS: u32 = 5;
    let rig = Rig::install(18).await;
    rig.client.batch_execute(BEFORE_ROLES).await.unwrap();
    let (_holder, _) = open_transaction(&rig).await;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND query LIKE '%DROP CONSTRAINT outbox_pkey%'";
    let mut is_left_waiting = false;
    for _ in 0..ATTEMPTS {
        let outbox = rig::outbox(&rig.queues, rig.database.connection(), Arc::new(NoopOutboxSteps));
        outbox.start().await.unwrap();
        rig.await_count("the statement waits", waiting, |count| count > 0).await;
        outbox.stop().await;
        is_left_waiting = count(&rig.client, waiting).await > 0;
        if is_left_waiting {
            break;
        }
    }
    assert!(is_left_waiting, "the stop has waited for the statement each time");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_key_that_an_upgrade_fails_of_is_named_with_the_command_that_drops_it() {
    let rig = Rig::install(18).await;
    rig.client.batch_execute(BEFORE_ROLES).await.unwrap();
    let log = ConditionLog::watch("outbox_unreachable", &rig.database.name);
    let refer = "CREATE TABLE public.notes (queue text COLLATE \"C\", key uuid,
        CONSTRAINT of_task FOREIGN KEY (queue, key) REFERENCES egret.outbox (queue, key) ON DELETE CASCADE)";
    rig.client.batch_execute(refer).await.unwrap();
    rig.outbox.start().await.unwrap();
    let drop_key = "ALTER TABLE public.notes DROP CONSTRAINT of_task";
    eventually("the condition names the statement", async || {
        log.reason().is_some_and(|reason| reason.contains(drop_key))
    })
    .await;
    let is_named = |view: &OutboxView| view.reader.contains(drop_key);
    rig.await_view("the outbox names the statement", is_named).await;
    let refused = rig.outbox.install(None, &[]).await.unwrap_err();
    assert_eq!(refused.code(), "outbox_referenced", "{refused}");
    assert!(refused.to_string().contains(drop_key), "{refused}");
    rig.client.batch_execute(drop_key).await.unwrap();
    rig.await_reading().await;
    eventually("the condition ends", async || !log.is_active()).await;
    assert_eq!(count(&rig.client, IS_BY_ROLE).await, 1);
    assert_eq!(log.levels(), ["WARN", "INFO"]);
    rig.stop().await;
}

/// All that comes before the first look for rows works, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_fails_at_each_look_for_rows_has_one_condition_until_it_reads() {
    let rig = Rig::start(18).await;
    rig.await_reading().await;
    let log = ConditionLog::watch("outbox_unreachable", &rig.database.name);
    let hinder = "ALTER TABLE egret.outbox RENAME COLUMN traceparent TO put_aside";
    rig.client.batch_execute(hinder).await.unwrap();
    eventually("the condition begins", async || log.is_active()).await;
    // An attempt has three sessions: two look for a pooler.
    let sessions = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()";
    let before = count(&rig.client, sessions).await;
    let is_enough = |count| count >= before + 9;
    rig.await_count("three attempts have ended", sessions, is_enough).await;
    assert_eq!(log.levels(), ["WARN"]);
    let mend = "ALTER TABLE egret.outbox RENAME COLUMN put_aside TO traceparent";
    rig.client.batch_execute(mend).await.unwrap();
    rig.client.batch_execute(ENQUEUE).await.unwrap();
    rig.await_drained().await;
    eventually("the condition ends", async || !log.is_active()).await;
    assert_eq!(log.levels(), ["WARN", "INFO"]);
    assert_eq!(rig.tasks("q").await.len(), 1);
    rig.stop().await;
}
