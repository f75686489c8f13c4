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

/// What `strconv.FormatFloat` of Go 1.24 writes for numbers that are in the middle of two shortest
/// decimals.
#[test]
fn of_two_equally_close_decimals_the_even_one_is_written() {
    for (exact, expected) in [
        ("2.98023223876953125e-8", "0.000000029802322387695312"),
        ("225638457299482.125", "225638457299482.12"),
        ("82408292670400.875", "82408292670400.88"),
        ("-21147174655666.5625", "-21147174655666.562"),
        ("1624187417150826.25", "1624187417150826.2"),
    ] {
        let value: f64 = exact.parse().expect("it is a number");
        assert_eq!(format_number(value), expected);
    }
    assert_eq!(format_with_exponent(2f64.powi(-25)), "2.9802322387695312e-08");
    assert_eq!(format_short_number(-(2f64.powi(-25))), "-2.9802322387695312e-08");
}

#[test]
fn numbers_are_placed_around_their_point() {
    for (value, plain, exponential) in [
        (0.0, "0", "0e+00"),
        (-0.0, "-0", "-0e+00"),
        (1.0, "1", "1e+00"),
        (120.0, "120", "1.2e+02"),
        (-12.5, "-12.5", "-1.25e+01"),
        (0.05, "0.05", "5e-02"),
        (1e21, "1000000000000000000000", "1e+21"),
        (1.5e-7, "0.00000015", "1.5e-07"),
        (1.25e100, &format!("125{}", "0".repeat(98)), "1.25e+100"),
    ] {
        assert_eq!((&*format_number(value), &*format_with_exponent(value)), (plain, exponential));
    }
}

proptest::proptest! {
    #[test]
    fn a_written_number_is_read_as_the_same(bits in proptest::prelude::any::<u64>()) {
        let value = f64::from_bits(bits);
        if value.is_finite() {
            for text in [format_number(value), format_with_exponent(value)] {
                proptest::prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), bits);
            }
            // As short as Rust writes it.
            proptest::prop_assert_eq!(format_number(value).len(), value.to_string().len());
        }
    }
}
