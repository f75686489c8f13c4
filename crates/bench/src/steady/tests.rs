//! What is flat ends the warm-up, a ramp does not, noise neither hides nor feigns a ramp.

use super::*;

/// How many windows it took; `None` when it was never steady.
fn windows(values: impl IntoIterator<Item = u64>) -> Option<usize> {
    let mut detector = Detector::new(RATE_SLOPE_MAX);
    values
        .into_iter()
        .enumerate()
        .position(|(index, value)| detector.push(WARMUP_WINDOW * (index as u32 + 1), value as f64))
        .map(|index| index + 1)
}

/// The same on every machine: a value between 0 and 1 for each index.
fn noise(index: u64) -> f64 {
    use rand::RngExt;
    crate::schedule::seeded_random(7, index).random()
}

#[test]
fn what_is_flat_is_steady_as_soon_as_it_can_be_told() {
    assert_eq!(windows([500; 20]), Some(6));
}

#[test]
fn a_ramp_is_not_steady_until_it_ends() {
    assert_eq!(windows((1..=20).map(|step| step * 100)), None);
    let ramp_then_flat = (1..=10).map(|step| step * 100).chain([1_000; 20]);
    let found = windows(ramp_then_flat).unwrap();
    assert!((12..=16).contains(&found), "{found}");
    let falling_then_flat = (0..10).map(|step| 2_000 - step * 100).chain([1_000; 20]);
    assert!(windows(falling_then_flat).unwrap() > 11);
}

#[test]
fn noise_takes_longer_and_is_no_ramp() {
    // Up to 5% to either side.
    let noisy = (0..60).map(|index| (950.0 + 100.0 * noise(index)) as u64);
    let found = windows(noisy).unwrap();
    assert!((7..=20).contains(&found), "{found}");
}

/// That the slope is not told from zero was enough once.
#[test]
fn noise_does_not_hide_a_ramp() {
    // A tenth more in every second, with up to a fifth of noise to either side.
    let noisy = (0..20).map(|index| {
        let rising = 1_000.0 * (1.0 + 0.05 * index as f64);
        (rising * (0.8 + 0.4 * noise(index))) as u64
    });
    assert_eq!(windows(noisy), None);
    assert_eq!(windows([10, 900, 20, 1_500, 3, 900, 1_900, 4]), None);
}

#[test]
fn a_server_that_does_nothing_is_not_steady() {
    assert_eq!(windows([0; 20]), None);
}

#[test]
fn the_line_is_that_of_least_squares() {
    let points = [(0.0, 1.0), (0.5, 2.0), (1.0, 4.0), (1.5, 5.0)];
    let slope = fit_line(points.into_iter()).unwrap();
    // By hand: 2.8 per second through a mean of 3; residuals sum to 0.2.
    assert!((slope.relative - 2.8 / 3.0).abs() < 1e-12, "{slope:?}");
    let error = (0.2_f64 / 2.0 / 1.25).sqrt() / 3.0;
    assert!((slope.standard_error - error).abs() < 1e-12, "{slope:?}");
}

#[test]
fn the_pulse_has_the_typical_latency_of_each_window() {
    let pulse = RateCounter::default();
    let begin = pulse.read();
    pulse.add(Duration::from_micros(100));
    pulse.add(Duration::from_micros(400));
    let middle = pulse.read();
    assert_eq!(middle.ended_since(&begin), 2);
    let found = middle.latency_since(&begin).unwrap();
    assert!((found - 200.0).abs() < 0.1, "{found}");
    assert_eq!(pulse.read().latency_since(&middle), None);
    pulse.add(Duration::ZERO);
    let found = pulse.read().latency_since(&middle).unwrap();
    assert!((found - 1.0).abs() < 1e-9, "{found}");
}

/// In an open loop as many end in a window as are due, however slow the server still is.
#[test]
fn a_server_that_warms_up_under_a_schedule_is_not_steady() {
    let pulse = RateCounter::default();
    let mut rate = Detector::new(RATE_SLOPE_MAX);
    let mut latency = Detector::new(LATENCY_SLOPE_MAX);
    let mut before = pulse.read();
    for window in 1..=10_u32 {
        for _ in 0..250 {
            pulse.add(Duration::from_millis(20) / window);
        }
        let now = pulse.read();
        let at = WARMUP_WINDOW * window;
        let is_constant = rate.push(at, now.ended_since(&before) as f64);
        assert_eq!(is_constant, window >= 6);
        assert!(!latency.push(at, now.latency_since(&before).unwrap()));
        before = now;
    }
}
