//! Who is told what becomes of documents, as it is remembered.

use std::time::SystemTime;

use egret_postgres::tokio_postgres::{Client, Error as PgError, Row};

/// Somebody who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Whose documents.
    pub tenant: i32,
    /// Its name.
    pub name: String,
    /// Of this collection alone.
    pub collection: Option<i32>,
    /// Where to.
    pub destination: Destination,
    /// Up to this position he has been told.
    pub position: i64,
    /// Since when.
    pub created_at: SystemTime,
}

/// Where changes go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To an address, by POST.
    Webhook(String),
    /// As tasks, one for each change, in a queue.
    Queue(String),
}

impl Destination {
    /// As it is stored: what it is, and which.
    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Webhook(url) => ("webhook", url),
            Self::Queue(queue) => ("queue", queue),
        }
    }
}

const COLUMNS: &str = "tenant_id, name, collection_id, kind, target, position, created_at";

fn of(row: &Row) -> Subscription {
    let (kind, target): (String, String) = (row.get(3), row.get(4));
    Subscription {
        tenant: row.get(0),
        name: row.get(1),
        collection: row.get(2),
        destination: match kind.as_str() {
            "webhook" => Destination::Webhook(target),
            _ => Destination::Queue(target),
        },
        position: row.get(5),
        created_at: row.get(6),
    }
}

/// All, by tenants and names.
///
/// # Errors
/// What the server says.
pub async fn all(client: &Client) -> Result<Vec<Subscription>, PgError> {
    let sql = format!("SELECT {COLUMNS} FROM egret.document_subscription ORDER BY tenant_id, name");
    Ok(client.query(&sql, &[]).await?.iter().map(of).collect())
}

/// Remembers one, which begins after a position: the last, where none is given. One of this name that is there is told on from where it was,
/// unless a position is given.
///
/// # Errors
/// What the server says.
pub async fn put(
    client: &Client,
    (tenant, name): (i32, &str),
    collection: Option<i32>,
    destination: &Destination,
    after: Option<i64>,
) -> Result<Subscription, PgError> {
    let sql = format!(
        "INSERT INTO egret.document_subscription AS s (tenant_id, name, collection_id, kind, target, position) \
         VALUES ($1, $2, $3, $4, $5, coalesce($6, (SELECT coalesce(max(position), 0) FROM egret.document_feed))) \
         ON CONFLICT (tenant_id, name) DO UPDATE SET collection_id = excluded.collection_id, kind = excluded.kind, \
             target = excluded.target, position = coalesce($6, s.position) RETURNING {COLUMNS}"
    );
    let (kind, target) = destination.parts();
    let row = client
        .query_one(&sql, &[&tenant, &name, &collection, &kind, &target, &after])
        .await?;
    Ok(of(&row))
}

/// Forgets one. Returns whether there was one.
///
/// # Errors
/// What the server says.
pub async fn remove(client: &Client, tenant: i32, name: &str) -> Result<bool, PgError> {
    let sql = "DELETE FROM egret.document_subscription WHERE tenant_id = $1 AND name = $2";
    Ok(client.execute(sql, &[&tenant, &name]).await? > 0)
}

/// It has been told up to a position, if it is where it was.
///
/// # Errors
/// What the server says.
pub async fn advance(
    client: &Client,
    subscription: &Subscription,
    position: i64,
) -> Result<(), PgError> {
    let sql = "UPDATE egret.document_subscription SET position = $4 WHERE tenant_id = $1 AND name = $2 AND position = $3";
    let Subscription {
        tenant,
        name,
        position: before,
        ..
    } = subscription;
    client
        .execute(sql, &[tenant, name, before, &position])
        .await?;
    Ok(())
}
