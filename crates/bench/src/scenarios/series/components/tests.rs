//! What is read of `/metrics`.

use super::*;

#[test]
fn seconds_are_told_by_component() {
    let before = "egret_series_component_seconds_sum{component=\"append\"} 1.5\n";
    let after = "\
# HELP egret_series_component_seconds Time spent in each component.
egret_series_component_seconds_sum{component=\"append\"} 2.0
egret_series_component_seconds_count{component=\"append\"} 7
egret_series_component_seconds_sum{component=\"search\"} 0.25
egret_series_component_seconds_sum{component=\"log\"} 0
egret_queue_component_seconds_sum{component=\"apply\"} 7
";
    let since = Components::parse(after).since(&Components::parse(before));
    let expected = [("append", 500.0), ("search", 250.0)];
    assert_eq!(since, expected.map(|(name, ms)| (name.to_owned(), ms)));
}
