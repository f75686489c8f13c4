//! The demo's views: delays by carrier and month, routes with the names of airports, on the first
//! of them the worst month of each carrier, the worst routes, and delays by the weather at the
//! airport. Flights are changed, and changed back, to show what a refresh does. They are made
//! through the HTTP door, as by any program.

use anyhow::Context;
use egret_postgres::pool;
use egret_postgres::tokio_postgres::Client;
use serde::Deserialize;
use serde_json::json;

use super::delays::decode_response;
use super::follow::{self, ViewDelta};
use crate::api::Api;

/// The views in the order in which they can be made: names, queries, and the schedule of those that
/// have one of their own.
const VIEWS: [(&str, &str, Option<&str>); 5] = [
    ("late_by_carrier", include_str!("sql/late_by_carrier.sql"), Some("5s")),
    ("routes", include_str!("sql/routes.sql"), None),
    ("worst", include_str!("sql/worst.sql"), None),
    ("worst_routes", include_str!("sql/worst_routes.sql"), None),
    ("weather_delays", include_str!("sql/weather_delays.sql"), None),
];

/// A flight that left five minutes early is a day late.
pub(super) const CHANGE: &str =
    "UPDATE flights SET dep_delay = 1440 WHERE (carrier, flight, month, day) = ('AS', 15, 12, 1)";

/// The same flight as it was.
const CHANGE_BACK: &str =
    "UPDATE flights SET dep_delay = -5 WHERE (carrier, flight, month, day) = ('AS', 15, 12, 1)";

/// The airline of that flight, and the mean delay of its worst month in minutes.
const WORST_MONTH_SQL: &str = "SELECT a.name, round(w.delay, 1)::text FROM worst AS w JOIN airlines AS a USING (carrier) WHERE carrier = 'AS'";

/// Results of the demo's views.
pub(super) struct ViewsResult {
    /// The views that this start has made, and how long it took to fill each, in milliseconds.
    pub created: Vec<(&'static str, f64)>,
    /// What the change did; `None` where a view is not the demo's or not kept fresh, or the flight
    /// is gone.
    pub flight_change: Option<FlightChange>,
    /// The deltas that followers of two views received while another flight changed.
    pub followed_deltas: Option<Vec<ViewDelta>>,
}

/// What a change to one flight did.
pub(super) struct FlightChange {
    /// The airline whose row in `worst` is another now.
    pub airline: String,
    /// The mean delay of its worst month before the change, in minutes.
    pub before: String,
    /// The mean delay of its worst month after the change, in minutes.
    pub after: String,
    /// What the refresh did with the view that the change is in first.
    pub refresh: RefreshSummary,
}

/// Summary of a refresh, as the API returns it.
#[derive(Deserialize)]
pub(super) struct RefreshSummary {
    /// Kind of the refresh: `incremental` or `full`.
    pub outcome: String,
    /// Rows of changes that were read.
    pub changes: i64,
    /// Rows of the view that are others now.
    pub changed: i64,
    /// How long it took, in milliseconds.
    pub took_ms: f64,
}

#[derive(Deserialize)]
struct ViewSummary {
    query: String,
    state: String,
    last_refresh: Option<RefreshSummary>,
}

/// Makes the views that are not there, changes a flight, and looks what became of them.
pub(super) async fn create_views(
    api: &Api,
    source: &egret_postgres::tokio_postgres::Config,
    database: &str,
) -> anyhow::Result<ViewsResult> {
    let mut made = Vec::new();
    let mut is_unmodified = true;
    for (name, query, schedule) in VIEWS {
        let existing = match api.get(&["views", name], &[("database", database)]).await {
            Err(failure) if failure.code == "view_not_found" => None,
            answer => Some(decode_response::<ViewSummary>(answer)?),
        };
        if let Some(known) = existing {
            is_unmodified &= known.query == query && known.state == "active";
            continue;
        }
        let view =
            json!({"name": name, "query": query, "schedule": schedule, "database": database});
        let view: ViewSummary = decode_response(api.post(&["views"], view).await)?;
        let first_refresh = view.last_refresh.context("the created view reports no refresh")?;
        made.push((name, first_refresh.took_ms));
    }
    let (mut flight_change, mut followed_deltas) = (None, None);
    if is_unmodified {
        let client = pool::connect(source).await?;
        flight_change = change_flight(api, &client, database).await?;
        followed_deltas = follow::follow_change(api, &client, database).await?;
    }
    Ok(ViewsResult { created: made, flight_change, followed_deltas })
}

async fn change_flight(
    api: &Api,
    client: &Client,
    database: &str,
) -> anyhow::Result<Option<FlightChange>> {
    // An earlier start may have ended in between.
    client.batch_execute(CHANGE_BACK).await?;
    refresh(api, "worst", database).await?;
    let before = client.query_opt(WORST_MONTH_SQL, &[]).await?;
    client.batch_execute(CHANGE).await?;
    refresh(api, "worst", database).await?;
    let after = client.query_opt(WORST_MONTH_SQL, &[]).await?;
    let query = [("database", database)];
    let first: ViewSummary = decode_response(api.get(&["views", "late_by_carrier"], &query).await)?;
    client.batch_execute(CHANGE_BACK).await?;
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(None);
    };
    Ok(Some(FlightChange {
        airline: before.get(0),
        before: before.get(1),
        after: after.get(1),
        refresh: first.last_refresh.context("the refreshed view reports no refresh")?,
    }))
}

/// Brings a view up to date, and with it what it reads.
pub(super) async fn refresh(api: &Api, view: &str, database: &str) -> anyhow::Result<()> {
    let (path, query) = (["views", view, "refresh"], [("database", database)]);
    let refreshed = api.call(reqwest::Method::POST, &path, &query, Some(json!({})));
    decode_response::<serde_json::Value>(refreshed.await).map(drop)
}
