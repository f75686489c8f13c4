//! Against what can be read off the fleet directly.

use super::super::fleet::{CPU_SECONDS, LOAD1, MEMORY_BYTES};
use super::*;

fn catalog() -> Catalog {
    Catalog::new(Fleet { seed: 1, series: 1_600, begin_ms: 1_795_000_020_000 })
}

/// The number of the series of a node's load, and its labels.
fn load(node: u32) -> u32 {
    160 * node + 156
}

const AT_STEP: u64 = 40;

/// Everything of 40 steps is there, nothing of later ones.
fn at_ms(catalog: &Catalog) -> i64 {
    catalog.fleet.step_ms(AT_STEP)
}

fn node(catalog: &Catalog, number: u32) -> Selector {
    Selector::new(LOAD1).with_label("node", catalog.fleet.node_name(number))
}

#[test]
fn the_last_sample_is_that_of_the_step_before() {
    let catalog = catalog();
    let got = catalog.evaluate(&node(&catalog, 3).latest(), at_ms(&catalog));
    let [(labels, value)] = &got[..] else { panic!("{got:?}") };
    assert_eq!(*value, catalog.fleet.shape(load(3)).value_at(AT_STEP - 1));
    assert_eq!(labels["__name__"], LOAD1);
    // There is none for this long after the last one, and none before the first.
    let seen = |at_ms: i64| catalog.evaluate(&node(&catalog, 3).latest(), at_ms).len();
    assert_eq!(seen(catalog.fleet.begin_ms), 0);
    assert_eq!(seen(catalog.fleet.step_ms(1)), 1);
}

#[test]
fn windows_hold_the_samples_of_their_steps() {
    let catalog = catalog();
    let count = node(&catalog, 3).over_minutes(WindowFunction::Count, 5);
    let got = catalog.evaluate(&count, at_ms(&catalog));
    assert_eq!(got[0].1, 20.0);
    assert!(!got[0].0.contains_key("__name__"));
    let max =
        catalog.evaluate(&node(&catalog, 3).over_minutes(WindowFunction::Max, 5), at_ms(&catalog));
    let values = (AT_STEP - 20..AT_STEP).map(|step| catalog.fleet.shape(load(3)).value_at(step));
    assert_eq!(max[0].1, values.fold(0.0, f64::max));
    let earlier = node(&catalog, 3).over_minutes_offset(WindowFunction::Last, 1, 5);
    let earlier = catalog.evaluate(&earlier, at_ms(&catalog));
    assert_eq!(earlier[0].1, catalog.fleet.shape(load(3)).value_at(AT_STEP - 21));
    assert_eq!(earlier[0].0["__name__"], LOAD1);
}

#[test]
fn groups_and_ranks_are_of_the_labels_that_are_named() {
    let catalog = catalog();
    let at_ms = at_ms(&catalog);
    let values: Vec<f64> =
        (0..10).map(|node| catalog.fleet.shape(load(node)).value_at(AT_STEP - 1)).collect();
    let all = Selector::new(LOAD1).latest();
    let sum = catalog.evaluate(&all.clone().sum_by(&[]), at_ms);
    assert!((sum[0].1 - values.iter().sum::<f64>()).abs() < 1e-9);
    assert_eq!(sum[0].0, Labels::new());
    let zones = catalog.evaluate(&all.clone().aggregate_by(Aggregate::Count, &["zone"]), at_ms);
    assert_eq!(zones.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [4.0, 3.0, 3.0]);
    let top =
        catalog.evaluate(&all.clone().aggregate_with_parameter(Aggregate::Topk, 2.0, &[]), at_ms);
    let mut sorted = values.clone();
    sorted.sort_by(|one, other| other.total_cmp(one));
    assert_eq!(top.iter().map(|(_, value)| *value).collect::<Vec<_>>(), sorted[..2]);
    let least = sorted[5];
    let few = catalog.evaluate(&all.clone().compare_with(ExprOperator::Less, least), at_ms);
    assert_eq!(few.len(), 4);
    let but_one =
        all.binary(ExprOperator::Unless, Matching::On(vec!["node"]), node(&catalog, 0).latest());
    assert_eq!(catalog.evaluate(&but_one, at_ms).len(), 9);
}

#[test]
fn vectors_are_matched_by_the_labels_that_are_named() {
    let catalog = catalog();
    let at_ms = at_ms(&catalog);
    let memory = |labels: &[&'static str]| Selector::new(MEMORY_BYTES).latest().sum_by(labels);
    let share = memory(&["service", "pod"]).binary(
        ExprOperator::Divide,
        Matching::OnGroupLeft(vec!["service"]),
        memory(&["service"]),
    );
    let shares = catalog.evaluate(&share, at_ms);
    assert_eq!(shares.len(), 40);
    let sum: f64 = shares.iter().map(|(_, value)| value).sum();
    assert!((sum - f64::from(catalog.fleet.service_count())).abs() < 1e-9);
    assert!(shares.iter().all(|(labels, _)| labels.len() == 2));
    let both = memory(&["pod", "container"]).binary(
        ExprOperator::Divide,
        Matching::Ignoring(vec!["job"]),
        memory(&["pod", "container", "job"]),
    );
    let ones = catalog.evaluate(&both, at_ms);
    assert_eq!((ones.len(), ones[7].1), (80, 1.0));
}

#[test]
fn subqueries_are_asked_at_whole_minutes() {
    let catalog = catalog();
    let at_ms = at_ms(&catalog) + 15_000;
    let counted = Selector::new(CPU_SECONDS)
        .latest()
        .aggregate_by(Aggregate::Count, &[])
        .over_minute_steps(WindowFunction::Count, 5);
    assert_eq!(catalog.evaluate(&counted, at_ms)[0].1, 5.0);
    let last = node(&catalog, 0).latest().over_minute_steps(WindowFunction::Last, 5);
    let minute_ms = at_ms - at_ms % 60_000;
    let expected = catalog.evaluate(&node(&catalog, 0).latest(), minute_ms)[0].1;
    assert_eq!(catalog.evaluate(&last, at_ms)[0].1, expected);
}

#[test]
fn what_is_not_there_is_absent() {
    let catalog = catalog();
    let at_ms = at_ms(&catalog);
    let missing = Selector::new(LOAD1).with_label("node", "none").with_label_not("zone", "x");
    let labels = Labels::from([("node".to_owned(), "none".to_owned())]);
    assert_eq!(catalog.evaluate(&Expr::Absent(missing), at_ms), [(labels, 1.0)]);
    assert_eq!(catalog.evaluate(&Expr::Absent(node(&catalog, 0)), at_ms), []);
}
