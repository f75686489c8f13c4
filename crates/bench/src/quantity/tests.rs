//! Values as people read them.

use super::*;

#[test]
fn values_have_three_digits_and_a_fitting_prefix() {
    for (value, unit, expected) in [
        (4.2123, "ms", "4.21 ms"),
        (0.0853, "ms", "85.3 µs"),
        (0.99999, "ms", "1.00 ms"),
        (42.19, "ms", "42.2 ms"),
        (421.9, "ms", "422 ms"),
        (999.9, "ms", "1.00 s"),
        (4_219.0, "ms", "4.22 s"),
        (0.0, "ms", "0 ms"),
        (41_700_000.0, "bytes", "41.7 MB"),
        (8_192.0, "bytes", "8.19 kB"),
        (12.0, "bytes", "12 B"),
        (1.234, "bytes", "1.23 B"),
        (1_234_567.0, "1/s", "1,234,567/s"),
        (12.34, "1/s", "12.3/s"),
        (0.9981, "ratio", "0.998"),
        (0.0, "count", "0"),
        (100.0, "count", "100"),
        (3.5, "furlongs", "3.50 furlongs"),
        (4.0, "ms", "4.00 ms"),
        (f64::NAN, "ms", "–"),
    ] {
        assert_eq!(format_quantity(value, unit), expected, "{value} {unit}");
    }
}

#[test]
fn ratios_are_changes() {
    for (ratio, expected) in [
        (1.0, "0.0%"),
        (1.0001, "0.0%"),
        (1.098, "+9.8%"),
        (0.996, "−0.4%"),
        (12.0, "×12"),
        (0.05, "×0.0500"),
        (0.0, "–"),
    ] {
        assert_eq!(format_change(ratio), expected);
    }
}

#[test]
fn text_of_a_file_cannot_command_a_terminal() {
    assert_eq!(printable("a\u{1b}[31m\nb"), "a\u{fffd}[31m\u{fffd}b");
    assert_eq!(truncate("abcdef", 4), "abc…");
    assert_eq!(truncate("abcd", 4), "abcd");
}
