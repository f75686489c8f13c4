//! Has others told what becomes of documents.

use std::time::SystemTime;

use egret_outgoing::Url;

use super::{Caller, Documents};
use crate::core::rights::{Action, Reach};
use crate::error::DocumentsError;
use crate::model::CollectionName;
use crate::store::subscriptions::{self, Destination};

/// Somebody who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribed {
    /// Its name.
    pub name: CollectionName,
    /// Of this collection alone.
    pub collection: Option<CollectionName>,
    /// Where to.
    pub destination: Destination,
    /// Up to this position he has been told.
    pub position: i64,
    /// Since when.
    pub created_at: SystemTime,
    /// How often it has failed since it was told last, and why the last time.
    pub failed: Option<(u32, String)>,
}

/// What somebody wants to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribing {
    /// Its name.
    pub name: CollectionName,
    /// Of this collection alone.
    pub collection: Option<CollectionName>,
    /// Where to.
    pub destination: Destination,
    /// What comes after this position; none: what comes from now on, and for one that there is what it was not told yet.
    pub after: Option<i64>,
}

/// A destination fit to be shown.
fn without_password(destination: Destination) -> Destination {
    let Destination::Webhook(text) = destination else {
        return destination;
    };
    let Ok(mut url) = Url::parse(&text) else {
        return Destination::Webhook(text);
    };
    // Setting one fails for addresses that cannot have a password.
    if url.password().is_none() || url.set_password(Some("xxxxx")).is_err() {
        return Destination::Webhook(text);
    }
    Destination::Webhook(url.to_string())
}

impl Documents {
    /// All that are told of a tenant's documents, by name.
    ///
    /// # Errors
    /// [`DocumentsError`].
    pub async fn subscriptions(&self, caller: &Caller) -> Result<Vec<Subscribed>, DocumentsError> {
        let kept = self.kept(caller).await?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let lent = kept.asker.lend(&caller.tenant).await?;
        let found = subscriptions::all(lent.client()).await;
        let all = lent.end(found.map_err(DocumentsError::from)).await?;
        let catalogue = kept.keeper.writer.catalogue();
        let own = all.into_iter().filter(|one| one.tenant == tenant.0);
        own.map(|one| {
            let declared = one.collection.and_then(|id| catalogue.by_number(id));
            let failed = kept.teller.failed(one.tenant, &one.name);
            Ok(Subscribed {
                name: named(one.name)?,
                collection: declared.map(|declared| declared.collection.name().clone()),
                destination: without_password(one.destination),
                position: one.position,
                created_at: one.created_at,
                failed: failed.map(|failed| (failed.times, failed.error)),
            })
        })
        .collect()
    }

    /// Refuses a destination to which changes cannot go.
    fn check_destination(&self, destination: &Destination) -> Result<(), DocumentsError> {
        let options = &self.inner.options;
        match (destination, &options.tasks) {
            (Destination::Webhook(url), _) => {
                let checked = options.destinations.check(url).map(drop);
                checked.map_err(|error| DocumentsError::WebhookInvalid {
                    reason: error.to_string(),
                })
            }
            (Destination::Queue(queue), Some(sink)) => {
                sink.check_queue(queue)
                    .map_err(|refused| DocumentsError::Database {
                        reason: refused.message,
                    })
            }
            (Destination::Queue(_), None) => Ok(()),
        }
    }

    /// Has somebody told from now on; one that there is of this name is changed.
    ///
    /// # Errors
    /// [`DocumentsError`]: nothing has changed then.
    pub async fn subscribe(
        &self,
        caller: &Caller,
        wanted: Subscribing,
    ) -> Result<Subscribed, DocumentsError> {
        let kept = self.kept(caller).await?;
        let collection = match &wanted.collection {
            Some(name) => Some(kept.declared(caller, Action::Read, name)?.id.0),
            None => None,
        };
        self.check_destination(&wanted.destination)?;
        let catalogue = kept.keeper.writer.catalogue();
        let mut told = catalogue.iter().filter(|declared| {
            let wanted = wanted.collection.as_ref();
            wanted.is_none_or(|wanted| wanted == declared.collection.name())
        });
        let is_seen = told.all(|declared| {
            let collection = &declared.collection;
            caller.rights.may(Action::Read, collection.name())
                && caller.rights.is_whole(collection.definition())
        });
        // Others may be declared later.
        let is_limited = wanted.collection.is_none() && caller.rights.read != Reach::All;
        if !is_seen || is_limited {
            return Err(DocumentsError::AccessDenied {
                what: "the token does not see all documents whose changes would be told".to_owned(),
            });
        }
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let there = self.subscriptions(caller).await?;
        let subscriptions_max = self.inner.options.config.subscriptions_max;
        let is_new = there.iter().all(|one| one.name != wanted.name);
        if is_new && there.len() >= subscriptions_max as usize {
            return Err(DocumentsError::TooManySubscriptions { subscriptions_max });
        }
        if let Some(after) = wanted.after {
            let last = kept.follower.last().await?;
            if after > last {
                return Err(DocumentsError::ChangesAhead { last });
            }
        }
        let lent = kept.asker.lend(&caller.tenant).await?;
        let stored = subscriptions::put(
            lent.client(),
            (tenant.0, wanted.name.as_str()),
            collection,
            &wanted.destination,
            wanted.after,
        )
        .await;
        let stored = lent.end(stored.map_err(DocumentsError::from)).await?;
        kept.teller.look();
        Ok(Subscribed {
            name: wanted.name,
            collection: wanted.collection,
            destination: without_password(stored.destination),
            position: stored.position,
            created_at: stored.created_at,
            failed: None,
        })
    }

    /// Has somebody told no more.
    ///
    /// # Errors
    /// [`DocumentsError::NoSubscription`], and what the server says.
    pub async fn unsubscribe(
        &self,
        caller: &Caller,
        name: &CollectionName,
    ) -> Result<(), DocumentsError> {
        let kept = self.kept(caller).await?;
        let tenant = self.tenant(&kept, &caller.tenant).await?;
        let lent = kept.asker.lend(&caller.tenant).await?;
        let removed = subscriptions::remove(lent.client(), tenant.0, name.as_str()).await;
        match lent.end(removed.map_err(DocumentsError::from)).await? {
            true => {
                kept.teller.look();
                Ok(())
            }
            false => Err(DocumentsError::NoSubscription {
                subscription: name.clone(),
            }),
        }
    }
}

fn named(name: String) -> Result<CollectionName, DocumentsError> {
    CollectionName::try_from(name).map_err(|reason| DocumentsError::Database { reason })
}
