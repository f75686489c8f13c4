//! Writes requests of remote write: for the load generator, for tests, and for forwarding.

use egret_base::codec::{put_varint, zigzag};
use std::collections::HashMap;

use super::histogram::{WireBuckets, WireCount, WireHistogram};
use super::labels::append_label_field;
use super::{MetricKind, WireSample};

/// A series to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeriesToWrite<'a> {
    /// Labels, sorted by name.
    pub labels: Vec<(&'a str, &'a str)>,
    /// In order of time.
    pub samples: Vec<WireSample>,
    /// In order of time; a series has samples or histograms, as a rule.
    pub histograms: Vec<WireHistogram>,
    /// When its counter began; 0 to leave it out. Only version 2 can say it.
    pub created_ms: i64,
}

pub(crate) fn put_key(field: u32, wire_type: u8, out: &mut Vec<u8>) {
    put_varint(out, u64::from(field) << 3 | u64::from(wire_type));
}

pub(crate) fn put_number(field: u32, word: u64, out: &mut Vec<u8>) {
    if word != 0 {
        put_key(field, 0, out);
        put_varint(out, word);
    }
}

/// Only +0 is left out, as the specification has it: -0 and NaN are values.
pub(crate) fn put_double(field: u32, value: f64, out: &mut Vec<u8>) {
    if value.to_bits() != 0 {
        put_key(field, 1, out);
        out.extend_from_slice(&value.to_bits().to_le_bytes());
    }
}

pub(crate) fn put_bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_key(field, 2, out);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(crate) fn put_text(field: u32, text: &str, out: &mut Vec<u8>) {
    if !text.is_empty() {
        put_bytes(field, text.as_bytes(), out);
    }
}

/// A message in a field.
pub(crate) fn put_message(field: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut message = Vec::new();
    write(&mut message);
    put_bytes(field, &message, out);
}

/// Appends a sample in field 2, as a series of either version has it.
pub fn append_sample(sample: WireSample, out: &mut Vec<u8>) {
    put_message(2, out, |message| {
        put_double(1, sample.value, message);
        put_number(2, sample.time_ms as u64, message);
    });
}

fn put_count(integer: u32, count: WireCount, out: &mut Vec<u8>) {
    match count {
        WireCount::Integer(count) => put_number(integer, count, out),
        // Written even when it is zero: that is how a float histogram is known.
        WireCount::Float(count) => {
            put_key(integer + 1, 1, out);
            out.extend_from_slice(&count.to_bits().to_le_bytes());
        }
    }
}

fn put_doubles(field: u32, doubles: &[f64], out: &mut Vec<u8>) {
    if !doubles.is_empty() {
        let bytes = doubles.iter().flat_map(|double| double.to_bits().to_le_bytes());
        put_bytes(field, &bytes.collect::<Vec<u8>>(), out);
    }
}

fn put_buckets(field: u32, buckets: &WireBuckets, out: &mut Vec<u8>) {
    for span in &buckets.spans {
        put_message(field, out, |message| {
            put_number(1, zigzag(i64::from(span.offset)), message);
            put_number(2, u64::from(span.length), message);
        });
    }
    if !buckets.deltas.is_empty() {
        put_message(field + 1, out, |message| {
            for delta in &buckets.deltas {
                put_varint(message, zigzag(*delta));
            }
        });
    }
    put_doubles(field + 2, &buckets.counts, out);
}

pub(crate) fn put_histogram(field: u32, histogram: &WireHistogram, out: &mut Vec<u8>) {
    put_message(field, out, |message| {
        put_count(1, histogram.count, message);
        put_double(3, histogram.sum, message);
        put_number(4, zigzag(i64::from(histogram.schema)), message);
        put_double(5, histogram.zero_threshold, message);
        put_count(6, histogram.zero_count, message);
        put_buckets(8, &histogram.negative, message);
        put_buckets(11, &histogram.positive, message);
        put_number(14, u64::from(histogram.reset_hint), message);
        put_number(15, histogram.time_ms as u64, message);
        put_doubles(16, &histogram.custom_values, message);
    });
}

/// Appends a series to a request of version 1.
pub fn append_series_v1(series: &SeriesToWrite<'_>, out: &mut Vec<u8>) {
    put_message(1, out, |message| {
        for (name, value) in &series.labels {
            append_label_field(name, value, message);
        }
        for sample in &series.samples {
            append_sample(*sample, message);
        }
        for histogram in &series.histograms {
            put_histogram(4, histogram, message);
        }
    });
}

/// Appends metadata to a request of version 1.
pub fn append_metadata_v1(
    metric: &str,
    kind: MetricKind,
    help: &str,
    unit: &str,
    out: &mut Vec<u8>,
) {
    put_message(3, out, |message| {
        put_number(1, kind as u64, message);
        put_text(2, metric, message);
        put_text(4, help, message);
        put_text(5, unit, message);
    });
}

/// A request of version 2 that is being written.
#[derive(Debug)]
pub struct RequestV2 {
    symbols: Vec<u8>,
    symbol_indexes: HashMap<String, u64>,
    series: Vec<u8>,
}

impl Default for RequestV2 {
    fn default() -> Self {
        let mut request =
            Self { symbols: Vec::new(), symbol_indexes: HashMap::new(), series: Vec::new() };
        request.intern_symbol("");
        request
    }
}

impl RequestV2 {
    fn intern_symbol(&mut self, text: &str) -> u64 {
        if let Some(index) = self.symbol_indexes.get(text) {
            return *index;
        }
        let place = self.symbol_indexes.len() as u64;
        self.symbol_indexes.insert(text.into(), place);
        put_bytes(4, text.as_bytes(), &mut self.symbols);
        place
    }

    /// Adds a series, with metadata when there are any: kind, help, unit.
    pub fn push(&mut self, series: &SeriesToWrite<'_>, metadata: Option<(MetricKind, &str, &str)>) {
        let mut references = Vec::new();
        for (name, value) in &series.labels {
            {
                let symbol = self.intern_symbol(name);
                put_varint(&mut references, symbol)
            };
            {
                let symbol = self.intern_symbol(value);
                put_varint(&mut references, symbol)
            };
        }
        let metadata = metadata
            .map(|(kind, help, unit)| (kind, self.intern_symbol(help), self.intern_symbol(unit)));
        put_message(5, &mut self.series, |message| {
            put_bytes(1, &references, message);
            for sample in &series.samples {
                append_sample(*sample, message);
            }
            for histogram in &series.histograms {
                put_histogram(3, histogram, message);
            }
            if let Some((kind, help, unit)) = metadata {
                put_message(5, message, |message| {
                    put_number(1, kind as u64, message);
                    put_number(3, help, message);
                    put_number(4, unit, message);
                });
            }
            put_number(6, series.created_ms as u64, message);
        });
    }

    /// The body, not compressed.
    pub fn into_body(mut self) -> Vec<u8> {
        self.symbols.append(&mut self.series);
        self.symbols
    }
}

#[cfg(test)]
mod tests;
