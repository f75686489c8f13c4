//! `egret queue callbacks`: callbacks that have not arrived.

use egret_base::Timestamp;
use serde::Deserialize;

use super::tasks::{self, TaskAction, first_line};
use crate::api::Api;
use crate::cli::{CallbackCommand, CallbackListing};
use crate::failure::Failure;
use crate::output::{Output, listing};

#[derive(Debug, Deserialize)]
struct CallbackPage {
    items: Vec<Callback>,
}

#[derive(Debug, Deserialize)]
struct Callback {
    id: String,
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

pub(super) async fn run(
    arguments: &CallbackListing,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    match &arguments.command {
        Some(CallbackCommand::Delete { ids }) => {
            tasks::apply_to_each(TaskAction::Delete, ids, api, output).await
        }
        None => list(arguments, api, output).await,
    }
}

async fn list(arguments: &CallbackListing, api: &Api, output: Output) -> Result<(), Failure> {
    let filters = [("state", arguments.state.as_deref())];
    let pages = tasks::read_pages(
        &["callbacks"],
        &filters,
        arguments.limit,
        arguments.cursor.clone(),
        api,
        output,
    );
    let answer = pages.await?;
    output.print_answer(&answer, |page: CallbackPage| table(page.items))
}

fn table(items: Vec<Callback>) -> String {
    let rows = items.into_iter().map(|callback| {
        let next = callback.next_attempt_at.map(|at| at.to_string());
        vec![
            callback.id,
            callback.task,
            callback.task_state,
            callback.queue,
            callback.receiver,
            callback.state,
            format!("{}/{}", callback.attempts, callback.max_attempts),
            next.unwrap_or_default(),
            callback.error.as_deref().map(first_line).unwrap_or_default(),
        ]
    });
    let head = [
        "id",
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
