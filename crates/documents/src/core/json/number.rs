//! Numbers by their text: a 64-bit integer, or a double whose shortest decimal form equals the
//! number written.
//!
//! Most readers would return any other number changed.

use serde_json::Number;

/// Maximum digits of the shortest form of a double.
const DOUBLE_DIGITS_MAX: u32 = 17;

/// Digits that every double preserves: a decimal number with no more is the shortest form of the
/// nearest double.
const DOUBLE_DIGITS_EXACT: u32 = 15;

/// Length of the JSON number at the beginning, in bytes.
///
/// # Errors
/// The offset at which no number can continue.
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

/// Parses a JSON number; returns it with its size in bytes when written without an exponent.
///
/// # Errors
/// A message: neither a 64-bit integer nor a double represents the number exactly.
pub(super) fn parse(text: &str) -> Result<(Number, usize), String> {
    let has_exponent = text.contains(['e', 'E']);
    if !has_exponent && !text.contains('.') {
        return match text.parse::<i64>() {
            Ok(integer) => Ok((integer.into(), text.len())),
            Err(_) => match text.parse::<u64>() {
                Ok(integer) => Ok((integer.into(), text.len())),
                Err(_) => parse_exact(text, has_exponent),
            },
        };
    }
    // Fast path: a double preserves this many digits, and most numbers have no more. Whole numbers
    // become integers.
    if !has_exponent && text.len() <= DOUBLE_DIGITS_EXACT as usize + 1 {
        let double: f64 = text.parse().expect("every JSON number can be parsed as a double");
        if double.fract() != 0.0
            && let Some(number) = Number::from_f64(double)
        {
            return Ok((number, text.len()));
        }
    }
    parse_exact(text, has_exponent)
}

/// The general case, digit by digit.
fn parse_exact(text: &str, has_exponent: bool) -> Result<(Number, usize), String> {
    let decimal = Decimal::parse(text).ok_or_else(|| not_representable(text))?;
    let written_out_bytes = if has_exponent { decimal.written_out_bytes() } else { text.len() };
    if let Some(integer) = decimal.to_integer() {
        return Ok((integer, written_out_bytes));
    }
    if decimal.digits > DOUBLE_DIGITS_MAX {
        return Err(not_representable(text));
    }
    let double: f64 = text.parse().expect("every JSON number can be parsed as a double");
    let is_plain = (1e-290..1e290).contains(&double.abs());
    let is_exact = match double.is_finite() && double != 0.0 {
        true if is_plain && decimal.digits <= DOUBLE_DIGITS_EXACT => true,
        true => {
            let mut shortest = zmij::Buffer::new();
            Decimal::parse(shortest.format_finite(double)).as_ref() == Some(&decimal)
        }
        false => false,
    };
    match Number::from_f64(double) {
        Some(number) if is_exact => Ok((number, written_out_bytes)),
        _ => Err(not_representable(text)),
    }
}

#[cold]
fn not_representable(text: &str) -> String {
    let text = crate::model::truncate(text, 40);
    format!("the number {text} has no exact 64-bit integer or double: send it as a string")
}

/// A decimal number `mantissa * 10^exponent`. The mantissa has no trailing zero, so that equal
/// numbers are equal.
#[derive(Debug, PartialEq, Eq)]
struct Decimal {
    is_negative: bool,
    mantissa: u64,
    digits: u32,
    exponent: i64,
}

impl Decimal {
    /// Parses a number; none if it has more digits than any supported type holds.
    fn parse(text: &str) -> Option<Self> {
        let (number, exponent) = match text.split_once(['e', 'E']) {
            // An exponent out of range is treated as the largest.
            Some((number, exponent)) => (number, parse_exponent(exponent)),
            None => (text, 0),
        };
        let mut decimal =
            Self { is_negative: number.starts_with('-'), mantissa: 0, digits: 0, exponent };
        let mut is_fraction = false;
        let mut zeros = 0;
        for byte in number.bytes() {
            match byte {
                b'.' => is_fraction = true,
                b'0'..=b'9' => {
                    decimal.exponent = decimal.exponent.saturating_sub(i64::from(is_fraction));
                    zeros += 1;
                    if byte != b'0' {
                        decimal.push_digit(zeros, byte - b'0')?;
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

    /// Appends a digit; `places` counts it and the zeros before it.
    fn push_digit(&mut self, places: u32, digit: u8) -> Option<()> {
        let places = match self.mantissa {
            0 => 1,
            _ => places,
        };
        let power = 10_u64.checked_pow(places)?;
        self.mantissa = self.mantissa.checked_mul(power)?.checked_add(digit.into())?;
        self.digits += places;
        Some(())
    }

    fn to_integer(&self) -> Option<Number> {
        let power = 10_u64.checked_pow(u32::try_from(self.exponent).ok()?)?;
        let magnitude = self.mantissa.checked_mul(power)?;
        if self.is_negative {
            0_i64.checked_sub_unsigned(magnitude).map(Number::from)
        } else {
            Some(magnitude.into())
        }
    }

    /// Its size in bytes when written without an exponent.
    fn written_out_bytes(&self) -> usize {
        let digits = u64::from(self.digits);
        let places = self.exponent.unsigned_abs();
        let bytes = if self.exponent < 0 {
            digits.max(places).saturating_add(2)
        } else {
            digits.saturating_add(places)
        };
        let bytes = bytes.saturating_add(self.is_negative.into());
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }
}

/// Parses an exponent, clamped to the range of `i64`.
fn parse_exponent(text: &str) -> i64 {
    text.parse().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX })
}
