//! What is remembered of views, in the database that they are in.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, GenericClient, Row, Transaction};

use super::describe::Described;
use super::install;
use super::statements::{Query, Statements};
use crate::error::ViewsError;
use crate::model::{Alteration, Mode, NewView, Schedule, State, ViewName};

/// A view as it is remembered.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its number.
    pub id: i64,
    /// Where users find it.
    pub name: ViewName,
    /// Its query, as the user wrote it.
    pub query: String,
    /// The same with every name resolved.
    pub definition: String,
    /// What sets the settings of the session that made it. Its definition is only read under these: they decide what its
    /// constants mean.
    pub settings: String,
    /// Whose rights the query has.
    pub owner: String,
    /// Whether that is somebody else than who refreshes it.
    pub is_of_another: bool,
    /// How it is brought up to date.
    pub mode: Mode,
    /// When.
    pub schedule: Option<Schedule>,
    /// Lists of columns of which its storage has indexes.
    pub indexes: Vec<Vec<String>>,
    /// The tables of its stages, as text.
    pub shape: String,
    /// What it is doing.
    pub state: State,
    /// Why it fails or is suspended.
    pub reason: Option<String>,
    /// Refreshes that failed since one did not.
    pub failures: u32,
    /// How far it has come; nowhere, where that was in another place.
    pub snapshot: Option<String>,
    /// Whether what it shows changes as time passes.
    pub has_clock: bool,
    /// When it was known to be up to date last, in milliseconds of Unix time.
    pub fresh_at_ms: Option<i64>,
    /// For how long change sets of it are kept, in milliseconds; none: it is not followed.
    pub changes_kept_ms: Option<i64>,
    /// The number of its last change set.
    pub sequence: i64,
    /// The queue that gets a task for each.
    pub queue: Option<String>,
    /// What it reads, in the order of places: the name, and the number of the view where it is one that is kept fresh.
    pub reads: Vec<(String, Option<i64>)>,
}

impl Record {
    /// Sets what the session that made the view had set, until the end of the transaction.
    ///
    /// # Errors
    /// [`ViewsError::SourceGone`] where the server refuses a setting, such as one that names an object that is gone; what
    /// else the server says.
    pub async fn apply_settings(&self, client: &impl GenericClient) -> Result<(), ViewsError> {
        let applied = client.batch_execute(&self.settings).await;
        // Values, names, rights and what is not there: others, such as a cancellation, pass.
        let is_refusal = |code: &str| ["0A", "22", "3F", "42"].contains(&&code[..2]);
        applied.map_err(|error| match error.as_db_error() {
            Some(refused) if is_refusal(refused.code().code()) => ViewsError::SourceGone {
                reason: format!(
                    "a setting of the session that made it is refused: {}",
                    refused.message()
                ),
            },
            _ => error.into(),
        })
    }

    /// Its number where changes are recorded for it alone: it is kept fresh within the transactions that write.
    pub fn own_capture(&self) -> Option<i64> {
        (self.mode == Mode::Immediate).then_some(self.id)
    }

    /// Whether what refreshes change in it is kept.
    pub fn is_followed(&self) -> bool {
        self.changes_kept_ms.is_some()
    }
}

/// Every view, or the one with a number.
const RECORDS: &str = include_str!("sql/records.sql");

const NO_NAME: Option<&str> = None;

/// The values of [`RECORDS`] for every view.
const EVERY: [&(dyn ToSql + Sync); 3] = [&None::<i64>, &NO_NAME, &NO_NAME];

fn record(row: &Row) -> Record {
    let text = |column| row.get::<_, String>(column);
    let names: Vec<String> = row.get("read_names");
    let views: Vec<Option<i64>> = row.get("read_views");
    Record {
        id: row.get("id"),
        name: ViewName {
            schema: text("schema"),
            name: text("name"),
        },
        query: text("query"),
        definition: text("definition"),
        settings: text("settings"),
        owner: text("owner"),
        is_of_another: row.get("is_of_another"),
        mode: text("mode").parse().unwrap_or_default(),
        schedule: row
            .get::<_, Option<String>>("schedule")
            .and_then(|schedule| schedule.parse().ok()),
        indexes: serde_json::from_str(&text("indexes")).unwrap_or_default(),
        shape: text("shape"),
        state: State::named(&text("state")),
        reason: row.get("reason"),
        failures: u32::try_from(row.get::<_, i32>("failures")).unwrap_or(0),
        snapshot: row.get("snapshot"),
        has_clock: row.get("has_clock"),
        fresh_at_ms: row.get("fresh_at_ms"),
        changes_kept_ms: row.get("changes_kept_ms"),
        sequence: row.get("sequence"),
        queue: row.get("queue"),
        reads: names.into_iter().zip(views).collect(),
    }
}

/// All views of a database, in the order of their numbers.
///
/// # Errors
/// What the server says.
pub async fn records(client: &impl GenericClient) -> Result<Vec<Record>, ViewsError> {
    let rows = client.query(RECORDS, &EVERY).await?;
    Ok(rows.iter().map(record).collect())
}

