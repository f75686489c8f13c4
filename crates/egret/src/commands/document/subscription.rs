//! `egret document subscription …`: deliveries of document changes to webhooks and queues.

use reqwest::Method;
use serde::Deserialize;
use serde_json::json;

use super::request::{as_str_pairs, database_parameters};
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
        let target = self.webhook.or(queue).unwrap_or_default();
        let error = self.last_error.filter(|_| self.failures > 0);
        vec![
            self.name,
            self.collection.unwrap_or_else(|| "all".to_owned()),
            target,
            self.position.to_string(),
            error.unwrap_or_default(),
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
            let query = database_parameters(&place);
            let answer = api.get(&["document-subscriptions"], &as_str_pairs(&query)).await?;
            output.print_answer(&answer, |list: Items<Subscription>| {
                let rows = list.items.into_iter().map(Subscription::row);
                listing(&["name", "collection", "to", "delivered up to", "failed"], rows)
            })
        }
        cli::SubscriptionCommand::Set { name, webhook, queue, collection, after, place } => {
            let body = json!({"webhook": webhook, "queue": queue, "collection": collection, "after": after});
            let raw = RawRequest {
                query: database_parameters(&place),
                body: Some(("application/json", body.to_string().into_bytes())),
                ..RawRequest::new(Method::PUT, path(name))
            };
            let answer = api.send_raw(raw).await?.json()?;
            output.print_answer(&answer, |told: Subscription| {
                format!(
                    "subscription {} receives the changes after position {}",
                    told.name, told.position
                )
            })
        }
        cli::SubscriptionCommand::Remove { name, place } => {
            let raw = RawRequest {
                query: database_parameters(&place),
                ..RawRequest::new(Method::DELETE, path(name.clone()))
            };
            api.send_raw(raw).await?;
            let answer = json!({"name": name, "removed": true});
            output.print_answer(&answer, |_: serde_json::Value| {
                format!("subscription {name} is deleted")
            })
        }
    }
}
