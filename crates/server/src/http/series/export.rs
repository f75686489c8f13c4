//! Samples as they are, in a file of some form, written while they are sent: the whole is never in
//! memory.

use std::ops::ControlFlow;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_base::condition;
use egret_metrics_model::{Labels, METRIC_NAME, SeriesSamples, TimeMs, is_stale};
use egret_metrics_wire::exposition::{TextFormat, append_sample};
use egret_metrics_wire::{json_lines, table};
use egret_promql::QueryError;
use egret_series::core::parquet::ParquetWriter;
use egret_series::{SampleVisitor, Scope, Series};
use http::header;

use super::chunks::{self, CHUNK_BYTES, Chunks};
use super::parameters::{Parameters, invalid_parameter};
use super::tenant_access::DefaultTenantAccess;
use crate::problem::Problem;

/// How samples are written, and what is not sent yet.
enum Format {
    Prometheus(String),
    JsonLines(String),
    /// Columns of these labels, and the text that is not sent yet.
    Csv(Vec<String>, String),
    Parquet(Box<ParquetWriter>),
}

impl Format {
    fn append(&mut self, labels: &Labels, samples: &SeriesSamples) {
        let numbers =
            samples.times_ms.iter().zip(&samples.values).map(|(time_ms, value)| (*time_ms, *value));
        // Only JSON has a way to say that a series has ended.
        let numbers = numbers.filter(|(_, value)| !is_stale(*value));
        match self {
            Self::JsonLines(text) => json_lines::append_line(labels, samples, text),
            Self::Parquet(writer) => {
                writer.add(labels, numbers);
                let histograms = samples
                    .histogram_times_ms
                    .iter()
                    .zip(&samples.histograms)
                    .filter(|(_, histogram)| !is_stale(histogram.sum))
                    .map(|(time_ms, histogram)| (*time_ms, &**histogram));
                writer.add_histograms(labels, histograms);
            }
            Self::Csv(head, text) => numbers.for_each(|(time_ms, value)| {
                table::append_row(head, labels, time_ms, value, text);
            }),
            Self::Prometheus(text) => numbers.for_each(|(time_ms, value)| {
                let format = TextFormat::Prometheus;
                append_sample(labels.iter(), value, Some(time_ms), format, text);
            }),
        }
    }

    /// Whether there is a way to write native histograms.
    fn has_histograms(&self) -> bool {
        matches!(self, Self::JsonLines(_) | Self::Parquet(_))
    }

    /// Takes the next chunk, once it is large enough.
    fn take_chunk(&mut self) -> Option<Bytes> {
        match self {
            Self::Prometheus(text) | Self::JsonLines(text) | Self::Csv(_, text) => {
                (text.len() >= CHUNK_BYTES).then(|| std::mem::take(text).into())
            }
            Self::Parquet(writer) => {
                (writer.len() >= CHUNK_BYTES).then(|| writer.take_bytes().into())
            }
        }
    }

    /// Returns the last chunk.
    fn finish(self) -> Bytes {
        match self {
            Self::Prometheus(text) | Self::JsonLines(text) | Self::Csv(_, text) => text.into(),
            Self::Parquet(writer) => writer.finish().into(),
        }
    }

    fn content_type(&self) -> &'static str {
        match self {
            Self::Prometheus(_) => "text/plain; version=0.0.4; charset=utf-8",
            Self::JsonLines(_) => "application/x-ndjson",
            Self::Csv(..) => "text/csv; charset=utf-8",
            Self::Parquet(_) => "application/vnd.apache.parquet",
        }
    }
}

/// Export samples
///
/// The formats are JSON with one series per line, which is lossless, CSV, Prometheus's text format,
/// and an Apache Parquet table. `POST /v1/series/import` reads all but the last. CSV and the text
/// format cannot represent native histograms: series with histograms are refused. A response that
/// is aborted must not be used; it is aborted if the client reads nothing for 30 s.
#[utoipa::path(get, path = "/v1/series/export", operation_id = "exportSeries", tag = "series",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["series:read"])),
    params(
        ("format" = Option<String>, Query, description = "The format: `jsonl` (the default), \
            `csv`, `prometheus` or `parquet`."),
        ("match[]" = Option<Vec<String>>, Query, description = "A selector. The parameter may be \
            repeated. Without it, all series are exported."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339."),
        ("end" = Option<String>, Query, description = "Likewise."),
    ),
    responses((status = 200, description = "The samples.", content(
        (String = "application/x-ndjson"),
        (String = "text/csv"),
        (String = "text/plain"),
        (Vec<u8> = "application/vnd.apache.parquet"),
    ))))]
pub(super) async fn export(
    State(series): State<Series>,
    _: DefaultTenantAccess,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let scope = Scope {
        selectors: parameters.selectors()?,
        start: parameters.time("start")?.unwrap_or(TimeMs::MIN),
        end: parameters.time("end")?.unwrap_or(TimeMs::MAX),
    };
    let format = match parameters.text("format") {
        "" | "jsonl" => Format::JsonLines(String::new()),
        "prometheus" => Format::Prometheus(String::new()),
        "parquet" => Format::Parquet(Box::default()),
        "csv" => {
            let (mut labels, _) = series.label_names(scope.clone(), usize::MAX).await?;
            labels.retain(|name| name != METRIC_NAME);
            let mut head = String::new();
            table::append_header(&labels, &mut head);
            Format::Csv(labels, head)
        }
        other => {
            let reason =
                format_args!("{other:?} is not one of jsonl, csv, prometheus, parquet").to_string();
            return Err(invalid_parameter("format", reason).into());
        }
    };
    if !format.has_histograms()
        && let Some(labels) = series.first_with_histograms(scope.clone()).await?
    {
        return Err(histograms_unsupported(&labels).into());
    }
    let kind = format.content_type();
    let (chunks, body) = chunks::streamed_body();
    let writer = SampleWriter { format, chunks };
    tokio::spawn(async move {
        match series.visit_samples(scope, writer).await {
            Ok(SampleWriter { format, chunks }) => chunks.finish(format.finish()).await,
            // The answer has begun: breaking it off is all that is left.
            Err(error) => report_abort(error),
        }
    });
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

fn report_abort(error: impl std::fmt::Display) {
    let message = "an export was aborted";
    condition::occur("answers_broken_off", "exports of series", error, message);
}

fn histograms_unsupported(labels: &Labels) -> QueryError {
    let reason = format_args!(
        "{labels} has native histograms, which this format cannot represent: use jsonl or parquet"
    );
    invalid_parameter("format", reason)
}

/// Writes samples and sends them.
struct SampleWriter {
    format: Format,
    chunks: Chunks,
}

impl SampleVisitor for SampleWriter {
    fn visit(&mut self, labels: &Labels, samples: &SeriesSamples) -> ControlFlow<()> {
        if !self.format.has_histograms() && !samples.histograms.is_empty() {
            // They were written after the check at the start, and the response has begun.
            let error = histograms_unsupported(labels);
            report_abort(error);
            return self.chunks.abort();
        }
        self.format.append(labels, samples);
        match self.format.take_chunk() {
            Some(chunk) => self.chunks.send(chunk),
            None => ControlFlow::Continue(()),
        }
    }
}
