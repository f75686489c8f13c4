//! Subscriptions to changes of documents, over HTTP.

use axum::extract::State;
use egret_base::Timestamp;
use egret_documents::Documents;
use egret_documents::api::{Destination, SubscriptionSpec, SubscriptionStatus};
use egret_documents::model::{CollectionName, FeedPosition};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::{to_problem, to_timestamp};
use super::request::{CollectionPath, DatabaseParams, RequestScope};
use crate::access::Caller;
use crate::error::RequestError;
use crate::extract::Json;
use crate::problem::Problem;
use crate::queue::rights;
use crate::tokens::{ADMIN, TokenError};

/// A subscription and its progress.
#[derive(Serialize, ToSchema)]
pub(super) struct DocumentSubscription {
    /// Its name.
    #[schema(example = "search-index")]
    name: String,
    /// Only changes of this collection.
    #[serde(skip_serializing_if = "Option::is_none")]
    collection: Option<String>,
    /// The address to which changes are posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<String>,
    /// The queue in which each change is a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Last delivered position.
    #[schema(example = 4711)]
    position: i64,
    /// When it was created, RFC 3339.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Failed deliveries since the last successful one.
    failures: u32,
    /// Error of the last failed delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl DocumentSubscription {
    fn from_status(status: SubscriptionStatus) -> Self {
        let (webhook, queue) = match status.destination {
            Destination::Webhook(url) => (Some(url), None),
            Destination::Queue(queue) => (None, Some(queue)),
        };
        let (failures, last_error) =
            status.failure.map_or((0, None), |(count, error)| (count, Some(error)));
        Self {
            name: status.name.to_string(),
            collection: status.collection.map(|name| name.to_string()),
            webhook,
            queue,
            position: status.position.0,
            created_at: to_timestamp(status.created_at),
            failures,
            last_error,
        }
    }
}

/// Subscriptions, in order of their names.
#[derive(Serialize, ToSchema)]
pub(super) struct DocumentSubscriptionList {
    items: Vec<DocumentSubscription>,
}

/// A request for a subscription; its destination is either `webhook` or `queue`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SubscriptionRequest {
    /// Only changes of this collection; when absent, of all.
    collection: Option<String>,
    /// An http or https address to which changes are posted as JSON: `subscription`, `database` and
    /// `changes`. They are posted again until the response is 2xx. A webhook requires scope
    /// `admin`.
    #[schema(example = "https://search.example.com/changes")]
    webhook: Option<String>,
    /// A queue in which each change becomes a task. It requires the scope `queue:produce` for that
    /// queue.
    queue: Option<String>,
    /// Position after which delivery begins. When absent, a new subscription begins with the next
    /// change, and an existing one continues after its last delivered position.
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
                if is_http {
                    Ok(Destination::Webhook(url.clone()))
                } else {
                    Err("`webhook` is not an http or https address".to_owned())
                }
            }
            (None, Some(queue)) => Ok(Destination::Queue(queue.clone())),
            _ => Err("exactly one of `webhook` and `queue` is needed".to_owned()),
        }
    }
}

/// Insists that a caller may create and delete subscriptions with this destination.
fn require_destination(caller: &Caller, destination: &Destination) -> Result<(), TokenError> {
    match destination {
        // The address may be one that only the server reaches (request forgery).
        Destination::Webhook(_) => caller.require(ADMIN),
        Destination::Queue(queue) => rights::require(caller, queue, rights::PRODUCE),
    }
}

/// The subscription of this name, if there is one.
async fn find_subscription(
    documents: &Documents,
    caller: &egret_documents::api::Caller,
    name: &CollectionName,
) -> Result<Option<SubscriptionStatus>, Problem> {
    let subscriptions = documents.subscriptions(caller).await.map_err(to_problem)?;
    Ok(subscriptions.into_iter().find(|subscription| subscription.name == *name))
}

