//! Remote read: `prometheus.ReadRequest` in, `prometheus.ReadResponse` out, which is the form in which samples
//! come one by one. The other form, a stream of XOR chunks, is not written yet: a request that accepts nothing
//! else is answered by an error by whoever finds [`ReadRequest::accepts_samples`] false.
//!
//! Specification: prometheus.io/docs/prometheus/latest/querying/remote_read_api.

use super::Sample;
use super::encode::{append_sample, put_bytes, put_histogram};
use super::error::WireError;
use super::histogram::WireHistogram;
use super::labels::append_label_field;
use super::protobuf::Message;
use crate::model::{MatchOp, Matcher, SeriesSamples, TimeMs};

/// What somebody wants to read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadRequest {
    /// Each is answered by one result, in this order.
    pub queries: Vec<ReadQuery>,
    /// Whether samples one by one are welcome. They are when nothing is said.
    pub accepts_samples: bool,
}

/// Series by matchers, and a range of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadQuery {
    /// The first millisecond.
    pub start_ms: TimeMs,
    /// The last millisecond.
    pub end_ms: TimeMs,
    /// All of which a series must meet.
    pub matchers: Vec<Matcher>,
}

fn read_matcher(mut message: Message<'_>, at: usize) -> Result<Matcher, WireError> {
    const MATCHER: &str = "LabelMatcher";
    let (mut op, mut name, mut value) = (MatchOp::Equal, "", "");
    while let Some(field) = message.field()? {
        match field.number {
            1 => {
                op = match field.varint(MATCHER)? {
                    0 => MatchOp::Equal,
                    1 => MatchOp::NotEqual,
                    2 => MatchOp::Matches,
                    3 => MatchOp::NotMatches,
                    key => {
                        return Err(WireError::BadKey {
                            message: MATCHER,
                            key,
                            at,
                        });
                    }
                }
            }
            2 => name = field.text(MATCHER)?,
            3 => value = field.text(MATCHER)?,
            _ => {}
        }
    }
    Ok(Matcher {
        name: name.into(),
        op,
        value: value.into(),
    })
}

fn read_query(mut message: Message<'_>) -> Result<ReadQuery, WireError> {
    const QUERY: &str = "Query";
    let mut query = ReadQuery::default();
    while let Some(field) = message.field()? {
        match field.number {
            1 => query.start_ms = field.varint(QUERY)? as i64,
            2 => query.end_ms = field.varint(QUERY)? as i64,
            3 => {
                let matcher = field.message(QUERY, "LabelMatcher")?;
                query.matchers.push(read_matcher(matcher, field.at)?);
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
    let (mut says_something, mut says_samples) = (false, false);
    while let Some(field) = fields.field()? {
        match field.number {
            1 => queries.push(read_query(field.message(REQUEST, "Query")?)?),
            2 => field.varints(REQUEST, |kind| {
                says_something = true;
                says_samples |= kind == 0;
            })?,
            _ => {}
        }
    }
    Ok(ReadRequest {
        queries,
        accepts_samples: says_samples || !says_something,
    })
}

/// A response that is being written, query by query.
#[derive(Debug, Default)]
pub struct ReadResponse {
    body: Vec<u8>,
    result: Vec<u8>,
    series: Vec<u8>,
}

impl ReadResponse {
    /// Adds a series to the present query's result. Labels are sorted by name, samples by time; native histograms come
    /// after the numbers.
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
            append_sample(Sample { time_ms, value }, &mut self.series);
        }
        for (time_ms, histogram) in samples.histogram_times_ms.iter().zip(&samples.histograms) {
            put_histogram(4, &WireHistogram::of(*time_ms, histogram), &mut self.series);
        }
        put_bytes(1, &self.series, &mut self.result);
    }

    /// Ends the present query's result, which may be empty.
    pub fn end_query(&mut self) {
        put_bytes(1, &self.result, &mut self.body);
        self.result.clear();
    }

    /// The bytes so far, for whoever bounds them.
    pub fn bytes(&self) -> usize {
        self.body.len() + self.result.len()
    }

    /// The body, not compressed.
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }
}

#[cfg(test)]
mod tests;
