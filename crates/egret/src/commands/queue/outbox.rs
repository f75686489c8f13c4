//! `egret queue outbox …`: `egret.enqueue` in databases.

use serde::Deserialize;
use serde_json::json;

use crate::api::Api;
use crate::cli::Outbox;
use crate::commands::plural::{is_or_are, number_of};
use crate::failure::Failure;
use crate::output::{self, Output, format_duration, listing};
use crate::responses::Items;

#[derive(Debug, Deserialize)]
struct OutboxStatus {
    database: String,
    waiting: u64,
    oldest_ms: Option<u64>,
    rejected: u64,
    reader: String,
    held: std::collections::BTreeMap<String, String>,
}

/// The outboxes of databases.
#[derive(Debug, Deserialize)]
struct Outboxes {
    items: Vec<OutboxStatus>,
    #[serde(default)]
    incomplete: bool,
}

#[derive(Debug, Deserialize)]
struct OutboxRowCount {
    database: String,
    #[serde(default)]
    rows: u64,
}

pub(crate) async fn run(command: Outbox, api: &Api, output: Output) -> Result<(), Failure> {
    match command {
        Outbox::Install { database, grant } => {
            let body = json!({"database": database, "grant": grant});
            let answer = api.post(&["outboxes"], body).await?;
            output.print_answer(&answer, |place: OutboxRowCount| {
                let database = place.database;
                let callers = match grant.as_slice() {
                    [] => "its owner alone; --grant ROLE lets others".to_owned(),
                    roles => roles.join(", "),
                };
                format!(
                    "the outbox of {database} is installed; egret.enqueue may be called by {callers}"
                )
            })
        }
        Outbox::Status => {
            let answer = api.get(&["outboxes"], &[]).await?;
            output.print_answer(&answer, table)
        }
        Outbox::Retry { database } => {
            let database = resolve_database(database, api).await?;
            let answer = api.post(&["outboxes", &database, "retry"], json!({})).await?;
            output.print_answer(&answer, |retried: OutboxRowCount| {
                let (rows, are) = (number_of(retried.rows, "row"), is_or_are(retried.rows));
                format!("{rows} of {} {are} queued for another attempt", retried.database)
            })
        }
        Outbox::Remove { database, force } => {
            let database = resolve_database(database, api).await?;
            let force = if force { "true" } else { "false" };
            let path = ["outboxes", &database];
            let removed = api.delete(&path, &[("force", force)]).await;
            let answer = removed.map_err(|failure| match failure.code.as_str() {
                "outbox_in_use" => failure.with_hint("--force removes them with it"),
                _ => failure,
            })?;
            output.print_answer(&answer, |result: OutboxRowCount| match result.rows {
                0 => format!("the outbox of {} is removed", result.database),
                rows => format!(
                    "the outbox of {} is removed, with {}",
                    result.database,
                    number_of(rows, "row")
                ),
            })
        }
    }
}

/// The database named, else the only one with an outbox.
async fn resolve_database(named: Option<String>, api: &Api) -> Result<String, Failure> {
    if let Some(named) = named {
        return Ok(named);
    }
    let answer = api.get(&["outboxes"], &[]).await?;
    let list: Items<OutboxStatus> = output::decode(&answer)?;
    let names: Vec<String> = list.items.into_iter().map(|one| one.database).collect();
    match names.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Failure::failed(
            "outbox_not_found",
            "no database has an outbox: `egret queue outbox install` installs one",
        )),
        several => Err(Failure::usage(format!(
            "several databases have an outbox, name one with --database: {}",
            several.join(", ")
        ))),
    }
}

fn table(list: Outboxes) -> String {
    let rows = list.items.into_iter().map(|outbox| {
        let held: Vec<String> = outbox.held.into_keys().collect();
        let reader = match held.as_slice() {
            [] => outbox.reader,
            queues => format!("{}, but holds {}", outbox.reader, queues.join(", ")),
        };
        vec![
            outbox.database,
            outbox.waiting.to_string(),
            outbox.oldest_ms.map_or_else(String::new, format_duration),
            outbox.rejected.to_string(),
            reader,
        ]
    });
    let mut text = listing(&["database", "waiting", "oldest", "rejected", "reader"], rows);
    if list.incomplete {
        text.push_str(output::INCOMPLETE_NOTE);
    }
    text
}
