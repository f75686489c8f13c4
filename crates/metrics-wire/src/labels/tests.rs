//! Labels of unknown series.

use egret_metrics_model::Labels;

use super::*;

fn raw(labels: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in labels {
        append_label_field(name, value, &mut out);
    }
    out
}

fn parsed(labels: &[(&str, &str)], limits: &LabelLimits) -> String {
    let (raw, mut out) = (raw(labels), Vec::new());
    match parse(&raw, limits, &mut out) {
        Ok(()) => {
            let pairs: Vec<String> =
                out.iter().map(|(name, value)| format!("{name}={value}")).collect();
            pairs.join(",")
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn labels_are_sorted_and_empty_values_left_out() {
    let check = |labels: &[(&str, &str)], expected: &str| {
        assert_eq!(parsed(labels, &LabelLimits::default()), expected);
    };
    check(&[("__name__", "up"), ("job", "a")], "__name__=up,job=a");
    check(&[("job", "ä"), ("__name__", "up")], "__name__=up,job=ä");
    check(&[("__name__", "up"), ("job", "")], "__name__=up");
    check(&[("__name__", "up"), ("", "a")], "label 1 has an empty name");
    check(&[("a", "1"), ("__name__", "up"), ("a", "2")], "label name \"a\" occurs twice");
    check(&[("job", "a")], "series has no metric name: set the label __name__");
    check(&[("__name__", "")], "series has no metric name: set the label __name__");
    check(&[], "series has no metric name: set the label __name__");
}

#[test]
fn limits_are_named() {
    let limits =
        LabelLimits { labels_per_series_max: 2, label_name_bytes_max: 8, label_value_bytes_max: 3 };
    let check = |labels: &[(&str, &str)], expected: &str| {
        let found = parsed(labels, &limits);
        assert!(found.starts_with(expected), "{found}");
    };
    check(&[("__name__", "abc"), ("b", "abc")], "__name__=abc,b=abc");
    check(&[("__name__", "abcd")], "label \"__name__\": limit label_value_bytes_max is 3, but 4");
    check(&[("__names__", "a")], "label \"__names__\": limit label_name_bytes_max is 8, but 9");
    let many = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")];
    check(&many, "label \"c\": limit labels_per_series_max is 2, but 3");
}

#[test]
fn what_is_not_utf8_says_where() {
    let mut raw = raw(&[("__name__", "up")]);
    raw.extend(b"\x0a\x06\x0a\x01a\x12\x01\xff");
    let error = parse(&raw, &LabelLimits::default(), &mut Vec::new()).expect_err("no UTF-8");
    let expected = format!("Label has a string that is not UTF-8 at byte {}", raw.len() - 1);
    assert_eq!(error.to_string(), expected);
}

#[test]
fn keys_of_short_labels_are_the_bytes_of_remote_write() {
    let extra_bytes = 4;
    let longest = "v".repeat(127 - extra_bytes - "a".len());
    let pairs = [("__name__", "up"), ("a", &longest), ("job", "é")];
    assert_eq!(Labels::new(pairs).as_key().as_bytes(), raw(&pairs));
}
