//! `egret queue enqueue`: one task, or a file of them.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::payload::{self, TaskFields, members, raw, unexpected};
use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::Output;

/// Tasks of one request.
const BATCH_MAX: usize = 1_000;

/// Bytes of one request, below what a server takes by default (`server.body_bytes_max`).
const BATCH_BYTES_MAX: usize = 2 << 20;

#[derive(Debug, Deserialize)]
struct EnqueueResult {
    id: String,
    replayed: bool,
}

/// The outcome of one task of a batch.
#[derive(Debug, Deserialize)]
struct ItemOutcome {
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
    output.answer(&answer, |task: EnqueueResult| {
        if task.replayed {
            output.remark("the task exists already");
        }
        task.id
    })
}

/// Enqueues the tasks of a file, as many at a time as a request takes. Nothing is enqueued of a
/// file of which a line is no JSON object.
async fn batch(queue: &str, file: &Path, api: &Api, output: Output) -> Result<(), Failure> {
    let bytes = payload::file(file)?;
    let lines = lines(&bytes)?;
    for (number, line) in &lines {
        let read: Result<TaskFields, _> = serde_json::from_str(line);
        read.map_err(|error| Failure::usage(format!("line {number}: {error}")))?;
    }
    let mut told = EnqueueReporter::new(lines.len(), output);
    let mut begin = 0;
    while begin < lines.len() {
        let count = fitting(&lines[begin..]);
        // A line that is rejected is taken out, and the rest is sent again.
        let mut chunk: Vec<usize> = (begin..begin + count).collect();
        begin += count;
        while let Err(refused) = ask(queue, &lines, &chunk, api, &mut told).await? {
            let place = chunk.remove(refused.at);
            told.refuse(place, lines[place].0, &refused.reason);
        }
    }
    told.end()
}

/// A line of a chunk for which the server refused the whole request.
struct RejectedItem {
    /// Its index in the chunk.
    at: usize,
    reason: Refusal,
}

/// Asks for the tasks of a chunk of lines. Nothing is enqueued if one of them is refused.
async fn ask(
    queue: &str,
    lines: &[(usize, &str)],
    chunk: &[usize],
    api: &Api,
    told: &mut EnqueueReporter,
) -> Result<Result<(), RejectedItem>, Failure> {
    if chunk.is_empty() {
        return Ok(Ok(()));
    }
    let mut tasks = Vec::with_capacity(chunk.len());
    for (at, place) in chunk.iter().enumerate() {
        match task(lines[*place].1, chunk, &told.ids) {
            Ok(task) => tasks.push(task),
            Err(detail) => {
                let code = "invalid_request".to_owned();
                let reason = Refusal { code, detail };
                return Ok(Err(RejectedItem { at, reason }));
            }
        }
    }
    let body = raw(&tasks).get().to_owned();
    match api.post_text(&["queues", queue, "tasks"], body).await {
        Ok(answer) => told.hear(&answer, lines, chunk).map(Ok),
        Err(failure) => match misfit(&failure).filter(|(at, _)| *at < chunk.len()) {
            Some((at, detail)) => {
                let (code, detail) = (failure.code.clone(), detail.to_owned());
                let reason = Refusal { code, detail };
                Ok(Err(RejectedItem { at, reason }))
            }
            None => Err(failure),
        },
    }
}

/// Which task of a request was not understood, where the server says so by its place
/// (`[3].priority: …`).
fn misfit(failure: &Failure) -> Option<(usize, &str)> {
    let (_, field) = failure
        .message
        .split_once("the body does not fit: [")
        .filter(|_| failure.code == "json_invalid")?;
    let (place, rest) = field.split_once(']')?;
    Some((
        place.parse().ok()?,
        rest.trim_start_matches(['.', ':', ' ']),
    ))
}

/// Lines that are not empty, with their numbers from 1.
fn lines(bytes: &[u8]) -> Result<Vec<(usize, &str)>, Failure> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Failure::usage(format!("the tasks are not UTF-8: {error}")))?;
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

/// One line's task, or what is wrong with it. `#n` of its `after` counts the file's tasks; a
/// request counts its own from 0.
fn task(line: &str, chunk: &[usize], ids: &[Option<String>]) -> Result<TaskFields, String> {
    let mut task: TaskFields = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let Some(after) = task.get("after") else {
        return Ok(task);
    };
    let after: Vec<String> =
        serde_json::from_str(after.get()).map_err(|error| format!("after: {error}"))?;
    let translated: Result<Vec<String>, String> = after
        .into_iter()
        .map(|text| {
            let place = text.strip_prefix('#').and_then(|place| place.parse().ok());
            let Some(place): Option<usize> = place else {
                return Ok(text);
            };
            if let Ok(at) = chunk.binary_search(&place) {
                return Ok(format!("#{at}"));
            }
            let known = ids.get(place).cloned().flatten();
            known.ok_or_else(|| format!("after: task {text} was not enqueued"))
        })
        .collect();
    task.insert("after".to_owned(), raw(&translated?));
    Ok(task)
}

/// Collects the outcomes of all tasks and prints them.
struct EnqueueReporter {
    output: Output,
    ids: Vec<Option<String>>,
    items: Vec<Json>,
    refused: usize,
}

impl EnqueueReporter {
    fn new(tasks: usize, output: Output) -> Self {
        Self {
            output,
            ids: vec![None; tasks],
            items: vec![Json::Null; tasks],
            refused: 0,
        }
    }

    fn hear(
        &mut self,
        answer: &[u8],
        lines: &[(usize, &str)],
        chunk: &[usize],
    ) -> Result<(), Failure> {
        #[derive(Deserialize)]
        struct BatchResponse {
            items: Vec<Json>,
        }
        let answer: BatchResponse =
            serde_json::from_slice(answer).map_err(|error| unexpected(&error))?;
        for (place, item) in chunk.iter().zip(answer.items) {
            let outcome = ItemOutcome::deserialize(&item).map_err(|error| unexpected(&error))?;
            match (&outcome.id, &outcome.error) {
                (Some(id), _) if !self.output.is_json() => self.output.text(id)?,
                (_, Some(refusal)) => self.refuse(*place, lines[*place].0, refusal),
                _ => {}
            }
            self.ids[*place] = outcome.id;
            self.items[*place] = item;
        }
        Ok(())
    }

    fn refuse(&mut self, place: usize, number: usize, refusal: &Refusal) {
        self.refused += 1;
        let Refusal { code, detail } = refusal;
        self.output
            .remark(&format!("line {number}: {detail} ({code})"));
        self.items[place] = json!({"error": {"code": code, "detail": detail}});
    }

    fn end(self) -> Result<(), Failure> {
        if self.output.is_json() {
            self.output.json(&json!({"items": self.items}))?;
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
