//! What the log of a shard holds: each series once, samples as columns of series, time and value.
//!
//! A record begins with one byte that says what it is:
//!
//! - 1: series: for each its number (varint, the difference from the one before) and its labels
//!   (length, bytes)
//! - 2: samples: how many; then the numbers of their series (zigzag of the difference from the one
//!   before), their times (likewise), their values (8 bytes each)
//! - 3: native histograms: how many; the numbers of their series and their times as of samples;
//!   then all of them as in a block ([`histograms`])
//! - 4: a deletion: its id (varint), first and last time (zigzag), then its matchers: for each a
//!   byte for how it compares, name and value (length, bytes)
//!
//! Varints are LEB128; what is 8 bytes is little endian. A reader refuses what it does not know.

use std::sync::Arc;

use egret_base::codec::{DecodeError, Reader, put_bytes, put_varint, unzigzag, zigzag};
use egret_metrics_model::{Histogram, MatchOp, Matcher, TimeMs};

use egret_blocks::core::histograms;

const DESCRIPTION: &str = "a record of the series log";

const SERIES: u8 = 1;
const SAMPLES: u8 = 2;
const HISTOGRAMS: u8 = 3;
const DELETION: u8 = 4;

/// Samples as columns of equal length: the `n`-th of each belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleBatch {
    /// Numbers of series in their shard.
    pub series: Vec<u64>,
    /// Times of the samples, in milliseconds.
    pub times_ms: Vec<TimeMs>,
    /// The bits of the values.
    pub values: Vec<u64>,
}

impl SampleBatch {
    /// Appends a sample to the batch.
    pub fn push(&mut self, series: u64, time_ms: TimeMs, value: f64) {
        self.series.push(series);
        self.times_ms.push(time_ms);
        self.values.push(value.to_bits());
    }

    /// Number of samples in the batch.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Removes all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.series.clear();
        self.times_ms.clear();
        self.values.clear();
    }

    /// Takes the samples from `at` on out.
    pub fn split_off(&mut self, at: usize) -> Self {
        Self {
            series: self.series.split_off(at),
            times_ms: self.times_ms.split_off(at),
            values: self.values.split_off(at),
        }
    }

    /// Keeps the samples whose times satisfy a predicate.
    pub fn retain(&mut self, is_kept: impl Fn(TimeMs) -> bool) {
        let mut kept_count = 0;
        for index in 0..self.len() {
            if is_kept(self.times_ms[index]) {
                self.series[kept_count] = self.series[index];
                self.times_ms[kept_count] = self.times_ms[index];
                self.values[kept_count] = self.values[index];
                kept_count += 1;
            }
        }
        self.series.truncate(kept_count);
        self.times_ms.truncate(kept_count);
        self.values.truncate(kept_count);
    }

    /// Iterates over the samples, as series number, time and value.
    pub fn iter(&self) -> impl Iterator<Item = (u64, TimeMs, f64)> {
        let samples = self.series.iter().zip(&self.times_ms).zip(&self.values);
        samples.map(|((series, time_ms), value)| (*series, *time_ms, f64::from_bits(*value)))
    }
}

/// Appends the record of new series, in order of their numbers, with their labels as they are kept.
pub fn put_series<'a>(record: &mut Vec<u8>, series: impl Iterator<Item = (u64, &'a [u8])>) {
    record.push(SERIES);
    let mut previous_number = 0;
    for (number, labels) in series {
        put_varint(record, number - previous_number);
        put_bytes(record, labels);
        previous_number = number;
    }
}

/// Appends the record of samples.
pub fn put_samples(record: &mut Vec<u8>, samples: &SampleBatch) {
    record.push(SAMPLES);
    put_varint(record, samples.len() as u64);
    put_columns(record, &samples.series, &samples.times_ms);
    for value in &samples.values {
        record.extend_from_slice(&value.to_le_bytes());
    }
}

fn put_columns(record: &mut Vec<u8>, series: &[u64], times_ms: &[TimeMs]) {
    let mut previous_number = 0;
    for number in series {
        put_varint(record, zigzag(number.wrapping_sub(previous_number) as i64));
        previous_number = *number;
    }
    let mut previous_ms = 0_i64;
    for time_ms in times_ms {
        put_varint(record, zigzag(time_ms.wrapping_sub(previous_ms)));
        previous_ms = *time_ms;
    }
}

/// Native histograms as columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramBatch {
    /// Numbers of series in their shard.
    pub series: Vec<u64>,
    /// Times of the samples, in milliseconds.
    pub times_ms: Vec<TimeMs>,
    /// Histograms, one for each sample.
    pub histograms: Vec<Arc<Histogram>>,
}

impl HistogramBatch {
    /// Appends a histogram to the batch.
    pub fn push(&mut self, series: u64, time_ms: TimeMs, histogram: Arc<Histogram>) {
        self.series.push(series);
        self.times_ms.push(time_ms);
        self.histograms.push(histogram);
    }

    /// Number of histograms in the batch.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Keeps the histograms whose times satisfy a predicate.
    pub fn retain(&mut self, is_kept: impl Fn(TimeMs) -> bool) {
        let batch = std::mem::take(self);
        for (series, time_ms, histogram) in batch.iter().filter(|(_, time_ms, _)| is_kept(*time_ms))
        {
            self.push(series, time_ms, histogram.clone());
        }
    }

