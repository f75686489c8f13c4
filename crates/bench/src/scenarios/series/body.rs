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
use super::snappy::{SnappyBody, compress, push_varint};

/// A sample as both versions have it: tag 1 and eight bytes of value, tag 2 and six bytes of time.
const SAMPLE_BYTES: usize = 16;

/// Of those, the value, a tag and the time are what changes.
const PLACEHOLDER_BYTES: usize = 15;

/// Times in milliseconds of these bits take six bytes: from 1971 to 2109.
const TIME_BITS: Range<u32> = 36..43;

/// A request that is sent again and again with other samples.
pub(super) struct Template {
    request: Vec<u8>,
    /// Where the values begin; a time follows one byte after its value.
    placeholder_offsets: Vec<usize>,
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
        let (raw, placeholders) = match protocol {
            Protocol::Rw1 => encode_v1(series),
            Protocol::Rw2 => encode_v2(series),
        };
        let SnappyBody { bytes, placeholders: holes } = compress(&raw, &placeholders);
        let mut request = request_head(address, protocol, bytes.len()).into_bytes();
        let begin = request.len();
        request.extend_from_slice(&bytes);
        Self {
            request,
            placeholder_offsets: holes.into_iter().map(|placeholder| begin + placeholder).collect(),
        }
    }

    /// Number of samples in the request.
    pub(super) fn samples(&self) -> usize {
        self.placeholder_offsets.len()
    }

    /// Puts in a sample.
    ///
    /// # Panics
    /// When the time is not between 1971 and 2109, where it would need another number of bytes.
    pub(super) fn set_sample(&mut self, index: usize, value: f64, time_ms: i64) {
        let time = time_ms as u64;
        let bits = u64::BITS - time.leading_zeros();
        assert!(TIME_BITS.contains(&bits), "{time_ms} ms is far from now");
        let placeholder = &mut self.request[self.placeholder_offsets[index]..][..PLACEHOLDER_BYTES];
        placeholder[..8].copy_from_slice(&value.to_le_bytes());
        for (position, byte) in placeholder[9..].iter_mut().enumerate() {
            let continuation_bit = if position < 5 { 0x80 } else { 0 };
            *byte = ((time >> (7 * position)) & 0x7f) as u8 | continuation_bit;
        }
    }

    /// Bytes of the request, head and body.
    pub(super) fn request(&self) -> &[u8] {
        &self.request
    }
}

fn request_head(address: &WriteAddress, protocol: Protocol, length: usize) -> String {
    let (kind, version) = match protocol {
        Protocol::Rw1 => ("application/x-protobuf", "0.1.0"),
        Protocol::Rw2 => ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0"),
    };
    let token = address
        .token
        .as_ref()
        .map_or_else(String::new, |token| format!("authorization: Bearer {token}\r\n"));
    format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\nuser-agent: egret-bench\r\ncontent-type: {kind}\r\ncontent-encoding: snappy\r\nx-prometheus-remote-write-version: {version}\r\n{token}content-length: {length}\r\n\r\n",
        address.path, address.host
    )
}

/// `WriteRequest`: a `TimeSeries` with labels and one sample for each series.
fn encode_v1(series: &[LabelPairs]) -> (Vec<u8>, Vec<Range<usize>>) {
    let (mut body, mut placeholders) = (Vec::new(), Vec::new());
    let (mut labels, mut label) = (Vec::new(), Vec::new());
    for pairs in series {
        labels.clear();
        for (name, value) in pairs {
            label.clear();
            push_bytes_field(&mut label, 1, name.as_bytes());
            push_bytes_field(&mut label, 2, value.as_bytes());
            push_bytes_field(&mut labels, 1, &label);
        }
        push_tag(&mut body, 1, 2);
        push_varint(&mut body, (labels.len() + 2 + SAMPLE_BYTES) as u64);
        body.extend_from_slice(&labels);
        push_empty_sample(&mut body, &mut placeholders);
    }
    (body, placeholders)
}

/// `io.prometheus.write.v2.Request`: the texts, then a `TimeSeries` with references to them, one
/// sample and metadata for each series.
fn encode_v2(series: &[LabelPairs]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut symbols = Symbols::default();
    symbols.intern("");
    let (mut series_bytes, mut placeholders) = (Vec::new(), Vec::new());
    let (mut references, mut metadata) = (Vec::new(), Vec::new());
    for pairs in series {
        references.clear();
        metadata.clear();
        for (name, value) in pairs {
            push_varint(&mut references, symbols.intern(name));
            push_varint(&mut references, symbols.intern(value));
            if *name == "__name__" {
                push_tag(&mut metadata, 1, 0);
                push_varint(&mut metadata, metric_type(value));
                push_tag(&mut metadata, 3, 0);
                push_varint(&mut metadata, symbols.intern(&format!("What {value} says.")));
            }
        }
        let mut head = Vec::new();
        push_bytes_field(&mut head, 1, &references);
        let mut tail = Vec::new();
        push_bytes_field(&mut tail, 5, &metadata);
        push_tag(&mut series_bytes, 5, 2);
        push_varint(&mut series_bytes, (head.len() + 2 + SAMPLE_BYTES + tail.len()) as u64);
        series_bytes.extend_from_slice(&head);
        push_empty_sample(&mut series_bytes, &mut placeholders);
        series_bytes.extend_from_slice(&tail);
    }
    let mut body = Vec::new();
    for symbol in &symbols.texts {
        push_bytes_field(&mut body, 4, symbol.as_bytes());
    }
    let begin = body.len();
    body.extend_from_slice(&series_bytes);
    let shift = |placeholder: Range<usize>| begin + placeholder.start..begin + placeholder.end;
    (body, placeholders.into_iter().map(shift).collect())
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
    fn intern(&mut self, text: &str) -> u64 {
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
fn push_empty_sample(out: &mut Vec<u8>, placeholders: &mut Vec<Range<usize>>) {
    push_tag(out, 2, 2);
    push_varint(out, SAMPLE_BYTES as u64);
    push_tag(out, 1, 1);
    let begin = out.len();
    out.extend_from_slice(&[0; 8]);
    push_tag(out, 2, 0);
    // Any time of six bytes.
    out.extend_from_slice(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]);
    placeholders.push(begin..out.len());
}

fn push_tag(out: &mut Vec<u8>, field: u64, wire_type: u64) {
    push_varint(out, field << 3 | wire_type);
}

fn push_bytes_field(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    push_tag(out, field, 2);
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
