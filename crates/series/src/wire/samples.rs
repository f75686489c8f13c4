//! The samples of a series. Both versions of remote write have them in field 2 and write them alike:
//! `12 len 09 value×8 10 time`, of which zeros are left out.

use super::error::WireError;
use super::protobuf::{Message, varint_of_word};
use crate::model::TimeMs;

/// A value at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// When.
    pub time_ms: TimeMs,
    /// What, with the bits it came with.
    pub value: f64,
}

impl PartialEq for Sample {
    /// Bit by bit: a staleness marker equals itself.
    fn eq(&self, other: &Self) -> bool {
        self.time_ms == other.time_ms && self.value.to_bits() == other.value.to_bits()
    }
}

/// Key of a sample in its series: field 2, bytes.
pub(crate) const SAMPLE_KEY: u8 = 0x12;
const VALUE_KEY: u8 = 0x09;
const TIME_KEY: u8 = 0x10;
const MESSAGE: &str = "Sample";

/// Key, length, key, value, key.
const BEFORE_TIME: usize = 12;

/// The samples among the fields of a series, which were walked over before.
#[derive(Clone, Copy, Debug)]
pub struct Samples<'a> {
    pub(crate) fields: Message<'a>,
}

/// The form in which all known senders write a sample of which nothing is zero: the sample and how many bytes it
/// takes. Looks at a fixed number of bytes, of which some may belong to what comes after.
#[inline(always)]
fn usual(whole: &[u8], at: usize, end: usize) -> Option<(Sample, usize)> {
    let window: &[u8; BEFORE_TIME + 8] = whole.get(at..)?.first_chunk()?;
    let length = usize::from(window[1]);
    if window[0] != SAMPLE_KEY || window[2] != VALUE_KEY || window[11] != TIME_KEY {
        return None;
    }
    let word = |from: usize| {
        let bytes = window[from..from + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    };
    let (time, time_bytes) = varint_of_word(word(BEFORE_TIME))?;
    let size = BEFORE_TIME + time_bytes;
    if length + 2 != size || at + size > end {
        return None;
    }
    let sample = Sample {
        time_ms: time as i64,
        value: f64::from_bits(word(3)),
    };
    Some((sample, size))
}

#[inline(never)]
fn unusual(mut message: Message<'_>) -> Result<Sample, WireError> {
    message.name = MESSAGE;
    let mut sample = Sample::default();
    while let Some(field) = message.field()? {
        match field.number {
            1 => sample.value = field.double(MESSAGE)?,
            2 => sample.time_ms = field.varint(MESSAGE)? as i64,
            _ => {}
        }
    }
    Ok(sample)
}

impl Iterator for Samples<'_> {
    type Item = Result<Sample, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let fields = &mut self.fields;
        if let Some((sample, size)) = usual(fields.whole, fields.at, fields.end) {
            fields.at += size;
            return Some(Ok(sample));
        }
        loop {
            let found = match fields.field() {
                Ok(Some(field)) if field.number == 2 => field.message("TimeSeries", MESSAGE),
                Ok(Some(_)) => continue,
                Ok(None) => return None,
                Err(error) => Err(error),
            };
            let sample = found.and_then(unusual);
            if sample.is_err() {
                fields.at = fields.end;
            }
            return Some(sample);
        }
    }
}
