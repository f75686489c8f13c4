//! Positions, and texts that are refused rather than stumbled over.

use proptest::prelude::*;
use serde_json::json;

use super::{ExprKind, ExprNode, format_pretty, parse, to_json};
use crate::parse_selector;

fn refusal(query: &str) -> String {
    parse(query).expect_err("the query is refused").to_string()
}

/// The text of the arguments of a call, by their positions.
fn arguments(query: &str) -> Vec<&str> {
    let node = parse(query).expect("PromQL");
    let text = |node: &ExprNode| &query[node.position.start..node.position.end];
    match &node.without_parens().kind {
        ExprKind::Call(call) => call.arguments.iter().map(text).collect(),
        ExprKind::Aggregate(aggregate) => {
            let all = aggregate.parameter.iter().chain([&aggregate.inner]);
            all.map(text).collect()
        }
        other => panic!("expected a call, found {other:?}"),
    }
}

#[test]
fn parts_know_where_they_stand() {
    assert_eq!(
        arguments("clamp( +a{b=\"}\"} offset -5m @ end() , -2^2, (1 + 2) )"),
        ["+a{b=\"}\"} offset -5m @ end()", "-2^2", "(1 + 2)"]
    );
    assert_eq!(
        arguments("quantile without (x) (0.5, a * on (b) group_left (c) d # end\n)"),
        ["0.5", "a * on (b) group_left (c) d"]
    );
    assert_eq!(
        arguments("SUM(max_over_time(a[1h:5m] @ 10)) by (b)"),
        ["max_over_time(a[1h:5m] @ 10)"]
    );
}

const REFUSALS: &[(&str, &str)] = &[
    ("", "unknown position: parse error: no expression found in input"),
    (" ", "1:1: parse error: no expression found in input"),
    ("a b", "1:3: parse error: unexpected identifier \"b\""),
    ("*a", "1:1: parse error: unexpected <op:*>"),
    ("1 +", "1:4: parse error: unexpected end of input"),
    ("sum(", "1:5: parse error: unclosed left parenthesis"),
    ("sum(a))", "1:8: parse error: unexpected right parenthesis ')'"),
    ("sum(a b)", "1:7: parse error: unexpected identifier \"b\" in aggregation"),
    (
        "sum by (1) (a)",
        "1:9: parse error: unexpected number \"1\" in grouping opts, expected label",
    ),
    ("sum by a", "1:8: parse error: unexpected identifier \"a\" in grouping opts, expected \"(\""),
    ("a{", "1:3: parse error: unexpected end of input inside braces"),
    (
        "a{b}",
        "1:4: parse error: unexpected \"}\" in label matching, expected label matching operator",
    ),
    ("a{b=c}", "1:5: parse error: unexpected identifier \"c\" in label matching, expected string"),
    (
        "a{b=\"c\" d}",
        "1:9: parse error: unexpected identifier \"d\" in label matching, expected \",\" or \"}\"",
    ),
    ("a{b=~\"(\"}", "1:3: parse error: error parsing regexp: unclosed group: `(`"),
    ("a[5m", "1:5: parse error: unclosed left bracket"),
    ("a[5m]b", "1:6: parse error: unexpected identifier \"b\""),
    ("a[0]", "1:3: parse error: duration must be greater than 0"),
    ("a[5x]", "1:3: parse error: bad number or duration syntax: \"5x\""),
    (
        "a offset b",
        "1:10: parse error: unexpected identifier \"b\" in offset, expected number, duration, step(), or range()",
    ),
    ("a @ b", "1:5: parse error: unexpected identifier \"b\" in @, expected timestamp"),
    (
        "1 offset 5m",
        "1:1: parse error: offset modifier must be preceded by an instant vector selector or range vector selector or a subquery",
    ),
    ("\"a", "1:1: parse error: unterminated quoted string"),
    ("f(a)", "1:1: parse error: unknown function with name \"f\""),
    ("rate(a[5m],)", "1:11: parse error: trailing commas not allowed in function call args"),
    (
        "topk(a)",
        "1:1: parse error: wrong number of arguments for aggregate expression provided, expected 2, got 1",
    ),
    (
        "rate(a)",
        "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector",
    ),
    ("rate()", "1:1: parse error: expected 1 argument(s) in call to \"rate\", got 0"),
    ("a +\n (1 < 2)", "2:5: parse error: comparisons between scalars must use BOOL modifier"),
    ("1 + bool 2", "1:3: parse error: bool modifier can only be used on comparison operators"),
    ("1 and a", "1:1: parse error: set operator \"and\" not allowed in binary scalar expression"),
    (
        "a[5m] + 1",
        "1:1: parse error: binary expression must contain only scalar and instant vector types",
    ),
    (
        "-a[5m]",
        "1:1: parse error: unary expression only allowed on expressions of type scalar or instant vector, got \"range vector\"",
    ),
    ("{}", "1:1: parse error: vector selector must contain at least one non-empty matcher"),
    ("a{__name__=\"b\"}", "1:1: parse error: metric name must not be set twice: \"a\" or \"b\""),
    (
        "a[5m] smoothed anchored",
        "1:1: parse error: anchored and smoothed modifiers cannot be used together",
    ),
];

