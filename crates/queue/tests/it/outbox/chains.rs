//! `after`: rows of one transaction that are handed over as one.

use std::sync::Arc;

use egret_base_test::eventually;
use egret_postgres::migrate::{Migration, migrate};
use egret_postgres_test::TestDatabase;
use egret_queue::SettingsChange;
use egret_queue::model::TaskState;

use super::rig::{NoopOutboxSteps, Rig, TENANT, config, count, outbox, payloads, queues_in};

/// Enqueues three rows of which the third waits for both others, and the second for the first.
const THREE: &str = r#"
    DO $$
    DECLARE first uuid; second uuid;
    BEGIN
        first := egret.enqueue('q', '1');
        second := egret.enqueue('other', '2', after => ARRAY[first]);
        PERFORM egret.enqueue_bytes('q', '3', after => ARRAY[first, second]);
    END $$"#;

async fn with_other_queue(rig: &Rig) {
    let settings = SettingsChange::default();
    let made = rig.queues.put_queue(TENANT, "other", &settings);
    made.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_wait_for_each_other_become_a_chain() {
    for major in [15, 18] {
        let rig = Rig::start(major).await;
        with_other_queue(&rig).await;
        rig.client.batch_execute(THREE).await.unwrap();
        rig.await_drained().await;
        let states = |tasks: Vec<egret_queue::TaskView>| {
            let mut states: Vec<TaskState> = tasks.iter().map(|task| task.state).collect();
            states.sort_unstable();
            states
        };
        let (q, other) = (rig.tasks("q").await, rig.tasks("other").await);
        assert_eq!(states(q), [TaskState::Waiting, TaskState::Ready]);
        assert_eq!(states(other), [TaskState::Waiting]);
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_which_a_queue_takes_nothing_waits_as_a_whole() {
    let rig = Rig::start(18).await;
    with_other_queue(&rig).await;
    let drained = rig.queues.set_queue_flags(TENANT, "other", None, Some(true));
    drained.await.unwrap();
    rig.client.batch_execute(THREE).await.unwrap();
    let alone = "SELECT egret.enqueue('q', '4')";
    rig.client.batch_execute(alone).await.unwrap();
    eventually("a task is in the queue", async || !rig.tasks("q").await.is_empty()).await;
    assert_eq!(payloads(&rig.queues, "q").await, ["4"]);
    let resumed = rig.queues.set_queue_flags(TENANT, "other", None, Some(false));
    resumed.await.unwrap();
    rig.await_drained().await;
    assert_eq!(payloads(&rig.queues, "q").await, ["1", "3", "4"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_with_a_row_that_is_refused_for_good_is_put_aside_and_comes_back_whole() {
    let rig = Rig::start(18).await;
    // There is no queue `other`.
    rig.client.batch_execute(THREE).await.unwrap();
    rig.await_drained().await;
    assert!(rig.tasks("q").await.is_empty());
    let aside = "SELECT count(*) FROM egret.outbox_rejected WHERE chain IS NOT NULL";
    assert_eq!(count(&rig.client, aside).await, 3);
    with_other_queue(&rig).await;
    assert_eq!(rig.outbox.retry_rejected(None).await.unwrap().1, 3);
    rig.await_drained().await;
    assert_eq!(payloads(&rig.queues, "q").await, ["1", "3"]);
    assert_eq!(rig.tasks("other").await.len(), 1);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chains_merge_and_rows_of_other_transactions_are_refused() {
    let rig = Rig::install(18).await;
    let merged = r#"
        DO $$
        DECLARE a uuid; b uuid; c uuid; d uuid;
        BEGIN
            a := egret.enqueue('q', '1');
            b := egret.enqueue('q', '2', after => ARRAY[a]);
            c := egret.enqueue('q', '3');
            d := egret.enqueue('q', '4', after => ARRAY[c]);
            PERFORM egret.enqueue('q', '5', after => ARRAY[b, d]);
        END $$"#;
    rig.client.batch_execute(merged).await.unwrap();
    let chains = "SELECT count(DISTINCT chain) * 100 + count(chain) FROM egret.outbox";
    assert_eq!(count(&rig.client, chains).await, 105);
    let foreign =
        "SELECT egret.enqueue('q', '6', after => ARRAY[(SELECT key FROM egret.outbox LIMIT 1)])";
    let (code, message) = rig.refusal(foreign).await;
    assert_eq!(code, "22023", "{message}");
    assert!(message.contains("another transaction"), "{message}");
    let (code, _) = rig.refusal("SELECT egret.enqueue('q', '6', after => ARRAY[NULL::uuid])").await;
    assert_eq!(code, "22004");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_of_an_earlier_egret_keeps_its_rows_its_rights_and_what_depends_on_it() {
    let database = TestDatabase::create(18).await;
    let mut client = database.connect().await;
    let first = Migration {
        name: "outbox",
        sql: include_str!("../../../src/store/outbox/migration_1.sql"),
    };
    migrate(&mut client, "queue", &[first]).await.unwrap();
    let before = r#"
        GRANT USAGE ON SCHEMA egret TO PUBLIC;
        GRANT EXECUTE ON FUNCTION egret.enqueue TO PUBLIC;
        SELECT egret.enqueue('q', '1');
        CREATE FUNCTION public.depends() RETURNS uuid LANGUAGE sql
        BEGIN ATOMIC SELECT egret.enqueue('q', '2'::jsonb); END"#;
    client.batch_execute(before).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let queues = queues_in(directory.path(), config()).await;
    let mut connection = database.connection();
    connection.application_name("egret/queue");
    let outbox = outbox(&queues, connection, Arc::new(NoopOutboxSteps));
    outbox.install(None, &[]).await.unwrap();
    let may = "SELECT count(*) FROM pg_proc, aclexplode(proacl) AS acl
               WHERE pronamespace = 'egret'::regnamespace AND proname = 'enqueue' AND acl.grantee = 0";
    assert_eq!(count(&client, may).await, 1);
    let after = "SELECT public.depends(); SELECT egret.enqueue('q', '3', NULL)";
    client.batch_execute(after).await.unwrap();
    egret_base::lifecycle::Service::start(&outbox).await.unwrap();
    super::rig::await_drained(&client).await;
    assert_eq!(payloads(&queues, "q").await, ["1", "2", "3"]);
    egret_base::lifecycle::Service::stop(&outbox).await;
    egret_base::lifecycle::Service::stop(&queues).await;
}
