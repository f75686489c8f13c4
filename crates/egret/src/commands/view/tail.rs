//! `egret view tail`: what refreshes change in a view, as they do (server-sent events).

use egret_base::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::Api;
use crate::cli::ViewArgs;
use crate::commands::events::{Event, Listener, follow, parse_problem};
use crate::commands::queue::unexpected;
use crate::failure::Failure;
use crate::output::{Output, printable};

#[derive(Debug, Deserialize)]
struct ViewChangeSet {
    sequence: i64,
    at: Timestamp,
    reset: Option<String>,
    rows: Vec<ViewChangeRow>,
}

#[derive(Debug, Deserialize)]
struct ViewChangeRow {
    weight: i64,
    row: Box<RawValue>,
}

pub(super) async fn run(
    view: &ViewArgs,
    after: Option<i64>,
    limit: Option<u64>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut tail = ViewTail {
        output,
        database: view.database.as_deref(),
        remaining: limit,
        last_sequence: after,
        last_printed: None,
        pending_events: Vec::new(),
        has_reported_start: false,
    };
    let path = ["views", view.name.as_str(), "changes"];
    follow(&path, api, &mut tail).await
}

struct ViewTail<'a> {
    output: Output,
    /// The database that the view is in, where that is said.
    database: Option<&'a str>,
    /// Change sets still to show.
    remaining: Option<u64>,
    /// The number of the last that was shown whole, or after which to begin.
    last_sequence: Option<i64>,
    /// The one of which something was shown.
    last_printed: Option<i64>,
    /// What was told of one of which more is to come.
    pending_events: Vec<String>,
    /// Whether it was said where it begins.
    has_reported_start: bool,
}

impl Listener for ViewTail<'_> {
    /// An event is larger only where a row is.
    const EVENT_BYTES_MAX: usize = 64 << 20;

    /// Continues after the last event that was received.
    fn query(&self) -> Vec<(&str, String)> {
        let database = super::database_query(self.database)
            .into_iter()
            .map(|(name, value)| (name, value.to_owned()));
        let after = self.last_sequence.map(|after| ("after", after.to_string()));
        database.chain(after).collect()
    }

    fn on_connected(&mut self) {
        // A change set of which a part was told is told from its beginning.
        self.pending_events.clear();
    }

    fn handle_event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        let id: Option<i64> =
            event.id.map(str::parse).transpose().map_err(|error| unexpected(&error))?;
        match event.kind {
            Some("following") => {
                self.last_sequence = id.or(self.last_sequence);
                if let (false, Some(last)) = (self.has_reported_start, self.last_sequence) {
                    self.output.print_remark(&format!("following changes after {last}"));
                    self.has_reported_start = true;
                }
                Ok(())
            }
            Some("changes" | "reset") => {
                self.pending_events.push(event.data.to_owned());
                match id {
                    // It is shown when it is whole: what is told again is not shown twice.
                    None => Ok(()),
                    Some(id) => {
                        self.last_sequence = Some(id);
                        self.print_change_set()
                    }
                }
            }
            Some("problem") => Err(parse_problem(event.data)),
            _ => Ok(()),
        }
    }

    fn is_done(&self) -> bool {
        self.remaining == Some(0)
    }

    fn on_disconnected(&self, failure: &Failure) {
        let what = "retrying from the last change";
        self.output.print_remark(&format!("{failure}: {what}"));
    }
}

impl ViewTail<'_> {
    /// Shows a change set.
    fn print_change_set(&mut self) -> Result<(), Failure> {
        for data in std::mem::take(&mut self.pending_events) {
            if self.output.is_json() {
                self.output.print_text(&data)?;
                continue;
            }
            let changes: ViewChangeSet =
                serde_json::from_str(&data).map_err(|error| unexpected(&error))?;
            self.output.print_text(&self.text(&changes))?;
            self.last_printed = Some(changes.sequence);
        }
        self.remaining = self.remaining.map(|left| left.saturating_sub(1));
        Ok(())
    }

    fn text(&self, changes: &ViewChangeSet) -> String {
        let ViewChangeSet { sequence, at, .. } = changes;
        let mut lines = Vec::new();
        if self.last_printed != Some(*sequence) {
            lines.push(match &changes.reset {
                None => format!("{at}  {sequence}"),
                Some(reset) => {
                    format!("{at}  {sequence}  read the whole view again: {}", reset_reason(reset))
                }
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
fn reset_reason(reset: &str) -> &str {
    match reset {
        "begun" => "its changes are recorded from here on",
        "repaired" => "it was rebuilt",
        "restored" => "the database was restored",
        "too_much" => "more rows changed than are recorded",
        other => other,
    }
}
