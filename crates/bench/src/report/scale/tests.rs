//! Places on axes, and the values that are named.

use super::*;

fn names(scale: Scale, unit: &str) -> Vec<String> {
    scale.ticks(unit).into_iter().map(|(_, name)| name).collect()
}

#[test]
fn an_axis_from_zero_ends_at_a_round_value() {
    assert_eq!(Scale::from_zero(4.4), Scale::Linear { from: 0.0, to: 5.0 });
    assert_eq!(
        names(Scale::from_zero(4.4), "ms"),
        ["0 ms", "1 ms", "2 ms", "3 ms", "4 ms", "5 ms"]
    );
    assert_eq!(names(Scale::from_zero(500.0), "count").last().unwrap(), "500");
    assert_eq!(Scale::from_zero(0.0), Scale::from_zero(1.0));
    assert_eq!(Scale::from_zero(f64::NAN), Scale::from_zero(1.0));
}

#[test]
fn a_logarithmic_axis_names_round_values_and_not_too_many() {
    let scale = |from, to| Scale::Log { from, to };
    assert_eq!(names(scale(0.9, 12.0), "ms"), ["1 ms", "2 ms", "5 ms", "10 ms"]);
    assert_eq!(names(scale(0.0009, 12_000.0), "ms").len(), 8);
    assert_eq!(names(scale(0.85, 1.21), "percent"), ["−10%", "0%", "+10%", "+20%"]);
}

#[test]
fn shares_have_the_same_room_for_every_nine() {
    let scale = Scale::Nines { count: 3.0 };
    assert_eq!(names(scale, ""), ["0%", "50%", "90%", "99%", "99.9%"]);
    for (share, position) in [(0.0, 0.0), (0.9, 1.0 / 3.0), (0.99, 2.0 / 3.0), (1.0, 1.0)] {
        assert!((scale.position(share) - position).abs() < 1e-9, "{share}");
    }
}

#[test]
fn what_lies_outside_is_drawn_at_the_end() {
    let scale = Scale::Log { from: 1.0, to: 10.0 };
    assert_eq!(scale.position(0.0), 0.0);
    assert_eq!(scale.position(-1.0), 0.0);
    assert_eq!(scale.position(1e9), 1.0);
}

#[test]
fn values_that_are_no_latencies_still_make_an_axis() {
    let scale = Scale::log_around([0.0, -1.0, f64::NAN]);
    assert!(scale.position(1.0).is_finite());
    let one = Scale::log_around([5.0]);
    assert!(one.position(5.0) > 0.0 && one.position(5.0) < 1.0);
}
