//! What is read of `/metrics`.

use super::*;

#[test]
fn seconds_are_told_by_component() {
    let before = "egret_series_append_seconds_total 1.5\n";
    let after = "\
# HELP egret_series_append_seconds Time spent.
egret_series_append_seconds_total 2.0
egret_series_component_seconds_total{component=\"index_search\"} 0.25
egret_series_component_seconds_total{component=\"seal\"} 0
egret_series_fsync_seconds_sum 0.125
egret_series_samples_total 99
egret_queue_append_seconds_total 7
";
    let since = Components::parse(after).since(&Components::parse(before));
    let expected = [
        ("append", 500.0),
        ("component_index_search", 250.0),
        ("fsync", 125.0),
    ];
    assert_eq!(since, expected.map(|(name, ms)| (name.to_owned(), ms)));
}
