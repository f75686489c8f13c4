//! `egret queue enqueue`: one task, or a file of them.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::payload::{self, TaskFields, task_fields, to_raw_value, unexpected};
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
        return enqueue_batch(&enqueue.queue, file, api, output).await;
    }
    let mut task = task_fields(&enqueue.task)?;
    let mut set = |name: &str, value: Option<Json>| {
        if let Some(value) = value {
            task.insert(name.to_owned(), to_raw_value(&value));
        }
    };
    let text = |value: &Option<String>| value.as_ref().map(|text| json!(text));
    set("run_at", text(&enqueue.run_at));
    set("delay_ms", enqueue.delay.map(|delay| json!(delay.0)));
    set("unique_key", text(&enqueue.unique_key));
    let window = enqueue.unique_window;
    set("unique_window_ms", window.map(|it| json!(it.0)));
    set("traceparent", text(&enqueue.traceparent));
    set("tracestate", text(&enqueue.tracestate));
    if !enqueue.after.is_empty() {
        set("after", Some(json!(enqueue.after)));
    }
    let path = ["queues", &enqueue.queue, "tasks"];
    let answer = api.post_text(&path, to_raw_value(&task).get().to_owned()).await?;
    let answer: Json = serde_json::from_slice(&answer).map_err(|error| unexpected(&error))?;
    output.print_answer(&answer, |task: EnqueueResult| {
        if task.replayed {
            output.print_remark("the task exists already");
        }
        task.id
    })
}

/// Enqueues the tasks of a file, as many at a time as a request takes. Nothing is enqueued of a
/// file of which a line is no JSON object.
async fn enqueue_batch(queue: &str, file: &Path, api: &Api, output: Output) -> Result<(), Failure> {
    let bytes = payload::read_file(file)?;
    let lines = lines(&bytes)?;
    for (number, line) in &lines {
        let parsed: Result<TaskFields, _> = serde_json::from_str(line);
        parsed.map_err(|error| Failure::usage(format!("line {number}: {error}")))?;
    }
    let mut reporter = EnqueueReporter::new(lines.len(), output);
    let mut start = 0;
    while start < lines.len() {
        let count = count_fitting(&lines[start..]);
        // A line that is rejected is taken out, and the rest is sent again.
        let mut chunk: Vec<usize> = (start..start + count).collect();
        start += count;
        while let Err(rejected) = send_chunk(queue, &lines, &chunk, api, &mut reporter).await? {
            let line_index = chunk.remove(rejected.index);
            reporter.record_refusal(line_index, lines[line_index].0, &rejected.reason);
        }
    }
    reporter.finish()
}

/// A line of a chunk for which the server refused the whole request.
struct RejectedItem {
    /// Its index in the chunk.
    index: usize,
    reason: Refusal,
}

/// Asks for the tasks of a chunk of lines. Nothing is enqueued if one of them is refused.
async fn send_chunk(
    queue: &str,
    lines: &[(usize, &str)],
    chunk: &[usize],
    api: &Api,
    reporter: &mut EnqueueReporter,
) -> Result<Result<(), RejectedItem>, Failure> {
    if chunk.is_empty() {
        return Ok(Ok(()));
    }
    let mut tasks = Vec::with_capacity(chunk.len());
    for (index, line_index) in chunk.iter().enumerate() {
        match parse_task(lines[*line_index].1, chunk, &reporter.ids) {
            Ok(task) => tasks.push(task),
            Err(detail) => {
                let code = "invalid_request".to_owned();
                let reason = Refusal { code, detail };
                return Ok(Err(RejectedItem { index, reason }));
            }
        }
    }
    let body = to_raw_value(&tasks).get().to_owned();
    match api.post_text(&["queues", queue, "tasks"], body).await {
        Ok(answer) => reporter.record_response(&answer, lines, chunk).map(Ok),
        Err(failure) => match parse_rejected_index(&failure).filter(|(at, _)| *at < chunk.len()) {
            Some((at, detail)) => {
                let (code, detail) = (failure.code.clone(), detail.to_owned());
                let reason = Refusal { code, detail };
                Ok(Err(RejectedItem { index: at, reason }))
            }
            None => Err(failure),
        },
    }
}

/// Which task of a request was not understood, where the server says so by its place
/// (`[3].priority: …`).
fn parse_rejected_index(failure: &Failure) -> Option<(usize, &str)> {
    let (_, field) = failure
        .message
        .split_once("the body does not fit: [")
        .filter(|_| failure.code == "json_invalid")?;
    let (index, rest) = field.split_once(']')?;
    Some((index.parse().ok()?, rest.trim_start_matches(['.', ':', ' '])))
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
fn count_fitting(lines: &[(usize, &str)]) -> usize {
    let mut bytes = 0;
    let fits = |(_, line): &&(usize, &str)| {
        bytes += line.len() + 1;
        bytes <= BATCH_BYTES_MAX
    };
    lines.iter().take(BATCH_MAX).take_while(fits).count().max(1)
}

/// One line's task, or what is wrong with it. `#n` of its `after` counts the file's tasks; a
/// request counts its own from 0.
fn parse_task(line: &str, chunk: &[usize], ids: &[Option<String>]) -> Result<TaskFields, String> {
    let mut task: TaskFields = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let Some(after) = task.get("after") else {
        return Ok(task);
    };
    let after: Vec<String> =
        serde_json::from_str(after.get()).map_err(|error| format!("after: {error}"))?;
    let translated: Result<Vec<String>, String> = after
        .into_iter()
        .map(|text| {
            let line_index = text.strip_prefix('#').and_then(|place| place.parse().ok());
            let Some(place): Option<usize> = line_index else {
                return Ok(text);
            };
            if let Ok(index) = chunk.binary_search(&place) {
                return Ok(format!("#{index}"));
            }
            let id = ids.get(place).cloned().flatten();
            id.ok_or_else(|| format!("after: task {text} was not enqueued"))
        })
        .collect();
    task.insert("after".to_owned(), to_raw_value(&translated?));
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
        Self { output, ids: vec![None; tasks], items: vec![Json::Null; tasks], refused: 0 }
    }

    fn record_response(
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
        for (line_index, item) in chunk.iter().zip(answer.items) {
            let outcome = ItemOutcome::deserialize(&item).map_err(|error| unexpected(&error))?;
            match (&outcome.id, &outcome.error) {
                (Some(id), _) if !self.output.is_json() => self.output.print_text(id)?,
                (_, Some(refusal)) => {
                    self.record_refusal(*line_index, lines[*line_index].0, refusal)
                }
                _ => {}
            }
            self.ids[*line_index] = outcome.id;
            self.items[*line_index] = item;
        }
        Ok(())
    }

    fn record_refusal(&mut self, line_index: usize, number: usize, refusal: &Refusal) {
        self.refused += 1;
        let Refusal { code, detail } = refusal;
        self.output.print_remark(&format!("line {number}: {detail} ({code})"));
        self.items[line_index] = json!({"error": {"code": code, "detail": detail}});
    }

    fn finish(self) -> Result<(), Failure> {
        if self.output.is_json() {
            self.output.print_json(&json!({"items": self.items}))?;
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
