//! The registry of views: tables in schema `egret` of the database that the views are in.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, GenericClient, Row, Transaction};

use super::query_description::QueryDescription;
use super::record::Record;
use super::statements::{Query, Statements};
use crate::error::ViewsError;
use crate::model::{Alteration, Mode, NewView, State, ViewName};

/// Query of all views, or of the one with a number.
const RECORDS: &str = include_str!("sql/records.sql");

const NO_NAME: Option<&str> = None;

/// Parameters of [`RECORDS`] for all views.
const ALL_RECORDS_PARAMETERS: [&(dyn ToSql + Sync); 3] = [&None::<i64>, &NO_NAME, &NO_NAME];

fn record_from_row(row: &Row) -> Record {
    let text = |column| row.get::<_, String>(column);
    let names: Vec<String> = row.get("read_names");
    let views: Vec<Option<i64>> = row.get("read_views");
    Record {
        id: row.get("id"),
        name: ViewName { schema: text("schema"), name: text("name") },
        query: text("query"),
        definition: text("definition"),
        settings: text("settings"),
        owner: text("owner"),
        has_other_owner: row.get("is_of_another"),
        mode: text("mode").parse().unwrap_or_default(),
        schedule: row
            .get::<_, Option<String>>("schedule")
            .and_then(|schedule| schedule.parse().ok()),
        indexes: serde_json::from_str(&text("indexes")).unwrap_or_default(),
        storage_definition: text("shape"),
        state: State::from_word(&text("state")),
        reason: row.get("reason"),
        failures: u32::try_from(row.get::<_, i32>("failures")).unwrap_or(0),
        snapshot: row.get("snapshot"),
        has_clock: row.get("has_clock"),
        fresh_at_ms: row.get("fresh_at_ms"),
        retention_ms: row.get("changes_kept_ms"),
        sequence: row.get("sequence"),
        queue: row.get("queue"),
        reads: names.into_iter().zip(views).collect(),
    }
}

/// All views of a database, by ascending number.
pub(crate) async fn list_records(client: &impl GenericClient) -> Result<Vec<Record>, ViewsError> {
    let rows = client.query(RECORDS, &ALL_RECORDS_PARAMETERS).await?;
    Ok(rows.iter().map(record_from_row).collect())
}

/// All views of a database, by a prepared statement.
pub(crate) async fn list_records_prepared(
    client: &Client,
    statements: &mut Statements,
) -> Result<Vec<Record>, ViewsError> {
    let rows = statements.query(client, RECORDS, &ALL_RECORDS_PARAMETERS).await?;
    Ok(rows.iter().map(record_from_row).collect())
}

/// Reads the view with this number.
///
/// # Errors
/// [`ViewsError::NotFound`].
pub async fn read_record(client: &impl GenericClient, view: i64) -> Result<Record, ViewsError> {
    let row = client
        .query_opt(RECORDS, &[&view, &NO_NAME, &NO_NAME])
        .await?
        .ok_or(ViewsError::NotFound { name: view.to_string() })?;
    Ok(record_from_row(&row))
}

/// Finds the view with this name, if there is one.
pub(crate) async fn find_record(
    client: &Client,
    statements: &mut Statements,
    name: &ViewName,
) -> Result<Option<Record>, ViewsError> {
    let values: [&(dyn ToSql + Sync); 3] = [&None::<i64>, &name.schema, &name.name];
    let rows = statements.query(client, RECORDS, &values).await?;
    Ok(rows.first().map(record_from_row))
}

