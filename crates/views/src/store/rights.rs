//! Whose rights a view has: its statements run as its owner, not as who refreshes it, and never as a superuser.
//!
//! A function of the owner's, SECURITY DEFINER, runs what it is given: within it nothing can become another role again, as
//! it could after SET ROLE. It is temporary and made within the transaction, so that its owner cannot alter it before it is
//! called.

use egret_postgres::tokio_postgres::{Client, GenericClient, Transaction};

use super::build::{Built, sink_table, stage_table};
use super::describe::{Described, SourceTable};
use super::refresh::Read;
use super::registry::{self, Record};
use super::remove;
use crate::core::capture::TRANSACTION;
use crate::core::expression::quoted;
use crate::core::sql::WEIGHT;
use crate::core::tree::Source;
use crate::error::ViewsError;
use crate::model::{Grants, State};

/// The role of views whose maker names no other, where Egret connects as a superuser: see `install/role.sql`.
pub const VIEWS_ROLE: &str = "egret_views";

/// Has a statement that makes a temporary view done as [`VIEWS_ROLE`].
pub const PROBE: &str = "SELECT egret.probe_as_views($1)";

/// Keeps rights from being granted twice at once: a row of the catalogue cannot be changed by two. The first eight bytes of
/// SHA-256("egret/views/rights"), positive.
const RIGHTS_KEY: i64 = 0x3e86_8d26_d020_589c;

/// Whether what follows from queries runs as [`VIEWS_ROLE`]: this session is a superuser's.
///
/// # Errors
/// What the server says.
pub async fn runs_as_views(client: &impl GenericClient) -> Result<bool, ViewsError> {
    let sql = "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user";
    Ok(client.query_one(sql, &[]).await?.get(0))
}

/// The owner of a view that is made: never a superuser.
///
/// # Errors
/// What the server says.
pub async fn owner_of_new(
    client: &impl GenericClient,
    asked: Option<&str>,
) -> Result<Option<String>, ViewsError> {
    if !runs_as_views(client).await? {
        return Ok(asked.map(str::to_owned));
    }
    let Some(asked) = asked else {
        return Ok(Some(VIEWS_ROLE.to_owned()));
    };
    let sql = "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1 AND rolsuper)";
    let is_superuser: bool = client.query_one(sql, &[&asked]).await?.get(0);
    Ok(Some(if is_superuser {
        VIEWS_ROLE.to_owned()
    } else {
        asked.to_owned()
    }))
}

/// Gives [`VIEWS_ROLE`] what it lacks to read relations, and to look for names.
///
/// # Errors
/// [`ViewsError::Right`] where it may be given nothing and lacks SELECT on one of them; what the server says.
pub async fn grant_reads(
    transaction: &impl GenericClient,
    relations: &[u32],
    grants: Grants,
) -> Result<(), ViewsError> {
    let sql = include_str!("sql/missing_rights.sql");
    let missing = transaction.query(sql, &[&VIEWS_ROLE, &relations]).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let unread = missing
        .iter()
        .find_map(|row| Some((row, row.get::<_, Option<String>>("relation")?)));
    if let Some((row, relation)) = unread.filter(|_| grants == Grants::Nothing) {
        return Err(ViewsError::Right {
            what: format!("`{VIEWS_ROLE}` may not read {relation}, and this takes an admin"),
            grant: row.get("statement"),
        });
    }
    let lock = "SELECT pg_catalog.pg_advisory_xact_lock($1)";
    transaction.query_one(lock, &[&RIGHTS_KEY]).await?;
    for row in transaction.query(sql, &[&VIEWS_ROLE, &relations]).await? {
        transaction.batch_execute(row.get("statement")).await?;
    }
    Ok(())
}

/// Gives a view to [`VIEWS_ROLE`], with the rights that its refreshes need.
///
/// # Errors
/// What the server says.
pub async fn give_to_views_role(
    transaction: &impl GenericClient,
    view: i64,
) -> Result<(), ViewsError> {
    let sql = include_str!("sql/hand_over.sql");
    for row in transaction.query(sql, &[&view]).await? {
        transaction.batch_execute(row.get(0)).await?;
    }
    Ok(())
}

