//! The statistics of real servers of each version.

use std::collections::BTreeSet;

use egret_metrics_model::Labels;
use egret_metrics_wire::exposition::{TextItem, TextReader};
use egret_postgres::tokio_postgres::Config;
use egret_postgres_test::TestDatabase;

use super::*;

/// The statistics of the server that a connection leads to.
fn statistics_of(mut connection: Config, limits: StatisticsLimits) -> PostgresStatistics {
    connection.application_name("egret/series");
    PostgresStatistics::new(Databases::single(connection), limits)
}

/// The series of a text, each once; their names.
fn names(text: &str) -> BTreeSet<String> {
    let mut reader = TextReader::new(text, TextFormat::Prometheus);
    let (mut series, mut names) = (BTreeSet::new(), BTreeSet::new());
    while let Some(item) = reader.next() {
        let item = item.unwrap_or_else(|error| panic!("{error}: {text}"));
        if let TextItem::Sample { labels, .. } = item {
            let labels = Labels::new(labels.iter().map(|(name, value)| (&**name, &**value)));
            names.insert(labels.metric().to_owned());
            assert!(series.insert(labels.clone()), "{labels} occurs twice");
        }
    }
    names
}

fn value(text: &str, series: &str) -> f64 {
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))
        .unwrap_or_else(|| panic!("{series} is missing"));
    found.parse().expect("a number")
}

const EVERYWHERE: &[&str] = &[
    "pg_up",
    "pg_static",
    "pg_postmaster_start_time_seconds",
    "pg_database_size_bytes",
    "pg_database_wraparound_age_datfrozenxid_seconds",
    "pg_stat_database_xact_commit",
    "pg_stat_database_numbackends",
    "pg_stat_database_active_time_seconds_total",
    "pg_stat_user_tables_n_live_tup",
    "pg_stat_user_tables_seq_scan",
    "pg_stat_user_tables_table_size_bytes",
    "pg_statio_user_tables_heap_blocks_hit",
    "pg_replication_is_replica",
    "pg_replication_lag_seconds",
    "pg_replication_slot_slot_is_active",
    "pg_locks_count",
    "pg_stat_activity_count",
    "pg_stat_activity_max_tx_duration",
    "pg_long_running_transactions",
    "pg_settings_max_connections",
    "pg_settings_shared_buffers_bytes",
    "pg_settings_checkpoint_timeout_seconds",
    "pg_wal_segments",
    "pg_wal_size_bytes",
    "pg_stat_archiver_archived_count",
    "pg_stat_bgwriter_buffers_alloc_total",
    "pg_stat_wal_bytes_total",
];

async fn check(major: u32, also: &[&str]) {
    let database = TestDatabase::create(major).await;
    let client = database.connect().await;
    let slot = format!("slot_{}", database.name);
    client
        .batch_execute(&format!(
            "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 100); ANALYZE t; \
             SELECT pg_create_physical_replication_slot('{slot}')"
        ))
        .await
        .expect("a table and a slot");
    let statistics = statistics_of(database.connection(), StatisticsLimits::default());
    // What a session has counted is sent when it is idle, and at once when it is asked to.
    client.batch_execute("SELECT pg_stat_force_next_flush()").await.expect("a flush");
    let text = statistics.collect().await.expect("a text");
    let found = names(&text);
    for name in EVERYWHERE.iter().chain(also) {
        assert!(found.contains(*name), "version {major}: {name} is missing in {found:#?}");
    }
    assert_eq!(value(&text, "pg_up"), 1.0);
    assert_eq!(value(&text, "pg_exporter_last_scrape_error"), 0.0, "version {major}");
    assert_eq!(value(&text, "pg_settings_shared_buffers_bytes"), (64 << 20) as f64);
    let table = format!(
        "pg_stat_user_tables_n_live_tup{{datname=\"{}\",schemaname=\"public\",relname=\"t\"}}",
        database.name
    );
    assert_eq!(value(&text, &table), 100.0);
    client
        .batch_execute(&format!("SELECT pg_drop_replication_slot('{slot}')"))
        .await
        .expect("the slot goes");
}

