//! Columns of native histograms: each as what differs from the one before, then all of them as one
//! frame.
//!
//! - head: a byte: the shape is that of the histogram before (1), integer numbers are there (2),
//!   and are the rounded ones (4)
//! - shape: when it is another: schema (a byte), zero threshold (bits), custom bounds (how many,
//!   bits of each), then positive and negative buckets: spans (how many, for each offset (signed)
//!   and length), kind of counts (0 integer, 1 float), how many counts
//! - numbers: counter reset (a byte); sum, count and zero count (varint: bits, exclusive-or with
//!   those before); with integers their count and zero count (signed, differences)
//! - counts: for each bucket the difference to that of the same shape before: signed, or
//!   exclusive-or of bits
//!
//! How many there are is a varint before.

use std::sync::Arc;

use egret_base::codec::{DecodeError, Reader, put_varint, unzigzag, zigzag};

use egret_metrics_model::{Buckets, CounterReset, Counts, Histogram, Span};

const WHAT: &str = "a column of histograms";

const FLAG_SAME_SHAPE: u8 = 1;
const FLAG_INTEGER: u8 = 2;
const FLAG_EXACT: u8 = 4;

const RESETS: [CounterReset; 4] =
    [CounterReset::Unknown, CounterReset::Reset, CounterReset::NotReset, CounterReset::Gauge];

/// Appends the encoded column of `histograms` to `out`.
pub fn encode(histograms: &[Arc<Histogram>], out: &mut Vec<u8>) {
    let mut body = Vec::new();
    let empty = Arc::new(empty_histogram());
    let mut previous = &empty;
    for histogram in histograms {
        put_histogram(histogram, previous, &mut body);
        previous = histogram;
    }
    super::frame::put_frame(out, &body);
}

/// Reads a column of so many histograms and appends them.
///
/// # Errors
/// [`DecodeError`] for anything that is not such a column.
pub fn decode(
    bytes: &[u8],
    count: usize,
    out: &mut Vec<Arc<Histogram>>,
) -> Result<(), DecodeError> {
    let body = super::frame::open_frame(bytes, WHAT)?;
    let mut reader = Reader::new(&body, WHAT);
    let mut previous = Arc::new(empty_histogram());
    for _ in 0..count {
        previous = Arc::new(take_histogram(&mut reader, &previous)?);
        out.push(previous.clone());
    }
    match reader.rest() {
        [] => Ok(()),
        _ => Err(reader.malformed()),
    }
}

fn empty_histogram() -> Histogram {
    let buckets = || Buckets { spans: Vec::new(), counts: Counts::Integer(Vec::new()) };
    Histogram {
        schema: 0,
        zero_threshold: 0.0,
        zero_count: 0.0,
        count: 0.0,
        integer_counts: None,
        sum: 0.0,
        positive: buckets(),
        negative: buckets(),
        custom_bounds: Arc::new([]),
        counter_reset: CounterReset::Unknown,
    }
}

fn has_same_bits(one: &[f64], other: &[f64]) -> bool {
    one.iter().map(|bound| bound.to_bits()).eq(other.iter().map(|bound| bound.to_bits()))
}

fn has_same_layout(one: &Buckets, other: &Buckets) -> bool {
    one.spans == other.spans
        && std::mem::discriminant(&one.counts) == std::mem::discriminant(&other.counts)
        && one.counts.len() == other.counts.len()
}

fn has_same_shape(one: &Histogram, other: &Histogram) -> bool {
    one.schema == other.schema
        && one.zero_threshold.to_bits() == other.zero_threshold.to_bits()
        && has_same_layout(&one.positive, &other.positive)
        && has_same_layout(&one.negative, &other.negative)
        && has_same_bits(&one.custom_bounds, &other.custom_bounds)
}

fn put_histogram(histogram: &Histogram, previous: &Histogram, out: &mut Vec<u8>) {
    let is_same_shape = has_same_shape(histogram, previous);
    let mut head = if is_same_shape { FLAG_SAME_SHAPE } else { 0 };
    let rounded =
        histogram.integer_counts.map(|(zero_count, count)| (zero_count as f64, count as f64));
    let is_exact = rounded.is_some_and(|(zero_count, count)| {
        has_same_bits(&[zero_count, count], &[histogram.zero_count, histogram.count])
    });
    head |= if histogram.integer_counts.is_some() { FLAG_INTEGER } else { 0 };
    head |= if is_exact { FLAG_EXACT } else { 0 };
    out.push(head);
    if !is_same_shape {
        put_shape(histogram, out);
    }
    let reset = RESETS.iter().position(|reset| *reset == histogram.counter_reset);
    out.push(reset.expect("all of them are there") as u8);
    let put_bits = |out: &mut Vec<u8>, bits: f64, before: f64| {
        // The differing bits are mostly the high ones, which would make the varint long.
        put_varint(out, (bits.to_bits() ^ before.to_bits()).swap_bytes());
    };
    put_bits(out, histogram.sum, previous.sum);
    if !is_exact {
        put_bits(out, histogram.count, previous.count);
        put_bits(out, histogram.zero_count, previous.zero_count);
    }
    if let Some((zero_count, count)) = histogram.integer_counts {
        let (zero_before, before) = previous.integer_counts.unwrap_or_default();
        put_varint(out, zigzag(count.wrapping_sub(before) as i64));
        put_varint(out, zigzag(zero_count.wrapping_sub(zero_before) as i64));
    }
    put_counts(&histogram.positive.counts, is_same_shape.then_some(&previous.positive.counts), out);
    put_counts(&histogram.negative.counts, is_same_shape.then_some(&previous.negative.counts), out);
}

