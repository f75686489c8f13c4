//! Remote read: `prometheus.ReadRequest` in; out either `prometheus.ReadResponse`, in which samples
//! come one by one, or a stream of `prometheus.ChunkedReadResponse`, in which they come in chunks
//! ([`xor_chunk`]).
//!
//! Specification: prometheus.io/docs/prometheus/latest/querying/remote_read_api.

use egret_base::codec::put_varint;
use egret_metrics_model::{MatchOp, Matcher, SeriesSamples, TimeMs};

use super::WireSample;
use super::encode::{append_sample, put_bytes, put_histogram, put_message, put_number};
use super::error::WireError;
use super::histogram::WireHistogram;
use super::labels::append_label_field;
use super::protobuf::Message;
use super::xor_chunk;

/// A remote read request.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadRequest {
    /// Each is answered by one result, in this order.
    pub queries: Vec<ReadQuery>,
    /// The forms in which samples are welcome, the most welcome first. One by one when nothing is
    /// said.
    pub accepted_forms: Vec<ReadForm>,
}

/// In which form samples are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadForm {
    /// One by one, all in one message.
    Samples,
    /// In chunks, series by series.
    Chunks,
}

/// Series by matchers, and a range of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadQuery {
    /// First millisecond that is wanted.
    pub start_ms: TimeMs,
    /// Last millisecond that is wanted.
    pub end_ms: TimeMs,
    /// All of which a series must meet.
    pub matchers: Vec<Matcher>,
}

fn read_matcher(mut message: Message<'_>, at: usize) -> Result<Matcher, WireError> {
    const MATCHER: &str = "LabelMatcher";
    let (mut op, mut name, mut value) = (MatchOp::Equal, "", "");
    while let Some(field) = message.read_field()? {
        match field.number {
            1 => {
                op = match field.as_varint(MATCHER)? {
                    0 => MatchOp::Equal,
                    1 => MatchOp::NotEqual,
                    2 => MatchOp::Matches,
                    3 => MatchOp::NotMatches,
                    key => {
                        return Err(WireError::BadKey { message: MATCHER, key, at });
                    }
                }
            }
            2 => name = field.as_text(MATCHER)?,
            3 => value = field.as_text(MATCHER)?,
            _ => {}
        }
    }
    Ok(Matcher { name: name.into(), op, value: value.into() })
}

fn read_query(mut message: Message<'_>) -> Result<ReadQuery, WireError> {
    const QUERY: &str = "Query";
    let mut query = ReadQuery::default();
    while let Some(field) = message.read_field()? {
        match field.number {
            1 => query.start_ms = field.as_varint(QUERY)? as i64,
            2 => query.end_ms = field.as_varint(QUERY)? as i64,
            3 => {
                let matcher = field.as_message(QUERY, "LabelMatcher")?;
                query.matchers.push(read_matcher(matcher, field.offset)?);
            }
            _ => {}
        }
    }
    Ok(query)
}

/// Reads an uncompressed body.
///
/// # Errors
/// [`WireError`] when it is not well formed.
pub fn decode(body: &[u8]) -> Result<ReadRequest, WireError> {
    const REQUEST: &str = "ReadRequest";
    let mut fields = Message::new(body, REQUEST);
    let mut queries = Vec::new();
    let mut forms = Vec::new();
    let mut has_forms = false;
    while let Some(field) = fields.read_field()? {
        match field.number {
            1 => queries.push(read_query(field.as_message(REQUEST, "Query")?)?),
            2 => field.for_each_varint(REQUEST, |kind| {
                has_forms = true;
                match kind {
                    0 => forms.push(ReadForm::Samples),
                    1 => forms.push(ReadForm::Chunks),
                    _ => {}
                }
            })?,
            _ => {}
        }
    }
    if !has_forms {
        forms.push(ReadForm::Samples);
    }
    Ok(ReadRequest { queries, accepted_forms: forms })
}

/// A response that is being written, query by query.
#[derive(Debug, Default)]
pub struct ReadResponse {
    body: Vec<u8>,
    result: Vec<u8>,
    series: Vec<u8>,
}