/// Finds the view with this name if the table of views still has this oid; none if it has not.
pub(crate) async fn find_record_in_table(
    client: &Client,
    statements: &mut Statements,
    registry_oid: u32,
    name: &ViewName,
) -> Result<Option<Option<Record>>, ViewsError> {
    let values: [&(dyn ToSql + Sync); 3] = [&None::<i64>, &name.schema, &name.name];
    let queries: [Query<'_>; 2] = [(REGISTRY_OID_SQL, &[]), (RECORDS, &values)];
    let mut answers = statements.query_all(client, &queries).await?.into_iter();
    let mut next = || answers.next().unwrap_or_else(|| Ok(Vec::new()));
    let (registry_rows, records) = (next()?, next());
    let current_oid: Option<u32> = registry_rows.first().and_then(|row| row.get(0));
    if current_oid == Some(registry_oid) {
        Ok(Some(records?.first().map(record_from_row)))
    } else {
        Ok(None)
    }
}

/// Number of views in the database.
pub(crate) async fn count_views(client: &impl GenericClient) -> Result<i64, ViewsError> {
    let sql = "SELECT count(*) FROM egret.view";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Identifies server and database: numbers of tables and transactions have a meaning only there.
pub(crate) async fn read_database_identity(
    client: &impl GenericClient,
) -> Result<String, ViewsError> {
    let sql = "SELECT egret.view_place()";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// Inserts a view and returns its number. Without `settings` it gets those of this session.
///
/// # Errors
/// [`ViewsError::Exists`] if the name is taken.
pub(crate) async fn insert_view(
    transaction: &Transaction<'_>,
    view: &NewView,
    description: &QueryDescription,
    settings: Option<&str>,
) -> Result<i64, ViewsError> {
    let schedule = view.schedule.as_ref().map(ToString::to_string);
    let indexes = serde_json::json!(view.indexes).to_string();
    let database_identity = read_database_identity(transaction).await?;
    let values: [&(dyn ToSql + Sync); 12] = [
        &view.name.schema,
        &view.name.name,
        &view.query,
        &description.canonical,
        &view.owner,
        &view.mode.as_str(),
        &schedule,
        &indexes,
        &settings,
        &description.inlined,
        &database_identity,
        &description.depends_on,
    ];
    let added = transaction.query_opt(include_str!("sql/add.sql"), &values).await?;
    match added {
        Some(row) => Ok(row.get(0)),
        None => Err(ViewsError::Exists { name: view.name.to_string() }),
    }
}

/// Stores the tables of a view's stages, and whether the view depends on the clock.
pub(crate) async fn set_storage_definition(
    transaction: &Transaction<'_>,
    view: i64,
    storage_definition: &str,
    has_clock: bool,
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET shape = $2, clock = CASE WHEN $3 THEN pg_catalog.now() END WHERE id = $1";
    transaction.execute(sql, &[&view, &storage_definition, &has_clock]).await?;
    Ok(())
}

/// Stores the resolved query of a view and its new tables. The next refresh rebuilds it and the
/// views that read it, as these cannot get the changes against the old tables.
pub(crate) async fn store_rebuilt(
    transaction: &Transaction<'_>,
    view: i64,
    description: &QueryDescription,
    storage_definition: &str,
    stays_suspended: bool,
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET definition = $2, shape = $3, inlined = $4, depends_on = $6, snapshot = NULL, failures = 0, \
               state = CASE WHEN $5 THEN state ELSE 'new' END, reason = CASE WHEN $5 THEN reason END WHERE id = $1";
    let values: [&(dyn ToSql + Sync); 6] = [
        &view,
        &description.canonical,
        &storage_definition,
        &description.inlined,
        &stays_suspended,
        &description.depends_on,
    ];
    transaction.execute(sql, &values).await?;
    let sql = "UPDATE egret.view SET snapshot = NULL \
               WHERE id IN (SELECT read.view FROM egret.view_table AS read WHERE read.reads = $1)";
    transaction.execute(sql, &[&view]).await?;
    Ok(())
}

/// A source of a view, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceId {
    /// A table, by the number of its capture.
    Capture(i64),
    /// Another view of Egret's, by its number.
    View(i64),
}

/// Stores a source of a view: its index, name and columns.
pub(crate) async fn add_source(
    transaction: &Transaction<'_>,
    view: i64,
    source_index: i32,
    name: &str,
    columns: &str,
    source: SourceId,
) -> Result<(), ViewsError> {
    let (capture, other) = match source {
        SourceId::Capture(capture) => (Some(capture), None),
        SourceId::View(view) => (None, Some(view)),
    };
    let sql = "INSERT INTO egret.view_table (view, place, name, columns, capture, reads) VALUES ($1, $2, $3, $4, $5, $6)";
    let values: [&(dyn ToSql + Sync); 6] =
        [&view, &source_index, &name, &columns, &capture, &other];
    transaction.execute(sql, &values).await?;
    Ok(())
}

/// Stores which columns of each source a view reads. If they have changed, the next refresh
/// rebuilds it.
pub(crate) async fn store_source_columns(
    client: &impl GenericClient,
    view: i64,
    columns: &[String],
) -> Result<(), ViewsError> {
    let sql = format!(
        "WITH changed AS (UPDATE egret.view_table AS read SET columns = now.columns \
               FROM unnest($2::text[]) WITH ORDINALITY AS now (columns, place) \
               WHERE read.view = $1 AND read.place = now.place - 1 AND read.columns <> now.columns RETURNING 1) \
               UPDATE egret.view SET snapshot = NULL, {UNMAINTAINED} WHERE id = $1 AND EXISTS (SELECT FROM changed)"
    );
    client.execute(&sql, &[&view, &columns]).await?;
    Ok(())
}

/// Stores what a view depends on besides its tables. If that has changed, the next refresh rebuilds
/// it. Returns whether it has changed.
pub(crate) async fn store_dependencies(
    client: &impl GenericClient,
    view: i64,
    depends_on: &[u32],
) -> Result<bool, ViewsError> {
    let sql = format!(
        "UPDATE egret.view SET depends_on = $2, snapshot = NULL, {UNMAINTAINED} WHERE id = $1 AND depends_on <> $2"
    );
    Ok(client.execute(&sql, &[&view, &depends_on]).await? > 0)
}

/// The state of a view whose snapshot is removed: one in mode immediate refuses to be read.
const UNMAINTAINED: &str =
    "state = CASE WHEN mode = 'immediate' AND state = 'active' THEN 'new' ELSE state END";

/// Claims changes for views that are about to be rebuilt: what commits from here on is retained for
/// them.
pub(crate) async fn claim_changes(client: &Client, views: &[i64]) -> Result<(), ViewsError> {
    // Before the rebuild: an incarnation detects whether unlogged tables lose their rows from here
    // on: recorded changes, or those that a view in mode immediate reads.
    let sql = "INSERT INTO egret.view_incarnation (is_only) \
               SELECT true WHERE EXISTS (SELECT FROM egret.view_capture WHERE is_unlogged) \
               OR EXISTS (SELECT FROM egret.view WHERE id = ANY ($1) AND mode = 'immediate') ON CONFLICT DO NOTHING";
    client.execute(sql, &[&views]).await?;
    // Keep only the server identity (the first field of the stamp): it tells which server the
    // snapshot belongs to.
    let sql = format!(
        "UPDATE egret.view SET snapshot = pg_current_snapshot(), stamp = pg_catalog.split_part(stamp, ';', 1), {UNMAINTAINED} \
         WHERE id = ANY ($1) AND state <> 'suspended'"
    );
    client.execute(&sql, &[&views]).await?;
    Ok(())
}

/// Views in mode immediate that refuse to be read, without suspended ones.
pub(crate) async fn list_unmaintained(
    client: &Client,
    statements: &mut Statements,
) -> Result<Vec<i64>, ViewsError> {
    let sql = "SELECT id FROM egret.view \
               WHERE mode = 'immediate' AND state <> 'suspended' AND NOT egret.view_is_live(id)";
    let rows = statements.query(client, sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Stores that a refresh failed. A suspended view loses its snapshot, so that no changes are
/// retained for it; it is rebuilt when it is resumed. The failure is counted unless it was that of
/// a source.
pub(crate) async fn store_failure(
    client: &impl GenericClient,
    view: i64,
    state: State,
    reason: &str,
    is_own_error: bool,
) -> Result<(), ViewsError> {
    // A view that was suspended in the meantime stays suspended.
    let sql = "UPDATE egret.view SET failures = failures + $4::boolean::int, \
               state = CASE state WHEN 'suspended' THEN state ELSE $2 END, \
               reason = CASE state WHEN 'suspended' THEN reason ELSE $3 END, \
               snapshot = CASE WHEN $2 = 'suspended' THEN NULL ELSE snapshot END WHERE id = $1";
    let values: [&(dyn ToSql + Sync); 4] = [&view, &state.as_str(), &reason, &is_own_error];
    client.execute(sql, &values).await?;
    Ok(())
}

/// Has the next refresh rebuild the view.
pub(crate) async fn request_rebuild(
    client: &impl GenericClient,
    view: i64,
) -> Result<(), ViewsError> {
    let sql = format!("UPDATE egret.view SET snapshot = NULL, {UNMAINTAINED} WHERE id = $1");
    client.execute(&sql, &[&view]).await?;
    Ok(())
}

/// Stores an alteration of mode, schedule or state. A view that is resumed is rebuilt.
pub(crate) async fn store_alteration(
    client: &impl GenericClient,
    view: i64,
    alteration: &Alteration,
) -> Result<(), ViewsError> {
    let mode = alteration.mode.map(Mode::as_str);
    let schedule = alteration.schedule.as_ref();
    let sets_schedule = schedule.is_some();
    let schedule = schedule.and_then(|schedule| schedule.as_ref().map(ToString::to_string));
    let values: [&(dyn ToSql + Sync); 5] =
        [&view, &mode, &sets_schedule, &schedule, &alteration.is_active];
    client.execute(include_str!("sql/alter.sql"), &values).await?;
    Ok(())
}

/// Oid of a table of that name, whichever program created it.
pub(crate) const REGISTRY_OID_SQL: &str = "SELECT pg_catalog.to_regclass('egret.view')::oid";