fn put_shape(histogram: &Histogram, out: &mut Vec<u8>) {
    out.push(histogram.schema as u8);
    out.extend_from_slice(&histogram.zero_threshold.to_le_bytes());
    put_varint(out, histogram.custom_bounds.len() as u64);
    out.extend(histogram.custom_bounds.iter().flat_map(|bound| bound.to_le_bytes()));
    for buckets in [&histogram.positive, &histogram.negative] {
        put_varint(out, buckets.spans.len() as u64);
        for span in &buckets.spans {
            put_varint(out, zigzag(span.offset.into()));
            put_varint(out, span.length.into());
        }
        out.push(u8::from(matches!(buckets.counts, Counts::Float(_))));
        put_varint(out, buckets.counts.len() as u64);
    }
}

fn put_counts(counts: &Counts, previous: Option<&Counts>, out: &mut Vec<u8>) {
    match (counts, previous) {
        (Counts::Integer(counts), Some(Counts::Integer(before))) => {
            for (count, before) in counts.iter().zip(before) {
                put_varint(out, zigzag(count.wrapping_sub(*before) as i64));
            }
        }
        (Counts::Integer(counts), _) => {
            counts.iter().for_each(|count| put_varint(out, zigzag(*count as i64)));
        }
        (Counts::Float(counts), before) => {
            let before = match before {
                Some(Counts::Float(before)) => &before[..],
                _ => &[],
            };
            for (index, count) in counts.iter().enumerate() {
                let before = before.get(index).map_or(0, |before| before.to_bits());
                put_varint(out, (count.to_bits() ^ before).swap_bytes());
            }
        }
    }
}

fn take_bits(reader: &mut Reader<'_>, previous: f64) -> Result<f64, DecodeError> {
    Ok(f64::from_bits(reader.varint()?.swap_bytes() ^ previous.to_bits()))
}

fn take_histogram(reader: &mut Reader<'_>, previous: &Histogram) -> Result<Histogram, DecodeError> {
    let head = reader.u8()?;
    let is_same_shape = head & FLAG_SAME_SHAPE != 0;
    let is_exact = head & FLAG_EXACT != 0;
    let mut histogram = if is_same_shape { previous.clone() } else { take_shape(reader)? };
    let reset = RESETS.get(usize::from(reader.u8()?));
    histogram.counter_reset = *reset.ok_or(DecodeError { what: WHAT })?;
    histogram.sum = take_bits(reader, previous.sum)?;
    if !is_exact {
        histogram.count = take_bits(reader, previous.count)?;
        histogram.zero_count = take_bits(reader, previous.zero_count)?;
    }
    histogram.integer_counts = None;
    if head & FLAG_INTEGER != 0 {
        let (zero_before, before) = previous.integer_counts.unwrap_or_default();
        let count = before.wrapping_add(unzigzag(reader.varint()?) as u64);
        let zero_count = zero_before.wrapping_add(unzigzag(reader.varint()?) as u64);
        histogram.integer_counts = Some((zero_count, count));
        if is_exact {
            (histogram.count, histogram.zero_count) = (count as f64, zero_count as f64);
        }
    }
    take_counts(reader, &mut histogram.positive.counts)?;
    take_counts(reader, &mut histogram.negative.counts)?;
    Ok(histogram)
}

/// A histogram of another shape, its counts zeros.
fn take_shape(reader: &mut Reader<'_>) -> Result<Histogram, DecodeError> {
    let mut histogram = empty_histogram();
    histogram.schema = reader.u8()? as i8;
    if !matches!(histogram.schema, -53 | -4..=8) {
        return Err(DecodeError { what: WHAT });
    }
    histogram.zero_threshold = f64::from_bits(reader.u64()?);
    let bound_count: usize = reader.varint_as()?;
    let bounds = reader.take(bound_count.checked_mul(8).ok_or(DecodeError { what: WHAT })?)?;
    let (bounds, _) = bounds.as_chunks();
    histogram.custom_bounds = bounds.iter().map(|bound| f64::from_le_bytes(*bound)).collect();
    histogram.positive = take_layout(reader)?;
    histogram.negative = take_layout(reader)?;
    Ok(histogram)
}

fn take_layout(reader: &mut Reader<'_>) -> Result<Buckets, DecodeError> {
    let span_count: usize = reader.varint_as()?;
    let mut spans = Vec::new();
    for _ in 0..span_count {
        let offset =
            i32::try_from(unzigzag(reader.varint()?)).map_err(|_| DecodeError { what: WHAT })?;
        spans.push(Span { offset, length: reader.varint_as()? });
    }
    let is_float = reader.bool()?;
    let count: usize = reader.varint_as()?;
    // Each takes a byte at least: nothing is allocated for more than there can be, by spans
    // neither.
    let declared_count: u64 = spans.iter().map(|span: &Span| u64::from(span.length)).sum();
    if count > reader.rest().len() || declared_count != count as u64 {
        return Err(reader.malformed());
    }
    let counts =
        if is_float { Counts::Float(vec![0.0; count]) } else { Counts::Integer(vec![0; count]) };
    Ok(Buckets { spans, counts })
}

/// Adds to the counts of the histogram before, or to zeros.
fn take_counts(reader: &mut Reader<'_>, counts: &mut Counts) -> Result<(), DecodeError> {
    match counts {
        Counts::Integer(counts) => {
            for count in counts {
                *count = count.wrapping_add(unzigzag(reader.varint()?) as u64);
            }
        }
        Counts::Float(counts) => {
            for count in counts {
                *count = take_bits(reader, *count)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
