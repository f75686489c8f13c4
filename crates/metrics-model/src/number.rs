//! Numbers and durations as text, as Prometheus writes and reads them.

/// As in answers and labels: no exponent, `+Inf`, `-Inf`, `NaN`.
pub fn format_number(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

/// As in messages and in the text of a histogram: as few digits as tell it from its neighbours,
/// with an exponent of at least two digits where it is below −4 or the number has more than 6
/// digits before the point.
pub fn format_short_number(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return format_number(value);
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').expect("`e` is what `:e` writes");
    let exponent: i32 = exponent.parse().expect("an exponent is a whole number");
    if (-4..6).contains(&exponent) {
        return format_number(value);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// As OpenMetrics writes the bounds of buckets and quantiles: like [`short_number`], with a point
/// or an exponent.
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
