//! Queries as a caller sees them: limits, errors, threads; what they compute is in `tests/cases`.

mod random;

use std::sync::atomic::{AtomicU64, Ordering};

use egret_base::CodedError;
use egret_metrics_model::Labels;

use super::*;

fn source(series: u32) -> MemorySource {
    let mut source = MemorySource::default();
    for at in 0..series {
        let labels = Labels::new([
            ("__name__", "x"),
            ("g", if at % 3 == 0 { "a" } else { "b" }),
            ("i", &at.to_string()),
        ]);
        for step in 0..60 {
            source.add(&labels, step * 10_000, f64::from(at) * 1.1 + step as f64 / 7.0);
        }
    }
    source
}

/// Histograms of which some are so large that small ones are lost beside them.
fn add_histograms(source: &mut MemorySource, series: u32) {
    for at in 0..series {
        let group = if at % 3 == 0 { "a" } else { "b" };
        let labels = Labels::new([("__name__", "n"), ("g", group), ("i", &at.to_string())]);
        let large = if at % 5 == 0 { 1e100 } else { 0.1 };
        let sum = if at % 2 == 0 { large } else { -large };
        let histogram = FloatHistogram {
            sum,
            count: f64::from(at) / 7.0,
            positive: vec![(1, f64::from(at) / 7.0)],
            ..FloatHistogram::default()
        };
        source.add_histogram(&labels, 0, histogram.into());
    }
}

fn instant(text: &str, options: &EvalOptions<'_>) -> Result<Answer, QueryError> {
    Query::parse(text)?.instant(&source(4), 100_000, options)
}

fn code(result: Result<Answer, QueryError>) -> (&'static str, &'static str) {
    let error = result.expect_err("the query has no answer");
    (error.code(), error.error_type())
}

/// Runs parts on so many threads.
struct TestExecutor(usize);

impl Executor for TestExecutor {
    fn run(&self, parts: usize, work: &EvaluatePart<'_>) {
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.0 {
                scope.spawn(|| {
                    loop {
                        let part = next.fetch_add(1, Ordering::Relaxed) as usize;
                        if part >= parts {
                            return;
                        }
                        work(part);
                    }
                });
            }
        });
    }
}

#[test]
fn threads_find_what_one_finds() {
    let mut source = source(1000);
    add_histograms(&mut source, 1000);
    let queries = [
        "sum by (g) (rate(x[1m]))",
        "avg(x)",
        "stddev by (g) (x)",
        "stdvar(x)",
        "sum by (g) (n)",
        "avg(n) </ 100",
        "min(x) + max(x) + count(x) + group(x)",
        "x * 2",
        "absent(x)",
        "topk by (g) (3, x)",
        "quantile(0.3, x)",
        "max_over_time(rate(x[1m])[2m:10s])",
    ];
    for text in queries {
        let query = Query::parse(text).expect("PromQL");
        let of = |executor: &dyn Executor| {
            let options = EvalOptions { executor, ..EvalOptions::default() };
            let span = TimeSpan { start: 0, end: 600_000 };
            let answer = query.range(&source, span, 15_000, &options);
            match answer.expect("an answer").result {
                QueryResult::Matrix(series) => series,
                other => panic!("a range query yields a matrix, not {other:?}"),
            }
        };
        let (one, many) = (of(&Serial), of(&TestExecutor(7)));
        assert_eq!(one.len(), many.len(), "{text}");
        for (one, many) in one.iter().zip(&many) {
            assert_eq!(one.labels, many.labels, "{text}");
            assert_eq!(one.histograms, many.histograms, "{text}");
            assert_eq!(one.floats.len(), many.floats.len(), "{text}");
            for ((_, a), (_, b)) in one.floats.iter().zip(&many.floats) {
                assert_eq!(a.to_bits(), b.to_bits(), "{text}: {a} and {b}");
            }
        }
    }
}

#[test]
fn budgets_are_errors_that_name_the_limit() {
    let limits = Limits { samples_max: 20, ..Limits::default() };
    let options = EvalOptions { limits, ..EvalOptions::default() };
    let error = instant("sum(x)", &options).expect_err("there are more samples");
    assert!(error.to_string().contains("samples_max"), "{error}");
    let limits = Limits { row_bytes_max: 10, ..Limits::default() };
    let options = EvalOptions { limits, ..EvalOptions::default() };
    let found = code(instant("x", &options));
    assert_eq!(found, ("query_over_budget", "execution"));
    let limits = Limits { points_max: 99, ..Limits::default() };
    let options = EvalOptions { limits, ..EvalOptions::default() };
    let error = instant("vector(1)[100s:1s]", &options).expect_err("there are 100 points");
    assert_eq!(
        error.to_string(),
        "the query needs more than 99 points in its answer (series.query_points_max): select fewer series or less time, or raise series.query_points_max"
    );
    instant("vector(1)[99s:1s]", &options).expect("there are 99");
    let limits = Limits { points_max: 3, ..Limits::default() };
    let options = EvalOptions { limits, ..EvalOptions::default() };
    let error = instant("x[1m]", &options).expect_err("each series has six points");
    assert!(error.to_string().contains("points_max"), "{error}");
}

