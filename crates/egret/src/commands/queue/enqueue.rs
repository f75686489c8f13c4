//! `egret queue enqueue`: one task, or a file of them.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::payload::{self, Members, members, raw, unexpected};
use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::Output;

/// Tasks of one request.
const BATCH_MAX: usize = 1_000;

/// Bytes of one request, below what a server takes by default (`server.body_bytes_max`).
const BATCH_BYTES_MAX: usize = 2 << 20;

#[derive(Debug, Deserialize)]
struct Enqueued {
    id: String,
    replayed: bool,
}

/// What became of one of several.
#[derive(Debug, Deserialize)]
struct Outcome {
    id: Option<String>,
    error: Option<Refusal>,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    code: String,
    detail: String,
}

pub(super) async fn run(enqueue: cli::Enqueue, api: &Api, output: Output) -> Result<(), Failure> {
    if let Some(file) = &enqueue.batch {
        return batch(&enqueue.queue, file, api, output).await;
    }
    let mut task = members(&enqueue.task)?;
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            task.insert(name.to_owned(), raw(&value));
        }
    };
    let text = |value: &Option<String>| value.as_ref().map(|text| json!(text));
    set("run_at", text(&enqueue.run_at));
    set("delay_ms", enqueue.delay.map(|it| json!(it.0)));
    set("unique_key", text(&enqueue.unique_key));
    let window = enqueue.unique_window;
    set("unique_window_ms", window.map(|it| json!(it.0)));
    set("traceparent", text(&enqueue.traceparent));
    set("tracestate", text(&enqueue.tracestate));
    if !enqueue.after.is_empty() {
        set("after", Some(json!(enqueue.after)));
    }
    let path = ["queues", &enqueue.queue, "tasks"];
    let answer = api.post_text(&path, raw(&task).get().to_owned()).await?;
    let answer: Json = serde_json::from_slice(&answer).map_err(|error| unexpected(&error))?;
    output.answer(&answer, |task: Enqueued| {
        if task.replayed {
            output.remark("there was such a task already");
        }
        task.id
    })
}

/// Enqueues the tasks of a file, as many at a time as a request takes.
async fn batch(queue: &str, file: &Path, api: &Api, output: Output) -> Result<(), Failure> {
    let bytes = payload::file(file)?;
    let lines = lines(&bytes)?;
    let mut told = Told::default();
    let mut rest = lines.as_slice();
    while !rest.is_empty() {
        let begin = told.ids.len();
        let (chunk, after) = rest.split_at(fitting(rest));
        rest = after;
        let tasks: Result<Vec<Members>, Failure> = chunk
            .iter()
            .map(|(number, line)| task(*number, line, begin, &told.ids))
            .collect();
        let body = raw(&tasks?).get().to_owned();
        let answer = api.post_text(&["queues", queue, "tasks"], body).await?;
        told.hear(&answer, chunk, output)?;
    }
    told.end(output)
}

/// Lines that are not empty, with their numbers from 1.
fn lines(bytes: &[u8]) -> Result<Vec<(usize, &str)>, Failure> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Failure::usage(format!("the tasks are not text: {error}")))?;
    let lines = text.lines().enumerate();
    Ok(lines
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty())
        .collect())
}

/// How many of these lines one request takes: at least one.
fn fitting(lines: &[(usize, &str)]) -> usize {
    let mut bytes = 0;
    let fits = |(_, line): &&(usize, &str)| {
        bytes += line.len() + 1;
        bytes <= BATCH_BYTES_MAX
    };
    lines.iter().take(BATCH_MAX).take_while(fits).count().max(1)
}

/// One line's task. `#n` of its `after` counts the file's tasks; a request counts its own from 0.
fn task(
    number: usize,
    line: &str,
    begin: usize,
    ids: &[Option<String>],
) -> Result<Members, Failure> {
    let wrong = |error: String| Failure::usage(format!("line {number}: {error}"));
    let mut task: Members = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
    let Some(after) = task.get("after") else {
        return Ok(task);
    };
    let after: Vec<String> =
        serde_json::from_str(after.get()).map_err(|error| wrong(format!("after: {error}")))?;
    let translated: Result<Vec<String>, Failure> = after
        .into_iter()
        .map(|text| {
            let place = text.strip_prefix('#').and_then(|place| place.parse().ok());
            let Some(place): Option<usize> = place else {
                return Ok(text);
            };
            match place.checked_sub(begin) {
                Some(place) => Ok(format!("#{place}")),
                None => ids[place]
                    .clone()
                    .ok_or_else(|| wrong(format!("after: task {text} was not enqueued"))),
            }
        })
        .collect();
    task.insert("after".to_owned(), raw(&translated?));
    Ok(task)
}

/// What has been said about the tasks so far.
#[derive(Default)]
struct Told {
    ids: Vec<Option<String>>,
    items: Vec<Json>,
    refused: usize,
}

impl Told {
    fn hear(
        &mut self,
        answer: &[u8],
        chunk: &[(usize, &str)],
        output: Output,
    ) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct Answer {
            items: Vec<Json>,
        }
        let answer: Answer = serde_json::from_slice(answer).map_err(|error| unexpected(&error))?;
        for ((number, _), item) in chunk.iter().zip(answer.items) {
            let outcome = Outcome::deserialize(&item).map_err(|error| unexpected(&error))?;
            match (&outcome.id, &outcome.error) {
                (Some(id), _) if !output.is_json() => output.text(id)?,
                (_, Some(refusal)) => {
                    self.refused += 1;
                    let Refusal { code, detail } = refusal;
                    output.remark(&format!("line {number}: {detail} ({code})"));
                }
                _ => {}
            }
            self.ids.push(outcome.id);
            self.items.push(item);
        }
        Ok(())
    }

    fn end(self, output: Output) -> Result<(), Failure> {
        if output.is_json() {
            output.json(&json!({"items": self.items}))?;
        }
        match self.refused {
            0 => Ok(()),
            refused => Err(Failure::failed(
                "tasks_refused",
                format!("{refused} of {} tasks were refused", self.ids.len()),
            )),
        }
    }
}
