//! Sizes, spans and the other setting values read what they show.

use proptest::prelude::*;

use super::*;

#[test]
fn sizes() {
    assert_eq!(Size::read("16MB"), Ok(Size::mib(16)));
    assert_eq!(Size::read("20G"), Ok(Size::gib(20)));
    assert_eq!(Size::read("20 GiB"), Ok(Size::gib(20)));
    assert_eq!(Size::read("512"), Ok(Size(512)));
    assert_eq!(Size::mib(16).show(), "16MB");
    assert_eq!(Size(0).show(), "0B");
    for wrong in ["", "MB", "1.5GB", "-1", "5 parsecs", "99999999999TB"] {
        assert!(Size::read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn spans() {
    assert_eq!(Span::read("250ms"), Ok(Span::ms(250)));
    assert_eq!(Span::read("2h"), Ok(Span::secs(7_200)));
    assert_eq!(Span::read("5m"), Ok(Span::secs(300)));
    assert_eq!(Span::secs(90).show(), "90s");
    assert_eq!(Span::secs(3_600).show(), "1h");
    for wrong in ["", "30", "s", "1y", "-5s"] {
        assert!(Span::read(wrong).is_err(), "{wrong}");
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
    fn sizes_and_spans_round_trip(number in 0_u64..1 << 50) {
        prop_assert_eq!(Size::read(&Size(number).show()), Ok(Size(number)));
        prop_assert_eq!(Span::read(&Span(number).show()), Ok(Span(number)));
    }

    #[test]
    fn reading_never_panics(text in ".{0,40}") {
        let _ = Size::read(&text);
        let _ = Span::read(&text);
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
        assert_eq!(Size(bytes).rounded_down().to_string(), down);
        assert_eq!(Size(bytes).rounded_up().to_string(), up);
    }
    assert_eq!(Size(u64::MAX).rounded_up(), Size(u64::MAX));
}
