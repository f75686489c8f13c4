//! Columns of numbers, each in the encoding that takes least; every bit comes back.
//!
//! | first byte | what follows |
//! |---|---|
//! | 0 | the bits of the one number that all are |
//! | 1 | integers, divided by a power of ten: see [`DecimalScale`] |
//! | 2 | compressed by pco |
//! | 3 | the bits of each |

use egret_base::codec::{DecodeError, Reader, put_varint, unzigzag, zigzag};

use super::{Effort, ints, pco_bytes};

const WHAT: &str = "a column of numbers";

const SAME: u8 = 0;
const SCALED: u8 = 1;
const PCO: u8 = 2;
const RAW: u8 = 3;

/// Beyond this power of ten a number has more digits than are worth looking for.
const EXPONENT_MAX: u8 = 15;

/// The powers of ten up to [`EXPONENT_MAX`], each of which a double has exactly.
const POWERS_OF_TEN: [f64; EXPONENT_MAX as usize + 1] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// Up to this a scaled number is an integer that a double has exactly, and so is its sum with
/// [`ROUNDING_OFFSET`].
const MANTISSA_MAX: f64 = (1_u64 << 51) as f64;

/// Added and taken away again, it rounds to the nearest integer.
const ROUNDING_OFFSET: f64 = (3_u64 << 51) as f64;

/// One number in so many may be an exception before other encodings are preferred.
const EXCEPTION_SHARE: usize = 16;

/// Columns shorter than this are not given to pco.
const PCO_NUMBERS_MIN: usize = 24;

/// Appends a column of at least one number. It does not store the number of its values: the reader
/// must know it.
pub fn encode(numbers: &[f64], effort: Effort, out: &mut Vec<u8>) {
    let first = numbers[0].to_bits();
    if numbers.iter().all(|number| number.to_bits() == first) {
        out.push(SAME);
        return out.extend_from_slice(&first.to_le_bytes());
    }
    let start = out.len();
    if let Some(scaled) = DecimalScale::detect(numbers) {
        out.push(SCALED);
        scaled.encode(numbers, effort, out);
    } else if numbers.len() >= PCO_NUMBERS_MIN {
        let config = match effort {
            Effort::Quick => pco::ChunkConfig::default().with_compression_level(4),
            Effort::Thorough => pco::ChunkConfig::default(),
        };
        out.push(PCO);
        out.extend_from_slice(&pco_bytes::compress(numbers, &config));
    }
    if out.len() == start || out.len() - start > 8 * numbers.len() {
        out.truncate(start);
        out.push(RAW);
        out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    }
}

/// Name of the encoding of a column, for statistics.
pub fn encoding_name(column: &[u8]) -> &'static str {
    match column.first() {
        Some(&SAME) => "same",
        Some(&SCALED) => "scaled",
        Some(&PCO) => "pco",
        Some(&RAW) => "raw",
        _ => "unknown",
    }
}

/// Reads a column of so many numbers and appends them.
///
/// # Errors
/// [`DecodeError`] for anything that is not such a column.
pub fn decode(bytes: &[u8], count: usize, out: &mut Vec<f64>) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes, WHAT);
    let start = out.len();
    match reader.u8()? {
        SAME => {
            let number = f64::from_bits(reader.u64()?);
            out.resize(start + count, number);
        }
        SCALED => DecimalScale::decode(&mut reader, count, out)?,
        PCO => {
            out.resize(start + count, 0.0);
            pco_bytes::decompress(&mut reader, &mut out[start..])?;
        }
        RAW => {
            let bytes = reader.take(count.checked_mul(8).ok_or(DecodeError { what: WHAT })?)?;
            let (words, _) = bytes.as_chunks();
            out.extend(words.iter().map(|word| f64::from_le_bytes(*word)));
        }
        _ => return Err(reader.malformed()),
    }
    match reader.rest() {
        [] => Ok(()),
        _ => Err(reader.malformed()),
    }
}

/// Numbers that are integers when multiplied by a power of ten, most of them.
///
/// - exponent: a byte, of the power of ten that they are divided by
/// - exceptions: how many (varint), for each the steps from the place of the one before (varint)
///   and its bits; where they are the integers have the one before
/// - base, scale: the first integer (signed), what the differences of the others to it are divided
///   by (varint)
/// - integers: a column of [`ints`]
struct DecimalScale {
    exponent: u8,
}

