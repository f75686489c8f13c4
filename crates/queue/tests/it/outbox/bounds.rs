//! The reader, not the roles that may enqueue, bounds its memory and the queues that it holds.

use std::collections::BTreeSet;

use egret_base::settings::ByteSize;
use egret_base_test::eventually;
use egret_postgres::tokio_postgres::Client;
use egret_queue::{OutboxView, QueueConfig};

use super::rig::{Rig, config, count, payloads};

/// Five chains of a small row and three of 600 bytes; the small ones are the oldest.
const FIVE_CHAINS: &str = r#"
    DO $$
    DECLARE roots uuid[];
    BEGIN
        roots := ARRAY(SELECT egret.enqueue_bytes('q', 'root') FROM generate_series(1, 5));
        PERFORM egret.enqueue_bytes('q', convert_to(repeat('x', 600), 'UTF8'), after => ARRAY[root])
        FROM unnest(roots) AS root, generate_series(1, 3);
    END $$"#;

/// What one batch has.
#[derive(Debug, PartialEq, Eq)]
struct Batch {
    rows: usize,
    chains: usize,
    bytes: usize,
    withheld: usize,
}

async fn next(client: &Client, bytes_max: i64, chain_bytes_max: i64) -> Batch {
    let sql = include_str!("../../../src/store/outbox/next.sql");
    let none: Vec<String> = Vec::new();
    let (rows_max, payload_bytes_max, role_queues_max) = (1_000_i64, 1_000_i64, 1_000_i64);
    let values: [&(dyn egret_postgres::tokio_postgres::types::ToSql + Sync); 8] = [
        &none,
        &rows_max,
        &bytes_max,
        &chain_bytes_max,
        &payload_bytes_max,
        &none,
        &none,
        &role_queues_max,
    ];
    let rows = client.query(sql, &values).await.unwrap();
    let chains: BTreeSet<String> = rows.iter().filter_map(|row| row.get("chain")).collect();
    let payloads = rows.iter().filter_map(|row| row.get("payload"));
    let withheld = rows.iter().filter_map(|row| row.get("withheld_bytes"));
    Batch {
        rows: rows.len(),
        chains: chains.len(),
        bytes: payloads.map(|payload: Vec<u8>| payload.len()).sum(),
        withheld: withheld.map(|_: i64| 1).sum(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_has_at_most_one_chain_beyond_its_bytes() {
    for major in [15, 18] {
        let rig = Rig::install(major).await;
        rig.client.batch_execute(FIVE_CHAINS).await.unwrap();
        let batch =
            |chains: usize| Batch { rows: 4 * chains, chains, bytes: 1_804 * chains, withheld: 0 };
        assert_eq!(next(&rig.client, 1_000, 8_000).await, batch(1));
        assert_eq!(next(&rig.client, 3_000, 8_000).await, batch(2));
        assert_eq!(next(&rig.client, 80_000, 8_000).await, batch(5));
        // What is larger than a chain may be is named, and not read.
        let withheld = Batch { rows: 20, chains: 5, bytes: 0, withheld: 20 };
        assert_eq!(next(&rig.client, 80_000, 1_800).await, withheld);
        let tags = "INSERT INTO egret.outbox (queue, payload, is_json, tags)
                    SELECT 'a', '', false, array_fill(repeat('t', 1000), ARRAY[64]) FROM generate_series(1, 20)";
        rig.client.batch_execute("DELETE FROM egret.outbox").await.unwrap();
        rig.client.batch_execute(tags).await.unwrap();
        assert_eq!(next(&rig.client, 100_000, 8_000).await.rows, 2);
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_has_its_bytes_bounded_where_it_is_made_and_where_it_is_read() {
    let rig =
        Rig::install_with(18, QueueConfig { chain_bytes_max: ByteSize(1_500), ..config() }).await;
    let (code, message) = rig.refusal(FIVE_CHAINS).await;
    assert_eq!(code, "54000", "{message}");
    assert!(message.contains("but queue.chain_bytes_max is 1500"), "{message}");
    // As under an earlier setting.
    rig.client
        .batch_execute("UPDATE egret.outbox_limit SET chain_bytes_max = 1000000")
        .await
        .unwrap();
    rig.client.batch_execute(FIVE_CHAINS).await.unwrap();
    let alone = "SELECT egret.enqueue('q', '1')";
    rig.client.batch_execute(alone).await.unwrap();
    egret_base::lifecycle::Service::start(&rig.outbox).await.unwrap();
    rig.await_drained().await;
    assert_eq!(payloads(&rig.queues, "q").await, ["1"]);
    let aside = "SELECT count(*) FROM egret.outbox_rejected
                 WHERE chain IS NOT NULL AND code = 'payload_too_large' AND reason LIKE '%queue.chain_bytes_max is 1500%'
                   AND octet_length(payload) IN (4, 600)";
    let codes: Vec<String> = rig
        .client
        .query("SELECT code || ': ' || reason FROM egret.outbox_rejected", &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(count(&rig.client, aside).await, 20, "{codes:?}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_that_cannot_be_created_are_held_up_to_a_bound() {
    let rig = Rig::install_with(
        18,
        QueueConfig { create_on_demand: true, queues_max: 4, tenant_queues_max: 4, ..config() },
    )
    .await;
    rig.client
        .batch_execute(
            "SELECT egret.enqueue('made-up-' || n, '0') FROM generate_series(1, 150) AS n;
             SELECT egret.enqueue('q', '1')",
        )
        .await
        .unwrap();
    egret_base::lifecycle::Service::start(&rig.outbox).await.unwrap();
    rig.await_view("100 rows wait", |view| view.waiting == 100).await;
    assert_eq!(payloads(&rig.queues, "q").await, ["1"]);
    rig.await_view("100 queues are held", |view| view.held.len() == 100).await;
    let view = rig.view().await;
    assert_eq!(view.rejected, 47, "three were created");
    let aside = "SELECT count(*) FROM egret.outbox_rejected WHERE reason LIKE '%queue.queues_max%'
                                                             OR reason LIKE '%queue.tenant_queues_max%'";
    assert_eq!(count(&rig.client, aside).await, 47);
    rig.stop().await;
}

/// Two roles that may enqueue.
async fn roles(rig: &Rig) -> [String; 2] {
    let roles = ["greedy", "modest"].map(|name| format!("{name}_{}", rig.database.name));
    for role in &roles {
        let create = format!("CREATE ROLE {role}");
        rig.client.batch_execute(&create).await.unwrap();
    }
    rig.outbox.install(None, &roles).await.unwrap();
    roles
}

/// Runs a statement in a session of a role.
async fn run_as(rig: &Rig, role: &str, sql: &str) {
    let session = format!("SET SESSION AUTHORIZATION {role}; {sql}; RESET SESSION AUTHORIZATION");
    rig.client.batch_execute(&session).await.unwrap();
}

/// The roles are of the whole server, which goes on after the test.
async fn drop_roles(rig: &Rig, roles: &[String]) {
    for role in roles {
        let sql = format!("DROP OWNED BY {role}; DROP ROLE {role}");
        rig.client.batch_execute(&sql).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_makes_up_queues_leaves_places_for_those_of_others() {
    let rig = Rig::install_with(
        18,
        QueueConfig { create_on_demand: true, queues_max: 1, tenant_queues_max: 1, ..config() },
    )
    .await;
    let roles = roles(&rig).await;
    let made_up = "SELECT egret.enqueue('made-up-' || n, '0') FROM generate_series(1, 150) AS n";
    run_as(&rig, &roles[0], made_up).await;
    let few = "SELECT egret.enqueue('planned-' || n, '0') FROM generate_series(1, 3) AS n";
    run_as(&rig, &roles[1], few).await;
    egret_base::lifecycle::Service::start(&rig.outbox).await.unwrap();
    rig.await_view("103 queues are held", |view| view.held.len() == 103).await;
    rig.await_view("50 rows are rejected", |view| view.rejected == 50).await;
    let modest = format!("SELECT count(*) FROM egret.outbox WHERE enqueued_by = '{}'", roles[1]);
    assert_eq!(count(&rig.client, &modest).await, 3);
    drop_roles(&rig, &roles).await;
    rig.stop().await;
}

/// More rows than a batch has are of queues that cannot be created, because a partition has failed.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_queues_that_cannot_be_created_now_wait_and_hold_up_no_others() {
    let mut rig = Rig::install_with(18, QueueConfig { create_on_demand: true, ..config() }).await;
    egret_queue::testing::panic_in_turn(&rig.queues, 1);
    eventually("a partition has failed", async || {
        !egret_base::lifecycle::Service::failed_parts(&rig.queues).is_empty()
    })
    .await;
    let roles = roles(&rig).await;
    let new = "SELECT egret.enqueue('new-' || n, '0') FROM generate_series(1, 1100) AS n";
    run_as(&rig, &roles[0], new).await;
    // Of rows without a key about half go to each partition.
    let known = "SELECT egret.enqueue('q', '1') FROM generate_series(1, 40) AS n";
    run_as(&rig, &roles[0], known).await;
    egret_base::lifecycle::Service::start(&rig.outbox).await.unwrap();
    eventually("a task is in the queue", async || !payloads(&rig.queues, "q").await.is_empty())
        .await;
    let is_hindered = |view: &OutboxView| view.reader != "reading";
    let view = rig.await_view("the reader says what waits", is_hindered).await;
    let reason = format!("rows of role {} wait", roles[0]);
    assert!(view.reader.contains(&reason), "{}", view.reader);
    assert_eq!(view.rejected, 0);
    let waiting = "SELECT count(*) FROM egret.outbox WHERE queue LIKE 'new-%'";
    assert_eq!(count(&rig.client, waiting).await, 1_100);
    rig.restart().await;
    rig.await_drained().await;
    assert_eq!(rig.view().await.rejected, 0);
    assert_eq!(payloads(&rig.queues, "q").await.len(), 40);
    assert_eq!(payloads(&rig.queues, "new-1100").await, ["0"]);
    drop_roles(&rig, &roles).await;
    rig.stop().await;
}
