//! `egret queue callbacks`: callbacks that have not arrived.

use egret_base::Timestamp;
use serde::Deserialize;

use super::tasks::{self, first_line};
use crate::api::Api;
use crate::cli::CallbackListing;
use crate::failure::Failure;
use crate::output::{Output, listing};

#[derive(Debug, Deserialize)]
struct Page {
    items: Vec<Callback>,
}

#[derive(Debug, Deserialize)]
struct Callback {
    task: String,
    task_state: String,
    queue: String,
    receiver: String,
    state: String,
    attempts: u32,
    max_attempts: u32,
    next_attempt_at: Option<Timestamp>,
    error: Option<String>,
}

pub(super) async fn list(
    arguments: CallbackListing,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let filters = [("state", arguments.state.as_deref())];
    let pages = tasks::pages(
        &["callbacks"],
        &filters,
        (arguments.limit, arguments.cursor),
        (api, output),
    );
    let answer = pages.await?;
    output.answer(&answer, |page: Page| table(page.items))
}

fn table(items: Vec<Callback>) -> String {
    let rows = items.into_iter().map(|callback| {
        let next = callback.next_attempt_at.map(|at| at.to_string());
        vec![
            callback.task,
            callback.task_state,
            callback.queue,
            callback.receiver,
            callback.state,
            format!("{}/{}", callback.attempts, callback.max_attempts),
            next.unwrap_or_default(),
            callback
                .error
                .as_deref()
                .map(first_line)
                .unwrap_or_default(),
        ]
    });
    let head = [
        "task",
        "ended as",
        "queue",
        "receiver",
        "state",
        "attempts",
        "next attempt",
        "error",
    ];
    listing(&head, rows)
}
