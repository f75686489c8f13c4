//! Every sample is in one window, and windows are as long as their age says.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn all_samples_are_there_once_and_in_order(
        steps in prop::collection::vec(1_i64..20 * DAY_MS, 0..200),
        scale in 1_i64..2_000,
    ) {
        let mut samples = SeriesSamples::default();
        let mut time_ms = 1_000_000_000_000;
        for step in steps {
            time_ms += 1 + step / scale;
            samples.times_ms.push(time_ms);
            samples.values.push(step as f64);
        }
        let now_ms = time_ms + HOUR_MS;
        let mut all = SeriesSamples::default();
        let mut froms = Vec::new();
        for (from, piece) in split(&samples, now_ms) {
            froms.push(from);
            prop_assert!(piece.times_ms[0] >= from);
            let last = *piece.times_ms.last().expect("no piece is empty");
            prop_assert!(last - from < WINDOWS_MS[2] + WINDOWS_MS[1]);
            all.append(piece);
        }
        prop_assert_eq!(all.times_ms, samples.times_ms);
        prop_assert_eq!(all.values, samples.values);
        prop_assert!(froms.is_sorted_by(|one, other| one < other));
    }
}
