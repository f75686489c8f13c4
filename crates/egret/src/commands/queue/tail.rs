//! `egret queue tail`: state changes of tasks, as they come (server-sent events).

use egret_base::Timestamp;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::payload::unexpected;
use crate::api::Api;
use crate::commands::events::{Event, Listener, follow};
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, Deserialize)]
struct TaskStateChange {
    id: String,
    queue: String,
    state: String,
    at: Timestamp,
    attempt: u32,
}

pub(super) async fn run(
    queues: &[String],
    states: &[String],
    limit: Option<u64>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut tail = TaskTail { output, remaining: limit, queues, states };
    follow(&["tasks", "events"], api, &mut tail).await
}

struct TaskTail<'a> {
    output: Output,
    /// Changes still to show.
    remaining: Option<u64>,
    queues: &'a [String],
    states: &'a [String],
}

impl Listener for TaskTail<'_> {
    const EVENT_BYTES_MAX: usize = 1 << 20;

    fn query(&self) -> Vec<(&str, String)> {
        let queues = self.queues.iter().map(|name| ("queue", name.clone()));
        let states = self.states.iter().map(|state| ("state", state.clone()));
        queues.chain(states).collect()
    }

    fn handle_event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        let data = event.data;
        match event.kind {
            Some("change") => {
                self.remaining = self.remaining.map(|left| left.saturating_sub(1));
                self.print_change(data)
            }
            Some("missed") if self.output.is_json() => {
                let count: Json = serde_json::from_str(data).unwrap_or_default();
                self.output.print_json_line(&json!({"missed": count}))
            }
            Some("missed") => {
                self.output.print_remark(&format!("{data} changes were missed"));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_done(&self) -> bool {
        self.remaining == Some(0)
    }

    fn on_disconnected(&self, failure: &Failure) {
        let what = "reconnecting; changes in between are not shown";
        self.output.print_remark(&format!("{failure}: {what}"));
    }
}

impl TaskTail<'_> {
    fn print_change(&self, data: &str) -> Result<(), Failure> {
        if self.output.is_json() {
            return self.output.print_text(data);
        }
        let change: TaskStateChange =
            serde_json::from_str(data).map_err(|error| unexpected(&error))?;
        self.output.print_text(&format!(
            "{}  {}  {}  {:9}  attempt {}",
            change.at, change.queue, change.id, change.state, change.attempt
        ))
    }
}
