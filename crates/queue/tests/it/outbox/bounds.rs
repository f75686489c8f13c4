//! Whoever may enqueue bounds neither the reader's memory nor what it holds: the reader does.

use std::collections::BTreeSet;

use egret_base::settings::Size;
use egret_postgres::tokio_postgres::Client;
use egret_queue::QueueConfig;

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
    let held: Vec<String> = Vec::new();
    let (rows_max, payload_bytes_max) = (1_000_i64, 1_000_i64);
    let values: [&(dyn egret_postgres::tokio_postgres::types::ToSql + Sync); 5] = [
        &held,
        &rows_max,
        &bytes_max,
        &chain_bytes_max,
        &payload_bytes_max,
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
        let batch = |chains: usize| Batch {
            rows: 4 * chains,
            chains,
            bytes: 1_804 * chains,
            withheld: 0,
        };
        assert_eq!(next(&rig.client, 1_000, 8_000).await, batch(1));
        assert_eq!(next(&rig.client, 3_000, 8_000).await, batch(2));
        assert_eq!(next(&rig.client, 80_000, 8_000).await, batch(5));
        // What is larger than a chain may be is named, and not read.
        let withheld = Batch {
            rows: 20,
            chains: 5,
            bytes: 0,
            withheld: 20,
        };
        assert_eq!(next(&rig.client, 80_000, 1_800).await, withheld);
        let tags = "INSERT INTO egret.outbox (queue, payload, is_json, tags)
                    SELECT 'a', '', false, array_fill(repeat('t', 1000), ARRAY[64]) FROM generate_series(1, 20)";
        rig.client
            .batch_execute("DELETE FROM egret.outbox")
            .await
            .unwrap();
        rig.client.batch_execute(tags).await.unwrap();
        assert_eq!(next(&rig.client, 100_000, 8_000).await.rows, 2);
        rig.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_has_its_bytes_bounded_where_it_is_made_and_where_it_is_read() {
    let rig = Rig::install_with(
        18,
        QueueConfig {
            chain_bytes_max: Size(1_500),
            ..config()
        },
    )
    .await;
    let (code, message) = rig.refusal(FIVE_CHAINS).await;
    assert_eq!(code, "54000", "{message}");
    assert!(
        message.contains("but queue.chain_bytes_max is 1500"),
        "{message}"
    );
    // As under an earlier setting.
    rig.client
        .batch_execute("UPDATE egret.outbox_limit SET chain_bytes_max = 1000000")
        .await
        .unwrap();
    rig.client.batch_execute(FIVE_CHAINS).await.unwrap();
    let alone = "SELECT egret.enqueue('q', '1')";
    rig.client.batch_execute(alone).await.unwrap();
    egret_base::lifecycle::Service::start(&rig.outbox)
        .await
        .unwrap();
    rig.drained().await;
    assert_eq!(payloads(&rig.queues, "q").await, ["1"]);
    let aside = "SELECT count(*) FROM egret.outbox_rejected
                 WHERE chain IS NOT NULL AND code = 'payload_too_large' AND reason LIKE '%queue.chain_bytes_max is 1500%'
                   AND octet_length(payload) IN (4, 600)";
    let codes = rig
        .client
        .query(
            "SELECT code || ': ' || reason FROM egret.outbox_rejected",
            &[],
        )
        .await;
    let codes: Vec<String> = codes.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(count(&rig.client, aside).await, 20, "{codes:?}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_that_cannot_be_created_are_held_up_to_a_bound() {
    let rig = Rig::install_with(
        18,
        QueueConfig {
            create_on_demand: true,
            queues_max: 4,
            tenant_queues_max: 4,
            ..config()
        },
    )
    .await;
    rig.client
        .batch_execute(
            "SELECT egret.enqueue('made-up-' || n, '0') FROM generate_series(1, 150) AS n;
             SELECT egret.enqueue('q', '1')",
        )
        .await
        .unwrap();
    egret_base::lifecycle::Service::start(&rig.outbox)
        .await
        .unwrap();
    while rig.view().await.waiting != 100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(payloads(&rig.queues, "q").await, ["1"]);
    while rig.view().await.held.len() != 100 {
        tokio::task::yield_now().await;
    }
    let view = rig.view().await;
    assert_eq!(view.rejected, 47, "three were created");
    let aside = "SELECT count(*) FROM egret.outbox_rejected WHERE reason LIKE '%queue.queues_max%'
                                                             OR reason LIKE '%queue.tenant_queues_max%'";
    assert_eq!(count(&rig.client, aside).await, 47);
    rig.stop().await;
}