#[test]
fn refusals_say_what_is_wrong_and_where() {
    for (query, message) in REFUSALS {
        assert_eq!(refusal(query), *message, "{query}");
    }
}

#[test]
fn a_tree_is_written_as_it_was_meant() {
    for (query, wanted) in [
        ("-10^3 * - a ^ -1", "-10 ^ 3 * -a ^ -1"),
        ("a{b=~'e',c=\"d\"}", "a{b=~\"e\",c=\"d\"}"),
        ("{\"c d\"='x', 'a.b'}", "{\"c d\"=\"x\",__name__=\"a.b\"}"),
        ("SUM(a) BY (b, \"c.d\")", "sum by (b, \"c.d\") (a)"),
        ("sum without () (a)", "sum without () (a)"),
        ("topk by () (1, a)", "topk(1, a)"),
        ("a + ON(b) GROUP_LEFT c", "a + on (b) group_left () c"),
        (
            "a == bool fill_left(1) fill_right(-Inf) b",
            "a == bool fill_left (1) fill_right (-Inf) b",
        ),
        ("a[90m] offset -5m @ end()", "a[1h30m] @ end() offset -5m"),
        ("a[5m] anchored", "a[5m] anchored"),
        ("a @ 1.5 smoothed offset 1w1d", "a @ 1.500 smoothed offset 8d"),
        ("rate(a[300:60])[1h:] ", "rate(a[5m:1m])[1h:]"),
        ("a[-5m+35m*2]", "a[-5m + 35m * 2]"),
        ("a offset -(MIN_OF(step(), 2s)-5) + 0x10", "a offset -(min_of(step(), 2s) - 5) + 16"),
        ("max_of(1,2) + min_of", "max_of(1, 2) + min_of"),
        ("a</-2>/on(b)c", "a </ -2 >/ on (b) c"),
        (
            "label_replace(a,'b',`$1`,\"c\",'(.*)\\n')",
            "label_replace(a, \"b\", \"$1\", \"c\", \"(.*)\\n\")",
        ),
        ("2*(5m)", "2 * (5m)"),
        ("+a", "+a"),
        ("sum + by + offset", "sum + by + offset"),
        ("1_000 + 017 + .5e1", "1000 + 15 + 5"),
    ] {
        let node = parse(query).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(format_pretty(&node), wanted, "{query}");
        let again = parse(wanted).unwrap_or_else(|error| panic!("{wanted}: {error}"));
        assert_eq!(to_json(&again), to_json(&node), "{query}");
    }
}

