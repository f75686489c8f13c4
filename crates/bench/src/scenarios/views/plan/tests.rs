//! What arguments come to.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct TestCli {
    #[command(flatten)]
    args: ViewsArgs,
}

fn plan(line: &str) -> ViewsPlan {
    let words = ["views"].into_iter().chain(line.split_whitespace());
    ViewsPlan::from_args(&TestCli::parse_from(words).args)
}

fn names(line: &str) -> Vec<String> {
    plan(line).parameters().into_keys().collect()
}

#[test]
fn without_a_scenario_it_is_the_matrix() {
    let plan = plan("");
    assert_eq!((plan.rows, plan.cycles), (100_000, 10));
    assert_eq!(plan.rates, [0.0, 1.0, 10.0, 50.0]);
    assert_eq!(plan.ranking_metric(), "scan.1.incremental");
    // Results that are published have just these.
    let expected = ["commit_rate", "cycles", "parts", "rates", "rows", "seconds", "shapes"];
    assert_eq!(names(""), expected);
    assert_eq!(names("--parts refresh"), ["cycles", "parts", "rates", "rows", "shapes"]);
}

#[test]
fn a_scenario_has_only_what_it_goes_by() {
    assert_eq!(names("--scenario tpch"), ["cycles", "queries", "scale", "scenario"]);
    assert_eq!(names("--scenario idle"), ["rows", "scenario", "seconds", "views"]);
    assert_eq!(plan("--scenario tpch").queries.len(), 22);
    assert_eq!(plan("--scenario tpch --queries 3,1,3").queries, [3, 1]);
    assert_eq!(plan("--scenario idle").views, 200);
    assert_eq!(plan("--scenario fan --views 7").views, 7);
    let wide = plan("--scenario wide");
    assert_eq!(
        (wide.rates.as_slice(), wide.shapes.as_slice()),
        (&[1.0][..], &[ViewsShape::Wide][..])
    );
    assert_eq!(wide.ranking_metric(), "wide.1.incremental");
}