impl ReadResponse {
    /// Adds a series to the present query's result. Labels are sorted by name, samples by time;
    /// native histograms come after the numbers.
    pub fn push<'a>(
        &mut self,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        samples: &SeriesSamples,
    ) {
        self.series.clear();
        for (name, value) in labels {
            append_label_field(name, value, &mut self.series);
        }
        for (time_ms, value) in samples.times_ms.iter().zip(&samples.values) {
            let (time_ms, value) = (*time_ms, *value);
            append_sample(WireSample { time_ms, value }, &mut self.series);
        }
        for (time_ms, histogram) in samples.histogram_times_ms.iter().zip(&samples.histograms) {
            put_histogram(4, &WireHistogram::from_histogram(*time_ms, histogram), &mut self.series);
        }
        put_bytes(1, &self.series, &mut self.result);
    }

    /// Ends the present query's result, which may be empty.
    pub fn end_query(&mut self) {
        put_bytes(1, &self.result, &mut self.body);
        self.result.clear();
    }

    /// Bytes of the response so far, for callers that limit it.
    pub fn size_bytes(&self) -> usize {
        self.body.len() + self.result.len()
    }

    /// The body, not compressed.
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }
}

/// Series of a frame go on in another one when they have so many bytes, as Prometheus has it.
const FRAME_BYTES: usize = 1 << 20;

/// Encoding `XOR` of `prometheus.Chunk`.
const XOR: u64 = 1;

/// A stream of chunks that is being written. Each series is a frame, or several: length (varint),
/// CRC-32C (4 bytes, big endian), a `ChunkedReadResponse`.
#[derive(Debug, Default)]
pub struct ChunkedResponse {
    body: Vec<u8>,
    labels: Vec<u8>,
    chunks: Vec<u8>,
    data: Vec<u8>,
}

impl ChunkedResponse {
    /// Adds the numbers of a series to the result of a query, by its place in the request. Labels
    /// are sorted by name, samples by time, series by their labels.
    pub fn push<'a>(
        &mut self,
        query: usize,
        labels: impl Iterator<Item = (&'a str, &'a str)>,
        samples: &SeriesSamples,
    ) {
        self.labels.clear();
        for (name, value) in labels {
            append_label_field(name, value, &mut self.labels);
        }
        let times_ms = samples.times_ms.chunks(xor_chunk::SAMPLES_MAX);
        let values = samples.values.chunks(xor_chunk::SAMPLES_MAX);
        for (times_ms, values) in times_ms.zip(values) {
            let (Some(first_ms), Some(last_ms)) = (times_ms.first(), times_ms.last()) else {
                continue;
            };
            self.data.clear();
            xor_chunk::append_chunk(times_ms, values, &mut self.data);
            put_message(2, &mut self.chunks, |chunk| {
                put_number(1, *first_ms as u64, chunk);
                put_number(2, *last_ms as u64, chunk);
                put_number(3, XOR, chunk);
                put_bytes(4, &self.data, chunk);
            });
            if self.labels.len() + self.chunks.len() >= FRAME_BYTES {
                self.end_frame(query);
            }
        }
        if !self.chunks.is_empty() {
            self.end_frame(query);
        }
    }

    fn end_frame(&mut self, query: usize) {
        let mut frame = Vec::new();
        put_message(1, &mut frame, |series| {
            series.extend_from_slice(&self.labels);
            series.append(&mut self.chunks);
        });
        put_number(2, query as u64, &mut frame);
        put_varint(&mut self.body, frame.len() as u64);
        let checksum = crc32c::crc32c(&frame);
        self.body.extend_from_slice(&checksum.to_be_bytes());
        self.body.append(&mut frame);
    }

    /// Number of bytes that wait to be taken.
    pub fn size_bytes(&self) -> usize {
        self.body.len()
    }

    /// The frames since the last time.
    pub fn take_frames(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.body)
    }
}

#[cfg(test)]
mod tests;
