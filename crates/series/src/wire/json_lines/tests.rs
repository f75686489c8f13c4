//! What is written is read again, bit by bit.

use super::{JsonLine, append_line};
use crate::model::{Labels, NORMAL_NAN_BITS, STALE_NAN_BITS};

#[test]
fn what_is_written_is_read_again() {
    let labels = Labels::new([("__name__", "a"), ("b", "quo\"ted\n"), ("c", "née")]);
    let values = [
        0.1,
        -1e300,
        1e-7,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::from_bits(NORMAL_NAN_BITS),
        f64::from_bits(STALE_NAN_BITS),
    ];
    let times: Vec<i64> = (0..values.len() as i64)
        .map(|n| n * 1_000 - 2_000)
        .collect();
    let mut text = String::new();
    append_line(&labels, &times, &values, &mut text);
    let line = JsonLine::read(&text).unwrap();
    let pairs = line
        .labels
        .0
        .iter()
        .map(|(name, value)| (&**name, &**value));
    assert_eq!(Labels::new(pairs), labels);
    let read: Vec<_> = line
        .samples()
        .map(|(time, value)| (time, value.to_bits()))
        .collect();
    let written: Vec<_> = times
        .iter()
        .zip(values)
        .map(|(time, value)| (*time, value.to_bits()))
        .collect();
    assert_eq!(read, written, "{text}");
}

#[test]
fn what_is_wrong_is_told() {
    let error = |text| JsonLine::read(text).unwrap_err();
    let uneven = r#"{"metric":{"__name__":"a"},"values":[1],"timestamps":[]}"#;
    assert_eq!(error(uneven), "there are 1 values and 0 timestamps");
    let word = r#"{"metric":{},"values":["x"],"timestamps":[1]}"#;
    assert!(
        error(word).starts_with("\"x\" is no value"),
        "{}",
        error(word)
    );
    assert!(error("{}").contains("missing field"), "{}", error("{}"));
}
