//! Bodies are read by a decoder that was made from the messages' definitions.

use prost::Message;

use super::*;
use crate::scenarios::series::fleet::Fleet;

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Series1 {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

#[derive(Clone, PartialEq, Message)]
struct Request1 {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<Series1>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(uint32, tag = "3")]
    help_ref: u32,
    #[prost(uint32, tag = "4")]
    unit_ref: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Series2 {
    #[prost(uint32, repeated, tag = "1")]
    labels_refs: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
    #[prost(message, optional, tag = "5")]
    metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
struct Request2 {
    #[prost(string, repeated, tag = "4")]
    symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    timeseries: Vec<Series2>,
}

type Read = Vec<(Vec<(String, String)>, f64, i64)>;

fn address() -> WriteAddress {
    WriteAddress {
        host: "127.0.0.1:9090".to_owned(),
        token: Some("secret".to_owned()),
        path: "/api/v1/write",
    }
}

fn series() -> Vec<LabelPairs> {
    (0..300)
        .map(|number| {
            vec![
                ("__name__", "node_load1".to_owned()),
                ("instance", format!("10.0.0.{number}:9100")),
                ("job", "node".to_owned()),
            ]
        })
        .collect()
}

/// The head's lines and the body of a request.
fn parts(template: &Template) -> (String, Vec<u8>) {
    let request = template.request();
    let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(request[..end].to_vec()).unwrap();
    let body = &request[end + 4..];
    assert!(head.contains(&format!("content-length: {}", body.len())));
    let body = snap::raw::Decoder::new().decompress_vec(body).unwrap();
    (head, body)
}

fn decode_v1(body: &[u8]) -> Read {
    let request = Request1::decode(body).unwrap();
    let series = request.timeseries.into_iter().map(|series| {
        let labels = series.labels.into_iter().map(|label| (label.name, label.value));
        let [sample] = &series.samples[..] else { panic!("one sample") };
        (labels.collect(), sample.value, sample.timestamp)
    });
    series.collect()
}

fn decode_v2(body: &[u8]) -> Read {
    let Request2 { symbols, timeseries } = Request2::decode(body).unwrap();
    assert_eq!(symbols[0], "");
    let series = timeseries.into_iter().map(|series| {
        let text = |number: u32| symbols[number as usize].clone();
        let labels = series.labels_refs.chunks(2).map(|two| (text(two[0]), text(two[1])));
        let metadata = series.metadata.unwrap();
        assert_eq!((metadata.kind, metadata.unit_ref), (2, 0));
        assert_eq!(text(metadata.help_ref), "What node_load1 says.");
        let [sample] = &series.samples[..] else { panic!("one sample") };
        (labels.collect(), sample.value, sample.timestamp)
    });
    series.collect()
}

/// Fills a template twice; what is read is what was put in.
fn check(protocol: Protocol, read: fn(&[u8]) -> Read) -> String {
    let series = series();
    let mut template = Template::new(&address(), protocol, &series);
    assert_eq!(template.samples(), series.len());
    for round in 0..2_i64 {
        let sample = |place: usize| {
            let number = place as i64 + 1_000 * round;
            (number as f64 / 8.0 - 20.0, 1_795_000_000_000 + number * 15_000)
        };
        for place in 0..series.len() {
            let (value, time_ms) = sample(place);
            template.set_sample(place, value, time_ms);
        }
        let (_, body) = parts(&template);
        let expected: Read = series
            .iter()
            .enumerate()
            .map(|(place, pairs)| {
                let pairs = pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
                let (value, time_ms) = sample(place);
                (pairs.collect(), value, time_ms)
            })
            .collect();
        assert_eq!(read(&body), expected);
    }
    parts(&template).0
}

#[test]
fn version_1_is_read_as_it_was_meant() {
    let head = check(Protocol::Rw1, decode_v1);
    assert!(head.starts_with("POST /api/v1/write HTTP/1.1\r\nhost: 127.0.0.1:9090\r\n"));
    assert!(head.contains("\r\nauthorization: Bearer secret\r\n"));
    assert!(head.contains("\r\nx-prometheus-remote-write-version: 0.1.0\r\n"));
}

#[test]
fn version_2_is_read_as_it_was_meant() {
    let head = check(Protocol::Rw2, decode_v2);
    assert!(head.contains("proto=io.prometheus.write.v2.Request\r\n"));
    assert!(head.contains("\r\nx-prometheus-remote-write-version: 2.0.0\r\n"));
}

#[test]
fn a_body_is_about_as_long_as_senders_make_it() {
    let fleet = Fleet { seed: 1, series: 10_000, begin_ms: 1_795_000_020_000 };
    let series: Vec<_> = (0..2_000).map(|series| fleet.labels(series)).collect();
    for protocol in [Protocol::Rw1, Protocol::Rw2] {
        let mut template = Template::new(&address(), protocol, &series);
        for place in 0..series.len() {
            let value = fleet.shape(place as u32).value_at(100);
            template.set_sample(place, value, fleet.step_ms(100) + fleet.shift_ms(place as u32));
        }
        let raw = parts(&template).1;
        let theirs = snap::raw::Encoder::new().compress_vec(&raw).unwrap().len();
        let ours = template.request().len();
        // Senders find the same bytes in values and times, too; here these stand as they are.
        let most = theirs + PLACEHOLDER_BYTES * series.len();
        assert!((theirs..most).contains(&ours), "{ours} against {theirs}");
    }
}

#[test]
#[should_panic(expected = "far from now")]
fn a_time_that_would_not_fit_is_refused() {
    Template::new(&address(), Protocol::Rw1, &series()).set_sample(0, 1.0, 1_000);
}
