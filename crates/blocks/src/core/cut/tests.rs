//! What chunks have in common.

use proptest::prelude::*;

use super::*;

fn every(step_ms: i64, from_ms: i64, to_ms: i64) -> Vec<TimeMs> {
    (0..).map(|at| from_ms + at * step_ms).take_while(|time_ms| *time_ms < to_ms).collect()
}

#[test]
fn two_hours_are_one_chunk() {
    let times_ms = every(15_000, 1_760_004_000_000, 1_760_011_200_000);
    assert_eq!(chunk_ranges(&times_ms), std::slice::from_ref(&(0..480)));
}

#[test]
fn a_series_that_begins_later_is_cut_where_others_are() {
    let day_ms = 24 * HOUR_MS;
    let all = every(10_000, 20_000 * day_ms, 20_003 * day_ms);
    let late = &all[5_000..];
    let ends = |times_ms: &[TimeMs]| -> Vec<TimeMs> {
        chunk_ranges(times_ms).iter().map(|range| times_ms[range.end - 1]).collect()
    };
    assert_eq!(ends(&all), ends(late));
    assert_eq!(chunk_ranges(&all), [0..8640, 8640..17280, 17280..25920]);
}

#[test]
fn the_edges_of_time_are_cut_too() {
    assert_eq!(chunk_ranges(&[i64::MIN, -1, 0, i64::MAX - 1, i64::MAX]).last(), Some(&(4..5)));
    assert!(chunk_ranges(&[]).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn chunks_are_all_samples_in_order_and_none_is_too_large(
        steps_ms in prop::collection::vec(prop_oneof![1..3_i64, 1..100_000_i64], 0..20_000),
        from_ms in -10_000_000_000_000..10_000_000_000_000_i64,
    ) {
        let mut time_ms = from_ms;
        let times_ms: Vec<TimeMs> = steps_ms.iter().map(|step_ms| { time_ms += step_ms; time_ms }).collect();
        let mut end = 0;
        for range in chunk_ranges(&times_ms) {
            prop_assert_eq!(range.start, end);
            prop_assert!(!range.is_empty() && range.len() <= CHUNK_SAMPLES_MAX);
            end = range.end;
        }
        prop_assert_eq!(end, times_ms.len());
    }
}
