//! Plans and tables: no statement scans every partition, no read assigns a transaction id, no index
//! is redundant.

use egret_postgres::tokio_postgres::{Client, SimpleQueryMessage};
use egret_postgres_test::TestDatabase;
use serde_json::Value;

use super::{install, read, write};
use crate::worker::session::SESSION_SETTINGS;

async fn installed(version: u32) -> (TestDatabase, Client) {
    let database = TestDatabase::create(version).await;
    let mut client = database.connect().await;
    install::install(&mut client, 16, false).await.unwrap();
    client.batch_execute(SESSION_SETTINGS).await.unwrap();
    let rows = "INSERT INTO egret.document_tenant (name) VALUES ('default');
        INSERT INTO egret.document SELECT 1, 1, i, gen_random_uuid(), 1, now(), NULL, NULL, NULL, ARRAY[i % 7, (i + 1) % 7, (i + 2) % 7, (i + 3) % 7], '{}' FROM generate_series(1, 2000) AS i;
        INSERT INTO egret.document_alias SELECT 1, 1, md5(i::text)::uuid, i FROM generate_series(1, 2000) AS i;
        INSERT INTO egret.document_edge SELECT 1, 1, i, i % 7, (i + 1) % 7, (i + 2) % 7, (i + 3) % 7 FROM generate_series(1, 2000) AS i";
    client.batch_execute(rows).await.unwrap();
    (database, client)
}

/// The executed plan of a prepared statement with these values (`EXPLAIN ANALYZE`).
async fn plan(client: &Client, sql: &str, values: &str) -> Value {
    let prepare = format!("DEALLOCATE ALL; PREPARE asked AS {sql}");
    client.batch_execute(&prepare).await.unwrap();
    let explain = format!("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked ({values})");
    let told = client.simple_query(&explain).await.unwrap();
    let row = told.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    serde_json::from_str(row.unwrap()).unwrap()
}

/// The relations that were accessed, each with its access method.
fn visited(plan: &Value, found: &mut Vec<(String, String)>) {
    match plan {
        Value::Object(node) => {
            let ran = node.get("Actual Loops").and_then(Value::as_f64);
            if let (Some(relation), true) = (node.get("Relation Name"), ran > Some(0.0)) {
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                found.push((text(relation), text(&node["Node Type"])));
            }
            node.values().for_each(|value| visited(value, found));
        }
        Value::Array(all) => all.iter().for_each(|value| visited(value, found)),
        _ => {}
    }
}

async fn looked_at(client: &Client, sql: &str, values: &str) -> Vec<String> {
    let mut found = Vec::new();
    visited(&plan(client, sql, values).await, &mut found);
    assert!(found.iter().all(|(_, how)| how.contains("Index")), "{sql}\n{found:?}");
    let mut names: Vec<String> = found.into_iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    names
}

#[tokio::test]
async fn single_row_look_ups_visit_one_partition_by_an_index() {
    for (version, is_known) in [(15, false), (15, true), (18, false), (18, true)] {
        let (_database, client) = installed(version).await;
        if is_known {
            client.batch_execute("ANALYZE").await.unwrap();
        }
        let alias = "'{1}', ARRAY[md5('5')::uuid]";
        let count = async |sql: &str, values: &str| looked_at(&client, sql, values).await.len();
        assert_eq!(count(&read::by_number_sql(), "'{1}', '{1}', '{5}'").await, 1);
        assert_eq!(count(read::RESOLVE_ALIASES_SQL, alias).await, 1);
        // One index scan of aliases, one of documents.
        assert_eq!(count(&read::by_alias_sql(), alias).await, 2);
        // One index scan of edges, and one of the listed documents.
        let named = "'{1}', '{3}', 1, 10, '{}'";
        assert_eq!(count(read::COUNT_REFERRERS_SQL, named).await, 2);
        assert_eq!(count(&read::referrers_sql(), "1, 3, 0, 1").await, 2);
        // The first referrers are read first, however many there are.
        for (sql, values) in
            [(read::COUNT_REFERRERS_SQL.to_owned(), named), (read::referrers_sql(), "1, 3, 0, 1")]
        {
            let plan = plan(&client, &sql, values).await.to_string();
            assert!(plan.contains("\"Merge Append\""), "{plan}");
            assert!(!plan.contains("\"Sort\""), "{plan}");
        }
        assert_eq!(count(read::STORED_REPLIES_SQL, alias).await, 1);
        // The combined look-up of a group of writes.
        let all = format!("{alias}, '{{1}}', '{{1}}', '{{5}}', {alias}");
        assert!(count(&read::look_up_sql(), &all).await <= 3);
        assert_eq!(count(read::DELETED_SQL, "'{1}', '{1}', '{5}'").await, 1);
    }
}

#[tokio::test]
async fn reads_assign_no_transaction_id_and_create_no_temporary_table() {
    let (_database, client) = installed(18).await;
    client.batch_execute("BEGIN").await.unwrap();
    for (sql, values) in [
        (read::by_number_sql(), "'{1}', '{1}', '{5}'"),
        (read::by_alias_sql(), "'{1}', ARRAY[md5('5')::uuid]"),
        (read::referrers_sql(), "1, 3, 0, 10"),
        (read::COUNT_REFERRERS_SQL.to_owned(), "'{1}', '{3}', 20, 10, '{}'"),
    ] {
        plan(&client, &sql, values).await;
    }
    let number = "SELECT pg_current_xact_id_if_assigned() IS NULL";
    let is_none: bool = client.query_one(number, &[]).await.unwrap().get(0);
    assert!(is_none);
    client.batch_execute("COMMIT").await.unwrap();
    let temporary = "SELECT count(*) FROM pg_class WHERE relpersistence = 't'";
    let temporary: i64 = client.query_one(temporary, &[]).await.unwrap().get(0);
    assert_eq!(temporary, 0);
    assert!(write::write_sql().starts_with("SELECT reached, held FROM egret.document_write("));
}

#[tokio::test]
async fn no_index_is_redundant() {
    let (_database, client) = installed(18).await;
    let twice = "SELECT count(*) FROM pg_index AS a JOIN pg_index AS b ON a.indrelid = b.indrelid AND a.indexrelid < b.indexrelid \
             AND a.indkey::text = b.indkey::text AND coalesce(pg_get_expr(a.indpred, a.indrelid), '') = coalesce(pg_get_expr(b.indpred, b.indrelid), '') \
         JOIN pg_class AS c ON c.oid = a.indrelid WHERE c.relnamespace = 'egret'::regnamespace";
    let twice: i64 = client.query_one(twice, &[]).await.unwrap().get(0);
    assert_eq!(twice, 0);
}

/// A published table without a replica identity would reject deletions.
#[tokio::test]
async fn every_table_has_a_key_by_which_it_is_replicated() {
    let (_database, client) = installed(18).await;
    let without = "SELECT coalesce(string_agg(c.relname, ', '), '') FROM pg_class AS c \
         WHERE c.relnamespace = 'egret'::regnamespace AND c.relkind IN ('r', 'p') AND c.relreplident = 'd' \
         AND NOT EXISTS (SELECT FROM pg_index AS x WHERE x.indrelid = c.oid AND x.indisprimary)";
    let without: String = client.query_one(without, &[]).await.unwrap().get(0);
    assert_eq!(without, "");
}
