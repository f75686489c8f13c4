//! Bodies of remote write, made before they are needed: only values and times are put in when they
//! are sent.
//!
//! Version 1.0 (<https://prometheus.io/docs/specs/prw/remote_write_spec/>) repeats the labels of
//! every sample; 2.0 (<https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/>) has each text
//! once and refers to it.

use std::collections::HashMap;
use std::ops::Range;

use egret_bench_cli::Protocol;

use super::fleet::LabelPairs;
use super::snappy::{SnappyBody, compress, varint};

/// A sample as both versions have it: tag 1 and eight bytes of value, tag 2 and six bytes of time.
const SAMPLE_BYTES: usize = 16;

/// Of those, the value, a tag and the time are what changes.
const HOLE_BYTES: usize = 15;

/// Times in milliseconds of these bits take six bytes: from 1971 to 2109.
const TIME_BITS: Range<u32> = 36..43;

/// A request that is sent again and again with other samples.
pub(super) struct Template {
    request: Vec<u8>,
    /// Where the values begin; a time follows one byte after its value.
    holes: Vec<usize>,
}

/// Host, token and path of write requests.
#[derive(Clone, Debug)]
pub(super) struct WriteAddress {
    pub(super) host: String,
    pub(super) token: Option<String>,
    /// Path of the write API.
    pub(super) path: &'static str,
}

impl Template {
    /// One sample of each of these series, in this order.
    pub(super) fn new(address: &WriteAddress, protocol: Protocol, series: &[LabelPairs]) -> Self {
        let (raw, holes) = match protocol {
            Protocol::Rw1 => version_1(series),
            Protocol::Rw2 => version_2(series),
        };
        let SnappyBody { bytes, holes } = compress(&raw, &holes);
        let mut request = head(address, protocol, bytes.len()).into_bytes();
        let begin = request.len();
        request.extend_from_slice(&bytes);
        Self {
            request,
            holes: holes.into_iter().map(|hole| begin + hole).collect(),
        }
    }

    /// Number of samples in the request.
    pub(super) fn samples(&self) -> usize {
        self.holes.len()
    }

    /// Puts in a sample.
    ///
    /// # Panics
    /// When the time is not between 1971 and 2109, where it would need another number of bytes.
    pub(super) fn set(&mut self, place: usize, value: f64, time_ms: i64) {
        let time = time_ms as u64;
        let bits = u64::BITS - time.leading_zeros();
        assert!(TIME_BITS.contains(&bits), "{time_ms} ms is far from now");
        let hole = &mut self.request[self.holes[place]..][..HOLE_BYTES];
        hole[..8].copy_from_slice(&value.to_le_bytes());
        for (at, byte) in hole[9..].iter_mut().enumerate() {
            let more = if at < 5 { 0x80 } else { 0 };
            *byte = ((time >> (7 * at)) & 0x7f) as u8 | more;
        }
    }

    /// Bytes of the request, head and body.
    pub(super) fn request(&self) -> &[u8] {
        &self.request
    }
}

fn head(address: &WriteAddress, protocol: Protocol, length: usize) -> String {
    let (kind, version) = match protocol {
        Protocol::Rw1 => ("application/x-protobuf", "0.1.0"),
        Protocol::Rw2 => (
            "application/x-protobuf;proto=io.prometheus.write.v2.Request",
            "2.0.0",
        ),
    };
    let token = address.token.as_ref().map_or_else(String::new, |token| {
        format!("authorization: Bearer {token}\r\n")
    });
    format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\nuser-agent: egret-bench\r\ncontent-type: {kind}\r\ncontent-encoding: snappy\r\nx-prometheus-remote-write-version: {version}\r\n{token}content-length: {length}\r\n\r\n",
        address.path, address.host
    )
}

/// `WriteRequest`: a `TimeSeries` with labels and one sample for each series.
fn version_1(series: &[LabelPairs]) -> (Vec<u8>, Vec<Range<usize>>) {
    let (mut body, mut holes) = (Vec::new(), Vec::new());
    let (mut labels, mut label) = (Vec::new(), Vec::new());
    for pairs in series {
        labels.clear();
        for (name, value) in pairs {
            label.clear();
            bytes_field(&mut label, 1, name.as_bytes());
            bytes_field(&mut label, 2, value.as_bytes());
            bytes_field(&mut labels, 1, &label);
        }
        tag(&mut body, 1, 2);
        varint(&mut body, (labels.len() + 2 + SAMPLE_BYTES) as u64);
        body.extend_from_slice(&labels);
        sample(&mut body, &mut holes);
    }
    (body, holes)
}

/// `io.prometheus.write.v2.Request`: the texts, then a `TimeSeries` with references to them, one
/// sample and metadata for each series.
fn version_2(series: &[LabelPairs]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut symbols = Symbols::default();
    symbols.number("");
    let (mut rest, mut holes) = (Vec::new(), Vec::new());
    let (mut references, mut metadata) = (Vec::new(), Vec::new());
    for pairs in series {
        references.clear();
        metadata.clear();
        for (name, value) in pairs {
            varint(&mut references, symbols.number(name));
            varint(&mut references, symbols.number(value));
            if *name == "__name__" {
                tag(&mut metadata, 1, 0);
                varint(&mut metadata, metric_type(value));
                tag(&mut metadata, 3, 0);
                varint(
                    &mut metadata,
                    symbols.number(&format!("What {value} says.")),
                );
            }
        }
        let mut head = Vec::new();
        bytes_field(&mut head, 1, &references);
        let mut tail = Vec::new();
        bytes_field(&mut tail, 5, &metadata);
        tag(&mut rest, 5, 2);
        varint(
            &mut rest,
            (head.len() + 2 + SAMPLE_BYTES + tail.len()) as u64,
        );
        rest.extend_from_slice(&head);
        sample(&mut rest, &mut holes);
        rest.extend_from_slice(&tail);
    }
    let mut body = Vec::new();
    for symbol in &symbols.texts {
        bytes_field(&mut body, 4, symbol.as_bytes());
    }
    let begin = body.len();
    body.extend_from_slice(&rest);
    let moved = |hole: Range<usize>| begin + hole.start..begin + hole.end;
    (body, holes.into_iter().map(moved).collect())
}

/// `Metadata.MetricType` of version 2.0, by how metrics are named.
fn metric_type(name: &str) -> u64 {
    match name.rsplit('_').next() {
        Some("total") => 1,
        Some("bucket" | "sum" | "count") => 3,
        _ => 2,
    }
}

#[derive(Default)]
struct Symbols {
    texts: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl Symbols {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// A sample that is not known yet, in field 2.
fn sample(out: &mut Vec<u8>, holes: &mut Vec<Range<usize>>) {
    tag(out, 2, 2);
    varint(out, SAMPLE_BYTES as u64);
    tag(out, 1, 1);
    let begin = out.len();
    out.extend_from_slice(&[0; 8]);
    tag(out, 2, 0);
    // Any time of six bytes.
    out.extend_from_slice(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]);
    holes.push(begin..out.len());
}

fn tag(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    varint(out, field << 3 | wire_type);
}

fn bytes_field(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    tag(out, field, 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