/// The same, by a session that asks often.
///
/// # Errors
/// What the server says.
pub async fn prepared_records(
    client: &Client,
    statements: &mut Statements,
) -> Result<Vec<Record>, ViewsError> {
    let rows = statements.query(client, RECORDS, &EVERY).await?;
    Ok(rows.iter().map(record).collect())
}

/// The view with a number.
///
/// # Errors
/// [`ViewsError::NotFound`]; what the server says.
pub async fn record_of(client: &impl GenericClient, view: i64) -> Result<Record, ViewsError> {
    let row = client
        .query_opt(RECORDS, &[&view, &NO_NAME, &NO_NAME])
        .await?;
    let row = row.ok_or(ViewsError::NotFound {
        name: view.to_string(),
    })?;
    Ok(record(&row))
}

/// The view with a name, if there is one.
///
/// # Errors
/// What the server says.
pub async fn find(
    client: &Client,
    statements: &mut Statements,
    name: &ViewName,
) -> Result<Option<Record>, ViewsError> {
    let values: [&(dyn ToSql + Sync); 3] = [&None::<i64>, &name.schema, &name.name];
    let rows = statements.query(client, RECORDS, &values).await?;
    Ok(rows.first().map(record))
}

/// The same, where the table of views still is the one with this oid: nothing is known otherwise.
///
/// # Errors
/// What the server says.
pub async fn find_in(
    client: &Client,
    statements: &mut Statements,
    table: u32,
    name: &ViewName,
) -> Result<Option<Option<Record>>, ViewsError> {
    let values: [&(dyn ToSql + Sync); 3] = [&None::<i64>, &name.schema, &name.name];
    let queries: [Query<'_>; 2] = [(install::IS_THERE, &[]), (RECORDS, &values)];
    let mut answers = statements.all(client, &queries).await?.into_iter();
    let mut next = || answers.next().unwrap_or_else(|| Ok(Vec::new()));
    let (there, found) = (next()?, next());
    let there: Option<u32> = there.first().and_then(|row| row.get(0));
    match there == Some(table) {
        true => Ok(Some(found?.first().map(record))),
        false => Ok(None),
    }
}

/// How many views there are.
///
/// # Errors
/// What the server says.
pub async fn count(client: &impl GenericClient) -> Result<i64, ViewsError> {
    let sql = "SELECT count(*) FROM egret.view";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Where this is: numbers of tables and of transactions mean something in one place only.
///
/// # Errors
/// What the server says.
pub async fn place(client: &impl GenericClient) -> Result<String, ViewsError> {
    let sql = "SELECT egret.view_place()";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Remembers a view, and returns its number. Without settings it has those of this session.
///
/// # Errors
/// [`ViewsError::Exists`]; what the server says.
pub async fn add(
    transaction: &Transaction<'_>,
    view: &NewView,
    described: &Described,
    settings: Option<&str>,
) -> Result<i64, ViewsError> {
    let schedule = view.schedule.as_ref().map(ToString::to_string);
    let indexes = serde_json::json!(view.indexes).to_string();
    let place = place(transaction).await?;
    let values: [&(dyn ToSql + Sync); 11] = [
        &view.name.schema,
        &view.name.name,
        &view.query,
        &described.canonical,
        &view.owner,
        &view.mode.as_str(),
        &schedule,
        &indexes,
        &settings,
        &described.inlined,
        &place,
    ];
    let added = transaction
        .query_opt(include_str!("sql/add.sql"), &values)
        .await?;
    match added {
        Some(row) => Ok(row.get(0)),
        None => Err(ViewsError::Exists {
            name: view.name.to_string(),
        }),
    }
}

/// Remembers which tables a view's stages have, and whether it changes as time passes.
///
/// # Errors
/// What the server says.
pub async fn set_shape(
    transaction: &Transaction<'_>,
    view: i64,
    (shape, has_clock): (&str, bool),
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET shape = $2, clock = CASE WHEN $3 THEN pg_catalog.now() END WHERE id = $1";
    transaction
        .execute(sql, &[&view, &shape, &has_clock])
        .await?;
    Ok(())
}

/// Remembers what the query of a view means now, and its tables, which are new. It is computed anew by its next refresh, and
/// so are those that read it: they are not told what was in the tables that it had.
///
/// # Errors
/// What the server says.
pub async fn renew(
    transaction: &Transaction<'_>,
    view: i64,
    described: &Described,
    shape: &str,
    stays_suspended: bool,
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET definition = $2, shape = $3, inlined = $4, snapshot = NULL, failures = 0, \
               state = CASE WHEN $5 THEN state ELSE 'new' END, reason = CASE WHEN $5 THEN reason END WHERE id = $1";
    let values: [&(dyn ToSql + Sync); 5] = [
        &view,
        &described.canonical,
        &shape,
        &described.inlined,
        &stays_suspended,
    ];
    transaction.execute(sql, &values).await?;
    let sql = "UPDATE egret.view SET snapshot = NULL \
               WHERE id IN (SELECT read.view FROM egret.view_table AS read WHERE read.reads = $1)";
    transaction.execute(sql, &[&view]).await?;
    Ok(())
}

/// What a view reads: the record of a table's changes, or another view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// A table, by the number under which its changes are recorded.
    Capture(i64),
    /// A view that is kept fresh.
    View(i64),
}

/// Remembers what a view reads at a place, by name, and which columns of it.
///
/// # Errors
/// What the server says.
pub async fn reads(
    transaction: &Transaction<'_>,
    view: i64,
    (place, name, columns): (i32, &str, &str),
    what: Reads,
) -> Result<(), ViewsError> {
    let (capture, other) = match what {
        Reads::Capture(capture) => (Some(capture), None),
        Reads::View(view) => (None, Some(view)),
    };
    let sql = "INSERT INTO egret.view_table (view, place, name, columns, capture, reads) VALUES ($1, $2, $3, $4, $5, $6)";
    let values: [&(dyn ToSql + Sync); 6] = [&view, &place, &name, &columns, &capture, &other];
    transaction.execute(sql, &values).await?;
    Ok(())
}

/// Remembers which columns a view reads, by place. Where they were others, it is computed anew by its next refresh.
///
/// # Errors
/// What the server says.
pub async fn set_columns(
    client: &impl GenericClient,
    view: i64,
    columns: &[String],
) -> Result<(), ViewsError> {
    let sql = "WITH changed AS (UPDATE egret.view_table AS read SET columns = now.columns \
               FROM unnest($2::text[]) WITH ORDINALITY AS now (columns, place) \
               WHERE read.view = $1 AND read.place = now.place - 1 AND read.columns <> now.columns RETURNING 1) \
               UPDATE egret.view SET snapshot = NULL WHERE id = $1 AND EXISTS (SELECT FROM changed)";
    client.execute(sql, &[&view, &columns]).await?;
    Ok(())
}

/// Has changes kept from here on for views that are about to be computed anew: what commits while that goes on is not
/// forgotten.
///
/// # Errors
/// What the server says.
pub async fn claim(client: &Client, views: &[i64]) -> Result<(), ViewsError> {
    // Before they are computed: what unlogged tables have from here on is there for as long as this.
    let sql = "INSERT INTO egret.view_incarnation (is_only) \
               SELECT true WHERE EXISTS (SELECT FROM egret.view_capture WHERE is_unlogged) ON CONFLICT DO NOTHING";
    client.execute(sql, &[]).await?;
    // Of the stamp only the place is left, which says whose snapshot that is.
    let sql = "UPDATE egret.view SET snapshot = pg_current_snapshot(), stamp = pg_catalog.split_part(stamp, ';', 1) \
               WHERE id = ANY ($1) AND state <> 'suspended'";
    client.execute(sql, &[&views]).await?;
    Ok(())
}

/// Remembers that a refresh failed. A view that is suspended is computed anew when it is not any more, so that no changes
/// are kept for it. It counts as the view's own unless one that it reads failed.
///
/// # Errors
/// What the server says.
pub async fn failed(
    client: &impl GenericClient,
    view: i64,
    (state, reason): (State, &str),
    is_own: bool,
) -> Result<(), ViewsError> {
    // One that was suspended meanwhile stays that.
    let sql = "UPDATE egret.view SET failures = failures + $4::boolean::int, \
               state = CASE state WHEN 'suspended' THEN state ELSE $2 END, \
               reason = CASE state WHEN 'suspended' THEN reason ELSE $3 END, \
               snapshot = CASE WHEN $2 = 'suspended' THEN NULL ELSE snapshot END WHERE id = $1";
    let values: [&(dyn ToSql + Sync); 4] = [&view, &state.as_str(), &reason, &is_own];
    client.execute(sql, &values).await?;
    Ok(())
}

/// Has a view computed anew by its next refresh.
///
/// # Errors
/// What the server says.
pub async fn compute_anew(client: &impl GenericClient, view: i64) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET snapshot = NULL WHERE id = $1";
    client.execute(sql, &[&view]).await?;
    Ok(())
}

/// Changes how and when a view is kept fresh. What was suspended and is not any more is computed anew.
///
/// # Errors
/// What the server says.
pub async fn alter(
    client: &impl GenericClient,
    view: i64,
    alteration: &Alteration,
) -> Result<(), ViewsError> {
    let mode = alteration.mode.map(Mode::as_str);
    let schedule = alteration.schedule.as_ref();
    let sets_schedule = schedule.is_some();
    let schedule = schedule.and_then(|one| one.as_ref().map(ToString::to_string));
    let values: [&(dyn ToSql + Sync); 5] = [
        &view,
        &mode,
        &sets_schedule,
        &schedule,
        &alteration.is_active,
    ];
    client
        .execute(include_str!("sql/alter.sql"), &values)
        .await?;
    Ok(())
}
