//! The SQL of the statistics, and which of it a server of some version understands.

use std::borrow::Cow;

use egret_metrics_wire::MetricKind;

use super::StatisticsLimits;

/// Metrics that one query yields.
pub(super) struct Family {
    /// Prefix of the metrics' names.
    pub prefix: &'static str,
    /// Help text of the metrics.
    pub help: &'static str,
    pub text: Cow<'static, str>,
    /// The columns that go up and down; all others are counters.
    gauges: &'static [&'static str],
    /// How many rows, where the query takes that as its parameter.
    pub row_limit: Option<fn(&StatisticsLimits) -> u32>,
    /// Whether the query takes the application names that are shown, and how many more may be.
    pub has_application_names: bool,
}

impl Family {
    pub(crate) fn kind(&self, column: &str) -> MetricKind {
        if self.gauges == ALL || self.gauges.contains(&column) {
            MetricKind::Gauge
        } else {
            MetricKind::Counter
        }
    }
}

/// All columns go up and down.
const ALL: &[&str] = &["*"];

fn new_family(
    prefix: &'static str,
    help: &'static str,
    text: &'static str,
    gauges: &'static [&'static str],
) -> Family {
    Family {
        prefix,
        help,
        text: Cow::Borrowed(text),
        gauges,
        row_limit: None,
        has_application_names: false,
    }
}

fn with_row_limit(family: Family, row_limit: fn(&StatisticsLimits) -> u32) -> Family {
    Family { row_limit: Some(row_limit), ..family }
}

/// What there is to ask a server of this version, with the schema of `pg_stat_statements` where it
/// is installed and whether it is of the form of version 17.
pub(super) fn families(version: i32, statements: Option<(String, bool)>) -> Vec<Family> {
    let mut all = server_families();
    all.extend(database_families());
    let (bgwriter, wal) = match version {
        180_000.. => (bgwriter(), wal()),
        170_000.. => (bgwriter(), wal_before_18()),
        _ => (bgwriter_before_17(), wal_before_18()),
    };
    all.push(new_family("pg_stat_bgwriter", "The background writer.", bgwriter, &[]));
    all.push(new_family("pg_stat_wal", "Writing of the log.", wal, &[]));
    if version >= 170_000 {
        all.push(new_family("pg_stat_checkpointer", "The checkpointer.", checkpointer(), &[]));
    }
    match version {
        180_000.. => all.push(new_family("pg_stat_io", "Reading and writing.", io(), &[])),
        160_000.. => {
            all.push(new_family("pg_stat_io", "Reading and writing.", io_before_18(), &[]))
        }
        _ => {}
    }
    if let Some((schema, has_v17_columns)) = statements {
        let text = self::statements(&schema, has_v17_columns);
        all.push(Family {
            prefix: "pg_stat_statements",
            help: "A statement.",
            text: Cow::Owned(text),
            gauges: &[],
            row_limit: Some(|limits| limits.statements_max),
            has_application_names: false,
        });
    }
    all
}

/// Of databases and tables, in every version.
fn database_families() -> Vec<Family> {
    vec![
        new_family(
            "pg_stat_database",
            "Statistics of a database.",
            database(),
            &["numbackends", "stats_reset"],
        ),
        new_family("pg_database", "A database.", database_size(), ALL),
        new_family(
            "pg_database_wraparound",
            "How old the oldest transaction of a database is.",
            wraparound(),
            ALL,
        ),
        with_row_limit(
            new_family(
                "pg_stat_user_tables",
                "Statistics of a table.",
                user_tables(),
                TABLE_GAUGES,
            ),
            |limits| limits.tables_max,
        ),
        with_row_limit(
            new_family("pg_statio_user_tables", "Blocks of a table.", statio_user_tables(), &[]),
            |limits| limits.tables_max,
        ),
    ]
}

