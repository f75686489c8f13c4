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
        for (from, piece) in split_by_window(&samples, now_ms) {
            froms.push(from);
            prop_assert!(piece.times_ms[0] >= from);
            let last = *piece.times_ms.last().expect("no piece is empty");
            prop_assert!(last - from < WINDOWS_MS[3] + WINDOWS_MS[2]);
            all.append(piece);
        }
        prop_assert_eq!(all.times_ms, samples.times_ms);
        prop_assert_eq!(all.values, samples.values);
        prop_assert!(froms.is_sorted_by(|one, other| one < other));
    }
}

#[test]
fn a_head_is_written_with_each_window_that_is_over_though_the_clock_was_set_back() {
    let settle_ms = 30 * 60_000;
    let at = |hours: f64| (hours * HOUR_MS as f64) as TimeMs;
    let mut due = FlushSchedule::new(at(100.0), settle_ms);
    // Blocks have all before, or had to be written before the start.
    assert_eq!(due.due_end(at(100.0), settle_ms, at(98.0)), None);
    assert_eq!(due.due_end(at(100.0), settle_ms, at(96.0)), Some(at(98.0)));
    assert_eq!(due.due_end(at(100.4), settle_ms, at(98.0)), None);
    assert_eq!(due.due_end(at(100.5), settle_ms, at(98.0)), Some(at(100.0)));
    // It failed.
    assert_eq!(due.due_end(at(100.6), settle_ms, at(98.0)), Some(at(100.0)));
    due.mark_flushed(at(100.0));
    assert_eq!(due.due_end(at(100.7), settle_ms, at(100.0)), None);
    // Set forwards by ten days, and back.
    assert_eq!(due.due_end(at(340.5), settle_ms, at(100.0)), Some(at(340.0)));
    due.mark_flushed(at(340.0));
    assert_eq!(due.due_end(at(100.8), settle_ms, at(340.0)), None);
    assert_eq!(due.due_end(at(102.4), settle_ms, at(340.0)), None);
    assert_eq!(due.due_end(at(102.5), settle_ms, at(340.0)), Some(at(102.0)));
    due.mark_flushed(at(102.0));
    assert_eq!(due.due_end(at(104.4), settle_ms, at(340.0)), None);
    assert_eq!(due.due_end(at(104.5), settle_ms, at(340.0)), Some(at(104.0)));
}
