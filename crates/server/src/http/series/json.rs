//! Values, times and labels as Prometheus writes them into JSON. No tree is built: an answer may
//! have millions.

use axum::response::{IntoResponse, Response};
use egret_metrics_model::number::{format_number, format_with_exponent};
use egret_metrics_model::{Labels, TimeMs};
use egret_promql::FloatHistogram;
use http::header;

/// Whole numbers below this one are written as integers.
const INTEGERS_MAX: f64 = 9_007_199_254_740_992.0;

/// The response with a body of JSON.
pub(super) fn json(body: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Appends a string with its quotes.
pub(super) fn append_text(text: &str, out: &mut Vec<u8>) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        serde_json::to_writer(out, text).expect("writing a text as JSON to memory cannot fail");
    }
}

/// Appends the value of a sample: a string, as JSON has no infinity. As few digits as tell it from
/// its neighbours, with an exponent below 1e-6 and from 1e21 on.
pub(super) fn append_value(value: f64, out: &mut Vec<u8>) {
    out.push(b'"');
    let size = value.abs();
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if size == f64::INFINITY {
        out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    } else if size != 0.0 && !(1e-6..1e21).contains(&size) {
        out.extend_from_slice(format_with_exponent(value).as_bytes());
    } else if size < INTEGERS_MAX && value.trunc() == value {
        if value.is_sign_negative() {
            out.push(b'-');
        }
        out.extend_from_slice(itoa::Buffer::new().format(size as u64).as_bytes());
    } else {
        append_digits(value, out);
    }
    out.push(b'"');
}

fn append_digits(value: f64, out: &mut Vec<u8>) {
    let mut digits = zmij::Buffer::new();
    let digits = digits.format_finite(value);
    if !(digits.contains('e') || digits.ends_with(".0")) {
        out.extend_from_slice(digits.as_bytes())
    } else {
        out.extend_from_slice(format_number(value).as_bytes());
    }
}

/// Appends a time: a number of seconds, with three digits behind the point unless they are zero.
pub(super) fn append_time(time_ms: TimeMs, out: &mut Vec<u8>) {
    if time_ms < 0 {
        out.push(b'-');
    }
    let (seconds, rest) = (time_ms.unsigned_abs() / 1_000, time_ms.unsigned_abs() % 1_000);
    out.extend_from_slice(itoa::Buffer::new().format(seconds).as_bytes());
    if rest != 0 {
        let digit = |at: u64| b'0' + (at % 10) as u8;
        out.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
    }
}

/// Appends a sample as `[time,"value"]`.
pub(super) fn append_point(time_ms: TimeMs, value: f64, out: &mut Vec<u8>) {
    out.push(b'[');
    append_time(time_ms, out);
    out.push(b',');
    append_value(value, out);
    out.push(b']');
}

/// Appends `[time,"value"]` of a scalar, which Prometheus writes without an exponent.
pub(super) fn append_scalar(time_ms: TimeMs, value: f64, out: &mut Vec<u8>) {
    out.push(b'[');
    append_time(time_ms, out);
    out.extend_from_slice(b",\"");
    out.extend_from_slice(format_number(value).as_bytes());
    out.extend_from_slice(b"\"]");
}

/// Appends a histogram as `[time,{"count":…}]`.
pub(super) fn append_histogram_point(
    time_ms: TimeMs,
    histogram: &FloatHistogram,
    out: &mut Vec<u8>,
) {
    out.push(b'[');
    append_time(time_ms, out);
    out.extend_from_slice(b",{\"count\":");
    append_value(histogram.count, out);
    out.extend_from_slice(b",\"sum\":");
    append_value(histogram.sum, out);
    let buckets = histogram.rendered_buckets();
    if !buckets.is_empty() {
        out.extend_from_slice(b",\"buckets\":");
        append_list(buckets, out, |(kind, lower, upper, count), out| {
            out.extend_from_slice(&[b'[', b'0' + kind]);
            for value in [lower, upper, count] {
                out.push(b',');
                append_value(value, out);
            }
            out.push(b']');
        });
    }
    out.extend_from_slice(b"}]");
}

/// Appends labels as an object.
pub(super) fn append_labels(labels: &Labels, out: &mut Vec<u8>) {
    let mut separator = b'{';
    for (name, value) in labels.iter() {
        out.push(separator);
        separator = b',';
        append_text(name, out);
        out.push(b':');
        append_text(value, out);
    }
    match separator {
        b'{' => out.extend_from_slice(b"{}"),
        _ => out.push(b'}'),
    }
}

pub(super) fn append_list<T>(
    items: impl IntoIterator<Item = T>,
    out: &mut Vec<u8>,
    mut append: impl FnMut(T, &mut Vec<u8>),
) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        append(item, out);
    }
    out.push(b']');
}

/// Appends what follows the data: warnings and infos, where there are any, and the end.
pub(super) fn append_end(warnings: &[String], infos: &[String], out: &mut Vec<u8>) {
    for (name, notes) in [(&b",\"warnings\":"[..], warnings), (b",\"infos\":", infos)] {
        if !notes.is_empty() {
            out.extend_from_slice(name);
            append_list(notes, out, |note, out| append_text(note, out));
        }
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests;
