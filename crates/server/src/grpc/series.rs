//! `egret.series.v1.Series`: the series engine over gRPC.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use egret_base::CodedError;
use egret_metrics_model::Labels;
use egret_promql::{Answer, FloatHistogram, InstantSample, QueryResult, SampleValue, SeriesPoints};
use egret_proto::series::v1;
use egret_proto::series::v1::server::series_server::SERVICE_NAME;
use egret_proto::series::v1::server::{Series, SeriesServer};
use egret_proto::series::v1::write_request::Samples;
use egret_series::{EvalTimes, QueryOptions, Series as Engine, SeriesError, WriteCounts};
use futures_util::{Stream, StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};
use tower::ServiceExt;

use super::malformed_message;
use super::service::GrpcService;
use crate::error::RequestError;
use crate::problem::{error_detail, grpc_status};
use crate::request_context::RequestContext;
use crate::tokens::{DEFAULT_TENANT, TokenError};

/// The largest message that is read, in bytes.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// Requests of one stream that are worked on at a time; more are not read before.
const REQUESTS_MAX: usize = 64;

/// Samples of a message of an answer, about: 256 KiB.
const RESPONSE_SAMPLES_MAX: usize = 16_384;

/// The number of samples that a native histogram counts as.
const SAMPLES_PER_HISTOGRAM: usize = 64;

/// The series engine's service, for [`Builder::grpc`](crate::Builder::grpc). Streams end when
/// `stopping` is cancelled.
pub fn service(series: Engine, stopping: CancellationToken) -> GrpcService {
    let service = SeriesServer::new(SeriesService { series, stopping })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .map_request(|request: axum::extract::Request| request.map(tonic::body::Body::new))
        .map_response(|response| {
            malformed_message::assign_code_to_response(response.map(axum::body::Body::new))
        });
    let (write, query) = (format!("/{SERVICE_NAME}/Write"), format!("/{SERVICE_NAME}/Query"));
    let router = Router::new().route_service(&write, service.clone());
    GrpcService {
        router: router.route_service(&query, service),
        scopes: vec![(write.clone(), &["series:write"]), (query, &["series:read"])],
        long_lived_paths: vec![write],
    }
}

#[derive(Clone)]
struct SeriesService {
    series: Engine,
    stopping: CancellationToken,
}

