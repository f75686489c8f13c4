//! Answers as people see them.

use serde_json::json;

use super::{Slots, Success, format_result, series_name, short_number, sparkline};

fn text(data: serde_json::Value) -> String {
    let answer: Success<_> = crate::output::decode(&json!({"data": data})).unwrap();
    anstream::adapter::strip_str(&format_result(answer.data)).to_string()
}

#[test]
fn answers_of_every_kind() {
    assert_eq!(text(json!({"resultType": "scalar", "result": [1.5, "+Inf"]})), "+Inf");
    assert!(text(json!({"resultType": "vector", "result": []})).starts_with("no series"));
    let vector = json!({"resultType": "vector", "result": [
        {"metric": {"__name__": "up", "job": "a\"b"}, "value": [1, "1"]},
        {"metric": {}, "histogram": [1, {"count": "3", "sum": "2.5"}]},
    ]});
    expect_test::expect![[r#"
        SERIES          VALUE
        up{job="a\"b"}  1
        {}              count 3, sum 2.5"#]]
    .assert_eq(&text(vector));
    let matrix = json!({"resultType": "matrix", "result": [
        {"metric": {"__name__": "up"}, "values": [[1.5, "1"], [2, "0"]]},
    ]});
    expect_test::expect![[r#"
        SERIES  TIME                         VALUE
        up      1970-01-01T00:00:01.500000Z  1
        up      1970-01-01T00:00:02.000000Z  0"#]]
    .assert_eq(&text(matrix));
}

/// The picture of a range of so many steps of 10 s, of which these times have values.
fn drawn(steps: i64, points: &[(f64, &str)]) -> String {
    let slots = Slots { start_ms: 5_500, end_ms: 5_500 + steps * 10_000, step_ms: 10_000 };
    let points: Vec<_> = points.iter().map(|(at, text)| (*at, (*text).to_owned())).collect();
    sparkline(&slots.slot_values(&points))
}

#[test]
fn pictures() {
    assert_eq!(drawn(2, &[(5.5, "0"), (15.5, "3.5"), (25.5, "7")]), "▁▅█");
    assert_eq!(drawn(1, &[(5.5, "5"), (15.5, "5")]), "▁▁");
    assert_eq!(drawn(1, &[]), "  ");
    let many: Vec<Option<f64>> = (0..=600).map(|number| Some(f64::from(number))).collect();
    assert_eq!(sparkline(&many).chars().count(), 61);
    assert_eq!(sparkline(&many[..61]).chars().count(), 61);
}

#[test]
fn a_time_without_a_value_is_a_blank_in_its_place() {
    assert_eq!(drawn(5, &[(45.5, "1"), (55.5, "2")]), "    ▁█");
    assert_eq!(drawn(5, &[(5.5, "1"), (15.5, "NaN"), (35.5, "+Inf"), (45.5, "2")]), "▁   █ ");
    let mut many = vec![None; 601];
    many[600] = Some(1.0);
    assert_eq!(sparkline(&many).trim_start(), "▁");
    assert_eq!(sparkline(&many).chars().count(), 61);
    let rows = vec![vec!["up".to_owned(), drawn(2, &[(25.5, "1")]), "1".to_owned()]];
    let table = crate::output::listing(&["series", "values", "last"], rows);
    expect_test::expect![[r#"
        SERIES  VALUES  LAST
        up        ▁     1"#]]
    .assert_eq(&anstream::adapter::strip_str(&table).to_string());
}

#[test]
fn numbers_and_names() {
    assert_eq!([0.12345, 5.0, f64::NAN, 1e20].map(short_number), ["0.1235", "5", "", "1e20"]);
    assert_eq!(series_name(&[("__name__".to_owned(), "up".to_owned())].into()), "up");
}
