//! Numbers as text where only PromQL has them so: in messages, literals and durations of a query.

pub(crate) use egret_metrics_model::number::{
    format_number as plain, format_short_number as short, parse_duration_ms, parse_number as parse,
};

/// Of two digits, with an exponent where there would be more than two before the point.
pub(crate) fn format_two_digits(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return plain(value);
    }
    let rounded: f64 = format!("{value:.1e}").parse().expect("`e` writes a number");
    if (1e-4..100.0).contains(&rounded.abs()) {
        plain(rounded)
    } else {
        let text = format!("{rounded:e}");
        let (mantissa, exponent) = text.split_once('e').expect("`e` is what `:e` writes");
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        format!("{mantissa}e{sign}{digits:0>2}")
    }
}

/// As labels of OpenMetrics have them: a whole number is shown to be one of floating point.
pub(crate) fn format_open_metrics(value: f64) -> String {
    let text = short(value);
    if text.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()) { text + ".0" } else { text }
}

/// As `%v` shows one: an exponent only below −4 and from 21 on.
pub(crate) fn format_shortest(value: f64) -> String {
    if value == 0.0 || !value.is_finite() || (1e-4..1e21).contains(&value.abs()) {
        plain(value)
    } else {
        short(value)
    }
}

/// With so many digits after the point.
pub(crate) fn format_fixed(value: f64, digits: usize) -> String {
    if value.is_finite() { format!("{value:.digits$}") } else { plain(value) }
}

/// The number a literal of a query stands for: as [`parse`] and without a sign, with `_` between
/// digits, and octal where it begins with 0.
pub(crate) fn parse_literal(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let is_between = |at: usize| at > 0 && (is_digit(at - 1) || at == 2) && is_digit(at + 1);
    let has_misplaced_underscore = (0..bytes.len()).any(|at| bytes[at] == b'_' && !is_between(at));
    if has_misplaced_underscore || text.starts_with(['+', '-']) {
        return None;
    }
    let digits = text.replace('_', "");
    let is_octal = digits.len() > 1
        && digits.starts_with('0')
        && digits.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    if is_octal {
        return i64::from_str_radix(&digits, 8).ok().map(|value| value as f64);
    }
    parse(&digits)
}

/// As Prometheus writes durations: `1h30m`; weeks and years only where nothing is left over.
pub(crate) fn format_duration(mut ms: i64) -> String {
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
