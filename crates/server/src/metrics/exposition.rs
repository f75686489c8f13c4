//! The two text formats of `/metrics`: OpenMetrics, and Prometheus's older one for clients that do
//! not ask for OpenMetrics.

use std::fmt::Write;

use prometheus_client::registry::Registry;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics, version 1.0 (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).
    OpenMetrics,
    /// Prometheus text format 0.0.4.
    Prometheus,
}

impl Exposition {
    /// The format for a request with this `Accept` header.
    pub(crate) fn from_accept_header(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Exposition::OpenMetrics
        } else {
            Exposition::Prometheus
        }
    }

    /// The format's media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Writes a registry's metrics.
    pub(super) fn render(self, registry: &Registry) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry)
            .expect("writing to a string cannot fail and no collector here does");
        match self {
            Exposition::OpenMetrics => text,
            Exposition::Prometheus => convert_to_prometheus(&text),
        }
    }
}

/// Rewrites the descriptions of OpenMetrics, where they differ, as the older format has them.
///
/// There a counter's description bears the name of its sample, with `_total`; info is a gauge
/// whose name ends in `_info`; units and the end are not marked.
pub(super) fn convert_to_prometheus(text: &str) -> String {
    let mut kinds: Vec<(&str, &str)> = Vec::new();
    for line in text.lines() {
        if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            kinds.push((name, kind));
        }
    }
    let rename = |name: &str| match kinds.iter().find(|(known, _)| *known == name) {
        Some((_, "counter")) => format!("{name}_total"),
        Some((_, "info")) => format!("{name}_info"),
        _ => name.to_owned(),
    };
    let mut output = String::with_capacity(text.len() + 256);
    for line in text.lines() {
        let result = if let Some((name, help)) = split_description(line, "# HELP ") {
            writeln!(output, "# HELP {} {help}", rename(name))
        } else if let Some((name, kind)) = split_description(line, "# TYPE ") {
            let kind = match kind {
                "info" => "gauge",
                "unknown" => "untyped",
                kind => kind,
            };
            writeln!(output, "# TYPE {} {kind}", rename(name))
        } else if line.starts_with("# ") {
            Ok(())
        } else {
            writeln!(output, "{line}")
        };
        result.expect("writing to a string cannot fail");
    }
    output
}

fn split_description<'a>(line: &'a str, prefix: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(prefix)?.split_once(' ')
}
