//! The outbox in a user's database: its schema, and the SQL by which rows are taken from it.

use std::collections::BTreeMap;

use egret_postgres::PostgresError;
use egret_postgres::error::server_error;
use egret_postgres::listen::quote_identifier;
use egret_postgres::lock_owner::{LockOutcome, LockOwner};
use egret_postgres::migrate::{Migration, check_schema_owner, migrate, remove_engine};
use egret_postgres::tokio_postgres::error::SqlState;
use egret_postgres::tokio_postgres::{Client, Row, Transaction};

use crate::error::QueueError;

/// The name under which `egret.migration` knows the outbox.
const ENGINE: &str = "queue";

/// Its schema, step by step.
const MIGRATIONS: [Migration; 4] = [
    Migration { name: "outbox", sql: include_str!("outbox/migration_1.sql") },
    Migration { name: "chains", sql: include_str!("outbox/migration_2.sql") },
    Migration { name: "chain bytes", sql: include_str!("outbox/migration_3.sql") },
    Migration { name: "rows by role", sql: include_str!("outbox/migration_4.sql") },
];

/// Channel on which transactions notify that they have enqueued rows.
pub(crate) const CHANNEL: &str = "egret_outbox";

/// Lock of the session that reads an outbox: the first eight bytes of SHA-256("egret/outbox").
const READER_KEY: i64 = i64::from_be_bytes([0xae, 0xb7, 0x31, 0x51, 0x96, 0xa8, 0x56, 0x80]);

/// A row of the outbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxRow {
    /// The queue that it goes to.
    pub queue: String,
    /// Key of the row, a UUIDv7.
    pub key: String,
    /// Payload of the task.
    pub payload: Vec<u8>,
    /// Whether the payload is JSON.
    pub is_json: bool,
    /// Priority from 0 to 9.
    pub priority: Option<i32>,
    /// Ordering key; empty: none.
    pub ordering_key: String,
    /// Earliest time, in Unix milliseconds; zero: at once.
    pub run_at_ms: i64,
    /// Attempts before it is dead.
    pub max_attempts: Option<i32>,
    /// The longest that an attempt may take; zero: the queue's setting.
    pub timeout_ms: i64,
    /// Unique key; empty: none.
    pub unique_key: String,
    /// How long that is remembered; zero: the queue's setting.
    pub unique_window_ms: i64,
    /// For people to find it by.
    pub tags: Vec<String>,
    /// Metadata, as names and values.
    pub metadata: BTreeMap<String, String>,
    /// URL that is called when the task has ended; empty: none.
    pub callback_url: String,
    /// W3C trace context: `traceparent`.
    pub traceparent: String,
    /// Identifies the chain; the same in all of its rows.
    pub chain: Option<String>,
    /// Keys of rows of the chain, or ids of tasks, that it waits for.
    pub after: Vec<String>,
    /// The role whose session wrote it.
    pub enqueued_by: String,
    /// Its `ctid` when it was read.
    pub ctid: String,
}

/// A row that was read, or the reason why it was not.
#[derive(Clone, Debug)]
pub(crate) struct CheckedRow {
    /// The row; of one with a defect only queue, key, chain and place.
    pub row: OutboxRow,
    /// Why the rest of the row was not read.
    pub defect: Option<Defect>,
}

/// Why a row was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// What it holds is no text, or no JSON.
    Unreadable(String),
    /// Its payload is larger than [`SizeLimits::payload_bytes_max`], or its chain than
    /// [`SizeLimits::chain_bytes_max`].
    TooLarge {
        /// The size of either.
        size_bytes: u64,
    },
}

/// Limits on the sizes of payloads and chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimits {
    /// Maximum size of a payload, in bytes.
    pub payload_bytes_max: u64,
    /// The largest chain: the payloads, keys, tags and metadata of its rows.
    pub chain_bytes_max: u64,
}

impl SizeLimits {
    fn payload(&self) -> i64 {
        i64::try_from(self.payload_bytes_max).unwrap_or(i64::MAX)
    }

    fn chain(&self) -> i64 {
        i64::try_from(self.chain_bytes_max).unwrap_or(i64::MAX)
    }
}

