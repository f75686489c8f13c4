//! Durations, rates and variables as they are typed.

use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct TestCli {
    #[command(subcommand)]
    command: BenchCommand,
}

fn parse(line: &str) -> Result<BenchCommand, String> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    let parsed = TestCli::try_parse_from(words);
    parsed.map(|line| line.command).map_err(|error| error.to_string())
}

fn assert_refused(line: &str, expected: &str) {
    let error = parse(line).unwrap_err();
    assert!(error.contains(expected), "{line}: {error}");
}

#[test]
fn a_measurement_is_described_in_one_line() {
    let line = "sql --file x.toml --url postgres://h/db --rate 500 --arrivals constant --duration 1.5s \
                --warmup-max 500ms --repeat 3 --seed 9 --variable scale=10 --out r.json --explain";
    let BenchCommand::Sql(sql) = parse(line).unwrap() else {
        panic!("another command");
    };
    assert_eq!(sql.postgres.as_deref(), Some("postgres://h/db"));
    assert_eq!(sql.load.rate, Some(500.0));
    assert_eq!(sql.load.arrivals, ArrivalSpacing::Constant);
    assert_eq!(sql.load.duration, Duration::from_millis(1_500));
    assert_eq!(sql.load.warmup_max, Duration::from_millis(500));
    assert_eq!((sql.run.repeat, sql.run.seed), (3, 9));
    assert_eq!(sql.variables, [("scale".to_owned(), "10".to_owned())]);
    assert!(sql.run.explain && !sql.run.profile);
}

#[test]
fn lists_are_typed_with_commas_and_have_defaults() {
    let parse_views = |line: &str| match parse(line).unwrap() {
        BenchCommand::Views(views) => views,
        other => panic!("another command: {other:?}"),
    };
    let all = parse_views("views --private");
    assert_eq!(all.scenario, ViewsScenario::Matrix);
    assert_eq!((all.rows, all.rates.len(), all.queries.len()), (None, 0, 0));
    assert_eq!(all.shapes.len(), 5);
    assert_eq!(all.parts.len(), 3);
    let some =
        parse_views("views --private --rates 0.1,100 --shapes join_aggregate,scan --parts lag");
    assert_eq!(some.rates, [0.1, 100.0]);
    assert_eq!(some.shapes, [ViewsShape::JoinAggregate, ViewsShape::Scan]);
    assert_eq!(some.parts, [ViewsPart::Lag]);
    let tpch = parse_views("views --private --scenario tpch --scale 0.01 --queries 22,1");
    assert_eq!((tpch.scale, tpch.queries), (0.01, vec![22, 1]));
}

#[test]
fn what_is_wrong_is_said() {
    let with = |rest: &str| format!("sql --file x --private {rest}");
    assert_refused("sql --file x", "--url <URL>");
    assert_refused("sql --private", "--file <FILE>");
    assert_refused(&with("--duration soon"), "`soon` is not a duration such as");
    assert_refused(&with("--duration 0s"), "`0s` is not between");
    assert_refused(&with("--duration 5"), "`5` is not a duration");
    assert_refused(&with("--duration 25h"), "is not between 1ms and 24h");
    assert_refused(&with("--rate 0"), "`0` is not a number of operations");
    assert_refused(&with("--rate nan"), "`nan` is not a number");
    assert_refused(&with("--clients 0"), "0 is not in 1..=10000");
    assert_refused(&with("--arrivals constant"), "--rate <R>");
    assert_refused(&with("--variable scale"), "`scale` is not of the form NAME=VALUE");
    assert_refused(&with("--profile"), "--out <FILE>");
    assert_refused(&with("--server http://x"), "cannot be used with");
    assert_refused("views --rates 101", "`101` is not a percentage");
    assert_refused("views --scale 0", "`0` is not a scale between 0.001 and 100");
    assert_refused("views --queries 1,23", "23 is not in 1..=22");
    assert_refused("views --shapes scan,cube", "invalid value 'cube'");
    assert_refused("views --private --url postgres://x", "cannot be used with");
    assert_refused("sqll", "a similar subcommand exists: 'sql'");
}
