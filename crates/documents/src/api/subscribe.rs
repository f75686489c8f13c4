//! Management of subscriptions to document changes.

use std::time::SystemTime;

use egret_outgoing::Url;

use super::caller::Caller;
use super::engine::Documents;
use crate::core::rights::{Action, Reach};
use crate::error::DocumentsError;
use crate::model::{CollectionName, FeedPosition};
use crate::store::subscriptions::{self, Destination};

/// A subscription and its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionStatus {
    /// Name of the subscription, unique within the tenant.
    pub name: CollectionName,
    /// Only changes of this collection are delivered; none: of all.
    pub collection: Option<CollectionName>,
    /// Webhook or queue to which changes are delivered; passwords in URLs are masked.
    pub destination: Destination,
    /// Last delivered position of the feed.
    pub position: FeedPosition,
    /// Time at which the subscription was created.
    pub created_at: SystemTime,
    /// Number of consecutive failed deliveries, with the last error; none: the last one succeeded.
    pub failure: Option<(u32, String)>,
}

/// A subscription to create or to replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionSpec {
    /// Name of the subscription, unique within the tenant.
    pub name: CollectionName,
    /// Only changes of this collection are delivered; none: of all.
    pub collection: Option<CollectionName>,
    /// Webhook or queue to which changes are delivered.
    pub destination: Destination,
    /// Changes after this position are delivered; none: a new subscription starts at the end of the
    /// feed, an existing one goes on from its last delivered position.
    pub after: Option<FeedPosition>,
}

/// The destination with the password of its URL masked.
fn without_password(destination: Destination) -> Destination {
    let Destination::Webhook(text) = destination else {
        return destination;
    };
    let Ok(mut url) = Url::parse(&text) else {
        return Destination::Webhook(text);
    };
    // `set_password` fails for URLs that cannot have a password.
    if url.password().is_none() || url.set_password(Some("xxxxx")).is_err() {
        return Destination::Webhook(text);
    }
    Destination::Webhook(url.to_string())
}

impl Documents {
    /// The subscriptions of the caller's tenant, by name.
    pub async fn subscriptions(
        &self,
        caller: &Caller,
    ) -> Result<Vec<SubscriptionStatus>, DocumentsError> {
        let handle = self.handle(caller).await?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let session = handle.queries.acquire(&caller.tenant).await?;
        let result = subscriptions::read_all(session.client()).await;
        let rows = session.finish(result.map_err(DocumentsError::from)).await?;
        let catalogue = handle.ownership.writer.catalogue();
        let own_rows = rows.into_iter().filter(|one| one.tenant == tenant);
        own_rows
            .map(|one| {
                let declared = one.collection.and_then(|id| catalogue.get(id));
                let failure = handle.subscriptions.failure(one.tenant, &one.name);
                Ok(SubscriptionStatus {
                    name: parse_name(one.name)?,
                    collection: declared.map(|declared| declared.collection.name().clone()),
                    destination: without_password(one.destination),
                    position: one.position,
                    created_at: one.created_at,
                    failure: failure.map(|failed| (failed.count, failed.error)),
                })
            })
            .collect()
    }

    /// Rejects a destination to which changes cannot be delivered.
    fn check_destination(&self, destination: &Destination) -> Result<(), DocumentsError> {
        let options = &self.inner.options;
        match (destination, &options.tasks) {
            (Destination::Webhook(url), _) => {
                let result = options.destinations.check(url).map(drop);
                result.map_err(|error| DocumentsError::WebhookInvalid { reason: error.to_string() })
            }
            (Destination::Queue(queue), Some(sink)) => sink
                .check_queue(queue)
                .map_err(|rejection| DocumentsError::Database { reason: rejection.message }),
            (Destination::Queue(_), None) => Ok(()),
        }
    }

    /// Creates a subscription, or replaces the one with this name.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing was changed.
    pub async fn subscribe(
        &self,
        caller: &Caller,
        spec: SubscriptionSpec,
    ) -> Result<SubscriptionStatus, DocumentsError> {
        let handle = self.handle(caller).await?;
        let collection = match &spec.collection {
            Some(name) => Some(handle.authorized_collection(caller, Action::Read, name)?.id),
            None => None,
        };
        self.check_destination(&spec.destination)?;
        let catalogue = handle.ownership.writer.catalogue();
        let mut collections = catalogue.iter().filter(|declared| {
            let filter = spec.collection.as_ref();
            filter.is_none_or(|wanted| wanted == declared.collection.name())
        });
        let is_visible = collections.all(|declared| {
            let collection = &declared.collection;
            caller.rights.allows(Action::Read, collection.name())
                && caller.rights.is_unrestricted(collection.definition())
        });
        // Collections declared later would be outside the token's rights.
        let is_limited = spec.collection.is_none() && caller.rights.read != Reach::All;
        if !is_visible || is_limited {
            return Err(DocumentsError::AccessDenied {
                what: "the token may not read all documents whose changes would be delivered"
                    .to_owned(),
            });
        }
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let existing = self.subscriptions(caller).await?;
        let subscriptions_max = self.inner.options.config.subscriptions_max;
        let is_new = existing.iter().all(|one| one.name != spec.name);
        if is_new && existing.len() >= subscriptions_max as usize {
            return Err(DocumentsError::TooManySubscriptions { subscriptions_max });
        }
        if let Some(after) = spec.after {
            let last = handle.feed.last_position().await?;
            if after > last {
                return Err(DocumentsError::ChangesAhead { last });
            }
        }
        let session = handle.queries.acquire(&caller.tenant).await?;
        let stored = subscriptions::put(
            session.client(),
            tenant,
            spec.name.as_str(),
            collection,
            &spec.destination,
            spec.after,
        )
        .await;
        let stored = session.finish(stored.map_err(DocumentsError::from)).await?;
        handle.subscriptions.request_reload();
        Ok(SubscriptionStatus {
            name: spec.name,
            collection: spec.collection,
            destination: without_password(stored.destination),
            position: stored.position,
            created_at: stored.created_at,
            failure: None,
        })
    }

    /// Deletes a subscription.
    ///
    /// # Errors
    /// [`DocumentsError::NoSubscription`]: there is none of this name.
    pub async fn unsubscribe(
        &self,
        caller: &Caller,
        name: &CollectionName,
    ) -> Result<(), DocumentsError> {
        let handle = self.handle(caller).await?;
        let tenant = self.resolve_tenant(&handle, &caller.tenant).await?;
        let session = handle.queries.acquire(&caller.tenant).await?;
        let result = subscriptions::remove(session.client(), tenant, name.as_str()).await;
        if session.finish(result.map_err(DocumentsError::from)).await? {
            handle.subscriptions.request_reload();
            Ok(())
        } else {
            Err(DocumentsError::NoSubscription { subscription: name.clone() })
        }
    }
}

fn parse_name(name: String) -> Result<CollectionName, DocumentsError> {
    CollectionName::try_from(name).map_err(|reason| DocumentsError::Database { reason })
}