/// A row that the queue refused for good.
#[derive(Clone, Debug)]
pub(crate) struct RejectedRow<'a> {
    pub row: &'a OutboxRow,
    /// The stable name of the error.
    pub code: &'static str,
    /// Message of the error, as text.
    pub reason: String,
}

/// Numbers of rows of an outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxCounts {
    pub waiting: u64,
    /// Age of the oldest waiting row, in milliseconds.
    pub oldest_ms: Option<u64>,
    /// Rows that the queue rejected.
    pub rejected: u64,
}

/// Installs or upgrades the outbox.
///
/// # Errors
/// [`QueueError::OutboxBusy`] and [`QueueError::OutboxReferenced`]; the server's.
pub async fn install(client: &mut Client) -> Result<(), QueueError> {
    let Err(failure) = migrate(client, ENGINE, &MIGRATIONS).await else {
        return Ok(());
    };
    let PostgresError::Server { error, .. } = &failure else {
        return Err(failure.into());
    };
    let code = error.code();
    if code == Some(&SqlState::LOCK_NOT_AVAILABLE) {
        let sql = include_str!("outbox/transactions.sql");
        let open_transactions = client.query_one(sql, &[]).await;
        let open = first_text(&open_transactions.map_err(server_error("look for transactions"))?);
        return Err(QueueError::OutboxBusy {
            transactions: open.unwrap_or_else(|| "they have ended by now".to_owned()),
        });
    }
    if code == Some(&SqlState::DEPENDENT_OBJECTS_STILL_EXIST) {
        let sql = include_str!("outbox/foreign_keys.sql");
        let keys = client.query_one(sql, &[]).await;
        if let Some(commands) = first_text(&keys.map_err(server_error("look for foreign keys"))?) {
            return Err(QueueError::OutboxReferenced { commands });
        }
    }
    Err(failure.into())
}

/// The first column of a row as text; `None` where it is null or not UTF-8, as names may be in a
/// database without an encoding.
fn first_text(row: &Row) -> Option<String> {
    row.try_get(0).unwrap_or_default()
}

/// Whether the database has an outbox.
pub async fn is_installed(client: &Client) -> Result<bool, PostgresError> {
    let sql = "SELECT pg_catalog.to_regclass('egret.outbox') IS NOT NULL";
    let row = client.query_one(sql, &[]).await;
    Ok(row.map_err(server_error("look for egret.outbox"))?.get(0))
}

/// Refuses an outbox that another role has made; must be called before any other read of it.
pub(crate) async fn check_outbox_owner(client: &Client) -> Result<(), PostgresError> {
    check_schema_owner(client).await
}

/// The names of roles that do not exist; `None` if all exist. `public` stands for every role.
pub(crate) async fn find_unknown_roles(
    client: &Client,
    roles: &[String],
) -> Result<Option<String>, PostgresError> {
    let sql = "SELECT pg_catalog.string_agg(pg_catalog.format('`%s`', asked.name), ', ' ORDER BY asked.place) \
               FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY AS asked (name, place) \
               WHERE asked.name <> 'public' AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = asked.name)";
    let row = client.query_one(sql, &[&roles]).await;
    Ok(row.map_err(server_error("look for roles"))?.get(0))
}

/// Lets a role enqueue; `public` stands for all roles.
pub async fn grant(client: &mut Client, roles: &[String]) -> Result<(), PostgresError> {
    let transaction = client.transaction().await.map_err(server_error("begin"))?;
    for role in roles {
        let role = match role.as_str() {
            "public" => "PUBLIC".to_owned(),
            name => quote_identifier(name),
        };
        let sql = format!(
            "GRANT USAGE ON SCHEMA egret TO {role};
             GRANT EXECUTE ON FUNCTION egret.enqueue, egret.enqueue_bytes TO {role}"
        );
        let granted = transaction.batch_execute(&sql).await;
        granted.map_err(server_error("grant egret.enqueue"))?;
    }
    transaction.commit().await.map_err(server_error("commit"))
}

