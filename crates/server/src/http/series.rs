//! Series over HTTP: under `/prometheus` what Prometheus answers there, so that `http://host:7070/prometheus` is a data
//! source for Grafana, promtool and whatever else speaks to Prometheus; under `/v1/series` what Prometheus has no
//! words for.
//!
//! `write.rs`, `otlp.rs`, `influx.rs` and `text.rs` take samples in, `read.rs` and `export.rs` give them out,
//! `query.rs` evaluates, `look.rs` tells which series there are, `metadata.rs` what their metrics are, `monitor.rs` what Egret
//! scrapes and evaluates itself, `state.rs` how the engine is; `admin.rs` deletes and makes snapshots. Answers are written
//! by `answer.rs` and `json.rs`, byte by byte as Prometheus writes them. An error
//! is a [`Problem`] like every other; `error.rs` renders it as Prometheus would.

mod admin;
mod answer;
mod body;
mod chunks;
mod error;
mod export;
mod influx;
mod json;
mod look;
mod metadata;
mod monitor;
mod otlp;
mod parameters;
mod query;
mod read;
mod state;
mod text;
mod write;

use std::sync::Arc;

use axum::extract::{FromRef, FromRequestParts};
use axum::response::{IntoResponse, Response};
use egret_base::Timestamp;
use egret_series::{Monitor, Series};
use http::header;
use http::request::Parts as RequestParts;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Caller;
use crate::error::RequestError;
use crate::problem::Problem;
use crate::server::Build;
use crate::tokens::DEFAULT_TENANT;

pub(crate) use error::{ERROR_TYPES, is_prometheus, render};

/// The routes of the series engine, for [`Builder::route`](crate::Builder::route). `build` and `started_at` are what
/// `status/buildinfo` and `status/runtimeinfo` tell.
pub fn routes(
    series: Series,
    monitor: Monitor,
    build: Build,
    started_at: Timestamp,
) -> OpenApiRouter {
    OpenApiRouter::default()
        .routes(routes!(write::remote_write))
        .routes(routes!(otlp::write_otlp))
        .routes(routes!(read::remote_read))
        .routes(routes!(influx::write_influx))
        .routes(routes!(influx::write_influx_v1))
        .routes(routes!(influx::write_influx_v2))
        .routes(routes!(text::import))
        .routes(routes!(export::export))
        .routes(routes!(look::cardinality))
        .routes(routes!(query::query))
        .routes(routes!(query::graph))
        .routes(routes!(query::query_range))
        .routes(routes!(query::query_exemplars))
        .routes(routes!(query::format_query))
        .routes(routes!(query::parse_query))
        .routes(routes!(look::series))
        .routes(routes!(look::labels))
        .routes(routes!(look::label_values))
        .routes(routes!(admin::delete_series))
        .routes(routes!(admin::clean_tombstones))
        .routes(routes!(admin::snapshot))
        .routes(routes!(metadata::metadata))
        .routes(routes!(monitor::rules))
        .routes(routes!(monitor::alerts))
        .routes(routes!(monitor::targets))
        .routes(routes!(monitor::target_metadata))
        .routes(routes!(monitor::scrape_pools))
        .routes(routes!(monitor::alertmanagers))
        .routes(routes!(monitor::config))
        .routes(routes!(monitor::reload))
        .routes(routes!(state::buildinfo))
        .routes(routes!(state::runtimeinfo))
        .routes(routes!(state::flags))
        .routes(routes!(state::tsdb))
        .routes(routes!(state::healthy))
        .routes(routes!(state::ready))
        .with_state(Door(Arc::new(Parts {
            series,
            monitor,
            build,
            started_at,
        })))
}

/// What the handlers hold.
#[derive(Clone)]
struct Door(Arc<Parts>);

struct Parts {
    series: Series,
    monitor: Monitor,
    build: Build,
    started_at: Timestamp,
}

impl FromRef<Door> for Series {
    fn from_ref(door: &Door) -> Self {
        door.0.series.clone()
    }
}

impl FromRef<Door> for Monitor {
    fn from_ref(door: &Door) -> Self {
        door.0.monitor.clone()
    }
}

/// A caller whose series these are. There is one set of series, and it is the default tenant's.
struct Member;

impl<S: Sync> FromRequestParts<S> for Member {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut RequestParts, state: &S) -> Result<Self, Problem> {
        let caller = Caller::from_request_parts(parts, state).await?;
        match caller.tenant() {
            DEFAULT_TENANT => Ok(Self),
            tenant => Err(RequestError::TenantWithoutSeries {
                tenant: tenant.to_owned(),
            }
            .into()),
        }
    }
}

fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
