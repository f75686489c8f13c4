//! Series are different, have the labels that queries ask for, and fit together.

use std::collections::{BTreeSet, HashSet};

use super::*;

const FLEET: Fleet = Fleet { seed: 1, series: 10_000, begin_ms: 1_795_000_020_000 };

fn label(labels: &LabelPairs, name: &str) -> String {
    let found = labels.iter().find(|(one, _)| *one == name);
    found.map_or_else(String::new, |(_, value)| value.clone())
}

#[test]
fn no_two_series_are_the_same_and_labels_ascend() {
    let all: HashSet<LabelPairs> = (0..FLEET.series).map(|series| FLEET.labels(series)).collect();
    assert_eq!(all.len(), FLEET.series as usize);
    for labels in &all {
        assert!(labels.windows(2).all(|two| two[0].0 < two[1].0), "{labels:?}");
    }
    let names: BTreeSet<&str> = all.iter().flatten().map(|(name, _)| *name).collect();
    assert!(names.len() > 12, "{names:?}");
    let mean = all.iter().map(Vec::len).sum::<usize>() as f64 / all.len() as f64;
    assert!((10.0..12.0).contains(&mean), "{mean} labels a series");
}

#[test]
fn every_metric_of_a_pod_and_a_node_is_there() {
    let of_pod: Vec<String> =
        (0..SERIES_PER_POD).map(|series| label(&FLEET.labels(series), "__name__")).collect();
    let count = |name: &str| of_pod.iter().filter(|one| *one == name).count();
    assert_eq!(
        [CPU_SECONDS, MEMORY_BYTES, REQUESTS_TOTAL, DURATION_BUCKET].map(count),
        [2, 2, 6, 22]
    );
    assert_eq!([DURATION_SUM, DURATION_COUNT, POD_PHASE].map(count), [2, 2, 3]);
    let of_node = SERIES_PER_NODE - 4..SERIES_PER_NODE;
    let of_node: Vec<String> =
        of_node.map(|series| label(&FLEET.labels(series), "__name__")).collect();
    assert_eq!(of_node, NODE_METRICS);
}

#[test]
fn a_histogram_fits_together() {
    let of_method = |series: &u32| label(&FLEET.labels(*series), "method") == "GET";
    let named = |name: &str| {
        let all = (0..SERIES_PER_POD).filter(of_method);
        let of_name = all.filter(|series| label(&FLEET.labels(*series), "__name__") == name);
        of_name.map(|series| FLEET.shape(series)).collect::<Vec<_>>()
    };
    let (buckets, count, sum) =
        (named(DURATION_BUCKET), named(DURATION_COUNT)[0], named(DURATION_SUM)[0]);
    for step in (0..3_000).step_by(7) {
        let values: Vec<f64> = buckets.iter().map(|bucket| bucket.value_at(step)).collect();
        assert!(values.windows(2).all(|two| two[0] <= two[1]), "{values:?}");
        assert_eq!(values.last(), Some(&count.value_at(step)));
        assert!(sum.value_at(step) <= count.value_at(step) * 5.0);
    }
}

#[test]
fn samples_are_within_their_step_and_targets_have_theirs_together() {
    let mut shifts = BTreeSet::new();
    for series in 0..1_600 {
        let shift_ms = FLEET.shift_ms(series);
        assert!((500..14_500).contains(&shift_ms), "{shift_ms}");
        let sample_ms = FLEET.step_ms(3) + shift_ms;
        assert!((FLEET.step_ms(3)..FLEET.step_ms(4)).contains(&sample_ms));
        shifts.insert(shift_ms);
    }
    // Ten nodes with four pods each, few of which happen to share one.
    assert!((45..=50).contains(&shifts.len()), "{shifts:?}");
}
