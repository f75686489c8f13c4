//! What Egret has made inside a database: listed, guarded against strangers, and removed object by
//! object.
//!
//! Everything that Egret makes is known by name. What else is in schema `egret` belongs to a user,
//! and so does what depends on an object of Egret's: neither is ever dropped.

use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, GenericClient, Transaction};

use crate::error::{PostgresError, server_error};
use crate::listen::quote_identifier;
use crate::migrate::{LOCK_KEY, check_schema_owner, lock_schema};
use crate::pool::within_answer_time;
use crate::user_triggers::UserTriggers;

/// How long a server may take for one step of an examination, which is a few statements.
pub const EXAMINATION_STEP_MAX: Duration = Duration::from_secs(30);

/// Names of the relations that migrations make, as a regular expression.
const RELATIONS: &str = "^(migration|outbox|outbox_rejected|outbox_limit|collection|\
     document|document_(owner|tenant|alias|edge|version|request|subscription|feed|reference|change|value)|query_path|\
     (document|document_alias|document_version)_[0-9]+|\
     view|view_(capture|table|refresh|request|statement|incarnation|change_set|change|handed_over))$";

/// Names of the functions and aggregates that migrations make, as a regular expression.
const FUNCTIONS: &str = "^(guard_schema|outbox_key|outbox_put|outbox_link|enqueue|enqueue_bytes|\
     document_partitions|document_number|document_write|document_(member|key|inserted|updated|deleted)|\
     any_value|any_value_step|refuse_leftovers|refuse_write|(run|explain|tell|probe)_as_views|view_place|view_name|view_settings|view_incarnation|immediate_stamp|view_is_live|require_live_view|view_dependency_versions|request_view|waiting_changes|\
     changes_lost|create_view|drop_view|refresh|request_done|freshness|change_sequence)$";

/// Names of the relations and functions of single views and captures, as a regular expression. The
/// first group is the kind, the second the number, which is a `bigint` whatever a user has named an
/// object.
const NUMBERED: &str = "^(view|told|edge|changes|lock|capture|before|catch_up|fail)_([0-9]{1,18})\
     ((_[0-9]+)?(_aside)?|_second)$";

/// Names of the indexes that migrations make and that are no constraints, as a regular expression.
const INDEXES: &str = "^(outbox_chain|document_edge_[234]|document_version_(deleted|by_time)|document_request_by_time|query_path_collection|\
     (view_table_(capture|reads)|view_statement_view_xid_id|view_refresh_view_at|view_request_(id|role_id))_idx)$";

/// The event trigger that keeps objects of users out of schema `egret`.
const GUARD: &str = "egret_schema";

/// What Egret keeps in a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Installation {
    /// Relations and functions of schema `egret` that Egret has made, as the catalogue identifies
    /// them.
    pub objects: Vec<String>,
    /// Views in other schemas that Egret has made, as `schema.name`.
    pub views: Vec<String>,
    /// What belongs to users and keeps Egret from being removed.
    pub obstacles: Vec<Obstacle>,
    /// Indexes that users have made on tables of Egret: they go with these, and hold nothing that
    /// is not there.
    pub indexes: Vec<String>,
}

/// An object of a user's that is in schema `egret`, is a part of something that Egret has made, or
/// depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The object, as the catalogue describes it.
    pub object: String,
    /// The command that moves it out of the way; none where the user has to decide.
    pub command: Option<String>,
}

impl std::fmt::Display for Obstacle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.command {
            Some(command) => write!(f, "{} ({command})", self.object),
            None => f.write_str(&self.object),
        }
    }
}

/// The views and captures in the registry of views, by number; `views` also by oid.
#[derive(Debug, Default)]
struct KnownViews {
    ids: Vec<i64>,
    captures: Vec<i64>,
    relations: Vec<u32>,
}

/// One row of the query `objects.sql`.
struct SchemaObject {
    kind: String,
    identity: String,
    is_own: bool,
    command: String,
}

/// What Egret keeps in a database; none where there is no schema `egret`.
///
/// # Errors
/// [`PostgresError::ForeignSchema`] where reading the schema would run code of another role;
/// [`PostgresError::Server`].
pub async fn inventory(client: &impl GenericClient) -> Result<Option<Installation>, PostgresError> {
    if !has_schema(client).await? {
        return Ok(None);
    }
    check_schema_owner(client).await?;
    let known = read_known_views(client).await?;
    Ok(Some(collect_objects(client, &known).await?))
}

