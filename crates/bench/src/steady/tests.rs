//! A flat rate ends the warm-up, a ramp does not, noise neither hides nor feigns a ramp.

use super::*;

/// How many windows it took; `None` when the rate was never steady.
fn windows(rates: impl IntoIterator<Item = u64>) -> Option<usize> {
    let mut detector = Detector::default();
    rates
        .into_iter()
        .position(|rate| detector.push(rate))
        .map(|index| index + 1)
}

#[test]
fn a_flat_rate_is_steady_as_soon_as_it_can_be_told() {
    assert_eq!(windows([500; 20]), Some(6));
}

#[test]
fn a_ramp_is_not_steady_until_it_ends() {
    assert_eq!(windows((1..=20).map(|step| step * 100)), None);
    let ramp_then_flat = (1..=10).map(|step| step * 100).chain([1_000; 20]);
    let found = windows(ramp_then_flat).unwrap();
    assert!((12..=16).contains(&found), "{found}");
}

#[test]
fn noise_is_no_ramp() {
    let noisy = [500, 530, 480, 515, 470, 520, 505, 490];
    assert_eq!(windows(noisy), Some(6));
}

#[test]
fn noise_that_would_hide_a_ramp_is_not_steady() {
    assert_eq!(windows([10, 900, 20, 1_500, 3, 900, 1_900, 4]), None);
}

#[test]
fn a_server_that_does_nothing_is_not_steady() {
    assert_eq!(windows([0; 20]), None);
}

#[test]
fn the_line_is_that_of_least_squares() {
    let slope = line([1.0, 2.0, 4.0, 5.0].into_iter(), 0.5).unwrap();
    // By hand: 2.8 per second through a mean of 3; residuals sum to 0.2.
    assert!((slope.relative - 2.8 / 3.0).abs() < 1e-12, "{slope:?}");
    let error = (0.2_f64 / 2.0 / 1.25).sqrt() / 3.0;
    assert!((slope.standard_error - error).abs() < 1e-12, "{slope:?}");
}
