//! Where the server's time went, as its own metrics say: what `/metrics` of an Egret counts in
//! seconds.

use std::collections::BTreeMap;

use super::system::{System, Vendor};

/// What counts them, up to the component's name.
const PREFIX: &str = "egret_series_component_seconds_sum{component=\"";

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Components(BTreeMap<String, f64>);

impl Components {
    /// As they are now; none where the server tells none.
    pub(super) fn read(system: &System) -> Self {
        let text = match system.vendor {
            Vendor::Egret => system.send_request("GET", "/metrics").unwrap_or_default(),
            Vendor::Prometheus | Vendor::VictoriaMetrics => String::new(),
        };
        Self::parse(&text)
    }

    /// What a gauge of the series engine says; nothing where the server has none.
    pub(super) fn read_gauge(system: &System, name: &str) -> Option<f64> {
        let text = match system.vendor {
            Vendor::Egret => system.send_request("GET", "/metrics").ok()?,
            Vendor::Prometheus | Vendor::VictoriaMetrics => return None,
        };
        let mut lines = text.lines();
        lines.find_map(|line| {
            let value = line.strip_prefix("egret_series_")?.strip_prefix(name)?;
            value.strip_prefix(' ')?.parse().ok()
        })
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.strip_prefix(PREFIX));
        let seconds = lines.filter_map(|line| {
            let (name, value) = line.split_once("\"} ")?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(seconds.collect())
    }

    /// Milliseconds by component since then, where there were any.
    pub(super) fn since(&self, before: &Self) -> Vec<(String, f64)> {
        let differences = self.0.iter().map(|(name, seconds)| {
            let earlier = before.0.get(name).copied().unwrap_or(0.0);
            (name.clone(), (seconds - earlier) * 1_000.0)
        });
        differences.filter(|(_, ms)| *ms > 0.0).collect()
    }
}

#[cfg(test)]
mod tests;
