//! Who is told what becomes of documents.

use axum::extract::State;
use egret_base::Timestamp;
use egret_documents::Documents;
use egret_documents::api::{Destination, Subscribed, Subscribing};
use egret_documents::model::CollectionName;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Place;
use super::answer::{moment, problem};
use super::request::{In, Whose};
use crate::access::Caller;
use crate::error::RequestError;
use crate::extract::Json;
use crate::problem::Problem;
use crate::queue::rights;
use crate::tokens::{ADMIN, TokenError};

/// Who is told, and how far he is.
#[derive(Serialize, ToSchema)]
pub(super) struct DocumentSubscription {
    /// Its name.
    #[schema(example = "search-index")]
    name: String,
    /// Of this collection alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
    /// The address to which changes are posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<String>,
    /// The queue in which each change is a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Up to this position he has been told.
    #[schema(example = 4711)]
    position: i64,
    /// Since when, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// How often it has failed since he was told last.
    failures: u32,
    /// Why the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl DocumentSubscription {
    fn of(one: Subscribed) -> Self {
        let (webhook, queue) = match one.destination {
            Destination::Webhook(url) => (Some(url), None),
            Destination::Queue(queue) => (None, Some(queue)),
        };
        let (failures, last_error) = one
            .failed
            .map_or((0, None), |(times, error)| (times, Some(error)));
        Self {
            name: one.name.to_string(),
            collection: one.collection.map(|name| name.to_string()),
            webhook,
            queue,
            position: one.position,
            created_at: moment(one.created_at),
            failures,
            last_error,
        }
    }
}

/// Who is told, by name.
#[derive(Serialize, ToSchema)]
pub(super) struct DocumentSubscriptionList {
    items: Vec<DocumentSubscription>,
}

/// Who is to be told: one of `webhook` and `queue`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SubscriptionRequest {
    /// Of this collection alone; without it of all.
    collection: Option<String>,
    /// An http or https address to which changes are posted as JSON: `subscription`, `database` and `changes`. Answered by anything but 2xx, they are
    /// posted again. Takes scope `admin`.
    #[schema(example = "https://search.example.com/changes")]
    webhook: Option<String>,
    /// A queue in which each change is a task. Takes the scope `queue:produce` there.
    queue: Option<String>,
    /// What comes after this position; without it what comes from now on, and for one that there is what it has not been told.
    after: Option<i64>,
}

impl SubscriptionRequest {
    fn destination(&self) -> Result<Destination, String> {
        match (&self.webhook, &self.queue) {
            (Some(url), None) => {
                let parsed = url.parse::<http::Uri>().ok();
                let is_http = parsed.is_some_and(|uri| {
                    matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
                });
                match is_http {
                    true => Ok(Destination::Webhook(url.clone())),
                    false => Err("`webhook` is no http or https address".to_owned()),
                }
            }
            (None, Some(queue)) => Ok(Destination::Queue(queue.clone())),
            _ => Err("one of `webhook` and `queue` says where to".to_owned()),
        }
    }
}

/// Insists that a caller may send changes to a destination, or end that.
fn require_destination(caller: &Caller, destination: &Destination) -> Result<(), TokenError> {
    match destination {
        // It may be an address that only the server reaches.
        Destination::Webhook(_) => caller.require(ADMIN),
        Destination::Queue(queue) => rights::require(caller, queue, rights::PRODUCE),
    }
}

/// Whoever is told under a name, if there is somebody.
async fn named(
    documents: &Documents,
    asking: &egret_documents::api::Caller,
    name: &CollectionName,
) -> Result<Option<Subscribed>, Problem> {
    let all = documents.subscriptions(asking).await.map_err(problem)?;
    Ok(all.into_iter().find(|one| one.name == *name))
}

/// List who is told
///
/// Those that the token could have told: addresses take scope `admin`, queues `queue:produce` there.
#[utoipa::path(get, path = "/v1/document-subscriptions", operation_id = "listDocumentSubscriptions", tag = "documents",
    security(("token" = ["documents:read"])), params(Place),
    responses((status = 200, description = "Who is told.", body = DocumentSubscriptionList)))]
pub(super) async fn list_document_subscriptions(
    State(documents): State<Documents>,
    caller: Caller,
    Whose(asking): Whose,
) -> Result<Json<DocumentSubscriptionList>, Problem> {
    let all = documents.subscriptions(&asking).await.map_err(problem)?;
    // An address may have a secret in it.
    let shown = all
        .into_iter()
        .filter(|one| require_destination(&caller, &one.destination).is_ok());
    let items = shown.map(DocumentSubscription::of).collect();
    Ok(Json(DocumentSubscriptionList { items }))
}

/// Have somebody told
///
/// What becomes of documents, in the order in which it was committed, until he has heard it; after a crash he may hear something twice.
#[utoipa::path(put, path = "/v1/document-subscriptions/{name}", operation_id = "putDocumentSubscription", tag = "documents",
    security(("token" = ["documents:read"])), params(("name" = String, Path, description = "Its name."), Place),
    request_body = SubscriptionRequest,
    responses(
        (status = 200, description = "He is told from now on.", body = DocumentSubscription),
        (status = 403, description = "The token does not see all that would be told, or may not tell it there.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "There is no such collection.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn put_document_subscription(
    State(documents): State<Documents>,
    caller: Caller,
    Whose(asking): Whose,
    In(name): In,
    Json(request): Json<SubscriptionRequest>,
) -> Result<Json<DocumentSubscription>, Problem> {
    let destination = request
        .destination()
        .map_err(|message| RequestError::JsonInvalid {
            field: "webhook".to_owned(),
            message,
        })?;
    require_destination(&caller, &destination)?;
    if let Some(there) = named(&documents, &asking, &name).await? {
        require_destination(&caller, &there.destination)?;
    }
    let of = request.collection.map(|name| {
        name.parse().map_err(|message| RequestError::JsonInvalid {
            field: "collection".to_owned(),
            message,
        })
    });
    let wanted = Subscribing {
        name,
        collection: of.transpose()?,
        destination,
        after: request.after,
    };
    let told = documents.subscribe(&asking, wanted).await;
    Ok(Json(DocumentSubscription::of(told.map_err(problem)?)))
}

/// Have somebody told no more
#[utoipa::path(delete, path = "/v1/document-subscriptions/{name}", operation_id = "deleteDocumentSubscription", tag = "documents",
    security(("token" = ["documents:read"])), params(("name" = String, Path, description = "Its name."), Place),
    responses(
        (status = 204, description = "He is told no more."),
        (status = 403, description = "The token could not have him told there.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is none of this name.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn delete_document_subscription(
    State(documents): State<Documents>,
    caller: Caller,
    Whose(asking): Whose,
    In(name): In,
) -> Result<StatusCode, Problem> {
    if let Some(there) = named(&documents, &asking, &name).await? {
        require_destination(&caller, &there.destination)?;
    }
    documents
        .unsubscribe(&asking, &name)
        .await
        .map_err(problem)?;
    Ok(StatusCode::NO_CONTENT)
}