#[test]
fn histograms_count_with_their_buckets() {
    let mut source = MemorySource::default();
    let labels = |at: i32| Labels::new([("__name__", "n"), ("i", &at.to_string())]);
    for at in 0..4 {
        let histogram = FloatHistogram {
            positive: (0..100).map(|bucket| (bucket + 100 * at, 1.0)).collect(),
            ..FloatHistogram::default()
        };
        source.add_histogram(&labels(at), 0, histogram.into());
    }
    let answer = |text: &str, row_bytes_max: u64| {
        let limits = Limits { row_bytes_max, ..Limits::default() };
        let options = EvalOptions { limits, ..EvalOptions::default() };
        Query::parse(text)?.instant(&source, 0, &options)
    };
    // Four histograms of a hundred buckets, of 16 bytes each.
    for text in ["n", "n[1m]", "sum(n)"] {
        assert_eq!(code(answer(text, 6_400)).0, "query_over_budget", "{text}");
        answer(text, 10_000).expect("that is enough");
    }
}

#[test]
fn a_query_stops_when_it_is_told_to() {
    for (stop, wanted) in [
        (Stop::TimedOut, ("query_timed_out", "timeout")),
        (Stop::Canceled, ("query_canceled", "canceled")),
    ] {
        let asked = AtomicU64::new(0);
        let interrupt = || (asked.fetch_add(1, Ordering::Relaxed) > 2).then_some(stop);
        let options = EvalOptions { interrupt: &interrupt, ..EvalOptions::default() };
        assert_eq!(code(instant("sum(x)", &options)), wanted);
    }
}

#[test]
fn parameters_of_a_range_query_are_checked() {
    let range = |text: &str, end, step| {
        let query = Query::parse(text).expect("PromQL");
        let span = TimeSpan { start: 0, end };
        query.range(&source(1), span, step, &EvalOptions::default())
    };
    let bad = ("query_invalid", "bad_data");
    assert_eq!(code(range("x", 1000, 0)), bad);
    assert_eq!(code(range("x", -1, 1)), bad);
    assert_eq!(code(range("x", 11_001_000, 1000)), bad);
    assert!(range("x", 11_000_000, 1000).is_ok());
    assert_eq!(code(range("\"text\"", 1000, 1000)), bad);
    assert_eq!(code(range("x[5m]", 1000, 1000)), bad);
}

#[test]
fn the_ends_of_time_can_be_asked_for() {
    let options = EvalOptions::default();
    for text in
        ["x", "rate(x[5m])", "x offset 1y", "max_over_time(x[1h:1m])", "x offset -1y", "time()"]
    {
        let query = Query::parse(text).expect("PromQL");
        for end in [i64::MIN, i64::MAX] {
            assert!(query.instant(&source(1), end, &options).is_ok(), "{text} at {end}");
            let span = TimeSpan { start: end, end };
            assert!(query.range(&source(1), span, 1000, &options).is_ok());
        }
    }
    let query = Query::parse("x").expect("PromQL");
    assert!(query.range(&source(1), TimeSpan::ALL, 1, &options).is_err());
}

/// Each of them looks back, or ahead, almost as far as one can from where the one around it does.
#[test]
fn subqueries_within_each_other_reach_no_further_than_time() {
    const LONG: &str = "567600000000000s";
    const SHORT: &str = "283800000000000s";
    let options = EvalOptions::default();
    for window in [
        format!("[{LONG}:{SHORT}]"),
        format!("[1h:1m] offset {LONG}"),
        format!("[1h:1m] offset -{LONG}"),
    ] {
        let around = |inner: String, _| format!("max_over_time({inner}{window})");
        let text = (0..40).fold("x".to_owned(), around);
        let query = Query::parse(&text).expect("PromQL");
        let answer = query.instant(&source(1), 100_000, &options);
        assert!(answer.is_ok(), "{window}: {answer:?}");
    }
}

#[test]
fn selectors_become_matchers() {
    let matchers = parse_selector("x{a!=\"b\", c=~\"d.*\"}").expect("a selector");
    let shown: Vec<_> = matchers
        .iter()
        .map(|matcher| (&*matcher.matcher().name, &*matcher.matcher().value))
        .collect();
    assert_eq!(shown, [("a", "b"), ("c", "d.*"), ("__name__", "x")]);
    assert!(parse_selector("sum(x)").is_err());
}

#[test]
fn what_the_grammar_lets_through_fits_the_stack() {
    let long = format!("1{}", " + 1".repeat(240));
    let answer = instant(&long, &EvalOptions::default()).expect("an answer");
    assert_eq!(answer.result, QueryResult::Scalar(100_000, 241.0));
    let deep = format!("{}x{}", "sum(max_over_time(".repeat(49), "[5m:1m]))".repeat(49));
    assert!(instant(&deep, &EvalOptions::default()).is_ok());
    let signs = format!("{}x", "-".repeat(240));
    assert!(instant(&signs, &EvalOptions::default()).is_ok());
}

#[test]
fn the_matchers_of_a_query_are_bounded_together() {
    let large = r#"a=~"(x?y){1000}z?""#;
    let query = |matchers: usize| format!("x{{{}}}", vec![large; matchers].join(","));
    assert!(Query::parse(&query(5)).is_ok());
    let error = Query::parse(&query(500)).expect_err("they are too large together");
    assert!(error.to_string().contains("at most 64 MiB"), "{error}");
    let selectors = vec![format!("{{{large}}}"); 500];
    let selectors = selectors.iter().map(String::as_str);
    let error = parse_selectors(selectors).expect_err("they are too large together");
    assert!(error.to_string().contains("at most 64 MiB"), "{error}");
    let error = parse_selectors(["{a=\"b\"}"; 10_001].into_iter()).expect_err("they are too many");
    assert!(error.to_string().contains("10000 matchers"), "{error}");
    assert!(parse_selectors(["{a=~\"b.+c\"}"; 1_000].into_iter()).is_ok());
}