/// Of the server as a whole, in every version.
fn server_families() -> Vec<Family> {
    vec![
        new_family("pg", "The server.", server(), ALL),
        new_family("pg_postmaster", "When the server was started.", start_time(), ALL),
        new_family("pg_replication", "Replication as a standby sees it.", replication(), ALL),
        new_family(
            "pg_stat_replication",
            "A standby as its primary sees it.",
            stat_replication(),
            ALL,
        ),
        new_family("pg_replication_slot", "A replication slot.", replication_slots(), ALL),
        new_family("pg_locks", "Locks held or waited for.", locks(), ALL),
        Family {
            has_application_names: true,
            ..with_row_limit(
                new_family("pg_stat_activity", "Sessions.", activity(), ALL),
                |limits| limits.activities_max,
            )
        },
        new_family(
            "pg_long_running",
            "Transactions of more than a minute.",
            long_transactions(),
            ALL,
        ),
        new_family("pg_settings", "A setting.", settings(), ALL),
        new_family("pg_wal", "Segments of the log on disk.", wal_directory(), ALL),
        new_family(
            "pg_stat_archiver",
            "Archived segments of the log.",
            archiver(),
            &["last_archive_age"],
        ),
    ]
}

/// Columns of tables that go up and down.
const TABLE_GAUGES: &[&str] = &[
    "n_live_tup",
    "n_dead_tup",
    "n_mod_since_analyze",
    "last_vacuum",
    "last_autovacuum",
    "last_analyze",
    "last_autoanalyze",
    "index_size_bytes",
    "table_size_bytes",
];

/// Statistics are worth no waiting: neither for a lock nor for long.
pub(super) fn session_settings() -> &'static str {
    "SET statement_timeout = '5s'; SET lock_timeout = '200ms'; SET default_transaction_read_only = on"
}

pub(super) fn server_version() -> &'static str {
    "SELECT current_setting('server_version_num')::int"
}

/// Its schema, quoted, and whether the columns of times have the names of version 17.
pub(super) fn statements_extension() -> &'static str {
    "SELECT quote_ident(schema.nspname), string_to_array(extension.extversion, '.')::int[] >= ARRAY[1, 11] \
     FROM pg_extension AS extension JOIN pg_namespace AS schema ON schema.oid = extension.extnamespace \
     WHERE extension.extname = 'pg_stat_statements'"
}

fn server() -> &'static str {
    "SELECT version() AS version, current_setting('server_version') AS short_version, 1::float8 AS static"
}

fn start_time() -> &'static str {
    "SELECT extract(epoch FROM pg_postmaster_start_time())::float8 AS start_time_seconds"
}

fn database() -> &'static str {
    include_str!("database.sql")
}

fn database_size() -> &'static str {
    include_str!("database_size.sql")
}

fn wraparound() -> &'static str {
    include_str!("wraparound.sql")
}

fn user_tables() -> &'static str {
    include_str!("user_tables.sql")
}

fn statio_user_tables() -> &'static str {
    include_str!("statio_user_tables.sql")
}

fn replication() -> &'static str {
    include_str!("replication.sql")
}

fn stat_replication() -> &'static str {
    include_str!("stat_replication.sql")
}

fn replication_slots() -> &'static str {
    include_str!("replication_slots.sql")
}

fn locks() -> &'static str {
    include_str!("locks.sql")
}

fn activity() -> &'static str {
    include_str!("activity.sql")
}

fn long_transactions() -> &'static str {
    include_str!("long_transactions.sql")
}

fn settings() -> &'static str {
    include_str!("settings.sql")
}

fn wal_directory() -> &'static str {
    include_str!("wal_directory.sql")
}

fn wal() -> &'static str {
    include_str!("wal.sql")
}

fn wal_before_18() -> &'static str {
    include_str!("wal_before_18.sql")
}

fn archiver() -> &'static str {
    include_str!("archiver.sql")
}

fn bgwriter() -> &'static str {
    include_str!("bgwriter.sql")
}

fn bgwriter_before_17() -> &'static str {
    include_str!("bgwriter_before_17.sql")
}

fn checkpointer() -> &'static str {
    include_str!("checkpointer.sql")
}

fn io() -> &'static str {
    include_str!("io.sql")
}

fn io_before_18() -> &'static str {
    include_str!("io_before_18.sql")
}

/// `schema` is a quoted identifier.
fn statements(schema: &str, has_v17_columns: bool) -> String {
    let blk = if has_v17_columns { "shared_blk" } else { "blk" };
    include_str!("statements.sql").replace("{schema}", schema).replace("{blk}", blk)
}
