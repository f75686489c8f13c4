//! Remote read: how Prometheus asks another for the samples it has, one by one or as a stream of
//! chunks.

use std::ops::ControlFlow;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use egret_base::condition;
use egret_metrics_model::matcher::Compiler;
use egret_metrics_model::{Labels, SeriesSamples};
use egret_metrics_wire::remote_read::{ChunkedResponse, ReadForm, ReadQuery, ReadResponse, decode};
use egret_metrics_wire::snappy;
use egret_promql::QueryError;
use egret_series::{SampleVisitor, Scope, Series, SeriesError};
use http::header;

use super::body::read_snappy;
use super::chunks::{self, CHUNK_BYTES, Chunks};
use super::parameters::invalid_parameter;
use super::tenant_access::DefaultTenantAccess;
use crate::problem::Problem;

const CHUNKED: &str = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";

/// Read samples
///
/// The operation is Prometheus's remote read. The response has single samples, or a stream of
/// chunks if the request prefers that. Chunks cannot hold native histograms: if the query matches
/// some, single samples are sent. A stream is aborted if the client reads nothing for 30 s.
#[utoipa::path(post, path = "/prometheus/api/v1/read", operation_id = "remoteRead", tag = "series",
    extensions(("x-egret-piecemeal" = json!(true))), security(("token" = ["series:read"])),
    request_body(content = Vec<u8>, content_type = "application/x-protobuf",
        description = "A `ReadRequest`, compressed as a snappy block."),
    responses((status = 200, description = "A `ReadResponse`, compressed as a snappy block, or a \
        stream of `ChunkedReadResponse`, each preceded by its length (varint) and its CRC-32C (4 \
        bytes, big endian).")))]
pub(super) async fn remote_read(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    request: Request,
) -> Result<Response, Problem> {
    let config = series.config();
    let body = read_snappy(request, config).await?;
    let mut memory = snappy::Snappy::default();
    let read_request = decode(memory.decode(&body, config.decoded_bytes_max.bytes())?)?;
    let mut compiler = Compiler::default();
    let queries = read_request.queries.into_iter();
    let scopes: Vec<Scope> =
        queries.map(|query| to_scope(query, &mut compiler)).collect::<Result<_, _>>()?;
    match *read_request.accepted_forms {
        [] => {
            let reason = "accept SAMPLES or STREAMED_XOR_CHUNKS";
            Err(invalid_parameter("accepted_response_types", reason).into())
        }
        [ReadForm::Samples, ..] => samples_response(&series, scopes).await,
        [ReadForm::Chunks, ref alternatives @ ..] => {
            for scope in &scopes {
                let Some(labels) = series.first_with_histograms(scope.clone()).await? else {
                    continue;
                };
                return if alternatives.contains(&ReadForm::Samples) {
                    samples_response(&series, scopes).await
                } else {
                    Err(histograms_unsupported(&labels).into())
                };
            }
            Ok(chunked_response(series, scopes))
        }
    }
}

fn to_scope(query: ReadQuery, compiler: &mut Compiler) -> Result<Scope, SeriesError> {
    let matchers = query
        .matchers
        .into_iter()
        .map(|matcher| compiler.compile(matcher))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Scope { selectors: vec![matchers], start: query.start_ms, end: query.end_ms })
}

async fn samples_response(series: &Series, scopes: Vec<Scope>) -> Result<Response, Problem> {
    let bytes_max = series.config().decoded_bytes_max.bytes();
    let mut collector = SampleCollector { response: ReadResponse::default(), bytes_max };
    for scope in scopes {
        collector = series.visit_samples(scope, collector).await?;
        collector.check_size()?;
        collector.response.end_query();
    }
    let body = snappy::encode(&collector.response.into_body());
    let headers =
        [(header::CONTENT_TYPE, "application/x-protobuf"), (header::CONTENT_ENCODING, "snappy")];
    Ok((headers, body).into_response())
}

fn chunked_response(series: Series, scopes: Vec<Scope>) -> Response {
    let (chunks, body) = chunks::streamed_body();
    let mut writer = ChunkWriter { response: ChunkedResponse::default(), query: 0, chunks };
    tokio::spawn(async move {
        for (query, scope) in scopes.into_iter().enumerate() {
            writer.query = query;
            writer = match series.visit_samples(scope, writer).await {
                Ok(streaming) => streaming,
                // The answer has begun: breaking it off is all that is left.
                Err(error) => return report_abort(error),
            };
            if writer.chunks.is_aborted() {
                return;
            }
        }
        let ChunkWriter { mut response, chunks, .. } = writer;
        chunks.finish(response.take_frames().into()).await;
    });
    ([(header::CONTENT_TYPE, CHUNKED)], body).into_response()
}

fn report_abort(error: impl std::fmt::Display) {
    let message = "a remote read was aborted";
    condition::occur("answers_broken_off", "remote reads", error, message);
}

fn histograms_unsupported(labels: &Labels) -> QueryError {
    let reason = format_args!(
        "{labels} has native histograms, which are not sent in chunks: accept SAMPLES as well"
    );
    invalid_parameter("accepted_response_types", reason)
}

/// Writes chunks and sends them.
struct ChunkWriter {
    response: ChunkedResponse,
    /// The index of the query in the request.
    query: usize,
    chunks: Chunks,
}

impl SampleVisitor for ChunkWriter {
    fn visit(&mut self, labels: &Labels, samples: &SeriesSamples) -> ControlFlow<()> {
        if !samples.histograms.is_empty() {
            // They were written after the check at the start, and the response has begun.
            let error = histograms_unsupported(labels);
            report_abort(error);
            return self.chunks.abort();
        }
        self.response.push(self.query, labels.iter(), samples);
        if self.response.size_bytes() < CHUNK_BYTES {
            return ControlFlow::Continue(());
        }
        self.chunks.send(self.response.take_frames().into())
    }
}

/// Collects the samples of a response, and stops at its largest size.
struct SampleCollector {
    response: ReadResponse,
    bytes_max: u64,
}

impl SampleCollector {
    fn check_size(&self) -> Result<(), QueryError> {
        if self.response.size_bytes() as u64 > self.bytes_max {
            Err(QueryError::OverBudget {
                limit: "series.decoded_bytes_max",
                budget: self.bytes_max,
                what: "bytes",
            })
        } else {
            Ok(())
        }
    }
}

impl SampleVisitor for SampleCollector {
    fn visit(&mut self, labels: &Labels, samples: &SeriesSamples) -> ControlFlow<()> {
        self.response.push(labels.iter(), samples);
        match self.check_size() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    }
}