async fn collect_objects(
    client: &impl GenericClient,
    known: &KnownViews,
) -> Result<Installation, PostgresError> {
    let objects = list_schema_objects(client, known).await?;
    let mut installation = Installation::default();
    for object in objects {
        if object.is_own {
            installation.objects.push(format!("{} {}", object.kind, object.identity));
        } else {
            installation.obstacles.push(Obstacle {
                object: format!("{} {}", object.kind, object.identity),
                command: Some(object.command),
            });
        }
    }
    installation.views = relation_names(client, &known.relations).await?;
    // Objects are described with their schemas only where the search path does not lead to them.
    let previous_path = set_search_path(client, "pg_catalog").await?;
    add_user_additions(client, &mut installation).await?;
    installation.obstacles.extend(list_dependents(client, known).await?);
    set_search_path(client, &previous_path).await?;
    Ok(installation)
}

/// Removes the objects that Egret has made in a database, and nothing else; views of Egret in other
/// schemas only if `force` is set. Returns what was removed.
///
/// # Errors
/// [`PostgresError::UserObjects`] and [`PostgresError::SchemaInUse`]; [`PostgresError::Server`],
/// also where an object of a user came in the way meanwhile. Nothing has changed then.
pub async fn uninstall(
    client: &mut Client,
    force: bool,
) -> Result<Option<Installation>, PostgresError> {
    let transaction = client.transaction().await.map_err(server_error("begin"))?;
    lock_schema(&transaction).await?;
    let Some(installation) = inventory(&transaction).await? else {
        return Ok(None);
    };
    refuse_obstacles(&installation)?;
    if !force && !installation.views.is_empty() {
        return Err(PostgresError::SchemaInUse { dependents: installation.views.join(", ") });
    }
    let doing = "list the triggers of users";
    let triggers = UserTriggers::list(&transaction).await.map_err(server_error(doing))?;
    drop_all(&transaction, &installation).await?;
    let lost_triggers = triggers.find_missing(&transaction).await.map_err(server_error(doing))?;
    if !lost_triggers.is_empty() {
        let lost: Vec<String> = lost_triggers.iter().map(ToString::to_string).collect();
        return Err(PostgresError::UserObjects { objects: lost.join("; ") });
    }
    transaction.commit().await.map_err(server_error("commit"))?;
    Ok(Some(installation))
}

/// As [`uninstall`], but waits for each lock at most `lock_wait_max`; the session keeps that
/// setting.
///
/// # Errors
/// Those of [`uninstall`]; [`PostgresError::LockTimeout`]: nothing has changed then.
pub async fn uninstall_within(
    client: &mut Client,
    force: bool,
    lock_wait_max: Duration,
) -> Result<Option<Installation>, PostgresError> {
    let doing = "set lock_timeout";
    let statement = format!("SET lock_timeout = {}", lock_wait_max.as_millis());
    let setting = async {
        let set = client.batch_execute(&statement).await;
        set.map_err(server_error(doing))
    };
    within_answer_time(EXAMINATION_STEP_MAX, doing, setting).await?;
    match uninstall(client, force).await {
        Err(PostgresError::Server { error, .. })
            if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) =>
        {
            let listing = lock_holders(client);
            let holders = within_answer_time(EXAMINATION_STEP_MAX, "list locks", listing).await?;
            Err(PostgresError::LockTimeout {
                holders: holders.unwrap_or_else(|| "another session".to_owned()),
                timeout: lock_wait_max,
            })
        }
        outcome => outcome,
    }
}

/// The sessions that hold a lock on something of schema `egret`, for people.
async fn lock_holders(client: &Client) -> Result<Option<String>, PostgresError> {
    let sql = include_str!("installation/holders.sql");
    let row = client.query_one(sql, &[&LOCK_KEY]).await;
    Ok(row.map_err(server_error("list locks"))?.get(0))
}

