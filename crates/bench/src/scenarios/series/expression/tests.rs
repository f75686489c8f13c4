//! How queries are written, and how far back they reach.

use expect_test::expect;

use super::*;

#[test]
fn queries_are_written_as_promql() {
    let all = Selector::new("requests_total")
        .with_label("service", "search")
        .with_label_not("code", "200");
    let some =
        Selector::new("requests_total").with_label_in("service", vec!["a".into(), "b".into()]);
    let one = Selector::new("up").with_label("job", "node");
    let queries = [
        all.clone()
            .over_minutes(WindowFunction::Rate, 5)
            .sum_by(&["service", "code"])
            .histogram_quantile(0.9),
        some.over_minutes_offset(WindowFunction::Increase, 60, 15)
            .aggregate_without(Aggregate::Avg, &["pod"]),
        one.clone().over_minutes_with(WindowFunction::Quantile, Some(0.5), 60),
        one.clone()
            .latest()
            .aggregate_with_parameter(Aggregate::Topk, 3.0, &[])
            .compare_with(ExprOperator::Greater, 0.5),
        one.clone().latest().binary(
            ExprOperator::Divide,
            Matching::OnGroupLeft(vec!["job"]),
            all.over_minutes(WindowFunction::Rate, 5)
                .sum_by(&["job"])
                .over_minute_steps(WindowFunction::Max, 30),
        ),
        Expr::Absent(one.clone()),
        Expr::Timestamp(one),
    ];
    let written: Vec<String> = queries.iter().map(ToString::to_string).collect();
    expect![[r#"
        histogram_quantile(0.9, sum by (service, code) (rate(requests_total{service="search",code!="200"}[5m])))
        avg without (pod) (increase(requests_total{service=~"a|b"}[60m] offset 15m))
        quantile_over_time(0.5, up{job="node"}[60m])
        (topk by () (3, up{job="node"}) > 0.5)
        (up{job="node"} / on (job) group_left () max_over_time((sum by (job) (rate(requests_total{service="search",code!="200"}[5m])))[30m:1m]))
        absent(up{job="node"})
        timestamp(up{job="node"})"#]]
    .assert_eq(&written.join("\n"));
}

#[test]
fn a_query_reaches_as_far_back_as_its_longest_window() {
    let rate = Selector::new("up").over_minutes(WindowFunction::Rate, 15);
    assert_eq!(rate.lookback_ms(), 15 * MINUTE_MS);
    let before = Selector::new("up").over_minutes_offset(WindowFunction::Rate, 5, 60);
    assert_eq!(before.clone().sum_by(&[]).lookback_ms(), 65 * MINUTE_MS);
    assert_eq!(
        rate.clone().over_minute_steps(WindowFunction::Avg, 30).lookback_ms(),
        46 * MINUTE_MS
    );
    let both = rate.binary(ExprOperator::Divide, Matching::SameLabels, before);
    assert_eq!(both.lookback_ms(), 65 * MINUTE_MS);
}

#[test]
fn only_what_depends_on_values_filters() {
    let plain = Selector::new("up").latest().sum_by(&["job"]);
    assert!(!plain.clone().compare_with(ExprOperator::Multiply, 100.0).can_filter());
    assert!(
        plain
            .clone()
            .compare_with(ExprOperator::Greater, 1.0)
            .aggregate_by(Aggregate::Count, &[])
            .can_filter()
    );
    assert!(plain.aggregate_with_parameter(Aggregate::Topk, 3.0, &[]).can_filter());
}
