//! What matchers take, and what ranges do not see.

use super::*;
use crate::model::STALE_NAN_BITS;

fn takes(op: MatchOp, value: &str, label: &str) -> bool {
    let matcher = Matcher {
        name: "a".into(),
        op,
        value: value.into(),
    };
    LabelMatcher::new(matcher)
        .expect("it compiles")
        .matches(label)
}

#[test]
fn expressions_match_all_of_a_value() {
    assert!(takes(MatchOp::Matches, "b|c.*", "cd\ne"));
    assert!(!takes(MatchOp::Matches, "b|c", "bc"));
    assert!(takes(MatchOp::NotMatches, ".+", ""));
    assert!(takes(MatchOp::Equal, "", ""));
    assert!(takes(MatchOp::NotEqual, "b", ""));
}

#[test]
fn a_brace_that_repeats_nothing_is_itself() {
    assert!(takes(MatchOp::Matches, "a{b}\\{c{2}", "a{b}{cc"));
    assert!(takes(MatchOp::Matches, "{x}", "{x}"));
}

#[test]
fn an_expression_has_a_size() {
    let error = anchored("((a{1000}){1000}){1000}").expect_err("it is too large");
    assert!(matches!(error, QueryError::Parse { .. }), "{error}");
}

#[test]
fn markers_are_taken_out() {
    let mut columns = Columns::default();
    let stale = f64::from_bits(STALE_NAN_BITS);
    for (time, value) in [(1, stale), (2, 2.0), (3, f64::NAN), (4, stale), (5, 5.0)] {
        columns.push(time, value);
    }
    let ended = FloatHistogram {
        sum: stale,
        ..FloatHistogram::default()
    };
    columns.push_histogram(6, Arc::new(ended));
    assert_eq!(columns.len(), 6);
    columns.drop_stale();
    assert_eq!(columns.times, [2, 3, 5]);
    assert_eq!(columns.values.len(), 3);
}
