//! Answers as people see them.

use serde_json::json;

use super::{Success, name, picture, short, shown};

fn text(data: serde_json::Value) -> String {
    let answer: Success<_> = crate::output::decode(&json!({"data": data})).unwrap();
    anstream::adapter::strip_str(&shown(answer.data)).to_string()
}

#[test]
fn answers_of_every_kind() {
    assert_eq!(
        text(json!({"resultType": "scalar", "result": [1.5, "+Inf"]})),
        "+Inf"
    );
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

#[test]
fn pictures() {
    assert_eq!(picture(&[0.0, 3.5, 7.0, f64::NAN]), "▁▅█");
    assert_eq!(picture(&[5.0, 5.0]), "▁▁");
    assert_eq!(picture(&[]), "");
    let many: Vec<f64> = (0..601).map(f64::from).collect();
    assert_eq!(picture(&many).chars().count(), 55);
}

#[test]
fn numbers_and_names() {
    assert_eq!(
        [0.12345, 5.0, f64::NAN, 1e20].map(short),
        ["0.1235", "5", "", "1e20"]
    );
    assert_eq!(
        name(&[("__name__".to_owned(), "up".to_owned())].into()),
        "up"
    );
}
