//! `egret document tail`: what becomes of documents as it is committed (server-sent events).

use egret_base::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::Api;
use crate::cli::TailDocuments;
use crate::commands::events::{Event, Listener, follow, parse_problem};
use crate::commands::queue::unexpected;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, Deserialize)]
struct DocumentChangePage {
    items: Vec<DocumentChange>,
    position: i64,
}

#[derive(Debug, Deserialize, Serialize)]
struct DocumentChange {
    position: i64,
    at: Timestamp,
    kind: String,
    collection: String,
    id: String,
    version: i32,
}

pub(super) async fn run(
    arguments: TailDocuments,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut tail = DocumentTail {
        output,
        database: arguments.place.database,
        collection: arguments.collection,
        remaining: arguments.limit,
        last_position: arguments.after,
        has_reported_start: false,
    };
    follow(&["document-changes", "events"], api, &mut tail).await
}

struct DocumentTail {
    output: Output,
    database: Option<String>,
    collection: Option<String>,
    /// Changes still to show.
    remaining: Option<u64>,
    /// The position of the last that was shown, or after which to begin.
    last_position: Option<i64>,
    /// Whether it was said where it begins.
    has_reported_start: bool,
}

impl Listener for DocumentTail {
    /// A page of changes.
    const EVENT_BYTES_MAX: usize = 16 << 20;

    fn query(&self) -> Vec<(&str, String)> {
        let database = self.database.iter().map(|name| ("database", name.clone()));
        let collection = self.collection.iter().map(|name| ("collection", name.clone()));
        let after = self.last_position.iter().map(|after| ("after", after.to_string()));
        database.chain(collection).chain(after).collect()
    }

    fn handle_event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        match event.kind {
            Some("following") => {
                let id = event.id.and_then(|id| id.parse().ok());
                self.last_position = id.or(self.last_position);
                if let (false, Some(last)) = (self.has_reported_start, self.last_position) {
                    self.output.print_remark(&format!("following changes after position {last}"));
                    self.has_reported_start = true;
                }
                Ok(())
            }
            Some("changes") => {
                let changes = serde_json::from_str(event.data);
                self.print_changes(changes.map_err(|error| unexpected(&error))?)
            }
            Some("problem") => Err(parse_problem(event.data)),
            _ => Ok(()),
        }
    }

    fn is_done(&self) -> bool {
        self.remaining == Some(0)
    }

    fn on_disconnected(&self, failure: &Failure) {
        let what = "retrying from the last position";
        self.output.print_remark(&format!("{failure}: {what}"));
    }
}

impl DocumentTail {
    fn print_changes(&mut self, changes: DocumentChangePage) -> Result<(), Failure> {
        for change in changes.items {
            if self.is_done() {
                return Ok(());
            }
            if self.output.is_json() {
                self.output.print_json_line(&change)?
            } else {
                self.output.print_text(&change.to_line())?
            }
            self.remaining = self.remaining.map(|left| left - 1);
        }
        self.last_position = Some(changes.position);
        Ok(())
    }
}

impl DocumentChange {
    fn to_line(&self) -> String {
        let Self { position, at, kind, collection, id, version } = self;
        format!("{at}  {position}  {kind} {collection} {id}, version {version}")
    }
}
