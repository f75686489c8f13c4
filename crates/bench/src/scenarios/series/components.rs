//! Where the server's time went, as its own metrics say: what `/metrics` of an Egret counts in seconds.

use std::collections::BTreeMap;

use super::system::{Make, System};

/// What is counted of the engine.
const PREFIX: &str = "egret_series_";

/// How names of sums of seconds end.
const SUFFIXES: [&str; 2] = ["_seconds_total", "_seconds_sum"];

/// Seconds by component.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Components(BTreeMap<String, f64>);

impl Components {
    /// As they are now; none where the server tells none.
    pub(super) fn of(system: &System) -> Self {
        let said = match system.make {
            Make::Egret => system.ask("GET", "/metrics").unwrap_or_default(),
            Make::Prometheus | Make::VictoriaMetrics => String::new(),
        };
        Self::parse(&said)
    }

    fn parse(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.strip_prefix(PREFIX));
        let seconds = lines.filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let name = SUFFIXES
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix))?;
            // Of labels only the values tell components apart.
            let values = labels.split('"').skip(1).step_by(2);
            let parts: Vec<&str> = std::iter::once(name).chain(values).collect();
            Some((parts.join("_"), value.parse().ok()?))
        });
        Self(seconds.collect())
    }

    /// Milliseconds by component since then, where there were any.
    pub(super) fn since(&self, before: &Self) -> Vec<(String, f64)> {
        let grown = self.0.iter().map(|(name, seconds)| {
            let earlier = before.0.get(name).copied().unwrap_or(0.0);
            (name.clone(), (seconds - earlier) * 1_000.0)
        });
        grown.filter(|(_, ms)| *ms > 0.0).collect()
    }
}

#[cfg(test)]
mod tests;
