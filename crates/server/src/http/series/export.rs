//! Samples as they are, as text, written while they are sent: the whole is never in memory.

use std::ops::ControlFlow;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_series::core::promql::Columns;
use egret_series::model::{Labels, METRIC_NAME, TimeMs, is_stale};
use egret_series::wire::exposition::{TextFormat, append_sample};
use egret_series::wire::{json_lines, table};
use egret_series::{Scope, Series, SeriesError};
use futures_util::stream;
use http::header;
use tokio::sync::mpsc;

use super::Member;
use super::parameters::{Parameters, invalid};
use crate::problem::Problem;

/// So many bytes are sent together.
const CHUNK_BYTES: usize = 256 << 10;

/// Chunks that may wait for a client that reads slowly; then reading samples waits as well.
const CHUNKS_WAITING: usize = 4;

/// How samples are written.
enum Format {
    Prometheus,
    JsonLines,
    /// With these labels.
    Csv(Vec<String>),
}

impl Format {
    fn append(&self, labels: &Labels, columns: &Columns, out: &mut String) {
        if let Self::JsonLines = self {
            if !columns.times.is_empty() {
                json_lines::append_line(labels, &columns.times, &columns.values, out);
            }
            return;
        }
        let samples = columns.times.iter().zip(&columns.values);
        // Neither text has a way to say that a series has ended.
        for (time_ms, value) in samples.filter(|(_, value)| !is_stale(**value)) {
            match self {
                Self::Csv(head) => table::append_row(head, labels, *time_ms, *value, out),
                _ => {
                    let format = TextFormat::Prometheus;
                    append_sample(labels.iter(), *value, Some(*time_ms), format, out);
                }
            }
        }
    }

    fn content_type(&self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::JsonLines => "application/x-ndjson",
            Self::Csv(_) => "text/csv; charset=utf-8",
        }
    }
}

/// Export samples
///
/// As JSON with a series a line, which loses nothing; as CSV; or in Prometheus's text format. `POST
/// /v1/series/import` reads each of them. An answer that breaks off must not be used.
#[utoipa::path(get, path = "/v1/series/export", operation_id = "exportSeries", tag = "series",
    extensions(("x-egret-lasting" = json!(true))), security(("token" = ["series:read"])),
    params(
        ("format" = Option<String>, Query, description = "`jsonl` (the default), `csv` or `prometheus`."),
        ("match[]" = Option<Vec<String>>, Query, description = "A selector; may be repeated. All series \
            without."),
        ("start" = Option<String>, Query, description = "Seconds since 1970, or RFC 3339."),
        ("end" = Option<String>, Query, description = "Likewise."),
    ),
    responses((status = 200, description = "The samples.", body = String, content_type = "text/plain")))]
pub(super) async fn export(
    State(series): State<Series>,
    _: Member,
    parameters: Parameters,
) -> Result<Response, Problem> {
    let scope = Scope {
        selectors: parameters.selectors()?,
        start: parameters.time("start")?.unwrap_or(TimeMs::MIN),
        end: parameters.time("end")?.unwrap_or(TimeMs::MAX),
    };
    let mut head = String::new();
    let format = match parameters.text("format") {
        "" | "jsonl" => Format::JsonLines,
        "prometheus" => Format::Prometheus,
        "csv" => {
            let (mut labels, _) = series.label_names(scope.clone(), usize::MAX).await?;
            labels.retain(|name| name != METRIC_NAME);
            table::append_head(&labels, &mut head);
            Format::Csv(labels)
        }
        other => {
            let why = format_args!("{other:?} is none of jsonl, csv, prometheus").to_string();
            return Err(invalid("format", why).into());
        }
    };
    let kind = format.content_type();
    let (chunks, mut written) = mpsc::channel(CHUNKS_WAITING);
    tokio::spawn(async move {
        if let Err(error) = send(&series, scope, format, head, &chunks).await {
            // The answer has begun: breaking it off is all that is left.
            let _ = chunks.send(Err(std::io::Error::other(error))).await;
        }
    });
    let body = Body::from_stream(stream::poll_fn(move |context| written.poll_recv(context)));
    Ok(([(header::CONTENT_TYPE, kind)], body).into_response())
}

type Chunks = mpsc::Sender<Result<Bytes, std::io::Error>>;

async fn send(
    series: &Series,
    scope: Scope,
    format: Format,
    head: String,
    chunks: &Chunks,
) -> Result<(), SeriesError> {
    let (last, told) = tokio::sync::oneshot::channel();
    let sender = chunks.clone();
    let mut page = Page {
        text: head,
        last: Some(last),
    };
    let visited = series.visit_samples(scope, move |labels, columns| {
        format.append(labels, columns, &mut page.text);
        if page.text.len() < CHUNK_BYTES {
            return ControlFlow::Continue(());
        }
        let text = std::mem::take(&mut page.text);
        match sender.blocking_send(Ok(text.into())) {
            Ok(()) => ControlFlow::Continue(()),
            // The client has left.
            Err(_) => ControlFlow::Break(()),
        }
    });
    visited.await?;
    if let Ok(text) = told.await {
        let _ = chunks.send(Ok(text.into())).await;
    }
    Ok(())
}

/// What is not sent yet; it is told when nothing more is added.
struct Page {
    text: String,
    last: Option<tokio::sync::oneshot::Sender<String>>,
}

impl Drop for Page {
    fn drop(&mut self) {
        if let Some(last) = self.last.take() {
            // Whoever exported may have gone away.
            let _ = last.send(std::mem::take(&mut self.text));
        }
    }
}
