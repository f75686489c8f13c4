//! `egret queue cron …`: schedules.

use egret_base::Timestamp;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::payload::{TaskFields, task_fields, to_raw_value};
use crate::api::Api;
use crate::cli::{Cron, MissedTickPolicy, PutSchedule};
use crate::failure::Failure;
use crate::output::{Output, format_fields, listing, printable};
use crate::responses::Items;

#[derive(Debug, Deserialize)]
struct Schedule {
    name: String,
    cron: String,
    time_zone: String,
    queue: String,
    task: Json,
    missed: String,
    paused: bool,
    next_runs: Vec<Timestamp>,
    last_at: Option<Timestamp>,
    last_task: Option<String>,
    waiting: bool,
}

pub(super) async fn run(command: Cron, api: &Api, output: Output) -> Result<(), Failure> {
    match command {
        Cron::Put(put) => self::put(*put, api, output).await,
        Cron::List => {
            let answer = api.get(&["schedules"], &[]).await?;
            output.print_answer(&answer, table)
        }
        Cron::Show { name } => {
            let answer = api.get(&["schedules", &name], &[]).await?;
            output.print_answer(&answer, describe)
        }
        Cron::Pause { name } => {
            let answer = api.post(&["schedules", &name, "pause"], json!({})).await?;
            output.print_answer(&answer, |_: Schedule| format!("schedule {name} is paused"))
        }
        Cron::Resume { name } => {
            let answer = api.post(&["schedules", &name, "resume"], json!({})).await?;
            output.print_answer(&answer, |schedule: Schedule| match schedule.next_runs.first() {
                Some(next) => format!("schedule {name} runs next at {next}"),
                None => format!("schedule {name} is resumed, but has no further runs"),
            })
        }
        Cron::Delete { name } => {
            api.delete(&["schedules", &name], &[]).await?;
            let answer = json!({"schedule": name, "deleted": true});
            output.print_answer(&answer, |_: Json| format!("schedule {name} is deleted"))
        }
    }
}

async fn put(put: PutSchedule, api: &Api, output: Output) -> Result<(), Failure> {
    let mut schedule = TaskFields::new();
    let mut set = |name: &str, value: Json| {
        schedule.insert(name.to_owned(), to_raw_value(&value));
    };
    set("cron", json!(put.cron));
    set("queue", json!(put.queue));
    if let Some(zone) = &put.time_zone {
        set("time_zone", json!(zone));
    }
    let missed = match put.missed {
        MissedTickPolicy::Skip => "skip",
        MissedTickPolicy::One => "one",
        MissedTickPolicy::All => "all",
    };
    set("missed", json!(missed));
    if put.paused {
        set("paused", json!(true));
    }
    schedule.insert("task".to_owned(), to_raw_value(&task_fields(&put.task)?));
    let body = to_raw_value(&schedule).get().to_owned();
    let answer = api.put_text(&["schedules", &put.name], body).await?;
    output.print_answer(&answer, describe)
}

fn table(list: Items<Schedule>) -> String {
    let rows = list.items.into_iter().map(|schedule| {
        let next = next_run(&schedule);
        vec![
            schedule.name,
            schedule.cron,
            schedule.time_zone,
            schedule.queue,
            next,
            schedule.last_at.map_or_else(String::new, |at| at.to_string()),
        ]
    });
    let head = ["schedule", "cron", "time zone", "queue", "next", "last"];
    listing(&head, rows)
}

fn next_run(schedule: &Schedule) -> String {
    match (schedule.paused, schedule.next_runs.first()) {
        (true, _) => "paused".to_owned(),
        (false, Some(next)) => next.to_string(),
        (false, None) => "never".to_owned(),
    }
}

fn describe(schedule: Schedule) -> String {
    let next = next_run(&schedule);
    let later_runs: Vec<String> =
        schedule.next_runs.iter().skip(1).map(ToString::to_string).collect();
    format_fields(&[
        ("schedule", schedule.name),
        ("cron", schedule.cron),
        ("time zone", schedule.time_zone),
        ("queue", schedule.queue),
        ("task", printable(&schedule.task.to_string())),
        ("missed runs", schedule.missed),
        ("next", next),
        ("then", later_runs.join(", ")),
        (
            "last",
            match (schedule.last_at, schedule.last_task) {
                (Some(at), _) if schedule.waiting => {
                    format!("{at}, waiting: the tenant has reached its task limit")
                }
                (Some(at), Some(task)) => format!("{at}, task {task}"),
                (Some(at), None) => at.to_string(),
                (None, _) => String::new(),
            },
        ),
    ])
}