#[test]
fn long_expressions_take_several_lines() {
    let query = "histogram_quantile(0.99, sum by (le, service) (rate(http_request_duration_seconds_bucket{job=\"api-server\",cluster=\"eu-1\"}[5m]))) / on (service) group_left (team) -service_objective_seconds{environment=\"production\"}";
    expect_test::expect![[r#"
          histogram_quantile(
            0.99,
            sum by (le, service) (
              rate(http_request_duration_seconds_bucket{cluster="eu-1",job="api-server"}[5m])
            )
          )
        / on (service) group_left (team)
          -service_objective_seconds{environment="production"}"#]]
    .assert_eq(&format_pretty(&parse(query).expect("PromQL")));
}

#[test]
fn a_tree_is_shown_as_the_api_shows_it() {
    let shown = to_json(
        &parse("topk(2, rate(a{b!=\"c\"}[5m] offset 1m)) + on (d) e @ start()").expect("PromQL"),
    );
    let wanted = json!({
        "type": "binaryExpr", "op": "+", "bool": false,
        "matching": {"card": "one-to-one", "labels": ["d"], "on": true, "include": [], "fillValues": {"lhs": null, "rhs": null}},
        "lhs": {
            "type": "aggregation", "op": "topk", "grouping": [], "without": false,
            "param": {"type": "numberLiteral", "val": "2"},
            "expr": {
                "type": "call",
                "func": {"name": "rate", "argTypes": ["matrix"], "variadic": 0, "returnType": "vector"},
                "args": [{
                    "type": "matrixSelector", "name": "a", "range": 300_000, "rangeExpr": null,
                    "offset": 60_000, "offsetExpr": null, "timestamp": null,
                    "startOrEnd": null, "anchored": false, "smoothed": false,
                    "matchers": [
                        {"name": "b", "type": "!=", "value": "c"},
                        {"name": "__name__", "type": "=", "value": "a"},
                    ],
                }],
            },
        },
        "rhs": {
            "type": "vectorSelector", "name": "e", "offset": 0, "offsetExpr": null, "timestamp": null, "startOrEnd": "start",
            "anchored": false, "smoothed": false,
            "matchers": [{"name": "__name__", "type": "=", "value": "e"}],
        },
    });
    assert_eq!(shown, wanted);
}

#[test]
fn a_selector_has_no_modifiers() {
    assert!(parse_selector("{a=~\"b.*\"}").is_ok_and(|matchers| matchers.len() == 1));
    for text in ["a[5m]", "a offset 5m", "sum(a)", "a b", ""] {
        assert!(parse_selector(text).is_err(), "{text}");
    }
}

#[test]
fn a_column_is_counted_from_the_line() {
    let query = "a +\n  bé + sum(c)";
    let at = query.find("sum").expect("it is there");
    let position = super::Position { start: at, end: at + 3 };
    assert_eq!(position.line_and_column(query).0, 2);
}

#[test]
fn what_cannot_be_evaluated_is_refused() {
    for query in [
        "",
        "sum(",
        "a b",
        "a[5m] + 1",
        "1 < 2",
        "nothing(a)",
        "{}",
        "{a=\"\"}",
        "a{b=\"1\" or c=\"2\"}",
        "a[1e300]",
        "1e400",
        "a[1e20-(3m)]",
        "a offset (1m+inf)",
        "a[0]",
        "a[5m:0]",
        "a offset inf",
        "a offset 1e30",
        "a @ 1e300",
        "\"\\xzz\"",
        "a =~ b",
        "sum(1)",
        "a{b=~\"(\"}",
        "\"open",
        "a offset 5m offset 5m",
        "rate(a)",
        "a[5m",
        "'\\",
        "@",
        "é",
    ] {
        assert!(parse(query).is_err(), "{query}");
    }
    for deep in ["(".repeat(5000), "-".repeat(5000), format!("1{}", "+1".repeat(1000))] {
        assert!(refusal(&deep).contains("within each other"));
    }
    assert!(refusal(&format!("a{{{}}}", "b=\"\",".repeat(10_000))).contains("tokens"));
    assert!(refusal(&format!("a{{b=~\"{}\"}}", "(a{1000}){1000}")).contains("regex"));
}

#[test]
fn what_a_query_says_is_written_as_it_was_said() {
    for (query, written) in [
        ("sum by (a:b, ::) (x)", "sum by (\"a:b\", \"::\") (x)"),
        ("\"\\xff a\\n\"", "\"\\xff a\\n\""),
    ] {
        assert_eq!(format_pretty(&parse(query).expect("a query")), written);
    }
}

#[test]
fn a_tree_shows_how_a_length_of_time_is_computed() {
    let shown = to_json(&parse("a[(1m)] offset (step() * 2)").expect("a query"));
    assert_eq!(
        shown["rangeExpr"],
        json!({"type": "durationExpr", "op": "+", "lhs": null, "wrapped": true,
            "rhs": {"type": "numberLiteral", "val": "60", "duration": true}})
    );
    assert_eq!(
        shown["offsetExpr"],
        json!({"type": "durationExpr", "op": "*", "wrapped": true,
            "lhs": {"type": "durationExpr", "op": "step", "lhs": null, "rhs": null, "wrapped": false},
            "rhs": {"type": "numberLiteral", "val": "2", "duration": false}})
    );
    let shown = to_json(&parse("a[5m:30s]").expect("a query"));
    assert_eq!((&shown["rangeExpr"], &shown["stepExpr"]), (&json!(null), &json!(null)));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(words in prop::collection::vec(prop::sample::select(vec![
        "a", "sum", "by", "(", ")", "{", "}", "[", "]", "5m", ":", "1", "inf", "offset", "@", "-", "+", "*", "on",
        "\"x\"", "'\\xff'", ",", "=", "=~", "start", "rate", "bool", "and", "group_left", "é", "\\", "#", "\n", ".5", "1e",
        "0x", "fill", "`", "anchored", "smoothed", "step", "range", "min", "max", "^", "offset -", "{a=\"b\"}", "[5m:1m]",
    ]), 0..12), spaced: bool) {
        let _ = parse(&words.join(if spaced { " " } else { "" }));
    }
}