/// Removes the outbox if `allow` accepts its counts; no row can be written meanwhile.
pub async fn uninstall<E: From<PostgresError>>(
    client: &mut Client,
    allow: impl FnOnce(OutboxCounts) -> Result<(), E>,
) -> Result<OutboxCounts, E> {
    let transaction = client.transaction().await.map_err(server_error("begin"))?;
    let lock = "LOCK TABLE egret.outbox, egret.outbox_rejected IN ACCESS EXCLUSIVE MODE";
    let locked = transaction.batch_execute(lock).await;
    locked.map_err(server_error("lock egret.outbox"))?;
    let counts = count_rows_in(&transaction).await?;
    allow(counts)?;
    remove_engine(&transaction, ENGINE, include_str!("outbox/remove.sql")).await?;
    // Ends the reader at once: its session would keep others from dropping the database.
    let notify = "SELECT pg_catalog.pg_notify($1, '')";
    let notified = transaction.execute(notify, &[&CHANNEL]).await;
    notified.map_err(server_error("notify the reader of egret.outbox"))?;
    transaction.commit().await.map_err(server_error("commit"))?;
    Ok(counts)
}

/// Counts the rows of the outbox.
pub async fn count_rows(client: &mut Client) -> Result<OutboxCounts, PostgresError> {
    let transaction = client.transaction().await.map_err(server_error("begin"))?;
    count_rows_in(&transaction).await
}

async fn count_rows_in(transaction: &Transaction<'_>) -> Result<OutboxCounts, PostgresError> {
    let sql = include_str!("outbox/counts.sql");
    let row = transaction.query_one(sql, &[]).await.map_err(server_error("count egret.outbox"))?;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Ok(OutboxCounts {
        waiting: count(row.get(0)),
        oldest_ms: row.get::<_, Option<i64>>(1).map(count),
        rejected: count(row.get(2)),
    })
}

/// Rows of an outbox that are not read at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeldRows {
    /// Rows for these queues.
    pub queues: Vec<String>,
    /// Rows that these roles wrote, except for the queues `existing`.
    pub roles: Vec<String>,
    /// Existing queues, if there are held roles.
    pub existing: Vec<String>,
    /// Maximum number of queues of each other role whose rows are read, the first by name.
    pub role_queues_max: i64,
}

/// Takes the reader's lock until the session ends, unless another owner has it.
pub(crate) async fn lock_as_reader(
    client: &Client,
    owner: &LockOwner,
) -> Result<LockOutcome, PostgresError> {
    let outcome = owner.try_lock(client, READER_KEY).await;
    outcome.map_err(server_error("take the lock of the outbox"))
}

/// Configures a session for the query of rows.
pub(crate) async fn set_up_reader(client: &Client) -> Result<(), PostgresError> {
    let set = client.batch_execute(include_str!("outbox/session.sql"));
    set.await.map_err(server_error("set up the reader of an outbox"))
}

/// Passes the limits on sizes to `egret.enqueue`.
pub async fn set_limits(client: &Client, limits: SizeLimits) -> Result<(), PostgresError> {
    let sql = "UPDATE egret.outbox_limit SET payload_bytes_max = $1, chain_bytes_max = $2 \
               WHERE (payload_bytes_max, chain_bytes_max) <> ($1, $2)";
    let set = client.execute(sql, &[&limits.payload(), &limits.chain()]).await;
    set.map_err(server_error("set egret.outbox_limit"))?;
    Ok(())
}

/// The oldest rows that are not held: at most so many, of about so many bytes, at least one; with
/// each row of a chain the others of it. Beyond `bytes_max` is at most one row, and beyond as many
/// again one chain; what is larger than `limits` is not read.
///
/// Any role that may enqueue can have any number of rows held, for any number of queues, and they
/// must not slow the rows of others. So the primary key begins with the role: a skip scan finds the
/// roles, the queues of each and the oldest rows of each of these, and passes over all rows of a
/// role that is held in one step. A second index would do the same and cost every writer. One that
/// is made only while a role is held (`CREATE INDEX CONCURRENTLY`) would wait for the end of every
/// open transaction, among them those of that role, and be invalid after an interruption.
pub(crate) async fn next_rows(
    client: &Client,
    held: &HeldRows,
    rows_max: i64,
    bytes_max: i64,
    limits: SizeLimits,
) -> Result<Vec<CheckedRow>, PostgresError> {
    let sql = include_str!("outbox/next.sql");
    let (chain, payload) = (limits.chain(), limits.payload());
    let rows = client
        .query(
            sql,
            &[
                &held.queues,
                &rows_max,
                &bytes_max,
                &chain,
                &payload,
                &held.roles,
                &held.existing,
                &held.role_queues_max,
            ],
        )
        .await
        .map_err(server_error("read egret.outbox"))?;
    Ok(rows.iter().map(parse_row).collect())
}

