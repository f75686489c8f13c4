//! Numbers and durations, there and back.

use super::*;

#[test]
fn numbers_and_durations_are_read_and_written() {
    for (text, value) in [("0x10", 16.0), ("-1.5e3", -1500.0), ("+Inf", f64::INFINITY), (".5", 0.5)]
    {
        assert_eq!(parse_number(text), Some(value), "{text}");
    }
    assert_eq!(parse_number("1m"), None);
    assert_eq!(parse_duration_ms("1h30m5ms"), Some(5_400_005));
    assert_eq!(parse_duration_ms("-1.5"), Some(-1500));
    for text in ["", "1", "5m1h", "1m1m", "x", "1e300"] {
        let wanted = (text == "1").then_some(1000);
        assert_eq!(parse_duration_ms(text), wanted, "{text:?}");
    }
    let shown = [1e6, 123_456.0, 1e-5, 0.0001, f64::NEG_INFINITY].map(format_short_number);
    assert_eq!(shown, ["1e+06", "123456", "1e-05", "0.0001", "-Inf"]);
}

#[test]
fn bounds_are_written_as_open_metrics_has_them() {
    let shown = [0.0, -0.0, 1.0, -2.0, 0.25, 1e-5, 123_456.0, 1e6].map(open_metrics_number);
    let expected = ["0.0", "0.0", "1.0", "-2.0", "0.25", "1e-05", "123456.0", "1e+06"];
    assert_eq!(shown, expected);
    let shown = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(open_metrics_number);
    assert_eq!(shown, ["+Inf", "-Inf", "NaN"]);
}
