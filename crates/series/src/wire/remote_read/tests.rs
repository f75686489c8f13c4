//! Requests as Prometheus sends them, responses as it reads them.

use super::*;
use crate::wire::encode::{put_message, put_number, put_text};

fn request(kinds: &[u64]) -> Vec<u8> {
    let mut body = Vec::new();
    put_message(1, &mut body, |query| {
        put_number(1, 1_000, query);
        put_number(2, 2_000, query);
        for (op, name, value) in [(0, "__name__", "up"), (3, "job", "a.*")] {
            put_message(3, query, |matcher| {
                put_number(1, op, matcher);
                put_text(2, name, matcher);
                put_text(3, value, matcher);
            });
        }
        put_message(4, query, |hints| put_text(2, "rate", hints));
    });
    if !kinds.is_empty() {
        put_message(2, &mut body, |list| {
            list.extend(kinds.iter().map(|kind| *kind as u8))
        });
    }
    body
}

#[test]
fn queries_are_read() {
    let read = decode(&request(&[])).expect("well formed");
    let matcher = |name: &str, op, value: &str| Matcher {
        name: name.into(),
        op,
        value: value.into(),
    };
    let query = ReadQuery {
        start_ms: 1_000,
        end_ms: 2_000,
        matchers: vec![
            matcher("__name__", MatchOp::Equal, "up"),
            matcher("job", MatchOp::NotMatches, "a.*"),
        ],
    };
    assert_eq!(read.queries, [query]);
}

#[test]
fn samples_are_welcome_unless_only_chunks_are() {
    for (kinds, expected) in [
        (&[][..], true),
        (&[0], true),
        (&[1, 0], true),
        (&[1], false),
    ] {
        let read = decode(&request(kinds)).expect("well formed");
        assert_eq!(read.accepts_samples, expected, "{kinds:?}");
    }
}

#[test]
fn an_operator_that_there_is_not() {
    let error = decode(b"\x0a\x04\x1a\x02\x08\x09").expect_err("malformed");
    assert_eq!(
        error.to_string(),
        "LabelMatcher has a field key 9 that cannot be at byte 2"
    );
}

#[test]
fn a_response_byte_by_byte() {
    let mut response = ReadResponse::default();
    let samples = SeriesSamples {
        times_ms: vec![5],
        values: vec![2.0],
        ..SeriesSamples::default()
    };
    response.push([("a", "b")].into_iter(), &samples);
    response.end_query();
    response.end_query();
    let expected =
        b"\x0a\x17\x0a\x15\x0a\x06\x0a\x01a\x12\x01b\x12\x0b\x09\0\0\0\0\0\0\0\x40\x10\x05\x0a\0";
    assert_eq!(response.bytes(), expected.len());
    assert_eq!(response.into_body(), expected);
}
