//! `egret document tail`: what becomes of documents as it is committed (server-sent events).

use egret_base::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::Api;
use crate::cli::TailDocuments;
use crate::commands::events::{Event, Listener, follow, problem};
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

pub(super) async fn run(asked: TailDocuments, api: &Api, output: Output) -> Result<(), Failure> {
    let mut tail = DocumentTail {
        output,
        database: asked.place.database,
        collection: asked.collection,
        left: asked.limit,
        last: asked.after,
        has_begun: false,
    };
    follow(&["document-changes", "events"], api, &mut tail).await
}

struct DocumentTail {
    output: Output,
    database: Option<String>,
    collection: Option<String>,
    /// Changes still to show.
    left: Option<u64>,
    /// The position of the last that was shown, or after which to begin.
    last: Option<i64>,
    /// Whether it was said where it begins.
    has_begun: bool,
}

impl Listener for DocumentTail {
    /// A page of changes.
    const EVENT_BYTES_MAX: usize = 16 << 20;

    fn query(&self) -> Vec<(&str, String)> {
        let database = self.database.iter().map(|name| ("database", name.clone()));
        let collection = self
            .collection
            .iter()
            .map(|name| ("collection", name.clone()));
        let after = self.last.iter().map(|after| ("after", after.to_string()));
        database.chain(collection).chain(after).collect()
    }

    fn tell(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        match event.kind {
            Some("following") => {
                let id = event.id.and_then(|id| id.parse().ok());
                self.last = id.or(self.last);
                if let (false, Some(last)) = (self.has_begun, self.last) {
                    self.output
                        .remark(&format!("following changes after position {last}"));
                    self.has_begun = true;
                }
                Ok(())
            }
            Some("changes") => {
                let changes = serde_json::from_str(event.data);
                self.show(changes.map_err(|error| unexpected(&error))?)
            }
            Some("problem") => Err(problem(event.data)),
            _ => Ok(()),
        }
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    fn lose(&self, failure: &Failure) {
        let what = "retrying from the last position";
        self.output.remark(&format!("{failure}: {what}"));
    }
}

impl DocumentTail {
    fn show(&mut self, changes: DocumentChangePage) -> Result<(), Failure> {
        for change in changes.items {
            if self.is_done() {
                return Ok(());
            }
            if self.output.is_json() {
                self.output.json_line(&change)?
            } else {
                self.output.text(&change.told())?
            }
            self.left = self.left.map(|left| left - 1);
        }
        self.last = Some(changes.position);
        Ok(())
    }
}

impl DocumentChange {
    fn told(&self) -> String {
        let Self {
            position,
            at,
            kind,
            collection,
            id,
            version,
        } = self;
        format!("{at}  {position}  {kind} {collection} {id}, version {version}")
    }
}
