//! What ranges do not see.

use egret_metrics_model::STALE_NAN_BITS;

use super::*;

#[test]
fn markers_are_taken_out() {
    let mut columns = SampleColumns::default();
    let stale = f64::from_bits(STALE_NAN_BITS);
    for (time, value) in [(1, stale), (2, 2.0), (3, f64::NAN), (4, stale), (5, 5.0)] {
        columns.push(time, value);
    }
    let ended = FloatHistogram { sum: stale, ..FloatHistogram::default() };
    columns.push_histogram(6, Arc::new(ended));
    assert_eq!(columns.len(), 6);
    columns.drop_stale();
    assert_eq!(columns.times, [2, 3, 5]);
    assert_eq!(columns.values.len(), 3);
}
