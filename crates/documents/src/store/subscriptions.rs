//! Subscriptions stored in a database.

use crate::model::{CollectionId, FeedPosition, TenantId};
use std::time::SystemTime;

use egret_postgres::tokio_postgres::{Client, Error as PgError, Row};

/// Stored row of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    pub tenant: TenantId,
    pub name: String,
    /// Only changes of this collection are delivered; none: of all.
    pub collection: Option<CollectionId>,
    pub destination: Destination,
    /// Last delivered position of the feed.
    pub position: FeedPosition,
    /// Time at which the subscription was created.
    pub created_at: SystemTime,
}

/// Destination of a subscription's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// An HTTP POST to this URL.
    Webhook(String),
    /// Tasks in this queue, one for each change.
    Queue(String),
}

impl Destination {
    /// Kind and target as stored.
    fn kind_and_target(&self) -> (&'static str, &str) {
        match self {
            Self::Webhook(url) => ("webhook", url),
            Self::Queue(queue) => ("queue", queue),
        }
    }
}

const COLUMNS: &str = "tenant_id, name, collection_id, kind, target, position, created_at";

fn parse_row(row: &Row) -> Subscription {
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

/// All subscriptions, ordered by tenant and name.
pub async fn read_all(client: &Client) -> Result<Vec<Subscription>, PgError> {
    let sql = format!("SELECT {COLUMNS} FROM egret.document_subscription ORDER BY tenant_id, name");
    Ok(client.query(&sql, &[]).await?.iter().map(parse_row).collect())
}

/// Creates or replaces a subscription. Without a position, a new one starts at the end of the feed,
/// and an existing one keeps its own.
pub async fn put(
    client: &Client,
    tenant: TenantId,
    name: &str,
    collection: Option<CollectionId>,
    destination: &Destination,
    after: Option<FeedPosition>,
) -> Result<Subscription, PgError> {
    let sql = format!(
        "INSERT INTO egret.document_subscription AS s (tenant_id, name, collection_id, kind, target, position) \
         VALUES ($1, $2, $3, $4, $5, coalesce($6, (SELECT coalesce(max(position), 0) FROM egret.document_feed))) \
         ON CONFLICT (tenant_id, name) DO UPDATE SET collection_id = excluded.collection_id, kind = excluded.kind, \
             target = excluded.target, position = coalesce($6, s.position) RETURNING {COLUMNS}"
    );
    let (kind, target) = destination.kind_and_target();
    let row =
        client.query_one(&sql, &[&tenant, &name, &collection, &kind, &target, &after]).await?;
    Ok(parse_row(&row))
}

/// Deletes a subscription. Returns whether it existed.
pub async fn remove(client: &Client, tenant: TenantId, name: &str) -> Result<bool, PgError> {
    let sql = "DELETE FROM egret.document_subscription WHERE tenant_id = $1 AND name = $2";
    Ok(client.execute(sql, &[&tenant, &name]).await? > 0)
}

/// Advances the position of a subscription, unless it was changed meanwhile.
pub(crate) async fn advance_position(
    client: &Client,
    subscription: &Subscription,
    position: FeedPosition,
) -> Result<(), PgError> {
    let sql = "UPDATE egret.document_subscription SET position = $4 WHERE tenant_id = $1 AND name = $2 AND position = $3";
    let Subscription { tenant, name, position: previous, .. } = subscription;
    client.execute(sql, &[tenant, name, previous, &position]).await?;
    Ok(())
}
