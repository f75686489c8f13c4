//! Two of the demo's views are followed while a flight changes, as by `egret view tail`: the change
//! sets arrive as they are made.

use std::time::Duration;

use anyhow::Context;
use egret_postgres::tokio_postgres::Client;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::views::refresh;
use crate::api::Api;
use crate::commands::events::{Event, Listener, follow};
use crate::failure::Failure;

/// The views that are followed.
pub(super) const FOLLOWED_VIEWS: [&str; 2] = ["worst_routes", "weather_delays"];

/// A flight from Newark to Oklahoma City that left five minutes early is a day late.
pub(super) const CHANGE: &str =
    "UPDATE flights SET dep_delay = 1440 WHERE (carrier, flight, month, day) = ('EV', 4204, 12, 2)";

/// The same flight as it was.
const CHANGE_BACK: &str =
    "UPDATE flights SET dep_delay = -5 WHERE (carrier, flight, month, day) = ('EV', 4204, 12, 2)";

/// How long deltas are waited for.
const EVENT_TIMEOUT: Duration = Duration::from_secs(20);

/// Rows that a refresh changed in a view.
pub(super) struct ViewDelta {
    pub view: &'static str,
    /// The rows that went and came, as JSON behind a sign.
    pub rows: Vec<String>,
}

#[derive(Deserialize)]
struct DeltaEvent {
    rows: Vec<DeltaRow>,
}

#[derive(Deserialize)]
struct DeltaRow {
    weight: i64,
    row: Box<RawValue>,
}

/// Changes a flight while the views are followed, and changes it back. Returns the deltas that
/// followers received; `None` if they do not come.
pub(super) async fn follow_change(
    api: &Api,
    client: &Client,
    database: &str,
) -> anyhow::Result<Option<Vec<ViewDelta>>> {
    // An earlier start may have ended in between.
    client.batch_execute(CHANGE_BACK).await?;
    for view in FOLLOWED_VIEWS {
        refresh(api, view, database).await?;
    }
    let mut connections = Vec::new();
    let followers = FOLLOWED_VIEWS.map(|view| {
        let (connected_sender, connected) = oneshot::channel();
        connections.push(connected);
        follow_view(api, view, database, connected_sender)
    });
    let changing = async {
        for is_heard in connections {
            is_heard.await.context("cannot follow a view")?;
        }
        client.batch_execute(CHANGE).await?;
        for view in FOLLOWED_VIEWS {
            refresh(api, view, database).await?;
        }
        anyhow::Ok(())
    };
    let [first, second] = followers;
    let joined = async { tokio::try_join!(first, second, changing) };
    let outcome = tokio::time::timeout(EVENT_TIMEOUT, joined).await;
    client.batch_execute(CHANGE_BACK).await?;
    let Ok(told) = outcome else { return Ok(None) };
    let (one, other, ()) = told?;
    let deltas = FOLLOWED_VIEWS.into_iter().zip([one, other]);
    Ok(Some(deltas.map(|(view, rows)| ViewDelta { view, rows }).collect()))
}

/// Follows a view until something changed in it. Tells where it is connected.
async fn follow_view(
    api: &Api,
    view: &'static str,
    database: &str,
    connected_sender: oneshot::Sender<()>,
) -> anyhow::Result<Vec<String>> {
    let mut listener =
        DeltaListener { database, connected_sender: Some(connected_sender), rows: Vec::new() };
    let path = ["views", view, "changes"];
    let result = follow(&path, api, &mut listener).await;
    result.map_err(|failure| anyhow::anyhow!("cannot follow a view: {}", failure.message))?;
    Ok(listener.rows)
}

struct DeltaListener<'a> {
    database: &'a str,
    connected_sender: Option<oneshot::Sender<()>>,
    rows: Vec<String>,
}

impl Listener for DeltaListener<'_> {
    const EVENT_BYTES_MAX: usize = 1 << 20;

    fn query(&self) -> Vec<(&str, String)> {
        vec![("database", self.database.to_owned())]
    }

    fn handle_event(&mut self, event: &Event<'_>) -> Result<(), Failure> {
        match event.kind {
            Some("following") => {
                if let Some(connected_sender) = self.connected_sender.take() {
                    // The receiver is gone when the caller has stopped waiting.
                    _ = connected_sender.send(());
                }
            }
            Some("changes") => {
                let changes: DeltaEvent = serde_json::from_str(event.data)
                    .map_err(|error| Failure::failed("unexpected_answer", error.to_string()))?;
                self.rows.extend(changes.rows.iter().map(|row| {
                    let sign = if row.weight > 0 { "+" } else { "-" };
                    format!("{sign} {}", row.row.get())
                }));
            }
            _ => {}
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        !self.rows.is_empty()
    }

    fn on_disconnected(&self, failure: &Failure) {
        tracing::debug!(message = failure.message, "lost the connection to a followed view");
    }
}
