//! The runner says what is wrong with a file, and where.

use super::super::EvalOptions;
use super::run;

fn failures(text: &str) -> Vec<(usize, String)> {
    let report = run("a.test", text, &EvalOptions::default());
    let failures = report.failures.into_iter();
    failures.map(|failure| (failure.line, failure.message)).collect()
}

const LOAD: &str = "load 1m\n  x{a=\"1\"} 1+1x3 _ stale 7 -1-1x1 _x2 NaN\n  h {{schema:0 sum:1 count:1 buckets:[1]}}x2\n";

#[test]
fn the_notation_means_what_it_says() {
    let text = format!(
        "{LOAD}\neval range from 0 to 12m step 1m last_over_time(x[1m])\n  x{{a=\"1\"}} 1 2 3 4 _ _ 7 -1 -2 _ _ NaN\n\neval range from 0 to 3m step 1m last_over_time(h[1m])\n  h {{{{schema:0 sum:1 count:1 buckets:[1]}}}}x2\n"
    );
    assert_eq!(failures(&text), []);
}

#[test]
fn what_is_not_as_expected_is_reported_with_its_line() {
    for (rest, wanted) in [
        ("eval instant at 1m x\n  x{a=\"1\"} 3", "expected 3, got 2"),
        ("eval instant at 1m x\n  x{a=\"2\"} 2", "is missing"),
        ("eval instant at 1m x", "unexpected x{a=\"1\"} 2"),
        ("eval instant at 1m x\n  expect fail\n", "expected an error"),
        ("eval_warn instant at 1m x\n  x{a=\"1\"} 2", "expected the warning"),
        ("eval instant at 1m rate(x[5m])\n  expect no_info\n", "expected no info"),
        ("eval instant at 1m sum(", "unexpected error"),
        ("eval instant at 1m 1\n  2", "expected 2"),
        ("eval sometimes x", "expected `eval instant"),
        ("evil", "unknown command"),
        ("load 1x\n  x 1", "is no duration"),
        ("load 1m\n  x 1y", "is not a value"),
        ("load 1m\n  x 1x99999999", "is no repetition"),
        ("load 1m\n  x {{buckets}}", "expected `name:value`"),
    ] {
        let found = failures(&format!("{LOAD}\n{rest}"));
        assert_eq!(found.len(), 1, "{rest}: {found:?}");
        assert_eq!(found[0].0, 5, "{rest}");
        assert!(found[0].1.contains(wanted), "{rest}: {}", found[0].1);
    }
}
