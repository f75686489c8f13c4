//! Positions, and texts that are refused rather than stumbled over.

use proptest::prelude::*;

use super::{Node, Part, parse};

fn refusal(query: &str) -> String {
    parse(query).expect_err("the query is refused").to_string()
}

/// The text of the arguments of a call, by their positions.
fn arguments(query: &str) -> Vec<&str> {
    let node = parse(query).expect("PromQL");
    let text = |node: &Node| &query[node.position.start..node.position.end];
    match &node.bare().part {
        Part::Call(call) => call.arguments.iter().map(text).collect(),
        Part::Aggregate(aggregate) => {
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

#[test]
fn a_column_is_counted_from_the_line() {
    let query = "a +\n  bé + sum(c)";
    let at = query.find("sum").expect("it is there");
    let position = super::Position {
        start: at,
        end: at + 3,
    };
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
    assert!(refusal(&"(".repeat(5000)).contains("parentheses"));
    assert!(refusal(&"-".repeat(5000)).contains("operators"));
    assert!(refusal(&format!("1{}", "+1".repeat(1000))).contains("within each other"));
    assert!(refusal(&format!("a{{b=~\"{}\"}}", "(a{1000}){1000}")).contains("regex"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(words in prop::collection::vec(prop::sample::select(vec![
        "a", "sum", "by", "(", ")", "{", "}", "[", "]", "5m", ":", "1", "inf", "offset", "@", "-", "+", "*", "on",
        "\"x\"", "'\\xff'", ",", "=", "=~", "start", "rate", "bool", "and", "group_left", "é", "\\", "#", "\n", ".5", "1e",
        "0x", "fill", "`",
    ]), 0..12), spaced: bool) {
        let _ = parse(&words.join(if spaced { " " } else { "" }));
    }
}
