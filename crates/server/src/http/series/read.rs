//! Remote read: samples one by one, as Prometheus asks another for what it has.

use std::ops::ControlFlow;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use egret_base::{Limit, LimitExceeded};
use egret_series::core::promql::LabelMatcher;
use egret_series::model::{Labels, SeriesSamples};
use egret_series::wire::remote_read::{ReadResponse, decode};
use egret_series::wire::{WireError, snappy};
use egret_series::{SampleVisitor, Scope, Series, SeriesError};
use http::header;

use super::Member;
use super::body::request_limit;
use super::parameters::invalid;
use crate::extract::read_bounded;
use crate::problem::Problem;

/// Read samples
///
/// Prometheus's remote read, in the form in which samples come one by one.
#[utoipa::path(post, path = "/prometheus/api/v1/read", operation_id = "remoteRead", tag = "series",
    extensions(("x-egret-piecemeal" = json!(true))), security(("token" = ["series:read"])),
    request_body(content = Vec<u8>, content_type = "application/x-protobuf",
        description = "A `ReadRequest` in a block of snappy."),
    responses((status = 200, description = "A `ReadResponse` in a block of snappy.")))]
pub(super) async fn remote_read(
    State(series): State<Series>,
    _: Member,
    request: Request,
) -> Result<Response, Problem> {
    let config = series.config();
    let body = read_bounded(request.into_body(), request_limit(config)).await?;
    let mut memory = snappy::Snappy::default();
    let asked = decode(memory.decode(&body, config.decoded_bytes_max.bytes())?)?;
    if !asked.accepts_samples {
        let why = "only samples one by one are given: accept SAMPLES";
        return Err(invalid("accepted_response_types", why).into());
    }
    let limit = Limit::new("series.decoded_bytes_max", config.decoded_bytes_max.bytes());
    let mut reading = Reading {
        response: ReadResponse::default(),
        limit,
    };
    for query in asked.queries {
        let matchers = query.matchers.into_iter().map(LabelMatcher::new);
        let matchers = matchers.collect::<Result<Vec<_>, _>>();
        let matchers = matchers.map_err(SeriesError::from)?;
        let scope = Scope {
            selectors: vec![matchers],
            start: query.start_ms,
            end: query.end_ms,
        };
        reading = series.visit_samples(scope, reading).await?;
        reading.check().map_err(WireError::from)?;
        reading.response.end_query();
    }
    let body = snappy::encode(&reading.response.into_body());
    let headers = [
        (header::CONTENT_TYPE, "application/x-protobuf"),
        (header::CONTENT_ENCODING, "snappy"),
    ];
    Ok((headers, body).into_response())
}

/// A response that is being filled. It stops where there is too much.
struct Reading {
    response: ReadResponse,
    limit: Limit,
}

impl Reading {
    fn check(&self) -> Result<(), LimitExceeded> {
        self.limit.check(self.response.bytes() as u64)
    }
}

impl SampleVisitor for Reading {
    fn visit(&mut self, labels: &Labels, samples: &SeriesSamples) -> ControlFlow<()> {
        self.response.push(labels.iter(), samples);
        match self.check() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}
