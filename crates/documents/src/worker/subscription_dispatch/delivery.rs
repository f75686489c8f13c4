//! One delivery to one subscription: reads the next changes and sends them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use egret_base::{SIGNATURE_HEADER, TaskRequest, Timestamp};
use egret_postgres::tokio_postgres::{Client, Error as PgError};
use serde_json::{Value, json};

use super::SubscriptionDispatcher;
use crate::error::DocumentsError;
use crate::model::FeedPosition;
use crate::store::feed::FeedGroup;
use crate::store::subscriptions::{self, Destination, Subscription};
use crate::worker::catalogue::Catalogue;

/// Changes of one delivery, at most.
const DELIVERY_CHANGES_MAX: usize = 1_000;

/// Why a delivery failed.
pub(super) enum DeliveryError {
    /// The receiver of a webhook did not answer.
    Unanswered(String),
    /// The receiver rejected the changes, or they could not be read, or the position not stored.
    Failed(String),
}

impl DeliveryError {
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Unanswered(reason) | Self::Failed(reason) => reason,
        }
    }
}

impl From<String> for DeliveryError {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl SubscriptionDispatcher {
    /// Delivers the next changes to a subscription. Returns the new position.
    pub(super) async fn deliver_next(
        &self,
        session: &Client,
        subscription: &Subscription,
        tenant: &str,
    ) -> Result<FeedPosition, DeliveryError> {
        let message = |error: PgError| egret_base::error::chain(&error);
        let groups = match self.feed.groups_after(subscription.position).await {
            Ok(groups) => groups,
            Err(DocumentsError::ChangesGone { forgotten }) => {
                // Skip to the changes that are left, and report the gap once.
                subscriptions::advance_position(session, subscription, forgotten)
                    .await
                    .map_err(message)?;
                return Err(format!(
                    "changes up to position {forgotten} were deleted before they could be \
                     delivered (`documents.feed_kept`)"
                )
                .into());
            }
            Err(error) => return Err(error.to_string().into()),
        };
        let catalogue = self.ownership.writer.catalogue();
        let (changes, position) = changes(&groups, subscription, &catalogue);
        if !changes.is_empty() {
            match &subscription.destination {
                Destination::Webhook(url) => self.post(url, subscription, tenant, &changes).await?,
                Destination::Queue(queue) => {
                    self.enqueue(queue, subscription, tenant, &changes).await?
                }
            }
        }
        if position > subscription.position {
            subscriptions::advance_position(session, subscription, position)
                .await
                .map_err(message)?;
        }
        Ok(position)
    }

    async fn post(
        &self,
        url: &str,
        one: &Subscription,
        tenant: &str,
        changes: &[Value],
    ) -> Result<(), DeliveryError> {
        let body = json!({
            "subscription": one.name,
            "database": self.ownership.database,
            "changes": changes,
        })
        .to_string();
        let mut request = self
            .client
            .post(url)
            .map_err(|error| error.to_string())?
            .header("content-type", "application/json");
        if let Some(signer) = &self.channels.signer {
            let at_seconds = self.channels.clock.now().as_millis_unsigned() / 1_000;
            let signature = signer.sign(tenant, at_seconds, body.as_bytes())?;
            request = request.header(SIGNATURE_HEADER, signature);
        }
        // The URL may contain a secret: it appears neither in logs nor in listings.
        let result = request.body(body).send().await;
        let response = result.map_err(|error| DeliveryError::Unanswered(error.to_string()))?;
        if response.is_success() {
            return Ok(());
        }
        Err(format!("the receiver answered {}", response.status_text()).into())
    }

    async fn enqueue(
        &self,
        queue: &str,
        subscription: &Subscription,
        tenant: &str,
        changes: &[Value],
    ) -> Result<(), String> {
        let sink = self.channels.tasks.as_ref().ok_or("this Egret has no queues")?;
        let database = &self.ownership.database;
        let tasks: Vec<(String, String, &str)> = changes
            .iter()
            .map(|change| {
                let key =
                    format!("documents/{database}/{}/{}", subscription.name, change["position"]);
                (change.to_string(), key, change["id"].as_str().unwrap_or(""))
            })
            .collect();
        let requests: Vec<TaskRequest<'_>> = tasks
            .iter()
            .map(|(payload, key, document)| TaskRequest {
                tenant,
                queue,
                payload: payload.as_bytes(),
                key,
                // Tasks for one document are processed in order.
                ordering_key: document,
                unique_key: "",
            })
            .collect();
        let outcomes = sink.enqueue(&requests).await;
        match outcomes.into_iter().find_map(Result::err) {
            Some(rejection) => Err(rejection.message),
            None => Ok(()),
        }
    }
}

fn to_timestamp(at: SystemTime) -> Timestamp {
    let elapsed = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX))
}

/// Changes of these groups that belong to a subscription, and the last position examined.
fn changes(
    groups: &[Arc<FeedGroup>],
    subscription: &Subscription,
    catalogue: &Catalogue,
) -> (Vec<Value>, FeedPosition) {
    let (mut changes, mut last_position) = (Vec::new(), subscription.position);
    for group in groups {
        for (position, change) in group.changes_with_positions() {
            if position <= subscription.position {
                continue;
            }
            if changes.len() == DELIVERY_CHANGES_MAX {
                return (changes, last_position);
            }
            last_position = position;
            let (Some(declared), Some(kind)) = (catalogue.get(change.collection), change.kind)
            else {
                continue;
            };
            let wanted = subscription.collection;
            let is_subscribed = change.tenant == subscription.tenant
                && wanted.is_none_or(|wanted| wanted == change.collection);
            if is_subscribed {
                changes.push(json!({
                    "position": position.0,
                    "at": to_timestamp(group.at),
                    "kind": kind.as_str(),
                    "collection": declared.collection.name(),
                    "id": change.id.to_string(),
                    "version": change.version,
                }));
            }
        }
    }
    (changes, last_position)
}