/// List subscriptions to document changes
///
/// The list has the subscriptions whose destination the token may use: a webhook requires scope
/// `admin`, a queue `queue:produce` for that queue.
#[utoipa::path(get, path = "/v1/document-subscriptions", operation_id = "listDocumentSubscriptions", tag = "documents",
    security(("token" = ["documents:read"])), params(DatabaseParams),
    responses((status = 200, description = "The subscriptions.", body = DocumentSubscriptionList)))]
pub(super) async fn list_document_subscriptions(
    State(documents): State<Documents>,
    caller: Caller,
    RequestScope(documents_caller): RequestScope,
) -> Result<Json<DocumentSubscriptionList>, Problem> {
    let subscriptions = documents.subscriptions(&documents_caller).await.map_err(to_problem)?;
    // An address may have a secret in it.
    let visible = subscriptions
        .into_iter()
        .filter(|subscription| require_destination(&caller, &subscription.destination).is_ok());
    let items = visible.map(DocumentSubscription::from_status).collect();
    Ok(Json(DocumentSubscriptionList { items }))
}

/// Create or replace a subscription
///
/// Changes of documents are delivered in the order of commits. A delivery is retried until it
/// succeeds; after a crash one may be repeated.
#[utoipa::path(put, path = "/v1/document-subscriptions/{name}", operation_id = "putDocumentSubscription", tag = "documents",
    security(("token" = ["documents:read"])), params(("name" = String, Path, description = "The subscription's name."), DatabaseParams),
    request_body = SubscriptionRequest,
    responses(
        (status = 200, description = "The subscription is created or changed: changes are delivered from now on.", body = DocumentSubscription),
        (status = 403, description = "The token may not read all documents whose changes would be delivered, or may not deliver to this destination.", body = Problem,
            content_type = "application/problem+json"),
        (status = 404, description = "The collection is not declared.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn put_document_subscription(
    State(documents): State<Documents>,
    caller: Caller,
    RequestScope(documents_caller): RequestScope,
    CollectionPath(name): CollectionPath,
    Json(request): Json<SubscriptionRequest>,
) -> Result<Json<DocumentSubscription>, Problem> {
    let destination = request
        .destination()
        .map_err(|message| RequestError::JsonInvalid { field: "webhook".to_owned(), message })?;
    require_destination(&caller, &destination)?;
    if let Some(existing) = find_subscription(&documents, &documents_caller, &name).await? {
        require_destination(&caller, &existing.destination)?;
    }
    let of = request.collection.map(|name| {
        name.parse().map_err(|message| RequestError::JsonInvalid {
            field: "collection".to_owned(),
            message,
        })
    });
    let spec = SubscriptionSpec {
        name,
        collection: of.transpose()?,
        destination,
        after: request.after.map(FeedPosition),
    };
    let result = documents.subscribe(&documents_caller, spec).await;
    Ok(Json(DocumentSubscription::from_status(result.map_err(to_problem)?)))
}

/// Delete a subscription
#[utoipa::path(delete, path = "/v1/document-subscriptions/{name}", operation_id = "deleteDocumentSubscription", tag = "documents",
    security(("token" = ["documents:read"])), params(("name" = String, Path, description = "The subscription's name."), DatabaseParams),
    responses(
        (status = 204, description = "The subscription is deleted: no more changes are delivered."),
        (status = 403, description = "The token may not deliver to this destination.", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No subscription has this name.", body = Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn delete_document_subscription(
    State(documents): State<Documents>,
    caller: Caller,
    RequestScope(documents_caller): RequestScope,
    CollectionPath(name): CollectionPath,
) -> Result<StatusCode, Problem> {
    if let Some(existing) = find_subscription(&documents, &documents_caller, &name).await? {
        require_destination(&caller, &existing.destination)?;
    }
    documents.unsubscribe(&documents_caller, &name).await.map_err(to_problem)?;
    Ok(StatusCode::NO_CONTENT)
}
