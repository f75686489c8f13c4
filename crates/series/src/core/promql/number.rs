//! Numbers as text: in labels, in messages, in `.test` files.

/// As in answers and labels: no exponent, `+Inf`, `-Inf`, `NaN`.
pub fn plain(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned()
    } else {
        value.to_string()
    }
}

/// As in messages and in the text of a histogram: as few digits as tell it from its neighbours, with an
/// exponent of at least two digits where it is below −4 or the number has more than 6 digits before the point.
pub fn short(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return plain(value);
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').expect("`e` is what `:e` writes");
    let exponent: i32 = exponent.parse().expect("an exponent is a whole number");
    if (-4..6).contains(&exponent) {
        return plain(value);
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Of two digits, with an exponent where there would be more than two before the point.
pub(crate) fn of_two_digits(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return plain(value);
    }
    let rounded: f64 = format!("{value:.1e}").parse().expect("`e` writes a number");
    match (1e-4..100.0).contains(&rounded.abs()) {
        true => plain(rounded),
        false => {
            let text = format!("{rounded:e}");
            let (mantissa, exponent) = text.split_once('e').expect("`e` is what `:e` writes");
            let (sign, digits) = match exponent.strip_prefix('-') {
                Some(digits) => ('-', digits),
                None => ('+', exponent),
            };
            format!("{mantissa}e{sign}{digits:0>2}")
        }
    }
}

/// As labels of OpenMetrics have them: a whole number is shown to be one of floating point.
pub(crate) fn open_metrics(value: f64) -> String {
    let text = short(value);
    match text
        .bytes()
        .all(|byte| byte == b'-' || byte.is_ascii_digit())
    {
        true => text + ".0",
        false => text,
    }
}

/// The number a text stands for, in any of PromQL's ways: decimal, hexadecimal, `Inf`, `NaN`.
pub fn parse(text: &str) -> Option<f64> {
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

/// As `%v` shows one: an exponent only below −4 and from 21 on.
pub(crate) fn shortest(value: f64) -> String {
    match value == 0.0 || !value.is_finite() || (1e-4..1e21).contains(&value.abs()) {
        true => plain(value),
        false => short(value),
    }
}

/// With so many digits after the point.
pub(crate) fn fixed(value: f64, digits: usize) -> String {
    match value.is_finite() {
        true => format!("{value:.digits$}"),
        false => plain(value),
    }
}

/// The number a literal of a query stands for: as [`parse`] and without a sign, with `_` between digits, and octal
/// where it begins with 0.
pub(crate) fn parse_literal(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let is_between = |at: usize| at > 0 && (is_digit(at - 1) || at == 2) && is_digit(at + 1);
    let misplaced = (0..bytes.len()).any(|at| bytes[at] == b'_' && !is_between(at));
    if misplaced || text.starts_with(['+', '-']) {
        return None;
    }
    let digits = text.replace('_', "");
    let is_octal = digits.len() > 1
        && digits.starts_with('0')
        && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    if is_octal {
        return i64::from_str_radix(&digits, 8)
            .ok()
            .map(|value| value as f64);
    }
    parse(&digits)
}

/// As Prometheus writes durations: `1h30m`; weeks and years only where nothing is left over.
pub(crate) fn duration(mut ms: i64) -> String {
    const DAY: i64 = 86_400_000;
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, length, only_exact) in [
        ("y", 365 * DAY, true),
        ("w", 7 * DAY, true),
        ("d", DAY, false),
        ("h", 3_600_000, false),
        ("m", 60_000, false),
        ("s", 1000, false),
        ("ms", 1, false),
    ] {
        if ms >= length && (ms % length == 0 || !only_exact) {
            text += &format!("{}{unit}", ms / length);
            ms %= length;
        }
    }
    text
}

/// The milliseconds a duration stands for: `1h30m`, `5ms`, or a number of seconds.
pub fn duration_ms(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let total = match parse(digits) {
        Some(seconds) if seconds.is_finite() && seconds.abs() < 1e12 => {
            (seconds * 1000.0).round() as i64
        }
        Some(_) => return None,
        None => units_ms(digits)?,
    };
    Some(if negative { -total } else { total })
}

fn units_ms(mut rest: &str) -> Option<i64> {
    let mut total = 0_i64;
    let mut last = i64::MAX;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
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
        if unit >= last {
            return None;
        }
        last = unit;
        rest = &rest[end..];
        total = total.checked_add(count.checked_mul(unit)?)?;
    }
    (last != i64::MAX).then_some(total)
}
