//! Same seed, same schedule; the spacing is what its name says.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn collect_arrivals(spacing: Spacing, rate: f64, seed: u64) -> Vec<Duration> {
    arrival_schedule(spacing, rate, MINUTE, seed).collect()
}

#[test]
fn the_same_seed_makes_the_same_schedule() {
    let one = collect_arrivals(Spacing::Poisson, 500.0, 7);
    assert_eq!(one, collect_arrivals(Spacing::Poisson, 500.0, 7));
    assert_ne!(one, collect_arrivals(Spacing::Poisson, 500.0, 8));
}

#[test]
fn a_schedule_is_portable() {
    let first = &collect_arrivals(Spacing::Poisson, 1_000.0, 1)[..3];
    expect_test::expect![[r#"
        [
            1.096794ms,
            2.22677ms,
            2.588157ms,
        ]
    "#]]
    .assert_debug_eq(&first);
}

#[test]
fn constant_arrivals_do_not_drift() {
    let drawn = collect_arrivals(Spacing::Constant, 3_000.0, 1);
    assert_eq!(drawn.len(), 180_000);
    assert_eq!(drawn[0], Duration::ZERO);
    assert_eq!(drawn[90_000], Duration::from_secs(30));
}

/// As many arrivals as this has would take a terabyte as a list.
#[test]
fn a_long_schedule_is_not_made_beforehand() {
    let day = Duration::from_secs(86_400);
    for spacing in [Spacing::Constant, Spacing::Poisson] {
        let first: Vec<Duration> = arrival_schedule(spacing, 1e6, day, 1).take(1_000).collect();
        assert!(first[999] < Duration::from_millis(2), "{spacing:?}");
    }
}

#[test]
fn poisson_gaps_are_exponential() {
    let drawn = collect_arrivals(Spacing::Poisson, 1_000.0, 3);
    // Standard deviation of a Poisson count of 60,000 is 245.
    assert!((59_000..61_000).contains(&drawn.len()), "{}", drawn.len());
    let gaps: Vec<f64> =
        drawn.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1_000.0).collect();
    let longer = |than: f64| gaps.iter().filter(|gap| **gap > than).count() as f64;
    // P(gap > t means) = e^-t.
    for (means, share) in [(1.0, 0.3679), (3.0, 0.0498)] {
        let found = longer(means) / gaps.len() as f64;
        assert!((found - share).abs() < 0.01, "{means}: {found}");
    }
}

#[test]
fn operations_draw_from_unrelated_streams() {
    use rand::RngExt;
    let drawn: std::collections::HashSet<u64> =
        (0..10_000).map(|index| seeded_random(1, index).random::<u64>()).collect();
    assert_eq!(drawn.len(), 10_000);
}
