//! Merging against a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn samples(of: &BTreeMap<TimeMs, f64>) -> SeriesSamples {
    SeriesSamples {
        times_ms: of.keys().copied().collect(),
        values: of.values().copied().collect(),
        ..SeriesSamples::default()
    }
}

fn any_samples() -> impl Strategy<Value = BTreeMap<TimeMs, f64>> {
    prop::collection::btree_map(-50..50_i64, -1e3..1e3_f64, 0..40)
}

proptest! {
    #[test]
    fn the_newer_sample_counts(old in any_samples(), newer in any_samples()) {
        let mut merged = samples(&old);
        merge_newer(&mut merged, &samples(&newer));
        let mut expected = old;
        expected.extend(newer);
        prop_assert_eq!(merged.times_ms, samples(&expected).times_ms);
        prop_assert_eq!(merged.values, samples(&expected).values);
    }

    #[test]
    fn the_last_of_each_interval_is_kept(all in any_samples(), interval_ms in 1..20_i64) {
        let mut kept = samples(&all);
        keep_last_of_intervals(interval_ms, &mut kept);
        let mut expected = BTreeMap::new();
        for (time_ms, value) in all {
            expected.insert(time_ms.div_euclid(interval_ms), (time_ms, value));
        }
        let expected: BTreeMap<TimeMs, f64> = expected.into_values().collect();
        prop_assert_eq!(kept.times_ms, samples(&expected).times_ms);
        prop_assert_eq!(kept.values, samples(&expected).values);
    }
}
