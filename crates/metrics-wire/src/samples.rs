//! The samples of a series. Both versions of remote write have them in field 2 and write them
//! alike: `12 len 09 value×8 10 time`, of which zeros are left out.

use egret_metrics_model::TimeMs;

use super::error::WireError;
use super::protobuf::{Message, decode_varint_word};

/// A value at a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct WireSample {
    /// Time in milliseconds since 1970.
    pub time_ms: TimeMs,
    /// What, with the bits it came with.
    pub value: f64,
}

impl PartialEq for WireSample {
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

const USUAL_LENGTH: u8 = USUAL_BYTES as u8 - 2;

/// Key, length, key, value, key.
const TIME_OFFSET: usize = 12;

/// The samples among the fields of a series, which were walked over before.
#[derive(Clone, Copy, Debug)]
pub struct SampleFields<'a> {
    pub(crate) fields: Message<'a>,
}

/// What a sample takes whose time is between 2004 and 2109, that is, six bytes.
const USUAL_BYTES: usize = TIME_OFFSET + 6;
/// The bits of such a time that say how long it is.
const SIX_BYTES_MASK: u64 = 0x8080_8080_8080;
const SIX_BYTES: u64 = 0x0080_8080_8080;

#[inline(always)]
fn read_word(window: &[u8; TIME_OFFSET + 8], offset: usize) -> u64 {
    let bytes = window[offset..offset + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

/// The form in which all known senders write a sample of which nothing is zero: the sample and how
/// many bytes it takes. Looks at a fixed number of bytes, of which some may belong to what comes
/// after.
#[inline(always)]
fn parse_usual(body: &[u8], offset: usize, end: usize) -> Option<(WireSample, usize)> {
    let window: &[u8; TIME_OFFSET + 8] = body.get(offset..)?.first_chunk()?;
    if window[0] != SAMPLE_KEY || window[2] != VALUE_KEY || window[11] != TIME_KEY {
        return None;
    }
    let value = f64::from_bits(read_word(window, 3));
    let time = read_word(window, TIME_OFFSET);
    // A constant length lets the processor begin with the next sample before it has read this one.
    if usize::from(window[1]) + 2 == USUAL_BYTES
        && time & SIX_BYTES_MASK == SIX_BYTES
        && offset + USUAL_BYTES <= end
    {
        let (time, _) = decode_varint_word(time & 0x0000_ffff_ffff_ffff)?;
        let time_ms = time as i64;
        return Some((WireSample { time_ms, value }, USUAL_BYTES));
    }
    let (time, time_bytes) = decode_varint_word(time)?;
    let size = TIME_OFFSET + time_bytes;
    if usize::from(window[1]) + 2 != size || offset + size > end {
        return None;
    }
    let time_ms = time as i64;
    Some((WireSample { time_ms, value }, size))
}

/// Moves on to the first field that is no sample. What is in the samples is not looked at.
#[inline(always)]
pub(crate) fn skip_samples(fields: &mut Message<'_>) -> Result<(), WireError> {
    loop {
        match fields.rest().first_chunk() {
            Some(&[SAMPLE_KEY, USUAL_LENGTH]) if fields.position + USUAL_BYTES <= fields.end => {
                fields.position += USUAL_BYTES;
            }
            Some(&[SAMPLE_KEY, length @ 0..0x80]) => {
                fields.position += 2;
                fields.take(u64::from(length))?;
            }
            _ => return Ok(()),
        }
    }
}

/// Whether there is one sample and nothing else.
#[inline(always)]
pub(crate) fn is_single(fields: &Message<'_>) -> bool {
    match fields.rest().first_chunk() {
        Some(&[SAMPLE_KEY, length @ 0..0x80]) => {
            fields.position + 2 + usize::from(length) == fields.end
        }
        _ => false,
    }
}

fn parse_unusual(mut message: Message<'_>) -> Result<WireSample, WireError> {
    message.name = MESSAGE;
    let mut sample = WireSample::default();
    while let Some(field) = message.read_field()? {
        match field.number {
            1 => sample.value = field.as_double(MESSAGE)?,
            2 => sample.time_ms = field.as_varint(MESSAGE)? as i64,
            _ => {}
        }
    }
    Ok(sample)
}

impl SampleFields<'_> {
    /// Whatever is written in another form, or is no sample.
    #[cold]
    #[inline(never)]
    fn next_unusual(&mut self) -> Option<Result<WireSample, WireError>> {
        let fields = &mut self.fields;
        loop {
            let message = match fields.read_field() {
                Ok(Some(field)) if field.number == 2 => field.as_message("TimeSeries", MESSAGE),
                Ok(Some(_)) => continue,
                Ok(None) => return None,
                Err(error) => Err(error),
            };
            let sample = message.and_then(parse_unusual);
            if sample.is_err() {
                fields.position = fields.end;
            }
            return Some(sample);
        }
    }
}

impl Iterator for SampleFields<'_> {
    type Item = Result<WireSample, WireError>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        let fields = &mut self.fields;
        if fields.position >= fields.end {
            return None;
        }
        match parse_usual(fields.body, fields.position, fields.end) {
            Some((sample, size)) => {
                fields.position += size;
                Some(Ok(sample))
            }
            None => self.next_unusual(),
        }
    }
}
