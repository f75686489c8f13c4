//! Times and durations in all their ways.

use super::{Parameters, read_duration_ms, read_time};

#[test]
fn times() {
    for (text, expected) in [
        ("0", Some(0)),
        ("1435781430.781", Some(1_435_781_430_781)),
        ("1435781430.7815", Some(1_435_781_430_782)),
        ("-1.5", Some(-1_500)),
        ("1e3", Some(1_000_000)),
        ("2015-07-01T20:10:51.781Z", Some(1_435_781_451_781)),
        ("2015-07-01T22:10:51.781+02:00", Some(1_435_781_451_781)),
        ("-292273086-05-16T16:47:06Z", Some(i64::MIN)),
        ("292277025-08-18T07:12:54.999999999Z", Some(i64::MAX)),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e16", None),
        ("yesterday", None),
        ("2015-07-01t20:10:51z", None),
        ("2015-07-01 20:10:51Z", None),
        ("2015-07-01T20:10:60Z", None),
        ("2015-07-01T20:10:51.Z", None),
        ("2015-07-01T20:10:51", None),
    ] {
        assert_eq!(read_time(text), expected, "{text}");
    }
}

#[test]
fn durations() {
    for (text, expected) in [
        ("15", Some(15_000)),
        ("0.5", Some(500)),
        ("5m", Some(300_000)),
        ("1h30m", Some(5_400_000)),
        ("-1", Some(-1_000)),
        ("5 m", None),
        ("nan", None),
        ("1e300", None),
        ("9223372036", Some(9_223_372_036_000)),
        ("9223372037", None),
        ("400y", None),
        ("0x10", None),
        ("-5m", None),
    ] {
        assert_eq!(read_duration_ms(text), expected, "{text}");
    }
}

#[test]
fn a_parameter_that_cannot_be_used_is_named() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let parameters = Parameters(vec![
        pair("start", "x"),
        pair("limit", "-1"),
        pair("timeout", "-5"),
        pair("match[]", "up{"),
    ]);
    let said = [
        parameters.time("start").unwrap_err().to_string(),
        parameters.required_time("end").unwrap_err().to_string(),
        parameters.limit().unwrap_err().to_string(),
        parameters.duration("timeout").unwrap_err().to_string(),
    ];
    expect_test::expect![[r#"
        invalid parameter "start": cannot parse "x" to a valid timestamp
        invalid parameter "end": cannot parse "" to a valid timestamp
        invalid parameter "limit": must be a whole number of 0 or more
        invalid parameter "timeout": must be 0 or more"#]]
    .assert_eq(&said.join("\n"));
    let error = parameters.selectors().unwrap_err().to_string();
    assert!(error.starts_with("invalid parameter \"match[]\": "), "{error}");
}
