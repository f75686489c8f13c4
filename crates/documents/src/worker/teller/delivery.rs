//! One delivery to one subscription: what it gets next, and how that is sent.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use egret_base::{SIGNATURE_HEADER, TaskRequest, Timestamp};
use egret_postgres::tokio_postgres::{Client, Error as PgError};
use serde_json::{Value, json};

use super::Teller;
use crate::error::DocumentsError;
use crate::model::ChangeKind;
use crate::store::feed::Group;
use crate::store::subscriptions::{self, Destination, Subscription};
use crate::worker::catalogue::Catalogue;

/// Changes that one delivery carries.
const CHANGES_TOGETHER: usize = 1_000;

/// Why changes were not delivered.
pub(super) enum DeliveryError {
    /// The receiver of a webhook did not answer.
    Unanswered(String),
    /// The receiver refused them, or they could not be read or noted.
    Failed(String),
}

impl DeliveryError {
    pub fn reason(&self) -> &str {
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

impl Teller {
    /// Tells somebody the next that there is. Returns up to which position.
    pub(super) async fn tell_one(
        &self,
        session: &Client,
        one: &Subscription,
        tenant: &str,
    ) -> Result<i64, DeliveryError> {
        let said = |error: PgError| egret_base::error::chain(&error);
        let groups = match self.follower.after(one.position).await {
            Ok(groups) => groups,
            Err(DocumentsError::ChangesGone { forgotten }) => {
                // It goes on with what there is, and says so once.
                subscriptions::advance(session, one, forgotten)
                    .await
                    .map_err(said)?;
                return Err(format!(
                    "changes up to position {forgotten} were forgotten before they could be told, `documents.feed_kept`"
                )
                .into());
            }
            Err(error) => return Err(error.to_string().into()),
        };
        let catalogue = self.keeper.writer.catalogue();
        let (changes, position) = changes(&groups, one, &catalogue);
        if !changes.is_empty() {
            match &one.destination {
                Destination::Webhook(url) => self.post(url, (one, tenant), &changes).await?,
                Destination::Queue(queue) => self.hand_over(queue, one, tenant, &changes).await?,
            }
        }
        if position > one.position {
            subscriptions::advance(session, one, position)
                .await
                .map_err(said)?;
        }
        Ok(position)
    }

    async fn post(
        &self,
        url: &str,
        (one, tenant): (&Subscription, &str),
        changes: &[Value],
    ) -> Result<(), DeliveryError> {
        let body = json!({
            "subscription": one.name,
            "database": self.keeper.database,
            "changes": changes,
        });
        let body = body.to_string();
        let mut request = self
            .client
            .post(url)
            .map_err(|error| error.to_string())?
            .header("content-type", "application/json");
        if let Some(signer) = &self.hands.signer {
            let at_seconds = self.hands.clock.now().as_millis_unsigned() / 1_000;
            let signature = signer.sign(tenant, at_seconds, body.as_bytes())?;
            request = request.header(SIGNATURE_HEADER, signature);
        }
        // The address may hold a secret: neither logs nor lists repeat it.
        let sent = request.body(body).send().await;
        let answer = sent.map_err(|error| DeliveryError::Unanswered(error.to_string()))?;
        if answer.is_success() {
            return Ok(());
        }
        Err(format!("the receiver answered {}", answer.status_text()).into())
    }

    async fn hand_over(
        &self,
        queue: &str,
        one: &Subscription,
        tenant: &str,
        changes: &[Value],
    ) -> Result<(), String> {
        let sink = self
            .hands
            .tasks
            .as_ref()
            .ok_or("there are no queues here")?;
        let database = &self.keeper.database;
        let texts: Vec<(String, String, &str)> = changes
            .iter()
            .map(|change| {
                let key = format!("documents/{database}/{}/{}", one.name, change["position"]);
                (change.to_string(), key, change["id"].as_str().unwrap_or(""))
            })
            .collect();
        let requests: Vec<TaskRequest<'_>> = texts
            .iter()
            .map(|(payload, key, document)| TaskRequest {
                tenant,
                queue,
                payload: payload.as_bytes(),
                key,
                // What becomes of one document is worked on in order.
                ordering_key: document,
                unique_key: "",
            })
            .collect();
        let outcomes = sink.enqueue(&requests).await;
        match outcomes.into_iter().find_map(Result::err) {
            Some(refused) => Err(refused.message),
            None => Ok(()),
        }
    }
}

fn moment(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// What a subscription is told of groups, and up to which position that is.
fn changes(groups: &[Arc<Group>], one: &Subscription, catalogue: &Catalogue) -> (Vec<Value>, i64) {
    let (mut told, mut reached) = (Vec::new(), one.position);
    for group in groups {
        let each = (group.before() + 1..).zip(&group.changes);
        for (position, &(kind, tenant, collection, id, version)) in each {
            if position <= one.position {
                continue;
            }
            if told.len() == CHANGES_TOGETHER {
                return (told, reached);
            }
            reached = position;
            let (Some(declared), Some(kind)) =
                (catalogue.by_number(collection), ChangeKind::of(kind))
            else {
                continue;
            };
            let is_wanted =
                tenant == one.tenant && one.collection.is_none_or(|wanted| wanted == collection);
            if is_wanted {
                told.push(json!({
                    "position": position,
                    "at": moment(group.at),
                    "kind": kind.as_str(),
                    "collection": declared.collection.name(),
                    "id": id.to_string(),
                    "version": version,
                }));
            }
        }
    }
    (told, reached)
}
