//! Numbers by their text: an integer of 64 bits, or the double whose shortest decimal form is numerically what was written.
//!
//! Anything else would come back from most readers as another number than the one that was sent.

use serde_json::Number;

/// Digits that the shortest form of a double never exceeds.
const DOUBLE_DIGITS_MAX: u32 = 17;

/// Digits that every double keeps: a decimal number of so many is the shortest form of the double next to it.
const DOUBLE_DIGITS_KEPT: u32 = 15;

/// How many bytes at the beginning are a number as JSON has it.
///
/// # Errors
/// After how many bytes there is none.
pub(super) fn length(bytes: &[u8]) -> Result<usize, usize> {
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let digits = |mut at: usize| {
        if !is_digit(at) {
            return Err(at);
        }
        while is_digit(at) {
            at += 1;
        }
        Ok(at)
    };
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        _ => digits(at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1;
        at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
        at = digits(at)?;
    }
    Ok(at)
}

/// The number that a text is, and how many bytes it takes without an exponent. The text is a number as JSON has it.
///
/// # Errors
/// Why it is not held.
pub(super) fn read(text: &str) -> Result<(Number, usize), String> {
    let has_exponent = text.contains(['e', 'E']);
    if !has_exponent && !text.contains('.') {
        return match text.parse::<i64>() {
            Ok(integer) => Ok((integer.into(), text.len())),
            Err(_) => match text.parse::<u64>() {
                Ok(integer) => Ok((integer.into(), text.len())),
                Err(_) => of_double(text, has_exponent),
            },
        };
    }
    // So few digits are kept by a double, and most numbers have no more. What is whole is an integer.
    if !has_exponent && text.len() <= DOUBLE_DIGITS_KEPT as usize + 1 {
        let double: f64 = text.parse().expect("a number of JSON is one of Rust");
        if double.fract() != 0.0
            && let Some(number) = Number::from_f64(double)
        {
            return Ok((number, text.len()));
        }
    }
    of_double(text, has_exponent)
}

/// The same of any text, looking at each digit.
fn of_double(text: &str, has_exponent: bool) -> Result<(Number, usize), String> {
    let written = Decimal::of(text).ok_or_else(|| not_held(text))?;
    let written_out_bytes = match has_exponent {
        true => written.written_out_bytes(),
        false => text.len(),
    };
    if let Some(integer) = written.integer() {
        return Ok((integer, written_out_bytes));
    }
    if written.digits > DOUBLE_DIGITS_MAX {
        return Err(not_held(text));
    }
    let double: f64 = text.parse().expect("a number of JSON is one of Rust");
    let is_plain = (1e-290..1e290).contains(&double.abs());
    let is_held = match double.is_finite() && double != 0.0 {
        true if is_plain && written.digits <= DOUBLE_DIGITS_KEPT => true,
        true => {
            let mut shortest = zmij::Buffer::new();
            Decimal::of(shortest.format_finite(double)).as_ref() == Some(&written)
        }
        false => false,
    };
    match Number::from_f64(double) {
        Some(number) if is_held => Ok((number, written_out_bytes)),
        _ => Err(not_held(text)),
    }
}

#[cold]
fn not_held(text: &str) -> String {
    let text = crate::model::cut(text, 40);
    format!(
        "the number {text} is not held exactly by a 64-bit integer or a double: send it as a string"
    )
}

/// A decimal number: `mantissa` times ten to the power of `exponent`. The mantissa ends in no zero, so that equal numbers are equal.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    mantissa: u64,
    digits: u32,
    exponent: i64,
}

impl Decimal {
    /// None: it has more digits than anything holds.
    fn of(text: &str) -> Option<Self> {
        let (number, exponent) = match text.split_once(['e', 'E']) {
            // An exponent that is out of all bounds is as good as the greatest.
            Some((number, exponent)) => (number, signed(exponent)),
            None => (text, 0),
        };
        let mut decimal = Self {
            is_negative: number.starts_with('-'),
            mantissa: 0,
            digits: 0,
            exponent,
        };
        let mut is_fraction = false;
        let mut zeros = 0;
        for byte in number.bytes() {
            match byte {
                b'.' => is_fraction = true,
                b'0'..=b'9' => {
                    decimal.exponent = decimal.exponent.saturating_sub(i64::from(is_fraction));
                    zeros += 1;
                    if byte != b'0' {
                        decimal.push(zeros, byte - b'0')?;
                        zeros = 0;
                    }
                }
                _ => {}
            }
        }
        if decimal.mantissa == 0 {
            (decimal.is_negative, decimal.exponent) = (false, 0);
        } else {
            decimal.exponent = decimal.exponent.saturating_add(zeros.into());
        }
        Some(decimal)
    }

    /// Adds a digit that comes after zeros: `places` counts it and them.
    fn push(&mut self, places: u32, digit: u8) -> Option<()> {
        let places = match self.mantissa {
            0 => 1,
            _ => places,
        };
        let power = 10_u64.checked_pow(places)?;
        self.mantissa = self
            .mantissa
            .checked_mul(power)?
            .checked_add(digit.into())?;
        self.digits += places;
        Some(())
    }

    fn integer(&self) -> Option<Number> {
        let power = 10_u64.checked_pow(u32::try_from(self.exponent).ok()?)?;
        let size = self.mantissa.checked_mul(power)?;
        match self.is_negative {
            true => 0_i64.checked_sub_unsigned(size).map(Number::from),
            false => Some(size.into()),
        }
    }

    /// Bytes of it without an exponent.
    fn written_out_bytes(&self) -> usize {
        let digits = u64::from(self.digits);
        let places = self.exponent.unsigned_abs();
        let bytes = match self.exponent < 0 {
            // With a point, and a zero before it where there is nothing else.
            true => digits.max(places).saturating_add(2),
            false => digits.saturating_add(places),
        };
        let bytes = bytes.saturating_add(self.is_negative.into());
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// An exponent, or the nearest that is held.
fn signed(text: &str) -> i64 {
    text.parse().unwrap_or(match text.starts_with('-') {
        true => i64::MIN,
        false => i64::MAX,
    })
}
