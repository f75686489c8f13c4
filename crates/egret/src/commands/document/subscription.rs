//! `egret document subscription …`: deliveries of document changes to webhooks and queues.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::request::{borrowed, queried};
use crate::api::{Api, RawRequest};
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, listing};
use crate::responses::Items;

#[derive(Debug, Deserialize)]
struct Subscription {
    name: String,
    collection: Option<String>,
    webhook: Option<String>,
    queue: Option<String>,
    position: i64,
    failures: u32,
    last_error: Option<String>,
}

impl Subscription {
    fn row(self) -> Vec<String> {
        let queue = self.queue.map(|queue| format!("queue {queue}"));
        let to = self.webhook.or(queue).unwrap_or_default();
        let failed = self.last_error.filter(|_| self.failures > 0);
        vec![
            self.name,
            self.collection.unwrap_or_else(|| "all".to_owned()),
            to,
            self.position.to_string(),
            failed.unwrap_or_default(),
        ]
    }
}

pub(super) async fn run(
    command: cli::SubscriptionCommand,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let path = |name: String| vec!["document-subscriptions".to_owned(), name];
    match command {
        cli::SubscriptionCommand::List(place) => {
            let query = queried(&place);
            let answer = api
                .get(&["document-subscriptions"], &borrowed(&query))
                .await?;
            output.answer(&answer, |list: Items<Subscription>| {
                let rows = list.items.into_iter().map(Subscription::row);
                listing(
                    &["name", "collection", "to", "delivered up to", "failed"],
                    rows,
                )
            })
        }
        cli::SubscriptionCommand::Set {
            name,
            webhook,
            queue,
            collection,
            after,
            place,
        } => {
            let body = json!({"webhook": webhook, "queue": queue, "collection": collection, "after": after});
            let raw = RawRequest {
                query: queried(&place),
                body: Some(("application/json", body.to_string().into_bytes())),
                ..RawRequest::new(Method::PUT, path(name))
            };
            let answer = api.raw(raw).await?.json()?;
            output.answer(&answer, |told: Subscription| {
                format!(
                    "subscription {} receives the changes after position {}",
                    told.name, told.position
                )
            })
        }
        cli::SubscriptionCommand::Remove { name, place } => {
            let raw = RawRequest {
                query: queried(&place),
                ..RawRequest::new(Method::DELETE, path(name.clone()))
            };
            api.raw(raw).await?;
            let answer = json!({"name": name, "removed": true});
            output.answer(&answer, |_: serde_json::Value| {
                format!("subscription {name} is deleted")
            })
        }
    }
}
