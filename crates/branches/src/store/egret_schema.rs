//! What schema `egret` of a source holds for tenants other than the one that branches it, and its
//! removal from templates: deliveries, requests, and documents of other tenants.

use std::collections::BTreeSet;
use std::str::FromStr;

use egret_postgres::PostgresError;
use egret_postgres::bounded::{self, get_value};
use egret_postgres::error::server_error;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::model::DEFAULT_TENANT;

/// Tables that are empty in a template: addresses of webhooks, payloads of tasks, answers to
/// requests, errors that repeat values.
const EMPTIED_TABLES: [&str; 6] = [
    "document_request",
    "document_subscription",
    "outbox",
    "outbox_rejected",
    "view_refresh",
    "view_request",
];

/// Tables with rows of each tenant, by their column `tenant_id`.
const TENANT_TABLES: [&str; 4] =
    ["document", "document_alias", "document_edge", "document_version"];

/// Documents that templates of the source keep, those of tenant `default` aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentRetention {
    /// Those of tenant `default` alone.
    DefaultTenant,
    /// Those of all tenants.
    All,
    /// None of any tenant.
    None,
}

impl FromStr for DocumentRetention {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "default" => Ok(Self::DefaultTenant),
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            _ => Err(()),
        }
    }
}

/// A table of schema `egret`.
struct Table {
    name: String,
    /// Its name without the schema, or that of the table that it is a partition of.
    base_name: String,
}

/// Deletes, in a database of a copy without other sessions, what Egret keeps there for others.
///
/// Tables whose owner is not the bootstrap superuser are not Egret's. Triggers do not fire: a role
/// of the source may have made some.
pub async fn purge(client: &Client, documents: DocumentRetention) -> Result<(), PostgresError> {
    let tables = tables(client).await?;
    if tables.is_empty() {
        return Ok(());
    }
    run(client, "SET session_replication_role = replica").await?;
    let leave_sql = include_str!("sql/leave_filtered_publications.sql");
    run(client, leave_sql).await?;
    let mut rewritten = BTreeSet::new();
    for table in tables_named(&tables, &EMPTIED_TABLES) {
        // A publication of all tables refuses to have rows deleted of one without a key.
        if !truncate(client, &[table]).await? {
            run(client, &format!("DELETE FROM ONLY {}", table.name)).await?;
        }
        rewritten.insert(table.name.as_str());
    }
    if tables_named(&tables, &["document_tenant"]).next().is_some() {
        purge_documents(client, &tables, documents, &mut rewritten).await?;
    }
    // What is deleted stays in the files, and samples of it in the statistics.
    for table in &rewritten {
        run(client, &format!("VACUUM (FULL) {table}")).await?;
    }
    let rewritten: Vec<&str> = rewritten.into_iter().collect();
    client
        .execute(include_str!("sql/forget_statistics.sql"), &[&rewritten])
        .await
        .map_err(server_error("forget the statistics of schema egret"))?;
    for table in rewritten {
        run(client, &format!("ANALYZE {table}")).await?;
    }
    run(client, "RESET session_replication_role").await
}

async fn purge_documents<'a>(
    client: &Client,
    tables: &'a [Table],
    documents: DocumentRetention,
    rewritten: &mut BTreeSet<&'a str>,
) -> Result<(), PostgresError> {
    let kept_tenant = match documents {
        DocumentRetention::All => return Ok(()),
        DocumentRetention::DefaultTenant => DEFAULT_TENANT,
        DocumentRetention::None => "",
    };
    let sql = "SELECT tenant_id FROM egret.document_tenant WHERE name <> $1";
    let doing = "list the tenants with documents";
    let mut removed_tenants: Vec<i32> = Vec::new();
    for row in bounded::query(client, doing, sql, &[&kept_tenant]).await? {
        removed_tenants.push(get_value(&row, 0, doing)?);
    }
    if removed_tenants.is_empty() {
        return Ok(());
    }
    let tenant_tables: Vec<&Table> = tables_named(tables, &TENANT_TABLES).collect();
    let mut has_kept_rows = false;
    for table in &tenant_tables {
        let sql = format!("SELECT FROM ONLY {} WHERE tenant_id <> ALL ($1) LIMIT 1", table.name);
        let found = bounded::query(client, "look for documents", &sql, &[&removed_tenants]).await?;
        has_kept_rows |= !found.is_empty();
    }
    if has_kept_rows || !truncate(client, &tenant_tables).await? {
        for table in tenant_tables {
            let sql = format!("DELETE FROM ONLY {} WHERE tenant_id = ANY ($1)", table.name);
            let deleted = client.execute(&sql, &[&removed_tenants]).await;
            if deleted.map_err(server_error("delete documents of other tenants"))? > 0 {
                rewritten.insert(&table.name);
            }
        }
    }
    let sql = "DELETE FROM ONLY egret.document_tenant WHERE tenant_id = ANY ($1)";
    let deleted = client.execute(sql, &[&removed_tenants]).await;
    deleted.map_err(server_error("delete tenants of documents"))?;
    // Rows of the feed are about documents of several tenants; its position goes on from the last
    // row.
    run(client, include_str!("sql/forget_feed.sql")).await?;
    for table in tables_named(tables, &["document_feed", "document_tenant"]) {
        rewritten.insert(&table.name);
    }
    Ok(())
}

/// Empties tables at once, which costs the same for any number of rows. Returns whether it could: a
/// table that another one refers to cannot be emptied so.
async fn truncate(client: &Client, tables: &[&Table]) -> Result<bool, PostgresError> {
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    if names.is_empty() {
        return Ok(true);
    }
    match client.batch_execute(&format!("TRUNCATE ONLY {}", names.join(", ONLY "))).await {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => Ok(false),
        Err(error) => Err(server_error("empty tables of schema egret")(error)),
    }
}

async fn tables(client: &Client) -> Result<Vec<Table>, PostgresError> {
    let doing = "list the tables of schema egret";
    let rows = bounded::query(client, doing, include_str!("sql/egret_tables.sql"), &[]).await?;
    let table =
        |row| Ok(Table { name: get_value(row, 0, doing)?, base_name: get_value(row, 1, doing)? });
    rows.iter().map(table).collect()
}

fn tables_named<'a>(tables: &'a [Table], names: &'a [&str]) -> impl Iterator<Item = &'a Table> {
    tables.iter().filter(move |table| names.contains(&table.base_name.as_str()))
}

async fn run(client: &Client, sql: &str) -> Result<(), PostgresError> {
    client
        .batch_execute(sql)
        .await
        .map_err(server_error("delete what schema egret holds for others"))
}
