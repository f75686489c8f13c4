//! Bodies byte by byte.

use super::*;
use crate::WireSample;
use crate::encode::{RequestV2, SeriesToWrite};
use crate::labels::append_label_field;

const SYMBOLS: &[u8] = b"\x22\x00\x22\x08__name__\x22\x02up\x22\x03job\x22\x02\xc3\xa4";

fn keys(body: &[u8]) -> Result<Vec<Vec<u8>>, WireError> {
    let (mut symbols, mut memory) = (SymbolMemory::default(), KeyMemory::default());
    let mut request = WriteRequestV2::new(body, &mut symbols)?;
    let mut keys = Vec::new();
    while let Some(series) = request.next()? {
        keys.push(series.build_key(&mut memory)?.to_vec());
        for sample in series.samples() {
            sample?;
        }
        series.metadata()?;
        series.metric_symbol().map(|metric| series.symbol(metric)).transpose()?;
        assert_has_only(&series, &keys);
    }
    Ok(keys)
}

/// It has the last of these keys, and none that differs from it in a byte or in length.
fn assert_has_only(series: &WrittenSeriesV2<'_, '_>, keys: &[Vec<u8>]) {
    let has_key = |key: &[u8]| series.has_key(key).expect("it is small");
    let own = keys.last().expect("there is one").clone();
    assert!(has_key(&own));
    for other in keys {
        assert_eq!(has_key(other), *other == own);
    }
    let mut other = own.clone();
    for at in 0..own.len() {
        other[at] ^= 1 << (at % 8);
        assert!(!has_key(&other), "byte {at}");
        other[at] = own[at];
    }
    assert!(own.is_empty() || !has_key(&own[..own.len() - 1]));
    other.push(0);
    assert!(!has_key(&other));
}

#[test]
fn a_key_is_what_version_1_would_have_sent() {
    let expected =
        b"\x0a\x0e\x0a\x08__name__\x12\x02up\x0a\x09\x0a\x03job\x12\x02\xc3\xa4".to_vec();
    let packed = b"\x2a\x06\x0a\x04\x01\x02\x03\x04";
    let unpacked = b"\x2a\x08\x08\x01\x08\x02\x08\x03\x08\x04";
    let halves = b"\x2a\x08\x0a\x02\x01\x02\x0a\x02\x03\x04";
    for series in [&packed[..], unpacked, halves] {
        assert_eq!(keys(&[SYMBOLS, series].concat()), Ok(vec![expected.clone()]));
        // Nothing says that the table comes first.
        assert_eq!(keys(&[series, SYMBOLS].concat()), Ok(vec![expected.clone()]));
    }
}

#[test]
fn what_is_malformed_says_where() {
    let check = |bytes: &[u8], expected: &str| {
        let error = keys(&[SYMBOLS, bytes].concat()).expect_err("it is malformed");
        assert_eq!(error.to_string(), expected);
    };
    check(b"\x2a\x04\x0a\x02\x01\x05", "TimeSeries refers to symbol 5 at byte 27, but there are 5");
    check(
        b"\x2a\x03\x0a\x01\x01",
        "TimeSeries has an odd number of label references at byte 27: name and value go together",
    );
    check(b"\x2a\x02\x0a\x05", "TimeSeries is truncated at byte 29: send the whole message");
    // A symbol without references is not checked.
    check(
        b"\x22\x01\xff\x2a\x06\x0a\x00\x2a\x02\x18\x05",
        "Request has a string that is not UTF-8 at byte 27",
    );
    check(b"\x2a\x04\x22\x02\x08\x09", "Exemplar refers to symbol 9 at byte 29, but there are 5");
    check(
        b"\x2a\x04\x22\x02\x08\x01",
        "Exemplar has an odd number of label references at byte 29: name and value go together",
    );
    check(b"\x2a\x04\x2a\x02\x18\x07", "TimeSeries refers to symbol 7 at byte 27, but there are 5");
}

#[test]
fn long_strings_and_the_end_of_the_body_make_the_same_key() {
    for length in [1, 31, 32, 33, 127, 128, 300] {
        let long = "x".repeat(length);
        let series = SeriesToWrite {
            labels: vec![
                ("__name__", "m"),
                ("a", &long),
                (&long, "z"),
                ("b", "in the middle"),
                ("c", "and what is compared in one piece"),
                ("d", "at the end"),
            ],
            samples: vec![WireSample { time_ms: 1, value: 2.0 }],
            ..SeriesToWrite::default()
        };
        let mut request = RequestV2::default();
        request.push(&series, None);
        let mut expected = Vec::new();
        for (name, value) in &series.labels {
            append_label_field(name, value, &mut expected);
        }
        assert_eq!(keys(&request.into_body()), Ok(vec![expected]), "{length}");
    }
}

#[test]
fn what_references_become_is_bounded() {
    let long = "x".repeat(1 << 16);
    let labels: Vec<(&str, &str)> = (0..20).map(|_| ("a", long.as_str())).collect();
    let series = |count: usize| SeriesToWrite {
        labels: labels[..count].to_vec(),
        ..SeriesToWrite::default()
    };
    let mut request = RequestV2::default();
    request.push(&series(20), None);
    let error = keys(&request.into_body()).expect_err("one key is too large");
    assert!(error.to_string().contains("limit key_bytes_max is 1048576"), "{error}");
    let mut request = RequestV2::default();
    for _ in 0..1_200 {
        request.push(&series(15), None);
    }
    let body = request.into_body();
    assert!(body.len() < 120_000);
    let (mut symbols, mut memory) = (SymbolMemory::default(), KeyMemory::default());
    let mut request = WriteRequestV2::new(&body, &mut symbols).expect("well formed");
    let mut read = || -> Result<(), WireError> {
        while let Some(series) = request.next()? {
            series.build_key(&mut memory)?;
        }
        Ok(())
    };
    let error = read().expect_err("all of them are too large");
    assert!(error.to_string().contains("limit request_keys_bytes_max"), "{error}");
    let mut request = WriteRequestV2::new(&body, &mut symbols).expect("well formed");
    let mut known = Vec::new();
    for (name, value) in &labels[..15] {
        append_label_field(name, value, &mut known);
    }
    let mut compare = || -> Result<(), WireError> {
        while let Some(series) = request.next()? {
            assert!(series.has_key(&known)?);
        }
        Ok(())
    };
    let error = compare().expect_err("all of them are too large");
    assert!(error.to_string().contains("limit request_keys_bytes_max"), "{error}");
}
