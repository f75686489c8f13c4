//! `egret view tail`: what refreshes change in a view, as they do (server-sent events).

use std::pin::pin;
use std::time::Duration;

use egret_base::Timestamp;
use futures_util::StreamExt;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::Api;
use crate::cli::Named;
use crate::commands::queue::{Backoff, interrupted, unexpected};
use crate::failure::{Exit, Failure};
use crate::output::{Output, printable};

/// An event is larger only where a row is.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// The server speaks more often than this, if only to say that it is there.
const SILENCE_MAX: Duration = Duration::from_secs(45);

#[derive(Debug, Deserialize)]
struct Changes {
    sequence: i64,
    at: Timestamp,
    reset: Option<String>,
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    weight: i64,
    row: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
struct Problem {
    code: String,
    detail: String,
    retryable: bool,
}

pub(super) async fn run(
    view: &Named,
    after: Option<i64>,
    limit: Option<u64>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut tail = Tail {
        output,
        left: limit,
        last: after,
        shown: None,
        part: Vec::new(),
        has_begun: false,
        heard: false,
        backoff: Backoff::default(),
    };
    tokio::select! {
        () = interrupted() => Ok(()),
        ended = tail.follow(view, api) => ended,
    }
}

struct Tail {
    output: Output,
    /// Change sets still to show.
    left: Option<u64>,
    /// The number of the last that was shown whole, or after which to begin.
    last: Option<i64>,
    /// The one of which something was shown.
    shown: Option<i64>,
    /// What was told of one of which more is to come.
    part: Vec<String>,
    /// Whether it was said where it begins.
    has_begun: bool,
    /// Whether the server has ever answered.
    heard: bool,
    backoff: Backoff,
}

impl Tail {
    /// Follows the view over lost connections, from where it was; the first must work.
    async fn follow(&mut self, view: &Named, api: &Api) -> Result<(), Failure> {
        while self.left != Some(0) {
            let failure = match self.listen(view, api).await {
                Ok(()) if self.left == Some(0) => break,
                Ok(()) => Failure {
                    retryable: true,
                    exit: Exit::Unreachable,
                    ..Failure::failed("stream_ended", "the server has ended the stream")
                },
                Err(failure) if failure.retryable && self.heard => failure,
                Err(failure) => return Err(failure),
            };
            let remark = format!("{failure}: trying again, from where it was");
            self.output.remark(&remark);
            self.backoff.wait().await;
        }
        Ok(())
    }

    async fn listen(&mut self, view: &Named, api: &Api) -> Result<(), Failure> {
        let after = self.last.map(|after| after.to_string());
        let mut query = super::place(view.database.as_deref());
        query.extend(after.as_deref().map(|after| ("after", after)));
        let path = ["views", view.name.as_str(), "changes"];
        let mut stream = pin!(api.stream(&path, &query).await?);
        self.heard = true;
        self.backoff = Backoff::default();
        // A change set of which a part was told is told from its beginning.
        self.part.clear();
        let mut buffer: Vec<u8> = Vec::new();
        loop {
            let next = tokio::time::timeout(SILENCE_MAX, stream.next()).await;
            let Ok(Some(bytes)) = next else {
                return Ok(());
            };
            let mut searched = buffer.len().saturating_sub(1);
            buffer.extend_from_slice(&bytes?);
            while let Some(end) = buffer[searched..].windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = buffer.drain(..searched + end + 2).collect();
                searched = 0;
                self.tell(&String::from_utf8_lossy(&event))?;
                if self.left == Some(0) {
                    return Ok(());
                }
            }
            if buffer.len() > EVENT_BYTES_MAX {
                return Err(unexpected(&"an event does not end"));
            }
        }
    }

    /// Takes one event; comments say only that the server is there.
    fn tell(&mut self, event: &str) -> Result<(), Failure> {
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        let data = field("data: ").unwrap_or_default();
        let id = field("id: ").map(str::parse).transpose();
        let id: Option<i64> = id.map_err(|error| unexpected(&error))?;
        match field("event: ") {
            Some("following") => {
                self.last = id.or(self.last);
                if let (false, Some(last)) = (self.has_begun, self.last) {
                    self.output.remark(&format!("following after {last}"));
                    self.has_begun = true;
                }
                Ok(())
            }
            Some("changes" | "reset") => {
                self.part.push(data.to_owned());
                match id {
                    // It is shown when it is whole: what is told again is not shown twice.
                    None => Ok(()),
                    Some(id) => {
                        self.last = Some(id);
                        self.show()
                    }
                }
            }
            Some("problem") => Err(problem(data)),
            _ => Ok(()),
        }
    }

    /// Shows a change set.
    fn show(&mut self) -> Result<(), Failure> {
        for data in std::mem::take(&mut self.part) {
            if self.output.is_json() {
                self.output.text(&data)?;
                continue;
            }
            let changes: Changes =
                serde_json::from_str(&data).map_err(|error| unexpected(&error))?;
            self.output.text(&self.text(&changes))?;
            self.shown = Some(changes.sequence);
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        Ok(())
    }

    fn text(&self, changes: &Changes) -> String {
        let Changes { sequence, at, .. } = changes;
        let mut lines = Vec::new();
        if self.shown != Some(*sequence) {
            lines.push(match &changes.reset {
                None => format!("{at}  {sequence}"),
                Some(reset) => format!("{at}  {sequence}  read the view anew: {}", why(reset)),
            });
        }
        lines.extend(changes.rows.iter().map(|row| {
            let weight = match row.weight {
                1 => "+".to_owned(),
                -1 => "-".to_owned(),
                more @ 2.. => format!("+{more} ×"),
                less => format!("{less} ×"),
            };
            format!("{weight} {}", printable(row.row.get()))
        }));
        lines.join("\n")
    }
}

/// Why a view is to be read anew.
fn why(reset: &str) -> &str {
    match reset {
        "begun" => "its changes are kept from here on",
        "repaired" => "it was made anew",
        "restored" => "the database was restored",
        "too_much" => "more changed than is kept",
        other => other,
    }
}

/// What the server says where it cannot go on.
fn problem(data: &str) -> Failure {
    match serde_json::from_str::<Problem>(data) {
        Ok(problem) => Failure {
            retryable: problem.retryable,
            ..Failure::failed(&problem.code, problem.detail)
        },
        Err(error) => unexpected(&error),
    }
}