#[tokio::test]
async fn version_15() {
    check(15, &["pg_stat_bgwriter_checkpoints_timed_total", "pg_stat_wal_sync_total"]).await;
}

#[tokio::test]
async fn version_16() {
    let also = ["pg_stat_bgwriter_buffers_backend_total", "pg_stat_io_read_bytes_total"];
    check(16, &also).await;
}

#[tokio::test]
async fn version_17() {
    let also =
        ["pg_stat_checkpointer_num_timed_total", "pg_stat_io_hits_total", "pg_stat_wal_sync_total"];
    check(17, &also).await;
}

#[tokio::test]
async fn version_18() {
    let also = ["pg_stat_checkpointer_write_time_total", "pg_stat_io_write_bytes_total"];
    check(18, &also).await;
}

#[tokio::test]
async fn application_names_that_clients_make_up_become_few_series() {
    let database = TestDatabase::create(18).await;
    let limits = StatisticsLimits { application_names_max: 20, ..StatisticsLimits::default() };
    let statistics = statistics_of(database.connection(), limits);
    let name = "application_name=\"";
    let mut found = BTreeSet::new();
    for round in 0..3 {
        let mut held = Vec::new();
        for number in 0..15 {
            let mut connection = database.connection();
            connection.application_name(format!("{}-{round}-{number}", database.name));
            held.push(egret_postgres::pool::connect(&connection).await.unwrap());
        }
        let text = statistics.collect().await.unwrap();
        assert_eq!(value(&text, "pg_exporter_last_scrape_error"), 0.0);
        let lines = text.lines().filter_map(|line| line.split(name).nth(1));
        found.extend(lines.filter_map(|rest| Some(rest.split('"').next()?.to_owned())));
    }
    assert!(found.len() <= 21 && found.contains("other"), "{found:#?}");
    let shown = format!("{}-0-", database.name);
    assert!(found.iter().any(|name| name.starts_with(&shown)), "{found:#?}");
}

#[tokio::test]
async fn statements_of_both_forms() {
    let database = TestDatabase::create(18).await;
    let client = database.connect().await;
    for (schema, blk, has_form_of_17) in [("old", "blk", false), ("new", "shared_blk", true)] {
        client
            .batch_execute(&format!(
                "CREATE SCHEMA {schema}; CREATE VIEW {schema}.pg_stat_statements AS \
                 SELECT 10::oid AS userid, oid AS dbid, query::bigint AS queryid, query::bigint AS calls, \
                    1000::float8 AS total_exec_time, 5::bigint AS rows, \
                    1::float8 AS {blk}_read_time, 2::float8 AS {blk}_write_time \
                 FROM generate_series(1, 5) AS query, pg_database WHERE datname = current_database()"
            ))
            .await
            .expect("a view of this form");
        let families = queries::families(180_000, Some((schema.to_owned(), has_form_of_17)));
        let family = families.last().expect("the last is that of statements");
        let limits = StatisticsLimits { statements_max: 3, ..StatisticsLimits::default() };
        let statistics = statistics_of(database.connection(), limits);
        let mut text = String::new();
        statistics.append_family(&client, family, &mut text).await.expect("statements");
        let counted =
            text.lines().filter(|line| line.starts_with("pg_stat_statements_calls_total{"));
        assert_eq!(counted.count(), 3, "{text}");
        assert!(text.contains("# TYPE pg_stat_statements_seconds_total counter"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_down() {
    let mut connection = Config::new();
    connection.host("/nonexistent").user("nobody").dbname("none");
    let statistics = statistics_of(connection, StatisticsLimits::default());
    let text = statistics.collect().await.expect("a text");
    assert_eq!(value(&text, "pg_up"), 0.0);
    assert_eq!(names(&text).len(), 1);
}