/// Fails where objects of users are in the way of a removal.
///
/// # Errors
/// [`PostgresError::UserObjects`].
pub fn refuse_obstacles(installation: &Installation) -> Result<(), PostgresError> {
    if installation.obstacles.is_empty() {
        return Ok(());
    }
    let objects: Vec<String> = installation.obstacles.iter().map(Obstacle::to_string).collect();
    Err(PostgresError::UserObjects { objects: objects.join("; ") })
}

/// Drops what an inventory has found. RESTRICT is the default: a statement fails where something
/// depends on an object that is not listed. Functions that triggers call go first, with these.
async fn drop_all(
    transaction: &Transaction<'_>,
    found: &Installation,
) -> Result<(), PostgresError> {
    let mut statements = vec![format!("DROP EVENT TRIGGER IF EXISTS {GUARD}")];
    let triggers = transaction
        .query(include_str!("installation/triggers.sql"), &[])
        .await
        .map_err(server_error("list the triggers of Egret"))?;
    statements.extend(triggers.iter().map(|row| row.get::<_, String>(0)));
    let mut views: Vec<&str> = found.views.iter().map(String::as_str).collect();
    views.extend(found.identities("view"));
    for (keyword, names) in [
        ("VIEW", views),
        ("TABLE", found.identities("table")),
        ("AGGREGATE", found.identities("aggregate")),
        ("FUNCTION IF EXISTS", found.identities("function")),
    ] {
        if !names.is_empty() {
            statements.push(format!("DROP {keyword} {}", names.join(", ")));
        }
    }
    let rights = transaction
        .query(include_str!("installation/rights.sql"), &[])
        .await
        .map_err(server_error("list the rights of egret_views"))?;
    statements.extend(rights.iter().map(|row| row.get::<_, String>(0)));
    statements.push("DROP SCHEMA egret".to_owned());
    for statement in statements {
        let dropped = transaction.batch_execute(&statement).await;
        dropped.map_err(server_error("drop an object of Egret"))?;
    }
    Ok(())
}

impl Installation {
    /// The identities of the objects of a kind.
    fn identities(&self, kind: &str) -> Vec<&str> {
        let names = self.objects.iter();
        names.filter_map(|name| name.strip_prefix(kind)?.strip_prefix(' ')).collect()
    }
}

/// Keeps objects of users out of schema `egret` where the session's role is a superuser of that
/// name: its `"$user"` in `search_path` is this schema, so that unqualified names land there.
///
/// # Errors
/// [`PostgresError::Server`].
pub(crate) async fn install_guard(client: &impl GenericClient) -> Result<(), PostgresError> {
    let sql = "SELECT current_user = 'egret' AND rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user";
    let row = client.query_one(sql, &[]).await;
    if !row.map_err(server_error("look for the role of this session"))?.get::<_, bool>(0) {
        return Ok(());
    }
    let text = include_str!("installation/guard.sql")
        .replace("RELATIONS", RELATIONS)
        .replace("FUNCTIONS", FUNCTIONS)
        .replace("NUMBERED", NUMBERED);
    let created = client.batch_execute(&text).await;
    created.map_err(server_error("guard schema egret"))
}

/// Whether a statement failed because an object of schema `egret` has been removed.
pub fn is_removed(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|answer| {
        let undefined = [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION];
        let message = answer.message();
        match answer.code() {
            code if undefined.contains(code) => mentions_egret(message, true),
            code => *code == SqlState::INVALID_SCHEMA_NAME && mentions_egret(message, false),
        }
    })
}

/// Whether a message of the server, in any language and its quotes, names schema `egret` or
/// something in it, and not another name that has these letters.
fn mentions_egret(message: &str, something_in_it: bool) -> bool {
    let is_of_name =
        |character: char| character.is_ascii_alphanumeric() || "_$.".contains(character);
    message.match_indices("egret").any(|(start, name)| {
        let before = message[..start].chars().next_back();
        let after = message[start + name.len()..].chars().next();
        let ends_name =
            if something_in_it { after == Some('.') } else { !after.is_some_and(is_of_name) };
        ends_name && !before.is_some_and(is_of_name)
    })
}

async fn has_schema(client: &impl GenericClient) -> Result<bool, PostgresError> {
    let sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'egret')";
    let row = client.query_one(sql, &[]).await;
    Ok(row.map_err(server_error("look for schema egret"))?.get(0))
}