/// Text in a database without an encoding may not be UTF-8.
fn parse_row(row: &Row) -> CheckedRow {
    let withheld: Option<i64> = row.try_get(17).unwrap_or_default();
    let content = match withheld {
        Some(bytes) => Err(Defect::TooLarge { size_bytes: u64::try_from(bytes).unwrap_or(0) }),
        None => parse_fields(row).map_err(Defect::Unreadable),
    };
    match content {
        Ok(row) => CheckedRow { row, defect: None },
        Err(defect) => CheckedRow {
            row: OutboxRow {
                queue: row.try_get(0).unwrap_or_default(),
                key: row.try_get(1).unwrap_or_default(),
                chain: row.try_get(15).unwrap_or_default(),
                ctid: row.try_get(19).unwrap_or_default(),
                ..OutboxRow::default()
            },
            defect: Some(defect),
        },
    }
}

fn parse_fields(row: &Row) -> Result<OutboxRow, String> {
    fn get<'r, T: egret_postgres::tokio_postgres::types::FromSql<'r>>(
        row: &'r Row,
        column: usize,
    ) -> Result<T, String> {
        row.try_get(column).map_err(|error| egret_base::error::chain(&error))
    }
    let metadata: String = get(row, 12)?;
    Ok(OutboxRow {
        queue: get(row, 0)?,
        key: get(row, 1)?,
        payload: get(row, 2)?,
        is_json: get(row, 3)?,
        priority: get(row, 4)?,
        ordering_key: get(row, 5)?,
        run_at_ms: get(row, 6)?,
        max_attempts: get(row, 7)?,
        timeout_ms: get(row, 8)?,
        unique_key: get(row, 9)?,
        unique_window_ms: get(row, 10)?,
        tags: get(row, 11)?,
        metadata: serde_json::from_str(&metadata).map_err(|error| format!("metadata: {error}"))?,
        callback_url: get(row, 13)?,
        traceparent: get(row, 14)?,
        chain: get(row, 15)?,
        after: get(row, 16)?,
        enqueued_by: get(row, 18)?,
        ctid: get(row, 19)?,
    })
}

/// Deletes rows that have become tasks.
pub async fn delete_rows(client: &Client, rows: &[&OutboxRow]) -> Result<(), PostgresError> {
    let (ctids, keys) = addresses(rows.iter().copied());
    let sql = include_str!("outbox/taken.sql");
    let deleted = client.execute(sql, &[&ctids, &keys]).await;
    deleted.map_err(server_error("delete from egret.outbox"))?;
    Ok(())
}

/// Moves rows that the queue rejected to `egret.outbox_rejected`.
pub(crate) async fn move_rejected_rows(
    client: &Client,
    refused: &[RejectedRow<'_>],
) -> Result<(), PostgresError> {
    let (ctids, keys) = addresses(refused.iter().map(|refused| refused.row));
    let codes: Vec<&str> = refused.iter().map(|refused| refused.code).collect();
    // Text of PostgreSQL knows no zero byte.
    let reasons: Vec<String> =
        refused.iter().map(|refused| refused.reason.replace('\0', "")).collect();
    let sql = include_str!("outbox/rejected.sql");
    let moved = client.execute(sql, &[&ctids, &keys, &codes, &reasons]).await;
    moved.map_err(server_error("write to egret.outbox_rejected"))?;
    Ok(())
}

/// Addresses and keys of rows. The name of the role is not used: in a database without an encoding
/// it may not be UTF-8.
fn addresses<'r>(rows: impl Iterator<Item = &'r OutboxRow>) -> (Vec<&'r str>, Vec<&'r str>) {
    rows.map(|row| (row.ctid.as_str(), row.key.as_str())).unzip()
}

/// Moves rejected rows back to the outbox. Returns their number.
pub(crate) async fn retry_rejected_rows(client: &Client) -> Result<u64, PostgresError> {
    let sql = include_str!("outbox/retry.sql");
    let moved = client.execute(sql, &[]).await;
    moved.map_err(server_error("read egret.outbox_rejected"))
}
