//! Numbers and durations as text, as Prometheus writes and reads them.

/// As in answers and labels: no exponent, `+Inf`, `-Inf`, `NaN`.
pub fn format_number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let ShortestDecimal { digits, exponent } = ShortestDecimal::new(value);
    let sign = if value.is_sign_negative() { "-" } else { "" };
    match usize::try_from(exponent) {
        Err(_) => {
            let zeros = "0".repeat(exponent.unsigned_abs() as usize - 1);
            format!("{sign}0.{zeros}{digits}")
        }
        Ok(exponent) if exponent + 1 < digits.len() => {
            let (whole, fraction) = digits.split_at(exponent + 1);
            format!("{sign}{whole}.{fraction}")
        }
        Ok(exponent) => {
            let zeros = "0".repeat(exponent + 1 - digits.len());
            format!("{sign}{digits}{zeros}")
        }
    }
}

/// As in messages and in the text of a histogram: as few digits as tell it from its neighbours,
/// with an exponent of at least two digits where it is below −4 or the number has more than 6
/// digits before the point.
pub fn format_short_number(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return format_number(value);
    }
    if (-4..6).contains(&ShortestDecimal::new(value).exponent) {
        return format_number(value);
    }
    format_with_exponent(value)
}

/// A finite number with as few digits as tell it from its neighbours, and an exponent with a sign
/// and at least two digits: `2.5e-07`.
pub fn format_with_exponent(value: f64) -> String {
    let ShortestDecimal { digits, exponent } = ShortestDecimal::new(value);
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{first}{point}{rest}e{exponent_sign}{:02}", exponent.abs())
}

/// The digits of a finite number without its sign: as few as tell it from its neighbours. Of two
/// equally close decimals it is the one with an even last digit, as in Go; `Display` of Rust has
/// the larger one.
struct ShortestDecimal {
    /// Without a point, and without zeros around them.
    digits: String,
    /// The power of ten of the first digit.
    exponent: i32,
}

impl ShortestDecimal {
    fn new(value: f64) -> Self {
        let mut buffer = zmij::Buffer::new();
        let text = buffer.format_finite(value.abs());
        let (mantissa, power) = text.split_once('e').unwrap_or((text, "0"));
        let power: i32 = power.parse().expect("an exponent is a whole number");
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        if digits.is_empty() {
            return Self { digits: "0".to_owned(), exponent: 0 };
        }
        let leading_zeros = all.len() - digits.len();
        Self {
            digits: digits.trim_end_matches('0').to_owned(),
            exponent: power + whole.len() as i32 - 1 - leading_zeros as i32,
        }
    }
}

/// As OpenMetrics writes the bounds of buckets and quantiles: like [`format_short_number`], with a
/// point or an exponent.
pub fn open_metrics_number(value: f64) -> String {
    if value == 0.0 {
        return "0.0".to_owned();
    }
    let text = format_short_number(value);
    if !value.is_finite() || text.contains(['.', 'e']) { text } else { text + ".0" }
}

/// The number a text stands for, in any of PromQL's ways: decimal, hexadecimal, `Inf`, `NaN`.
pub fn parse_number(text: &str) -> Option<f64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let value = match lower.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()? as f64,
        None if lower == "inf" || lower == "nan" => lower.parse().ok()?,
        None if !lower.starts_with(|c: char| c.is_ascii_digit() || c == '.') => return None,
        // What is too large to be a number is none.
        None => lower.parse().ok().filter(|value: &f64| value.is_finite())?,
    };
    Some(if negative { -value } else { value })
}

/// The longest duration of settings, files and requests, in milliseconds: as many nanoseconds as 64
/// bits can count. A few of them can be added to a time.
pub const DURATION_MS_MAX: i64 = i64::MAX / 1_000_000;

/// The milliseconds a duration stands for: `1h30m`, `5ms`, or a number of seconds.
pub fn parse_duration_ms(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let total = match parse_number(digits) {
        Some(seconds) if seconds.is_finite() && seconds.abs() < 1e12 => {
            (seconds * 1000.0).round() as i64
        }
        Some(_) => return None,
        None => parse_units_ms(digits)?,
    };
    Some(if negative { -total } else { total })
}

fn parse_units_ms(mut rest: &str) -> Option<i64> {
    let mut total = 0_i64;
    let mut previous_unit = i64::MAX;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        if unit >= previous_unit {
            return None;
        }
        previous_unit = unit;
        rest = &rest[end..];
        total = total.checked_add(count.checked_mul(unit)?)?;
    }
    (previous_unit != i64::MAX).then_some(total)
}

#[cfg(test)]
mod tests;
