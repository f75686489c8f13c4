//! The answer to a query as it goes out: written series by series while it is sent, so that a large
//! one is never in memory twice.

use std::convert::Infallible;
use std::vec::IntoIter;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use egret_promql::{Answer, InstantSample, QueryResult, SampleValue, SeriesPoints};
use futures_util::stream;
use http::header;

use super::json::{
    append_end, append_histogram_point, append_labels, append_list, append_point, append_scalar,
    append_text, append_time,
};

/// Bytes that are sent together, at least; a chunk ends with the series that exceeds them.
const CHUNK_BYTES: usize = 64 << 10;

/// The warning in an answer that `limit` has cut.
pub(super) const TRUNCATED_WARNING: &str = "results truncated due to limit";

/// The results that are not written yet.
enum Rows {
    Vector(IntoIter<InstantSample>),
    Matrix(IntoIter<SeriesPoints>),
    /// None: a scalar or a text is written with the head.
    None,
}

/// Writes an answer chunk by chunk, as an iterator.
struct ResponseEncoder {
    rows: Rows,
    has_row: bool,
    buffer: Vec<u8>,
    /// The end of the body; `None` once it is written.
    tail: Option<Vec<u8>>,
}

/// Encodes an answer as a response, with at most `limit` series.
pub(super) fn respond(answer: Answer, limit: usize) -> Response {
    let mut encoder = ResponseEncoder::new(answer, limit);
    let first = encoder.next().unwrap_or_default();
    let body = match encoder.tail {
        None => Body::from(first),
        Some(_) => {
            let chunks = std::iter::once(first).chain(encoder);
            Body::from_stream(stream::iter(chunks.map(Ok::<_, Infallible>)))
        }
    };
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

impl ResponseEncoder {
    fn new(answer: Answer, limit: usize) -> Self {
        let Answer { result, mut warnings, infos, is_ordered } = answer;
        let (kind, is_list) = match &result {
            QueryResult::Scalar(..) => ("scalar", false),
            QueryResult::Text(..) => ("string", false),
            QueryResult::Vector(_) => ("vector", true),
            QueryResult::Matrix(_) => ("matrix", true),
        };
        let mut buffer = Vec::with_capacity(4 << 10);
        buffer.extend_from_slice(b"{\"status\":\"success\",\"data\":{\"resultType\":");
        append_text(kind, &mut buffer);
        buffer.extend_from_slice(b",\"result\":");
        let mut is_truncated = false;
        let rows = match result {
            QueryResult::Scalar(time_ms, value) => {
                append_scalar(time_ms, value, &mut buffer);
                Rows::None
            }
            QueryResult::Text(time_ms, text) => {
                buffer.push(b'[');
                append_time(time_ms, &mut buffer);
                buffer.push(b',');
                append_text(&text, &mut buffer);
                buffer.push(b']');
                Rows::None
            }
            QueryResult::Vector(mut samples) => {
                if samples.len() > limit && !is_ordered {
                    samples.sort_by(|a, b| a.labels.cmp(&b.labels));
                }
                Rows::Vector(truncate(samples, limit, &mut is_truncated))
            }
            QueryResult::Matrix(series) => Rows::Matrix(truncate(series, limit, &mut is_truncated)),
        };
        if is_truncated {
            warnings.push(TRUNCATED_WARNING.to_owned());
        }
        let mut tail = Vec::new();
        if is_list {
            buffer.push(b'[');
            tail.push(b']');
        }
        tail.push(b'}');
        append_end(&warnings, &infos, &mut tail);
        Self { rows, has_row: false, buffer, tail: Some(tail) }
    }

    /// Writes the next series; `false` when there is none.
    fn write_row(&mut self) -> bool {
        let out = &mut self.buffer;
        match &mut self.rows {
            Rows::Vector(samples) => {
                let Some(sample) = samples.next() else {
                    return false;
                };
                begin_row(&mut self.has_row, out);
                append_sample(&sample, out);
            }
            Rows::Matrix(series) => {
                let Some(points) = series.next() else {
                    return false;
                };
                begin_row(&mut self.has_row, out);
                append_series(&points, out);
            }
            Rows::None => return false,
        }
        true
    }
}

impl Iterator for ResponseEncoder {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let tail_bytes = self.tail.as_ref()?.len();
        while self.buffer.len() + tail_bytes < CHUNK_BYTES {
            if !self.write_row() {
                self.buffer.extend(self.tail.take().into_iter().flatten());
                break;
            }
        }
        Some(std::mem::take(&mut self.buffer).into())
    }
}

fn truncate<T>(mut rows: Vec<T>, limit: usize, is_truncated: &mut bool) -> IntoIter<T> {
    *is_truncated = rows.len() > limit;
    rows.truncate(limit);
    rows.into_iter()
}

fn begin_row(has_row: &mut bool, out: &mut Vec<u8>) {
    if std::mem::replace(has_row, true) {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"metric\":");
}

fn append_sample(sample: &InstantSample, out: &mut Vec<u8>) {
    append_labels(&sample.labels, out);
    match &sample.value {
        SampleValue::Float(value) => {
            out.extend_from_slice(b",\"value\":");
            append_point(sample.time, *value, out);
        }
        SampleValue::Histogram(histogram) => {
            out.extend_from_slice(b",\"histogram\":");
            append_histogram_point(sample.time, histogram, out);
        }
    }
    out.push(b'}');
}

fn append_series(series: &SeriesPoints, out: &mut Vec<u8>) {
    append_labels(&series.labels, out);
    if !series.floats.is_empty() {
        out.extend_from_slice(b",\"values\":");
        append_list(&series.floats, out, |(time_ms, value), out| {
            append_point(*time_ms, *value, out);
        });
    }
    if !series.histograms.is_empty() {
        out.extend_from_slice(b",\"histograms\":");
        append_list(&series.histograms, out, |(time_ms, histogram), out| {
            append_histogram_point(*time_ms, histogram, out);
        });
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