/// Takes the rights of superusers from views that were made with them. One that cannot be changed is suspended.
///
/// # Errors
/// What the server says.
pub async fn take_from_superusers(client: &mut Client) -> Result<(), ViewsError> {
    if !runs_as_views(client).await? {
        return Ok(());
    }
    for row in client
        .query(include_str!("sql/superusers.sql"), &[])
        .await?
    {
        let (view, reads): (i64, Vec<u32>) = (row.get("id"), row.get("reads"));
        let (schema, name): (&str, &str) = (row.get("schema"), row.get("name"));
        let transaction = client.transaction().await?;
        match change_owner(&transaction, view, &reads).await {
            Ok(()) => {
                transaction.commit().await?;
                tracing::info!(
                    schema,
                    name,
                    "a view has the rights of egret_views from here on"
                );
            }
            Err(error) => {
                transaction.rollback().await?;
                let reason = format!(
                    "it has the rights of a superuser, and cannot be given to egret_views ({error}): drop it, and make it again"
                );
                tracing::warn!(schema, name, reason, "a view is suspended");
                registry::failed(client, view, (State::Suspended, &reason), true).await?;
            }
        }
    }
    Ok(())
}

async fn change_owner(
    transaction: &Transaction<'_>,
    view: i64,
    reads: &[u32],
) -> Result<(), ViewsError> {
    let sql = "UPDATE egret.view SET owner = $2::text WHERE id = $1";
    transaction.execute(sql, &[&view, &VIEWS_ROLE]).await?;
    grant_reads(transaction, reads, Grants::Reads).await?;
    give_to_views_role(transaction, view).await
}

/// Refuses an owner as whom this session cannot act, or who may not make the view. Says whether that is somebody else.
///
/// # Errors
/// [`ViewsError::Invalid`] and [`ViewsError::Right`].
pub async fn check_owner(
    transaction: &Transaction<'_>,
    owner: &str,
    schema: &str,
) -> Result<bool, ViewsError> {
    let sql = "SELECT pg_catalog.pg_has_role(current_user, role.oid, 'MEMBER'), current_user::text, \
               (SELECT pg_catalog.has_schema_privilege(role.oid, namespace.oid, 'CREATE') \
                FROM pg_catalog.pg_namespace AS namespace WHERE namespace.nspname = $2) \
               FROM pg_catalog.pg_roles AS role WHERE role.rolname = $1";
    let Some(row) = transaction.query_opt(sql, &[&owner, &schema]).await? else {
        return Err(ViewsError::Invalid {
            what: "owner",
            reason: format!("there is no role `{owner}`"),
        });
    };
    let (is_member, me): (bool, String) = (row.get(0), row.get(1));
    let Some(may_create) = row.get::<_, Option<bool>>(2) else {
        return Err(ViewsError::Invalid {
            what: "name",
            reason: format!(
                "there is no schema `{schema}`: make it by CREATE SCHEMA, or name another"
            ),
        });
    };
    if !is_member {
        return Err(ViewsError::Right {
            what: format!("`{me}` cannot act as `{owner}`"),
            grant: format!("GRANT {} TO {}", quoted(owner), quoted(&me)),
        });
    }
    if !may_create && owner != VIEWS_ROLE {
        return Err(ViewsError::Right {
            what: format!("`{owner}` may not make a view in schema `{schema}`"),
            grant: format!(
                "GRANT CREATE ON SCHEMA {} TO {}",
                quoted(schema),
                quoted(owner)
            ),
        });
    }
    Ok(me != owner)
}

