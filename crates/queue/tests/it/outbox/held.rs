//! However many rows of one role are held, they cost nothing where rows of others are looked for or
//! linked.

use egret_postgres::tokio_postgres::Client;
use serde_json::Value;

use super::rig::Rig;

/// Rows of role `greedy`, each for a queue of its own that does not exist. A walk over them reads a
/// block for every few of them, a step of an index for each at least one.
const HELD_ROWS: &str = "INSERT INTO egret.outbox (queue, payload, is_json, enqueued_by)
                         SELECT 'made-up-' || n, '', false, 'greedy' FROM generate_series(1, 40000) AS n";

/// What reads this many blocks has walked over no rows that are held: a step of the index reads
/// three of them.
const FEW_BLOCKS: u64 = 200;

/// The plan of a statement that was run, and how many blocks it read.
async fn explain(client: &Client, sql: &str) -> (Value, u64) {
    let sql = format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}");
    let row = client.query_one(&sql, &[]).await.unwrap();
    let mut explained: Value = row.get(0);
    let plan = explained[0]["Plan"].take();
    let blocks = ["Shared Hit Blocks", "Shared Read Blocks"];
    let read = blocks.map(|name| plan[name].as_u64().unwrap());
    (plan, read.iter().sum())
}

/// What a look for rows finds while queue `q` exists, and how many blocks it reads.
async fn explain_next_rows(client: &Client, roles_held: &str, role_queues_max: u32) -> (f64, u64) {
    let sql = format!(
        "EXECUTE look ('{{}}', 1000, 1000000, 1000000, 1000000, '{roles_held}', '{{q}}', {role_queues_max})"
    );
    let (plan, blocks) = explain(client, &sql).await;
    (plan["Actual Rows"].as_f64().unwrap(), blocks)
}

/// Has a session look as the reader does.
async fn prepare_next_rows(client: &Client) {
    let settings = include_str!("../../../src/store/outbox/session.sql");
    client.batch_execute(settings).await.unwrap();
    let sql = include_str!("../../../src/store/outbox/next.sql");
    let prepare = format!("PREPARE look AS\n{sql}");
    client.batch_execute(&prepare).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_reads_nothing_of_a_role_that_is_held() {
    for major in [15, 18] {
        let rig = Rig::install(major).await;
        rig.client.batch_execute(HELD_ROWS).await.unwrap();
        let others = "SELECT egret.enqueue('q', '1'), egret.enqueue('new', '2')";
        rig.client.batch_execute(others).await.unwrap();
        prepare_next_rows(&rig.client).await;
        // Before the server knows anything of the table, and after.
        for analyze in ["", "ANALYZE egret.outbox"] {
            rig.client.batch_execute(analyze).await.unwrap();
            let (rows, blocks) = explain_next_rows(&rig.client, "{greedy}", 1_000).await;
            assert_eq!(rows, 2.0);
            assert!(blocks < FEW_BLOCKS, "{major} {analyze}: {blocks} blocks");
        }
        rig.stop().await;
    }
}

/// Its rows for queues that exist are looked at one by one, those for others not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_look_finds_rows_of_a_role_that_is_held_for_queues_that_exist() {
    let rig = Rig::install(18).await;
    rig.client.batch_execute(HELD_ROWS).await.unwrap();
    let known = "INSERT INTO egret.outbox (queue, payload, is_json, enqueued_by) VALUES ('q', '', false, 'greedy')";
    rig.client.batch_execute(known).await.unwrap();
    prepare_next_rows(&rig.client).await;
    let (rows, blocks) = explain_next_rows(&rig.client, "{greedy}", 1_000).await;
    assert_eq!(rows, 1.0);
    assert!(blocks < FEW_BLOCKS, "{blocks} blocks");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_at_a_role_that_is_tried_again_goes_so_far_only() {
    let rig = Rig::install(18).await;
    rig.client.batch_execute(HELD_ROWS).await.unwrap();
    let other = "SELECT egret.enqueue('q', '1')";
    rig.client.batch_execute(other).await.unwrap();
    prepare_next_rows(&rig.client).await;
    let (rows, blocks) = explain_next_rows(&rig.client, "{}", 10).await;
    assert_eq!(rows, 11.0);
    // For each queue a step to it, a step to its rows, and the row twice.
    assert!(blocks < 2 * FEW_BLOCKS, "{blocks} blocks");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_linked_past_the_rows_of_other_roles() {
    for major in [15, 18] {
        let rig = Rig::install(major).await;
        rig.client.batch_execute(HELD_ROWS).await.unwrap();
        let linked = "SELECT egret.enqueue('q', '2', after => ARRAY[egret.enqueue('q', '1')])";
        // The first call reads what the functions are.
        rig.client.batch_execute(linked).await.unwrap();
        let (_, blocks) = explain(&rig.client, linked).await;
        assert!(blocks < 2 * FEW_BLOCKS, "{major}: {blocks} blocks");
        rig.stop().await;
    }
}
