//! The way that is expected to take less is taken.

use super::*;

fn way(costs: &CostModel, changes: i64) -> RefreshStrategy {
    let situation = CostInputs { mode: Mode::Auto, changes, rows: 100_000 };
    choose_strategy(situation, costs).0
}

#[test]
fn few_changes_are_applied_and_many_are_not() {
    let mut costs = CostModel::default();
    assert_eq!(way(&costs, 150_000), RefreshStrategy::Incremental);
    assert_eq!(way(&costs, 200_000), RefreshStrategy::Full);
    costs.record_duration(RefreshStrategy::Full, 0, 150.0);
    assert_eq!(way(&costs, 1_000), RefreshStrategy::Incremental);
    assert_eq!(way(&costs, 100_000), RefreshStrategy::Incremental, "never tried");
    assert_eq!(way(&costs, 300_000), RefreshStrategy::Full, "by what is usual");
    for changes in [1_000, 2_000, 10_000] {
        costs.record_duration(RefreshStrategy::Incremental, changes, 1.0 + changes as f64 * 0.002);
    }
    assert_eq!(way(&costs, 60_000), RefreshStrategy::Incremental, "by what was seen");
    assert_eq!(way(&costs, 100_000), RefreshStrategy::Full);
    assert!((costs.incremental_ms(50_000) - 101.0).abs() < 0.01);
}

#[test]
fn equal_samples_give_a_line_through_the_base_cost() {
    let mut costs = CostModel::default();
    for _ in 0..100 {
        costs.record_duration(RefreshStrategy::Incremental, 1_000, 12.0);
    }
    assert!((costs.incremental_ms(1_000) - 12.0).abs() < 0.01);
    assert!((costs.incremental_ms(2_000) - 22.0).abs() < 0.01);
    assert!(costs.incremental_ms(0) <= 2.01);
}

/// The first had to make plans, another to wait for a lock.
#[test]
fn an_outlier_has_little_influence() {
    let mut costs = CostModel::default();
    costs.record_duration(RefreshStrategy::Full, 0, 20.0);
    costs.record_duration(RefreshStrategy::Incremental, 1_700, 55.0);
    assert_eq!(way(&costs, 1_700), RefreshStrategy::Full);
    costs.record_duration(RefreshStrategy::Full, 0, 20.0);
    assert_eq!(way(&costs, 1_700), RefreshStrategy::Incremental, "tried again");
    for took_ms in [6.0, 5.0, 90.0, 7.0] {
        costs.record_duration(RefreshStrategy::Incremental, 1_700, took_ms);
    }
    assert!(costs.incremental_ms(1_700) < 8.0);
    assert_eq!(way(&costs, 1_700), RefreshStrategy::Incremental);
}

#[test]
fn a_far_slower_strategy_is_not_retried() {
    let mut costs = CostModel::default();
    costs.record_duration(RefreshStrategy::Incremental, 1_700, 100.0);
    for _ in 0..100 {
        costs.record_duration(RefreshStrategy::Full, 0, 20.0);
        assert_eq!(way(&costs, 1_700), RefreshStrategy::Full);
    }
}

#[test]
fn an_explicit_mode_decides_the_strategy() {
    let mut costs = CostModel::default();
    costs.record_duration(RefreshStrategy::Full, 0, 1.0);
    let situation = |mode| CostInputs { mode, changes: 1_000_000, rows: 10 };
    assert_eq!(
        choose_strategy(situation(Mode::Incremental), &costs).0,
        RefreshStrategy::Incremental
    );
    assert_eq!(
        choose_strategy(situation(Mode::Full), &CostModel::default()).0,
        RefreshStrategy::Full
    );
}

/// As after a start of Egret: nothing was seen yet.
#[test]
fn no_estimate_is_reported_without_samples() {
    let situation = CostInputs { mode: Mode::Auto, changes: 3_000, rows: 3_000 };
    let mut costs = CostModel::default();
    costs.record_duration(RefreshStrategy::Full, 0, 20.0);
    let (_, why) = choose_strategy(situation, &costs);
    assert_eq!(why, "3000 changes: not timed yet, full 20.0 ms");
    costs.record_duration(RefreshStrategy::Incremental, 3_000, 2_200.0);
    let (_, why) = choose_strategy(situation, &costs);
    assert_eq!(why, "3000 changes: 2200.0 ms expected, full 20.0 ms");
}
