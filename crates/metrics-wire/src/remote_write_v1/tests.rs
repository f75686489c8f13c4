//! Bodies byte by byte.

use egret_metrics_model::STALE_NAN_BITS;

use super::*;
use crate::{WireHistogram, WireSample};

const LABELS: &[u8] = b"\x0a\x0e\x0a\x08__name__\x12\x02up\x0a\x08\x0a\x03job\x12\x01a";
/// 1.5 at 1 700 000 000 000.
const SAMPLE: &[u8] = b"\x12\x10\x09\0\0\0\0\0\0\xf8\x3f\x10\x80\xd0\x95\xff\xbc\x31";

fn message(key: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut out = vec![key];
    egret_base::codec::put_varint(&mut out, content.len() as u64);
    out.extend(content);
    out
}

fn only(body: &[u8]) -> WrittenSeries<'_> {
    match WriteRequest::new(body).next() {
        Ok(Some(RequestEntry::Series(series))) => series,
        other => panic!("no series: {other:?}"),
    }
}

fn samples(series: &WrittenSeries<'_>) -> Vec<WireSample> {
    series.samples().map(|sample| sample.expect("well formed")).collect()
}

const ONE: WireSample = WireSample { time_ms: 1_700_000_000_000, value: 1.5 };

#[test]
fn labels_are_a_slice_of_the_body() {
    let body = message(0x0a, &[LABELS, SAMPLE]);
    let series = only(&body);
    assert_eq!(series.labels, Cow::Borrowed(LABELS));
    assert!(matches!(series.labels, Cow::Borrowed(_)));
    assert_eq!(samples(&series), [ONE]);
}

#[test]
fn labels_among_other_fields_are_gathered() {
    let (first, second) = LABELS.split_at(16);
    let body = message(0x0a, &[first, SAMPLE, second, SAMPLE]);
    let series = only(&body);
    assert_eq!(*series.labels, *LABELS);
    assert_eq!(samples(&series), [ONE, ONE]);
    let mut request = WriteRequest::new(&body);
    assert!(request.next_if_labels(first).expect("well formed").is_none());
    let body = message(0x0a, &[SAMPLE, LABELS]);
    assert_eq!(*only(&body).labels, *LABELS);
}

#[test]
fn a_series_that_was_not_expected_is_left() {
    let body = [message(0x0a, &[LABELS, SAMPLE]), message(0x0a, &[LABELS])].concat();
    let mut request = WriteRequest::new(&body);
    let (first, _) = LABELS.split_at(16);
    for other in [&b""[..], first, b"other", &[LABELS, LABELS].concat()] {
        assert!(request.next_if_labels(other).expect("well formed").is_none());
    }
    let series = request.next_if_labels(LABELS).expect("well formed").expect("it is the one");
    assert_eq!(samples(&series), [ONE]);
    let series = request.next_if_labels(LABELS).expect("well formed").expect("it is the one");
    assert_eq!(samples(&series), []);
    assert!(request.next_if_labels(LABELS).expect("well formed").is_none());
    assert!(request.next().expect("well formed").is_none());
}

#[test]
fn samples_keep_their_bits_and_may_leave_zeros_out() {
    let stale =
        [&b"\x12\x10\x09"[..], &STALE_NAN_BITS.to_le_bytes(), b"\x10\x80\xd0\x95\xff\xbc\x31"]
            .concat();
    let zero = b"\x12\x07\x10\x80\xd0\x95\xff\xbc\x31";
    let early = [&b"\x12\x0b\x09"[..], &2f64.to_le_bytes(), b"\x10\x05"].concat();
    let before_1970 = [&b"\x12\x0b\x10"[..], &[0xff; 9], b"\x01"].concat();
    let reversed = [&b"\x12\x0b\x10\x05\x09"[..], &2f64.to_le_bytes()].concat();
    let nothing = b"\x12\0";
    let body =
        message(0x0a, &[LABELS, &stale, zero, SAMPLE, &early, &before_1970, &reversed, nothing]);
    let found = samples(&only(&body));
    assert_eq!(found[0].value.to_bits(), STALE_NAN_BITS);
    let found: Vec<(i64, f64)> =
        found[1..].iter().map(|sample| (sample.time_ms, sample.value)).collect();
    let now = 1_700_000_000_000;
    assert_eq!(found, [(now, 0.0), (now, 1.5), (5, 2.0), (-1, 0.0), (5, 2.0), (0, 0.0)]);
}

#[test]
fn metadata_and_what_is_unknown() {
    let metadata = message(0x1a, &[b"\x08\x01\x12\x02up\x22\x04help\x2a\x01s"]);
    let body = [&b"\x12\x03abc\x20\x05"[..], &metadata].concat();
    let mut request = WriteRequest::new(&body);
    let Ok(Some(RequestEntry::Metadata(found))) = request.next() else {
        panic!("there is metadata");
    };
    let expected =
        WrittenMetadata { metric: "up", kind: MetricKind::Counter, help: "help", unit: "s" };
    assert_eq!(found, expected);
    assert!(matches!(request.next(), Ok(None)));
}

fn error(series: &[u8]) -> String {
    let body = message(0x0a, &[series]);
    let read = || -> Result<(), WireError> {
        let mut request = WriteRequest::new(&body);
        while let Some(entry) = request.next()? {
            let RequestEntry::Series(series) = entry else {
                continue;
            };
            for sample in series.samples() {
                sample?;
            }
            let mut histograms = series.histograms();
            while histograms.read(&mut WireHistogram::default())? {}
        }
        Ok(())
    };
    read().expect_err("it is malformed").to_string()
}

#[test]
fn what_is_malformed_says_where() {
    let check = |series: &[u8], expected: &str| assert_eq!(error(series), expected);
    check(b"\x0a\x20abc", "TimeSeries is truncated at byte 2: send the whole message");
    check(b"\x0a\xff", "TimeSeries is truncated at byte 3: send the whole message");
    check(
        &[LABELS, b"\x12\x20abc"].concat(),
        "TimeSeries is truncated at byte 30: send the whole message",
    );
    check(b"\x12\x02\x09\0", "Sample is truncated at byte 5: send the whole message");
    check(b"\x12\x02\x08\0", "field 1 of Sample has wire type 0 at byte 4, which is not its type");
    check(b"\x10\x01", "field 2 of TimeSeries has wire type 0 at byte 2, which is not its type");
    check(b"\x1a\x03\x0a\x01\x00", "Label has a field key 0 that cannot be at byte 6");
    check(b"\x22\x02\x20\x14", "histogram at byte 4: schema is neither -4 to 8 nor -53");
    check(
        b"\x22\x04\x5a\x02\x10\x01",
        "histogram at byte 4: spans and the number of buckets do not match",
    );
    check(
        b"\x22\x07\x5a\x02\x10\x01\x62\x01\x01",
        "histogram at byte 4: a bucket has a negative count",
    );
    check(
        b"\x22\x0a\x20\x69\x5a\x02\x10\x02\x62\x02\x02\0",
        "histogram at byte 4: buckets go beyond the custom bounds",
    );
    check(
        b"\x22\x0e\x5a\x08\x08\xfe\xff\xff\xff\x0f\x10\x02\x62\x02\x02\0",
        "histogram at byte 4: a bucket's index exceeds 32 bits",
    );
}