/// Makes what runs statements as an owner, for this transaction: a function of texts, the statement, how far the view
/// has come and when, which returns what every statement of views does.
pub fn make_runner(owner: &str) -> String {
    if owner == VIEWS_ROLE {
        return String::new();
    }
    format!(
        "SET LOCAL ROLE {}; \
         CREATE FUNCTION pg_temp.egret_run(text, text, text) \
         RETURNS TABLE (added bigint, changed bigint, removed bigint, wrong bigint) \
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp \
         AS 'BEGIN RETURN QUERY EXECUTE $1 USING $2, $3; END'; \
         RESET ROLE",
        quoted(owner)
    )
}

/// Makes the same for the lines that a statement has which explains another.
pub fn make_explainer(owner: &str) -> String {
    if owner == VIEWS_ROLE {
        return String::new();
    }
    format!(
        "SET LOCAL ROLE {}; \
         CREATE FUNCTION pg_temp.egret_explain(text, text, text) RETURNS SETOF text \
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp \
         AS 'BEGIN RETURN QUERY EXECUTE $1 USING $2, $3; END'; \
         RESET ROLE",
        quoted(owner)
    )
}

/// Calls it.
pub fn explain(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE {
        "SELECT line FROM egret.explain_as_views($1, $2, $3) AS line"
    } else {
        "SELECT line FROM pg_temp.egret_explain($1, $2, $3) AS line"
    }
}

/// Makes the same for what changed in a view, as its users see it: rows of a query, and how many of each.
pub fn make_teller(owner: &str) -> String {
    if owner == VIEWS_ROLE {
        return String::new();
    }
    format!(
        "SET LOCAL ROLE {}; \
         CREATE FUNCTION pg_temp.egret_tell(text) RETURNS TABLE (content text, weight bigint) \
         LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, egret, pg_temp \
         AS 'BEGIN RETURN QUERY EXECUTE $1; END'; \
         RESET ROLE",
        quoted(owner)
    )
}

/// Calls it, with the query as the second value.
pub fn tell(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE {
        "SELECT content, weight FROM egret.tell_as_views($2)"
    } else {
        "SELECT content, weight FROM pg_temp.egret_tell($2)"
    }
}

/// Drops it.
pub fn drop_teller(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE {
        ""
    } else {
        "DROP FUNCTION pg_temp.egret_tell(text)"
    }
}

/// Calls it.
pub fn run(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE {
        "SELECT added, changed, removed, wrong FROM egret.run_as_views($1, $2, $3)"
    } else {
        "SELECT added, changed, removed, wrong FROM pg_temp.egret_run($1, $2, $3)"
    }
}

/// Drops it.
pub fn drop_runner(owner: &str) -> &'static str {
    if owner == VIEWS_ROLE {
        ""
    } else {
        "DROP FUNCTION pg_temp.egret_run(text, text, text)"
    }
}

/// Refuses a table whose changes this session may not have recorded.
///
/// # Errors
/// [`ViewsError::Right`].
pub async fn check_trigger(
    transaction: &Transaction<'_>,
    table: &SourceTable,
) -> Result<(), ViewsError> {
    let sql = "SELECT pg_catalog.has_table_privilege($1::oid, 'TRIGGER'), current_user::text";
    let row = transaction.query_one(sql, &[&table.oid]).await?;
    let (may, me): (bool, String) = (row.get(0), row.get(1));
    match may {
        true => Ok(()),
        false => Err(ViewsError::Right {
            what: format!(
                "`{me}` may not have changes of `{}.{}` recorded",
                table.schema, table.name
            ),
            grant: format!("GRANT TRIGGER ON {} TO {}", table.sql(), quoted(&me)),
        }),
    }
}

/// Refuses a view in a schema in which Egret's role may not create one. A schema that does not exist passes.
///
/// # Errors
/// [`ViewsError::Right`].
pub async fn check_create(transaction: &Transaction<'_>, schema: &str) -> Result<(), ViewsError> {
    let sql = "SELECT pg_catalog.has_schema_privilege(oid, 'CREATE'), current_user::text \
               FROM pg_catalog.pg_namespace WHERE nspname = $1";
    let Some(row) = transaction.query_opt(sql, &[&schema]).await? else {
        return Ok(());
    };
    let (may, role): (bool, String) = (row.get(0), row.get(1));
    if may {
        return Ok(());
    }
    Err(ViewsError::Right {
        what: format!("`{role}` may not create a view in schema `{schema}`"),
        grant: format!(
            "GRANT CREATE ON SCHEMA {} TO {}, or name another schema",
            quoted(schema),
            quoted(&role)
        ),
    })
}

