//! Writing the text formats.

use std::fmt::Write as _;

use egret_metrics_model::{METRIC_NAME, TimeMs};

use super::{MetricKind, TextFormat, is_name_byte};

fn is_plain_name(name: &str, may_have_colon: bool) -> bool {
    name.bytes().all(|byte| is_name_byte(byte, may_have_colon))
        && !name.is_empty()
        && !name.as_bytes()[0].is_ascii_digit()
}

fn append_escaped(text: &str, has_quotes: bool, out: &mut String) {
    for next in text.chars() {
        match next {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if has_quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

fn append_quoted(text: &str, out: &mut String) {
    out.push('"');
    append_escaped(text, true, out);
    out.push('"');
}

fn append_name(name: &str, may_have_colon: bool, out: &mut String) {
    if is_plain_name(name, may_have_colon) { out.push_str(name) } else { append_quoted(name, out) }
}

/// Appends a number as the formats have it: `+Inf`, `-Inf`, `NaN`, exponents where digits would be
/// many.
pub(crate) fn append_number(value: f64, out: &mut String) {
    let magnitude = value.abs();
    let result = match value {
        _ if value.is_nan() => {
            out.push_str("NaN");
            Ok(())
        }
        f64::INFINITY => {
            out.push_str("+Inf");
            Ok(())
        }
        f64::NEG_INFINITY => {
            out.push_str("-Inf");
            Ok(())
        }
        _ if magnitude != 0.0 && !(1e-5..1e21).contains(&magnitude) => write!(out, "{value:e}"),
        _ => write!(out, "{value}"),
    };
    result.expect("a string takes whatever is written");
}

/// Appends what a metric is and means, and what it is measured in; what is empty is left out. Only
/// OpenMetrics says units.
pub fn append_metadata(
    metric: &str,
    kind: MetricKind,
    help: &str,
    unit: &str,
    format: TextFormat,
    out: &mut String,
) {
    let is_open_metrics = format == TextFormat::OpenMetrics;
    let word = match kind {
        MetricKind::Unknown if !is_open_metrics => "untyped",
        MetricKind::GaugeHistogram if !is_open_metrics => "histogram",
        MetricKind::Info | MetricKind::StateSet if !is_open_metrics => "gauge",
        _ => kind.as_str(),
    };
    let push_prefix = |keyword: &str, out: &mut String| {
        out.push_str(keyword);
        append_name(metric, true, out);
        out.push(' ');
    };
    if !help.is_empty() {
        push_prefix("# HELP ", out);
        append_escaped(help, is_open_metrics, out);
        out.push('\n');
    }
    push_prefix("# TYPE ", out);
    out.push_str(word);
    out.push('\n');
    if is_open_metrics && !unit.is_empty() {
        push_prefix("# UNIT ", out);
        out.push_str(unit);
        out.push('\n');
    }
}

/// Appends a sample. One of the labels is `__name__`.
pub fn append_sample<'a>(
    labels: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    value: f64,
    time_ms: Option<TimeMs>,
    format: TextFormat,
    out: &mut String,
) {
    let metric =
        labels.clone().find(|(name, _)| *name == METRIC_NAME).map_or("", |(_, value)| value);
    let is_name_outside = is_plain_name(metric, true);
    let mut separator = '{';
    if is_name_outside {
        out.push_str(metric);
    } else {
        out.push('{');
        append_quoted(metric, out);
        separator = ',';
    }
    for (name, value) in labels.filter(|(name, _)| *name != METRIC_NAME) {
        out.push(separator);
        separator = ',';
        append_name(name, false, out);
        out.push('=');
        append_quoted(value, out);
    }
    if separator == ',' {
        out.push('}');
    }
    out.push(' ');
    append_number(value, out);
    if let Some(time) = time_ms {
        let result = match format {
            TextFormat::Prometheus => write!(out, " {time}"),
            TextFormat::OpenMetrics => {
                let sign = if time < 0 { "-" } else { "" };
                let magnitude = time.unsigned_abs();
                write!(out, " {sign}{}.{:03}", magnitude / 1000, magnitude % 1000)
            }
        };
        result.expect("a string takes whatever is written");
    }
    out.push('\n');
}

/// Appends what ends a text, which only OpenMetrics has.
pub fn append_end(format: TextFormat, out: &mut String) {
    if format == TextFormat::OpenMetrics {
        out.push_str("# EOF\n");
    }
}
