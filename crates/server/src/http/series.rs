//! Series over HTTP: under `/prometheus` what Prometheus answers there, so that
//! `http://host:7070/prometheus` is a data source for Grafana, promtool and whatever else speaks to
//! Prometheus; under `/v1/series` what Prometheus has no words for.
//!
//! `write.rs`, `otlp.rs`, `influx.rs` and `text.rs` take samples in, `read.rs` and `export.rs` give
//! them out, `query.rs` evaluates, `label_queries.rs` tells which series there are, `metadata.rs`
//! what their metrics are, `monitor.rs` what Egret scrapes and evaluates itself, `state.rs` how the
//! engine is; `admin.rs` deletes and makes snapshots. Answers are written by `answer.rs` and
//! `json.rs`, byte by byte as Prometheus writes them. An error is a [`Problem`](crate::Problem)
//! like every other; `error.rs` renders it as Prometheus would.

mod admin;
mod answer;
mod body;
mod chunks;
pub(crate) mod error;
mod export;
mod influx;
mod json;
mod label_queries;
mod metadata;
mod monitor;
mod otlp;
mod parameters;
mod query;
mod read;
mod router_state;
mod state;
mod tenant_access;
mod text;
mod write;

use std::sync::Arc;

use egret_base::Timestamp;
use egret_series::{Monitor, Series};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::router_state::{SeriesInner, SeriesState};
use crate::http::state::Build;

/// The routes of the series engine, for [`Builder::route`](crate::Builder::route). `build` and
/// `started_at` are what `status/buildinfo` and `status/runtimeinfo` tell.
pub fn routes(
    series: Series,
    monitor: Monitor,
    build: Build,
    started_at: Timestamp,
) -> OpenApiRouter {
    documented().with_state(SeriesState(Arc::new(SeriesInner {
        series,
        monitor,
        build,
        started_at,
    })))
}

/// The routes with their documentation.
pub(crate) fn documented() -> OpenApiRouter<SeriesState> {
    OpenApiRouter::default()
        .routes(routes!(write::remote_write))
        .routes(routes!(otlp::write_otlp))
        .routes(routes!(read::remote_read))
        .routes(routes!(influx::write_influx))
        .routes(routes!(influx::write_influx_v1))
        .routes(routes!(influx::write_influx_v2))
        .routes(routes!(text::import))
        .routes(routes!(export::export))
        .routes(routes!(label_queries::cardinality))
        .routes(routes!(query::query))
        .routes(routes!(query::graph))
        .routes(routes!(query::query_range))
        .routes(routes!(query::query_exemplars))
        .routes(routes!(query::format_query))
        .routes(routes!(query::parse_query))
        .routes(routes!(label_queries::series))
        .routes(routes!(label_queries::labels))
        .routes(routes!(label_queries::label_values))
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
}