async fn read_known_views(client: &impl GenericClient) -> Result<KnownViews, PostgresError> {
    let sql = "SELECT pg_catalog.to_regclass('egret.view') IS NOT NULL AND pg_catalog.to_regclass('egret.view_capture') IS NOT NULL";
    let row = client.query_one(sql, &[]).await;
    if !row.map_err(server_error("look for egret.view"))?.get::<_, bool>(0) {
        return Ok(KnownViews::default());
    }
    let row = client
        .query_one(include_str!("installation/views.sql"), &[])
        .await
        .map_err(server_error("list the views of Egret"))?;
    Ok(KnownViews { ids: row.get(0), captures: row.get(1), relations: row.get(2) })
}

async fn list_schema_objects(
    client: &impl GenericClient,
    known: &KnownViews,
) -> Result<Vec<SchemaObject>, PostgresError> {
    let rows = client
        .query(
            include_str!("installation/objects.sql"),
            &[&RELATIONS, &FUNCTIONS, &NUMBERED, &known.ids, &known.captures],
        )
        .await
        .map_err(server_error("list the objects of schema egret"))?;
    let object = |row: &tokio_postgres::Row| SchemaObject {
        kind: row.get("kind"),
        identity: row.get("identity"),
        is_own: row.get("is_own"),
        command: row.get("command"),
    };
    Ok(rows.iter().map(object).collect())
}

/// Adds what users have added to tables of Egret's.
async fn add_user_additions(
    client: &impl GenericClient,
    found: &mut Installation,
) -> Result<(), PostgresError> {
    let sql = include_str!("installation/additions.sql");
    let rows = client
        .query(sql, &[&RELATIONS, &NUMBERED, &INDEXES])
        .await
        .map_err(server_error("look for what was added to schema egret"))?;
    for row in rows {
        let object: String = row.get("object");
        if row.get::<_, &str>("kind") == "index" {
            found.indexes.push(object);
        } else {
            found.obstacles.push(Obstacle { object, command: row.get("command") });
        }
    }
    Ok(())
}

async fn list_dependents(
    client: &impl GenericClient,
    known: &KnownViews,
) -> Result<Vec<Obstacle>, PostgresError> {
    let rows = client
        .query(
            include_str!("installation/dependents.sql"),
            &[
                &RELATIONS,
                &FUNCTIONS,
                &NUMBERED,
                &known.ids,
                &known.captures,
                &known.relations,
                &GUARD,
            ],
        )
        .await
        .map_err(server_error("look for what depends on schema egret"))?;
    let obstacle = |row: &tokio_postgres::Row| Obstacle {
        object: format!("{}, which depends on {}", row.get::<_, &str>(0), row.get::<_, &str>(1)),
        command: row.get(2),
    };
    Ok(rows.iter().map(obstacle).collect())
}

/// Sets the session's search path and returns what it was.
async fn set_search_path(client: &impl GenericClient, path: &str) -> Result<String, PostgresError> {
    let set = "SELECT former.path, pg_catalog.set_config('search_path', $1, false)
        FROM (SELECT pg_catalog.current_setting('search_path') AS path OFFSET 0) AS former";
    let row = client.query_one(set, &[&path]).await;
    Ok(row.map_err(server_error("pin the search path"))?.get(0))
}

async fn relation_names(
    client: &impl GenericClient,
    relations: &[u32],
) -> Result<Vec<String>, PostgresError> {
    let sql = "SELECT n.nspname::text, c.relname::text FROM pg_catalog.pg_class c \
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY ($1) ORDER BY 1, 2";
    let rows =
        client.query(sql, &[&relations]).await.map_err(server_error("name the views of Egret"))?;
    let name = |row: &tokio_postgres::Row| {
        let [schema, name] = [0, 1].map(|column| quote_if_needed(row.get(column)));
        format!("{schema}.{name}")
    };
    Ok(rows.iter().map(name).collect())
}

/// An identifier as SQL takes it, in quotes only where it is no plain word.
fn quote_if_needed(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name
            .chars()
            .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if is_plain { name.to_owned() } else { quote_identifier(name) }
}

#[cfg(test)]
mod tests;