/// The integer that becomes exactly this number when divided by the power of ten.
#[inline]
fn to_scaled_integer(number: f64, exponent: u8) -> Option<i64> {
    let integer = match exponent {
        0 => number as i64,
        _ => {
            let scaled = number * POWERS_OF_TEN[usize::from(exponent)];
            if scaled.abs() > MANTISSA_MAX {
                return None;
            }
            ((scaled + ROUNDING_OFFSET) - ROUNDING_OFFSET) as i64
        }
    };
    let restored = integer as f64 / POWERS_OF_TEN[usize::from(exponent)];
    (restored.to_bits() == number.to_bits()).then_some(integer)
}

impl DecimalScale {
    /// The smallest power of ten for nearly all of the numbers.
    fn detect(numbers: &[f64]) -> Option<Self> {
        let exceptions_max = numbers.len() / EXCEPTION_SHARE + 1;
        let (mut exponent, mut exceptions) = (0, 0);
        for number in numbers {
            if to_scaled_integer(*number, exponent).is_some() {
                continue;
            }
            let larger = (exponent + 1..=EXPONENT_MAX)
                .find(|more| to_scaled_integer(*number, *more).is_some());
            match larger {
                Some(larger) => exponent = larger,
                None => exceptions += 1,
            }
            if exceptions > exceptions_max {
                return None;
            }
        }
        // Numbers before the one that required a larger power may be too large for it.
        let fitting =
            numbers.iter().filter(|number| to_scaled_integer(**number, exponent).is_some()).count();
        (fitting > 0 && numbers.len() - fitting <= exceptions_max).then_some(Self { exponent })
    }

    fn encode(&self, numbers: &[f64], effort: Effort, out: &mut Vec<u8>) {
        let integers: Vec<Option<i64>> =
            numbers.iter().map(|number| to_scaled_integer(*number, self.exponent)).collect();
        out.push(self.exponent);
        let exceptions = integers.iter().filter(|integer| integer.is_none()).count();
        put_varint(out, exceptions as u64);
        let mut next = 0;
        for (index, number) in numbers.iter().enumerate() {
            if integers[index].is_none() {
                put_varint(out, (index - next) as u64);
                out.extend_from_slice(&number.to_le_bytes());
                next = index + 1;
            }
        }
        let base = integers.iter().flatten().next().copied().unwrap_or(0);
        let mut last = base;
        let mut steps: Vec<i64> = Vec::with_capacity(numbers.len());
        for integer in integers {
            last = integer.unwrap_or(last);
            steps.push(last.wrapping_sub(base));
        }
        let scale = common_divisor(&steps);
        if scale > 1 {
            steps.iter_mut().for_each(|step| *step /= scale);
        }
        put_varint(out, zigzag(base));
        put_varint(out, scale as u64);
        ints::encode(&steps, effort, out);
    }

    fn decode(
        reader: &mut Reader<'_>,
        count: usize,
        out: &mut Vec<f64>,
    ) -> Result<(), DecodeError> {
        let exponent = reader.u8()?;
        let power = *POWERS_OF_TEN.get(usize::from(exponent)).ok_or(DecodeError { what: WHAT })?;
        let exception_count: usize = reader.varint_as()?;
        let mut exceptions = *reader;
        for _ in 0..exception_count {
            reader.varint()?;
            reader.u64()?;
        }
        let base = unzigzag(reader.varint()?);
        let scale = reader.varint()? as i64;
        let mut steps = Vec::new();
        ints::decode(reader, count, &mut steps)?;
        let start = out.len();
        let integers = steps.iter().map(|step| base.wrapping_add(step.wrapping_mul(scale)) as f64);
        match exponent {
            0 => out.extend(integers),
            _ => out.extend(integers.map(|integer| integer / power)),
        }
        let mut next = 0_usize;
        for _ in 0..exception_count {
            let index = next.saturating_add(exceptions.varint_as()?);
            let number = f64::from_bits(exceptions.u64()?);
            *out[start..].get_mut(index).ok_or(DecodeError { what: WHAT })? = number;
            next = index + 1;
        }
        Ok(())
    }
}

/// The largest number that divides all of them; 1 when none above it does.
fn common_divisor(steps: &[i64]) -> i64 {
    let mut divisor = 0_u64;
    for step in steps {
        let mut rest = step.unsigned_abs();
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        if divisor == 1 {
            break;
        }
    }
    i64::try_from(divisor).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests;
