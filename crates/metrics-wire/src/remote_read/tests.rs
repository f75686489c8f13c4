//! Requests as Prometheus sends them, responses as it reads them.

use super::*;
use crate::encode::{put_message, put_number, put_text};
use crate::protobuf::Field;

fn request(kinds: &[u64]) -> Vec<u8> {
    let mut body = Vec::new();
    put_message(1, &mut body, |query| {
        put_number(1, 1_000, query);
        put_number(2, 2_000, query);
        for (op, name, value) in [(0, "__name__", "up"), (3, "job", "a.*")] {
            put_message(3, query, |matcher| {
                put_number(1, op, matcher);
                put_text(2, name, matcher);
                put_text(3, value, matcher);
            });
        }
        put_message(4, query, |hints| put_text(2, "rate", hints));
    });
    if !kinds.is_empty() {
        put_message(2, &mut body, |list| list.extend(kinds.iter().map(|kind| *kind as u8)));
    }
    body
}

#[test]
fn queries_are_read() {
    let read = decode(&request(&[])).expect("well formed");
    let matcher =
        |name: &str, op, value: &str| Matcher { name: name.into(), op, value: value.into() };
    let query = ReadQuery {
        start_ms: 1_000,
        end_ms: 2_000,
        matchers: vec![
            matcher("__name__", MatchOp::Equal, "up"),
            matcher("job", MatchOp::NotMatches, "a.*"),
        ],
    };
    assert_eq!(read.queries, [query]);
}

#[test]
fn forms_are_as_welcome_as_their_order_says() {
    use ReadForm::{Chunks, Samples};
    for (kinds, expected) in [
        (&[][..], &[Samples][..]),
        (&[0], &[Samples]),
        (&[1, 0], &[Chunks, Samples]),
        (&[1], &[Chunks]),
        (&[2, 1], &[Chunks]),
        (&[2], &[]),
    ] {
        let read = decode(&request(kinds)).expect("well formed");
        assert_eq!(read.accepted_forms, expected, "{kinds:?}");
    }
}

#[test]
fn an_operator_that_there_is_not() {
    let error = decode(b"\x0a\x04\x1a\x02\x08\x09").expect_err("malformed");
    assert_eq!(error.to_string(), "LabelMatcher has a field key 9 that cannot be at byte 2");
}

#[test]
fn a_response_byte_by_byte() {
    let mut response = ReadResponse::default();
    let samples =
        SeriesSamples { times_ms: vec![5], values: vec![2.0], ..SeriesSamples::default() };
    response.push([("a", "b")].into_iter(), &samples);
    response.end_query();
    response.end_query();
    let expected =
        b"\x0a\x17\x0a\x15\x0a\x06\x0a\x01a\x12\x01b\x12\x0b\x09\0\0\0\0\0\0\0\x40\x10\x05\x0a\0";
    assert_eq!(response.size_bytes(), expected.len());
    assert_eq!(response.into_body(), expected);
}

/// Samples, values as their bits.
type SampleBits = Vec<(TimeMs, u64)>;

/// The frames of a stream: for each the number of its query, labels as they are written, samples.
fn frames(mut stream: &[u8]) -> Vec<(u64, Vec<u8>, SampleBits)> {
    let mut frames = Vec::new();
    while !stream.is_empty() {
        let mut reader = egret_base::codec::Reader::new(stream, "a stream");
        let length: usize = reader.varint_as().expect("a length");
        let (checksum, rest) = reader.rest().split_first_chunk().expect("a checksum");
        let (frame, rest) = rest.split_at(length);
        assert_eq!(u32::from_be_bytes(*checksum), crc32c::crc32c(frame));
        assert!(length <= FRAME_BYTES + 4_096, "{length}");
        stream = rest;
        let mut fields = Message::new(frame, "ChunkedReadResponse");
        let (mut query, mut labels, mut samples) = (0, Vec::new(), Vec::new());
        while let Some(field) = fields.read_field().expect("well formed") {
            if field.number == 2 {
                query = field.as_varint("ChunkedReadResponse").expect("a number");
                continue;
            }
            let mut series = field.as_message("", "ChunkedSeries").expect("a message");
            while let Some(field) = series.read_field().expect("well formed") {
                match field.number {
                    1 => labels.extend_from_slice(bytes(field)),
                    _ => {
                        let chunk = field.as_message("", "Chunk").expect("a message");
                        samples.extend(read_chunk(chunk));
                    }
                }
            }
        }
        frames.push((query, labels, samples));
    }
    frames
}

fn bytes(field: Field<'_>) -> &[u8] {
    field.as_message("", "").expect("bytes").rest()
}

fn read_chunk(mut chunk: Message<'_>) -> SampleBits {
    let (mut first_ms, mut last_ms, mut encoding, mut samples) = (0, 0, 0, Vec::new());
    while let Some(field) = chunk.read_field().expect("well formed") {
        let number = || field.as_varint("Chunk").expect("a number");
        match field.number {
            1 => first_ms = number() as i64,
            2 => last_ms = number() as i64,
            3 => encoding = number(),
            _ => samples = xor_chunk::tests::read(bytes(field)),
        }
    }
    assert_eq!(encoding, XOR);
    assert_eq!(samples.first().map(|(time_ms, _)| *time_ms), Some(first_ms));
    assert_eq!(samples.last().map(|(time_ms, _)| *time_ms), Some(last_ms));
    samples
}

#[test]
fn a_long_series_is_several_frames() {
    let mut response = ChunkedResponse::default();
    let count: i64 = 300_000;
    let samples = SeriesSamples {
        times_ms: (0..count).map(|at| at * 15_000 + at % 7).collect(),
        values: (0..count).map(|at| (at as f64).sqrt()).collect(),
        ..SeriesSamples::default()
    };
    let few = SeriesSamples {
        times_ms: vec![-1, 5],
        values: vec![2.0, f64::NAN],
        ..SeriesSamples::default()
    };
    response.push(0, [("a", "b")].into_iter(), &few);
    response.push(1, [("a", "c")].into_iter(), &samples);
    response.push(1, [("a", "d")].into_iter(), &SeriesSamples::default());
    let frames = frames(&response.take_frames());
    assert_eq!(response.size_bytes(), 0);
    assert!(frames.len() > 2, "{}", frames.len());
    let few = vec![(-1, 2.0_f64.to_bits()), (5, f64::NAN.to_bits())];
    assert_eq!(frames[0], (0, b"\x0a\x01a\x12\x01b".to_vec(), few));
    let mut all = Vec::new();
    for (query, labels, samples) in &frames[1..] {
        assert_eq!((*query, &labels[..]), (1, &b"\x0a\x01a\x12\x01c"[..]));
        all.extend_from_slice(samples);
    }
    let values = samples.values.iter().map(|value| value.to_bits());
    assert!(all.into_iter().eq(samples.times_ms.into_iter().zip(values)));
}
