//! Numbers for people, worded as Prometheus words them; links to its pages.

use egret_metrics_model::TimeMs;
use egret_metrics_model::number::format_number;

use super::print::{format_general, format_time};

const PREFIXES_ABOVE: [&str; 8] = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
const BINARY_PREFIXES_ABOVE: [&str; 8] = ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"];
const PREFIXES_BELOW: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];

fn format_digits(value: f64) -> String {
    if !value.is_finite() {
        format_number(value)
    } else if value < 0.0 {
        format!("-{}", format_general(-value, 4))
    } else {
        format_general(value, 4)
    }
}

/// Divides a value until it is below `base`. Returns the quotient and the prefix of the divisor.
fn scale_down(mut value: f64, base: f64, prefixes: [&'static str; 8]) -> (f64, &'static str) {
    let mut prefix = "";
    for next_prefix in prefixes {
        if value.abs() < base {
            break;
        }
        prefix = next_prefix;
        value /= base;
    }
    (value, prefix)
}

/// Multiplies a value until it is 1 or more. Returns the product and the prefix.
fn scale_up(mut value: f64) -> (f64, &'static str) {
    let mut prefix = "";
    for next_prefix in PREFIXES_BELOW {
        if value.abs() >= 1.0 {
            break;
        }
        prefix = next_prefix;
        value *= 1000.0;
    }
    (value, prefix)
}

/// Writes a number with a metric prefix, such as `1.235M` or `120m`.
pub(super) fn humanize(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format_digits(value);
    }
    let (value, prefix) = if value.abs() >= 1.0 {
        scale_down(value, 1000.0, PREFIXES_ABOVE)
    } else {
        scale_up(value)
    };
    format_digits(value) + prefix
}

/// Writes a number with a binary prefix, such as `1Mi`; one of at most 1 gets none.
pub(super) fn humanize_1024(value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        return format_digits(value);
    }
    let (value, prefix) = scale_down(value, 1024.0, BINARY_PREFIXES_ABOVE);
    format_digits(value) + prefix
}

/// A number of seconds as `1d 2h 0m 5s`, below a minute `1.5s`, below a second `12.3ms`.
pub(super) fn humanize_duration(value: f64) -> String {
    if !value.is_finite() {
        return format_digits(value);
    }
    if value == 0.0 {
        return "0s".to_owned();
    }
    if value.abs() < 1.0 {
        let (value, prefix) = scale_up(value);
        return format!("{}{prefix}s", format_digits(value));
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let value = value.abs();
    let whole_seconds = value as u64;
    let (seconds, minutes) = (whole_seconds % 60, whole_seconds / 60 % 60);
    match (whole_seconds / 86_400, whole_seconds / 3_600 % 24) {
        (0, 0) if minutes == 0 => format!("{sign}{}s", format_digits(value)),
        (0, 0) => format!("{sign}{minutes}m {seconds}s"),
        (0, hours) => format!("{sign}{hours}h {minutes}m {seconds}s"),
        (days, hours) => format!("{sign}{days}d {hours}h {minutes}m {seconds}s"),
    }
}

/// Writes a ratio as a percentage.
pub(super) fn humanize_percentage(value: f64) -> String {
    format_digits(value * 100.0) + "%"
}

/// Converts seconds since 1970 to a time.
pub(super) fn time_from_seconds(seconds: f64) -> Result<TimeMs, String> {
    let ms = seconds * 1000.0;
    if ms.abs() < 9.2e15 {
        Ok((ms * 1e3).round().div_euclid(1e3) as TimeMs)
    } else {
        Err(format!("{} seconds is not a valid time", format_number(seconds)))
    }
}

pub(super) fn humanize_timestamp(seconds: f64) -> Result<String, String> {
    if seconds.is_finite() {
        time_from_seconds(seconds).map(format_time)
    } else {
        Ok(format_digits(seconds))
    }
}

fn graph_page_link(expression: &str, tab: u8) -> String {
    let escaped: String = form_urlencoded::byte_serialize(expression.as_bytes()).collect();
    format!("/graph?g0.expr={escaped}&g0.tab={tab}")
}

/// Path and query of the page that shows an expression's graph.
pub(super) fn graph_link(expression: &str) -> String {
    graph_page_link(expression, 0)
}

/// Path and query of the page that shows an expression's values.
pub fn table_link(expression: &str) -> String {
    graph_page_link(expression, 1)
}