/// Refuses tables whose columns an owner may not read: what is recorded of them would tell. [`VIEWS_ROLE`] is given what it lacks.
///
/// # Errors
/// [`ViewsError::Right`].
pub async fn check_select(
    transaction: &Transaction<'_>,
    owner: &str,
    (built, described): (&Built, &Described),
    grants: Grants,
) -> Result<(), ViewsError> {
    if owner == VIEWS_ROLE {
        let tables = described.tables.iter().map(|table| table.oid);
        let reads: Vec<u32> = tables.chain(described.inlined.iter().copied()).collect();
        return grant_reads(transaction, &reads, grants).await;
    }
    for (at, table) in described.tables.iter().enumerate() {
        let columns = built.columns_of(Source::Table(at));
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        may_select(transaction, owner, (table.oid, &table.sql()), &columns).await?;
    }
    Ok(())
}

/// Refuses columns of a table that a role may not read.
///
/// # Errors
/// [`ViewsError::Right`].
pub async fn may_select(
    transaction: &impl GenericClient,
    role: &str,
    (table, name): (u32, &str),
    columns: &[&str],
) -> Result<(), ViewsError> {
    let sql = "SELECT column_name FROM unnest($3::text[]) AS column_name \
               WHERE NOT pg_catalog.has_column_privilege($1::name, $2::oid, column_name, 'SELECT')";
    let rows = transaction.query(sql, &[&role, &table, &columns]).await?;
    let missing: Vec<String> = rows.iter().map(|row| quoted(row.get(0))).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(ViewsError::Right {
        what: format!("`{role}` may not read {missing} of {name}"),
        grant: format!("GRANT SELECT ({missing}) ON {name} TO {}", quoted(role)),
    })
}

/// Gives a view to its owner, who may read and write its tables and read the changes of its sources, and nothing else.
///
/// # Errors
/// What the server says.
pub async fn hand_over(
    transaction: &Transaction<'_>,
    record: &Record,
    built: &Built,
    reads: &[Read],
) -> Result<(), ViewsError> {
    if record.owner == VIEWS_ROLE {
        return give_to_views_role(transaction, record.id).await;
    }
    let (id, owner) = (record.id, quoted(&record.owner));
    let mut all = vec![format!("GRANT USAGE ON SCHEMA egret TO {owner}")];
    for stage in 0..built.stages.len() {
        let edge = built.stages[stage].table().edge.clone();
        let own = [stage_table(id, stage), sink_table(id, stage)];
        for table in own.into_iter().chain(edge) {
            all.push(format!(
                "GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {owner}"
            ));
        }
    }
    for read in reads {
        if let Read::View(other) = read {
            // What it shows is read from its storage, and what changed in it from where it tells that.
            for table in remove::tables(transaction, *other).await? {
                let table = quoted(&table);
                all.push(format!("GRANT SELECT ON egret.{table} TO {owner}"));
            }
        }
        if let Read::Table { captured, .. } = read {
            // A query that is computed as a whole does not read them.
            let columns = captured.columns.iter().filter(|_| !built.is_whole);
            let columns: String = columns
                .map(|column| format!(", {}", quoted(&column.name)))
                .collect();
            all.push(format!(
                "GRANT SELECT ({TRANSACTION}, {WEIGHT}{columns}) ON {} TO {owner}",
                captured.changes()
            ));
        }
    }
    let (schema, name) = (quoted(&record.name.schema), quoted(&record.name.name));
    all.push(format!("ALTER VIEW {schema}.{name} OWNER TO {owner}"));
    for statement in all {
        transaction.batch_execute(&statement).await?;
    }
    Ok(())
}
