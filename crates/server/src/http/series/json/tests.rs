//! Numbers as Go writes them: what is expected here was printed by a Prometheus.

use super::{append_text, append_time, append_value};

fn render(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn values() {
    for (value, expected) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (-42.0, "-42"),
        (0.1, "0.1"),
        (-1.5, "-1.5"),
        (1e6, "1000000"),
        (123_456_789.123_456_78, "123456789.12345678"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (1e-6, "0.000001"),
        (9.5e-7, "9.5e-07"),
        (5e-324, "5e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
        (9_007_199_254_740_993.0, "9007199254740992"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
        (f64::NAN, "NaN"),
    ] {
        let text = render(|out| append_value(value, out));
        assert_eq!(text, format!("\"{expected}\""), "{value:e}");
    }
}

#[test]
fn times() {
    for (time_ms, expected) in [
        (0, "0"),
        (1_000, "1"),
        (1_001, "1.001"),
        (1_500, "1.500"),
        (-1, "-0.001"),
        (1_700_000_000_020, "1700000000.020"),
    ] {
        assert_eq!(render(|out| append_time(time_ms, out)), expected);
    }
}

#[test]
fn texts() {
    for text in ["", "a", "a\"b\\c\n\u{1}", "née"] {
        let json = render(|out| append_text(text, out));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
