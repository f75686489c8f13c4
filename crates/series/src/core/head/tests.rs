//! Against a plain map of times.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn read(samples: &Samples, start: TimeMs, end: TimeMs) -> Vec<(TimeMs, f64)> {
    let mut read = Vec::new();
    samples.now().read(start, end, &mut read);
    read
}

proptest! {
    #[test]
    fn samples_are_there_in_order_however_they_came(
        times in prop::collection::vec((0_i64..3_000, 0_u8..10), 0..900),
        start in 0_i64..3_000,
        length in 0_i64..3_000,
    ) {
        let mut head = Head::default();
        let samples = head.add(3);
        let mut model: BTreeMap<TimeMs, f64> = BTreeMap::new();
        let mut newest = 0;
        for (step, (time_ms, how)) in times.into_iter().enumerate() {
            // Most come in order.
            let time_ms = if how < 8 { newest + 1 } else { time_ms };
            newest = newest.max(time_ms);
            if model.contains_key(&time_ms) {
                continue;
            }
            let mut columns = SampleBatch::default();
            columns.push(3, time_ms, step as f64);
            columns.push(9, time_ms, 0.0);
            let is_late = model.last_key_value().is_some_and(|(last, _)| *last > time_ms);
            let mut told = Vec::new();
            head.take(&columns, |at, taken| told.push((at, taken)));
            prop_assert_eq!(told, if is_late { vec![(0, Taken::Late)] } else { Vec::new() });
            model.insert(time_ms, step as f64);
        }
        let end = start + length;
        let expected: Vec<_> = model.range(start..=end).map(|(time_ms, value)| (*time_ms, *value)).collect();
        prop_assert_eq!(read(&samples, start, end), expected);
        let all: Vec<_> = model.into_iter().collect();
        prop_assert_eq!(read(&samples, TimeMs::MIN, TimeMs::MAX), all);
    }
}

#[test]
fn a_sample_that_was_there_is_no_error_and_another_value_is() {
    let mut head = Head::default();
    let samples = head.add(0);
    let mut take = |time_ms: TimeMs, value: f64| {
        let mut columns = SampleBatch::default();
        columns.push(0, time_ms, value);
        let mut told = Taken::InOrder;
        head.take(&columns, |_, taken| told = taken);
        told
    };
    assert_eq!(take(10, 1.0), Taken::InOrder);
    assert_eq!(take(10, 1.0), Taken::Same);
    assert_eq!(take(10, f64::NAN), Taken::Conflict);
    assert_eq!(take(5, 2.0), Taken::Late);
    assert_eq!(take(5, 2.0), Taken::Same);
    assert_eq!(take(5, 3.0), Taken::Conflict);
    assert_eq!(read(&samples, 0, 100), [(5, 2.0), (10, 1.0)]);
}
