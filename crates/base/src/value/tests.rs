//! Sizes, spans and the other setting values read what they show.

use proptest::prelude::*;

use super::*;

#[test]
fn sizes() {
    assert_eq!(ByteSize::read("16MB"), Ok(ByteSize::mib(16)));
    assert_eq!(ByteSize::read("20G"), Ok(ByteSize::gib(20)));
    assert_eq!(ByteSize::read("20 GiB"), Ok(ByteSize::gib(20)));
    assert_eq!(ByteSize::read("512"), Ok(ByteSize(512)));
    assert_eq!(ByteSize::mib(16).show(), "16MB");
    assert_eq!(ByteSize(0).show(), "0B");
    for wrong in ["", "MB", "1.5GB", "-1", "5 parsecs", "99999999999TB"] {
        assert!(ByteSize::read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn spans() {
    assert_eq!(ConfigDuration::read("250ms"), Ok(ConfigDuration::ms(250)));
    assert_eq!(ConfigDuration::read("2h"), Ok(ConfigDuration::secs(7_200)));
    assert_eq!(ConfigDuration::read("5m"), Ok(ConfigDuration::secs(300)));
    assert_eq!(ConfigDuration::secs(90).show(), "90s");
    assert_eq!(ConfigDuration::secs(3_600).show(), "1h");
    for wrong in ["", "30", "s", "1y", "-5s"] {
        assert!(ConfigDuration::read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_span_that_no_arithmetic_takes_is_refused() {
    let longest = ConfigDuration::read("106751d").unwrap();
    assert!(i64::try_from(longest.duration().as_nanos()).is_ok());
    for text in ["106752d", "9223372036855ms", "18446744073709551615ms", "213503982334601d"] {
        assert_eq!(
            ConfigDuration::read(text),
            Err(format!("`{text}` is too long a duration: at most 106751d"))
        );
    }
}

#[test]
fn options_are_empty_or_a_value() {
    assert_eq!(Option::<u16>::read(""), Ok(None));
    assert_eq!(Option::<u16>::read("7070"), Ok(Some(7070)));
    assert!(Option::<u16>::read("70700").is_err());
}

proptest! {
    #[test]
    fn sizes_and_spans_round_trip(size in 0_u64..1 << 50, span in 0..=SPAN_MS_MAX) {
        prop_assert_eq!(ByteSize::read(&ByteSize(size).show()), Ok(ByteSize(size)));
        prop_assert_eq!(ConfigDuration::read(&ConfigDuration(span).show()), Ok(ConfigDuration(span)));
    }

    #[test]
    fn reading_never_panics(text in ".{0,40}") {
        let _ = ByteSize::read(&text);
        let _ = ConfigDuration::read(&text);
        let _ = Option::<u32>::read(&text);
    }
}

#[test]
fn a_measured_size_is_shown_in_whole_megabytes() {
    for (bytes, down, up) in [
        (0, "0B", "0B"),
        (1_023, "1023B", "1023B"),
        ((60 << 20) + 1, "60MB", "61MB"),
        (60 << 20, "60MB", "60MB"),
        (1 << 30, "1GB", "1GB"),
    ] {
        assert_eq!(ByteSize(bytes).rounded_down().to_string(), down);
        assert_eq!(ByteSize(bytes).rounded_up().to_string(), up);
    }
    assert_eq!(ByteSize(u64::MAX).rounded_up(), ByteSize(u64::MAX));
}
