//! Intervals of every position against a margin.

use super::*;

fn verdict(low: f64, high: f64) -> Verdict {
    let interval = Interval::towards_worse(low, high, Better::Lower);
    judge(interval, Some(interval), 0.05)
}

#[test]
fn the_place_of_the_interval_decides() {
    assert_eq!(verdict(-0.02, 0.03), Verdict::Equivalent);
    assert_eq!(verdict(0.01, 0.04), Verdict::Equivalent);
    assert_eq!(verdict(0.06, 0.12), Verdict::Worse);
    assert_eq!(verdict(0.01, 0.06), Verdict::Inconclusive);
    assert_eq!(verdict(-0.09, 0.09), Verdict::Inconclusive);
    assert_eq!(verdict(-0.09, -0.01), Verdict::Better);
    assert_eq!(verdict(-0.03, -0.01), Verdict::Equivalent);
    assert_eq!(verdict(-0.09, 0.01), Verdict::Inconclusive);
}

#[test]
fn of_a_rate_less_is_worse() {
    let interval = Interval::towards_worse(-0.12, -0.06, Better::Higher);
    assert_eq!(judge(interval, Some(interval), 0.05), Verdict::Worse);
}

#[test]
fn a_difference_must_hold_for_all_figures_together() {
    let plain = Interval::towards_worse(0.06, 0.12, Better::Lower);
    let wide = Interval::towards_worse(0.03, 0.15, Better::Lower);
    assert_eq!(judge(plain, Some(wide), 0.05), Verdict::Inconclusive);
    assert_eq!(judge(plain, None, 0.05), Verdict::Inconclusive);
    let none = Interval::towards_worse(-0.01, 0.01, Better::Lower);
    assert_eq!(judge(none, None, 0.05), Verdict::Equivalent);
}

#[test]
fn four_times_the_runs_halve_the_interval() {
    let interval = Interval::towards_worse(-0.1, 0.1, Better::Lower);
    let needed = runs_needed(interval, 0.05, 10);
    assert!((needed - 10.0 * (0.1_f64 / 1.05_f64.ln()).powi(2) * SAFETY_FACTOR).abs() < 1e-9);
}

#[test]
fn the_worst_verdict_is_the_greatest() {
    let order = [Verdict::Better, Verdict::Equivalent, Verdict::Inconclusive, Verdict::Worse];
    assert!(order.is_sorted());
    assert_eq!(order.map(Verdict::exit_code), [0, 0, 2, 1]);
}

#[test]
fn the_overall_verdict_is_the_worst_and_better_where_nothing_speaks_against_it() {
    use Verdict::{Better, Equivalent, Inconclusive, Worse};
    for (verdicts, expected) in [
        (&[Equivalent, Better][..], Some(Better)),
        (&[Equivalent, Equivalent], Some(Equivalent)),
        (&[Better, Inconclusive], Some(Inconclusive)),
        (&[Better, Inconclusive, Worse], Some(Worse)),
        (&[], None),
    ] {
        assert_eq!(Verdict::overall(verdicts.iter().copied()), expected);
    }
}
