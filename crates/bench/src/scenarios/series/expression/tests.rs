//! How queries are written, and how far back they reach.

use expect_test::expect;

use super::*;

#[test]
fn queries_are_written_as_promql() {
    let all = Selector::of("requests_total")
        .is("service", "search")
        .but_not("code", "200");
    let some = Selector::of("requests_total").one_of("service", vec!["a".into(), "b".into()]);
    let one = Selector::of("up").is("job", "node");
    let queries = [
        all.clone()
            .over(WindowFunction::Rate, 5)
            .sum_by(&["service", "code"])
            .quantile_of_buckets(0.9),
        some.over_before(WindowFunction::Increase, 60, 15)
            .without(Aggregate::Avg, &["pod"]),
        one.clone()
            .over_with(WindowFunction::Quantile, Some(0.5), 60),
        one.clone()
            .last()
            .with(Aggregate::Topk, 3.0, &[])
            .than(ExprOperator::Greater, 0.5),
        one.clone().last().and_then(
            ExprOperator::Divide,
            Matching::OnGroupLeft(vec!["job"]),
            all.over(WindowFunction::Rate, 5)
                .sum_by(&["job"])
                .each_minute(WindowFunction::Max, 30),
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
    let rate = Selector::of("up").over(WindowFunction::Rate, 15);
    assert_eq!(rate.reach_ms(), 15 * MINUTE_MS);
    let before = Selector::of("up").over_before(WindowFunction::Rate, 5, 60);
    assert_eq!(before.clone().sum_by(&[]).reach_ms(), 65 * MINUTE_MS);
    assert_eq!(
        rate.clone().each_minute(WindowFunction::Avg, 30).reach_ms(),
        46 * MINUTE_MS
    );
    let both = rate.and_then(ExprOperator::Divide, Matching::Same, before);
    assert_eq!(both.reach_ms(), 65 * MINUTE_MS);
}

#[test]
fn only_what_depends_on_values_filters() {
    let plain = Selector::of("up").last().sum_by(&["job"]);
    assert!(!plain.clone().than(ExprOperator::Multiply, 100.0).filters());
    assert!(
        plain
            .clone()
            .than(ExprOperator::Greater, 1.0)
            .by(Aggregate::Count, &[])
            .filters()
    );
    assert!(plain.with(Aggregate::Topk, 3.0, &[]).filters());
}