/// The message of a caller, which must be of the default tenant.
fn require_default_tenant<T>(request: Request<T>) -> Result<T, Status> {
    let context = request.extensions().get::<Arc<RequestContext>>();
    let known = context.and_then(|context| context.caller());
    let caller = known.ok_or_else(|| grpc_status(&TokenError::Missing))?;
    match caller.tenant() {
        DEFAULT_TENANT => Ok(request.into_inner()),
        tenant => {
            Err(grpc_status(&RequestError::TenantWithoutSeries { tenant: tenant.to_owned() }))
        }
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Series for SeriesService {
    type WriteStream = Answers<v1::WriteResponse>;
    type QueryStream = Answers<v1::QueryResponse>;

    async fn write(
        &self,
        request: Request<Streaming<v1::WriteRequest>>,
    ) -> Result<Response<Self::WriteStream>, Status> {
        let inbound = require_default_tenant(request)?;
        let Self { series, stopping } = self.clone();
        let stopped = stopping.clone();
        let responses = inbound
            .take_until(stopping.cancelled_owned())
            .map(move |request| {
                let series = series.clone();
                async move {
                    let request = request.map_err(malformed_message::assign_code)?;
                    Ok::<_, Status>(write_response(
                        request.number,
                        write_samples(&series, request.samples).await,
                    ))
                }
            })
            .buffer_unordered(REQUESTS_MAX);
        let stop_error =
            stream::once(async move { stopped.is_cancelled() }).filter_map(|is_stopping| {
                let error = is_stopping.then(|| Err(grpc_status(&SeriesError::Stopping)));
                std::future::ready(error)
            });
        Ok(Response::new(Box::pin(responses.chain(stop_error))))
    }

    async fn query(
        &self,
        request: Request<v1::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        let asked = require_default_tenant(request)?;
        let times = match (asked.end_ms, asked.step_ms) {
            (0, 0) => EvalTimes::At(asked.start_ms),
            (end, step_ms) => EvalTimes::Range { start: asked.start_ms, end, step_ms },
        };
        let timeout = Duration::from_millis(asked.timeout_ms);
        let options =
            QueryOptions { timeout: (asked.timeout_ms > 0).then_some(timeout), lookback: None };
        let answer = self
            .series
            .query(&asked.query, times, options)
            .await
            .map_err(|error| grpc_status(&error))?;
        Ok(Response::new(Box::pin(stream::iter(query_responses(answer).map(Ok)))))
    }
}

async fn write_samples(
    series: &Engine,
    samples: Option<Samples>,
) -> Result<WriteCounts, SeriesError> {
    match samples {
        Some(Samples::RemoteWriteV1(body)) => series.remote_write_v1(&body).await,
        Some(Samples::RemoteWriteV2(body)) => series.remote_write_v2(&body).await,
        None => Err(SeriesError::Invalid {
            what: "samples",
            reason: "the message has none: send remote_write_v1 or remote_write_v2".to_owned(),
        }),
    }
}

fn write_response(number: u64, outcome: Result<WriteCounts, SeriesError>) -> v1::WriteResponse {
    let error = outcome.as_ref().err().map(|error| v1::Error {
        code: error.code().to_owned(),
        message: error_detail(error),
        retryable: error.retryable(),
    });
    let counts = outcome.unwrap_or_default();
    v1::WriteResponse {
        number,
        written: counts.samples,
        late: counts.late,
        rejected: counts.rejected.samples,
        reasons: counts.rejected.reasons,
        deduplicated: counts.duplicates.samples,
        error,
    }
}

fn histogram(histogram: &FloatHistogram) -> v1::Histogram {
    let bucket = |(bounds, lower, upper, count): (u8, f64, f64, f64)| v1::Bucket {
        bounds: bounds.into(),
        lower,
        upper,
        count,
    };
    v1::Histogram {
        count: histogram.count,
        sum: histogram.sum,
        buckets: histogram.rendered_buckets().into_iter().map(bucket).collect(),
    }
}

fn series_values(points: SeriesPoints) -> v1::Values {
    let (times_ms, values) = points.floats.into_iter().unzip();
    let (histogram_times_ms, histograms) =
        points.histograms.iter().map(|(time_ms, value)| (*time_ms, histogram(value))).unzip();
    let label =
        |(name, value): (&str, &str)| v1::Label { name: name.to_owned(), value: value.to_owned() };
    v1::Values {
        labels: points.labels.iter().map(label).collect(),
        times_ms,
        values,
        histogram_times_ms,
        histograms,
    }
}

/// Converts a sample to a series with a single point.
fn single_point_series(sample: InstantSample) -> SeriesPoints {
    let mut points =
        SeriesPoints { labels: sample.labels, floats: Vec::new(), histograms: Vec::new() };
    match sample.value {
        SampleValue::Float(value) => points.floats.push((sample.time, value)),
        SampleValue::Histogram(value) => points.histograms.push((sample.time, value)),
    }
    points
}

/// Splits a query result into messages; the first one has the warnings and infos.
fn query_responses(answer: Answer) -> impl Iterator<Item = v1::QueryResponse> {
    let mut first = v1::QueryResponse {
        warnings: answer.warnings,
        infos: answer.infos,
        ..v1::QueryResponse::default()
    };
    let series: Box<dyn Iterator<Item = v1::Values> + Send> = match answer.result {
        QueryResult::Scalar(time, value) => {
            Box::new(std::iter::once(series_values(single_point_series(InstantSample {
                labels: Labels::default(),
                time,
                value: SampleValue::Float(value),
            }))))
        }
        QueryResult::Text(_, text) => {
            first.text = text;
            Box::new(std::iter::empty())
        }
        QueryResult::Vector(samples) => {
            Box::new(samples.into_iter().map(|sample| series_values(single_point_series(sample))))
        }
        QueryResult::Matrix(matrix) => Box::new(matrix.into_iter().map(series_values)),
    };
    let (mut series, mut first_message) = (series.peekable(), Some(first));
    std::iter::from_fn(move || {
        let mut page = match first_message.take() {
            Some(first) => first,
            None => {
                series.peek()?;
                v1::QueryResponse::default()
            }
        };
        let mut samples = 0;
        while samples < RESPONSE_SAMPLES_MAX
            && let Some(values) = series.next()
        {
            samples += 1 + values.values.len() + values.histograms.len() * SAMPLES_PER_HISTOGRAM;
            page.series.push(values);
        }
        Some(page)
    })
}
