//! What the log of a shard holds: series once, samples as columns of who, when and what.
//!
//! A record begins with one byte that says what it is:
//!
//! | | |
//! |---|---|
//! | 1 | series: for each its number (varint, the difference from the one before) and its labels (length, bytes) |
//! | 2 | samples: how many; then the numbers of their series (zigzag of the difference from the one before), their times (likewise), their values (8 bytes each) |
//!
//! Varints are LEB128; what is 8 bytes is little endian. A reader refuses what it does not know.

use egret_base::codec::{Malformed, Reader, put_bytes, put_varint, unzigzag, zigzag};

use crate::model::TimeMs;

const WHAT: &str = "a record of the series log";

const SERIES: u8 = 1;
const SAMPLES: u8 = 2;

/// Samples as columns of equal length: the `n`-th of each belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleBatch {
    /// Numbers of series in their shard.
    pub series: Vec<u64>,
    /// When.
    pub times_ms: Vec<TimeMs>,
    /// The bits of the values.
    pub values: Vec<u64>,
}

impl SampleBatch {
    /// Adds a sample.
    pub fn push(&mut self, series: u64, time_ms: TimeMs, value: f64) {
        self.series.push(series);
        self.times_ms.push(time_ms);
        self.values.push(value.to_bits());
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.series.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// Forgets all of them and keeps the memory.
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

    /// Leaves out samples whose times are not wanted.
    pub fn retain(&mut self, wanted: impl Fn(TimeMs) -> bool) {
        let mut kept = 0;
        for at in 0..self.len() {
            if wanted(self.times_ms[at]) {
                self.series[kept] = self.series[at];
                self.times_ms[kept] = self.times_ms[at];
                self.values[kept] = self.values[at];
                kept += 1;
            }
        }
        self.series.truncate(kept);
        self.times_ms.truncate(kept);
        self.values.truncate(kept);
    }

    /// Every sample.
    pub fn iter(&self) -> impl Iterator<Item = (u64, TimeMs, f64)> {
        let samples = self.series.iter().zip(&self.times_ms).zip(&self.values);
        samples.map(|((series, time_ms), value)| (*series, *time_ms, f64::from_bits(*value)))
    }
}

/// Appends the record of new series, in order of their numbers, with their labels as they are kept.
pub fn put_series<'a>(record: &mut Vec<u8>, series: impl Iterator<Item = (u64, &'a [u8])>) {
    record.push(SERIES);
    let mut last = 0;
    for (number, labels) in series {
        put_varint(record, number - last);
        put_bytes(record, labels);
        last = number;
    }
}

/// Appends the record of samples.
pub fn put_samples(record: &mut Vec<u8>, samples: &SampleBatch) {
    record.push(SAMPLES);
    put_varint(record, samples.len() as u64);
    let mut last = 0;
    for number in &samples.series {
        put_varint(record, zigzag(number.wrapping_sub(last) as i64));
        last = *number;
    }
    let mut last = 0_i64;
    for time_ms in &samples.times_ms {
        put_varint(record, zigzag(time_ms.wrapping_sub(last)));
        last = *time_ms;
    }
    for value in &samples.values {
        record.extend_from_slice(&value.to_le_bytes());
    }
}

/// A record, read.
#[derive(Debug, PartialEq)]
pub enum Record<'a> {
    /// Series that are new, with their labels.
    Series(Vec<(u64, &'a [u8])>),
    /// Samples, in the buffer that was given.
    Samples,
}

/// Reads a record; samples come into `columns`, which is emptied before.
///
/// # Errors
/// [`Malformed`] for anything that is not such a record.
pub fn take<'a>(record: &'a [u8], columns: &mut SampleBatch) -> Result<Record<'a>, Malformed> {
    let mut reader = Reader::new(record, WHAT);
    match reader.u8()? {
        SERIES => take_series(reader).map(Record::Series),
        SAMPLES => take_samples(reader, columns).map(|()| Record::Samples),
        _ => Err(reader.malformed()),
    }
}

fn take_series<'a>(mut reader: Reader<'a>) -> Result<Vec<(u64, &'a [u8])>, Malformed> {
    let mut series = Vec::new();
    let mut last = 0_u64;
    while !reader.rest().is_empty() {
        let step = reader.varint()?;
        last = last.checked_add(step).ok_or(reader.malformed())?;
        series.push((last, reader.bytes()?));
    }
    Ok(series)
}

fn take_samples(mut reader: Reader<'_>, columns: &mut SampleBatch) -> Result<(), Malformed> {
    columns.clear();
    let count: usize = reader.small()?;
    // Every sample takes ten bytes at least: nothing is allocated for more than there can be.
    if count > reader.rest().len() / 10 {
        return Err(reader.malformed());
    }
    let mut last = 0_u64;
    for _ in 0..count {
        last = last.wrapping_add(unzigzag(reader.varint()?) as u64);
        columns.series.push(last);
    }
    let mut last = 0_i64;
    for _ in 0..count {
        last = last.wrapping_add(unzigzag(reader.varint()?));
        columns.times_ms.push(last);
    }
    for _ in 0..count {
        columns.values.push(reader.u64()?);
    }
    match reader.rest() {
        [] => Ok(()),
        _ => Err(reader.malformed()),
    }
}

#[cfg(test)]
mod tests;