    /// Iterates over the histograms, as series number, time and histogram.
    pub fn iter(&self) -> impl Iterator<Item = (u64, TimeMs, &Arc<Histogram>)> {
        let columns = self.series.iter().zip(&self.times_ms).zip(&self.histograms);
        columns.map(|((series, time_ms), histogram)| (*series, *time_ms, histogram))
    }
}

/// Appends the record of native histograms.
pub fn put_histograms(record: &mut Vec<u8>, batch: &HistogramBatch) {
    record.push(HISTOGRAMS);
    put_varint(record, batch.len() as u64);
    put_columns(record, &batch.series, &batch.times_ms);
    histograms::encode(&batch.histograms, record);
}

/// Samples to be taken out: those of the series for which all matchers hold, from first to last
/// time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// Identifies the deletion, so that it is applied once.
    pub id: u64,
    /// Matchers that a series must all meet to be deleted from.
    pub matchers: Vec<Matcher>,
    /// First time that is deleted.
    pub start: TimeMs,
    /// The last time, which is included.
    pub end: TimeMs,
}

const OPS: [MatchOp; 4] =
    [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Matches, MatchOp::NotMatches];

/// Appends the record of a deletion.
pub fn put_deletion(record: &mut Vec<u8>, deletion: &Deletion) {
    record.push(DELETION);
    put_varint(record, deletion.id);
    put_varint(record, zigzag(deletion.start));
    put_varint(record, zigzag(deletion.end));
    for matcher in &deletion.matchers {
        let op = OPS.iter().position(|op| *op == matcher.op);
        record.push(op.expect("every operator is listed") as u8);
        put_bytes(record, matcher.name.as_bytes());
        put_bytes(record, matcher.value.as_bytes());
    }
}

fn decode_deletion(mut reader: Reader<'_>) -> Result<Deletion, DecodeError> {
    let id = reader.varint()?;
    let (start, end) = (unzigzag(reader.varint()?), unzigzag(reader.varint()?));
    let mut matchers = Vec::new();
    while !reader.rest().is_empty() {
        let op = OPS.get(usize::from(reader.u8()?));
        matchers.push(Matcher {
            op: *op.ok_or(reader.malformed())?,
            name: reader.text()?.into(),
            value: reader.text()?.into(),
        });
    }
    Ok(Deletion { id, matchers, start, end })
}

/// A decoded record of the log.
#[derive(Debug, PartialEq)]
pub enum Record<'a> {
    /// Series that are new, with their labels.
    Series(Vec<(u64, &'a [u8])>),
    /// Samples, in the buffer that was given.
    Samples,
    /// Native histograms of several series.
    Histograms(HistogramBatch),
    /// Samples that are there are to be taken out.
    Deletion(Deletion),
}

/// Reads a record; samples come into `columns`, which is emptied before.
///
/// # Errors
/// [`DecodeError`] for anything that is not such a record.
pub fn decode<'a>(record: &'a [u8], samples: &mut SampleBatch) -> Result<Record<'a>, DecodeError> {
    let mut reader = Reader::new(record, DESCRIPTION);
    match reader.u8()? {
        SERIES => decode_series(reader).map(Record::Series),
        SAMPLES => decode_samples(reader, samples).map(|()| Record::Samples),
        HISTOGRAMS => decode_histograms(reader).map(Record::Histograms),
        DELETION => decode_deletion(reader).map(Record::Deletion),
        _ => Err(reader.malformed()),
    }
}

fn decode_series<'a>(mut reader: Reader<'a>) -> Result<Vec<(u64, &'a [u8])>, DecodeError> {
    let mut series = Vec::new();
    let mut number = 0_u64;
    while !reader.rest().is_empty() {
        let difference = reader.varint()?;
        number = number.checked_add(difference).ok_or(reader.malformed())?;
        series.push((number, reader.bytes()?));
    }
    Ok(series)
}

fn decode_samples(mut reader: Reader<'_>, samples: &mut SampleBatch) -> Result<(), DecodeError> {
    samples.clear();
    let count: usize = reader.varint_as()?;
    // Every sample takes ten bytes at least: nothing is allocated for more than there can be.
    if count > reader.rest().len() / 10 {
        return Err(reader.malformed());
    }
    decode_columns(&mut reader, count, &mut samples.series, &mut samples.times_ms)?;
    for _ in 0..count {
        samples.values.push(reader.u64()?);
    }
    match reader.rest() {
        [] => Ok(()),
        _ => Err(reader.malformed()),
    }
}

fn decode_columns(
    reader: &mut Reader<'_>,
    count: usize,
    series: &mut Vec<u64>,
    times_ms: &mut Vec<TimeMs>,
) -> Result<(), DecodeError> {
    let mut number = 0_u64;
    for _ in 0..count {
        number = number.wrapping_add(unzigzag(reader.varint()?) as u64);
        series.push(number);
    }
    let mut time_ms = 0_i64;
    for _ in 0..count {
        time_ms = time_ms.wrapping_add(unzigzag(reader.varint()?));
        times_ms.push(time_ms);
    }
    Ok(())
}

fn decode_histograms(mut reader: Reader<'_>) -> Result<HistogramBatch, DecodeError> {
    let count: usize = reader.varint_as()?;
    if count > reader.rest().len() / 2 {
        return Err(reader.malformed());
    }
    let mut batch = HistogramBatch::default();
    decode_columns(&mut reader, count, &mut batch.series, &mut batch.times_ms)?;
    histograms::decode(reader.rest(), count, &mut batch.histograms)?;
    Ok(batch)
}

#[cfg(test)]
mod tests;
