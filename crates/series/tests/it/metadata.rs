//! What senders say of their metrics, by each protocol, and that it takes no more room than it may.

use egret_base::lifecycle::Service;
use egret_base::settings::ByteSize;
use egret_metrics_wire::encode::{RequestV2, SeriesToWrite, append_metadata_v1};
use egret_metrics_wire::otlp::OtlpEncoding;
use egret_metrics_wire::{MetricKind, WireSample, snappy};
use egret_series::{Import, ImportFormat, Series, SeriesConfig};
use serde_json::json;

use crate::engine::{NOW_MS, start_engine};

/// All that is known, a line each.
fn list_metadata(series: &Series) -> Vec<String> {
    let all = series.metadata(None, usize::MAX, usize::MAX).into_iter();
    let each = all.flat_map(|(name, variants)| {
        let variants = variants.into_iter();
        variants.map(move |one| {
            let said = one.description();
            assert_eq!(said.metric, &*name);
            format!("{name} {} {:?} {:?}", said.kind.as_str(), said.unit, said.help)
        })
    });
    each.collect()
}

/// What is said with a series: kind, help and unit.
type Said<'a> = Option<(MetricKind, &'a str, &'a str)>;

/// A request of remote write 2.0 with a sample of each of these, and what is said with it.
fn body_v2(series: &[(&str, Said<'_>)]) -> Vec<u8> {
    let mut request = RequestV2::default();
    for (name, said) in series {
        let series = SeriesToWrite {
            labels: vec![("__name__", name), ("le", "1")],
            samples: vec![WireSample { time_ms: NOW_MS, value: 1.0 }],
            ..SeriesToWrite::default()
        };
        request.push(&series, *said);
    }
    snappy::encode(&request.into_body())
}

async fn import(series: &Series, text: &str) {
    let mut import = Import::new(series.clone(), ImportFormat::OpenMetrics);
    import.push(text.as_bytes()).await.expect("a text");
    import.finish().await.expect("a whole text");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_says_what_metrics_are() {
    let directory = tempfile::tempdir().expect("a directory");
    let series = start_engine(&directory, SeriesConfig::default()).await;
    let mut body = Vec::new();
    append_metadata_v1("v1_seconds", MetricKind::Summary, "One.", "seconds", &mut body);
    append_metadata_v1("nothing", MetricKind::Unknown, "", "", &mut body);
    let written = series.remote_write_v1(&snappy::encode(&body)).await;
    assert_eq!(written.expect("a request").samples, 0);
    let histogram = Some((MetricKind::Histogram, "Two.", ""));
    let body = body_v2(&[
        ("v2_bucket", histogram),
        ("v2_count", histogram),
        ("v2_total", Some((MetricKind::Counter, "Three.", ""))),
        ("v2_silent", None),
    ]);
    let written = series.remote_write_v2(&body).await.expect("a request");
    assert_eq!(written.samples, 4);
    let body = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{
        "name": "otlp", "description": "Four.", "unit": "By",
        "gauge": {"dataPoints": [{"asDouble": 2.5, "timeUnixNano": (NOW_MS * 1_000_000).to_string()}]},
    }]}]}]}).to_string();
    let written = series.write_otlp(body.as_bytes(), OtlpEncoding::Json).await;
    written.expect("a request");
    let text = "# HELP text Five.\n# TYPE text gauge\n# UNIT text bytes\ntext 1\n# EOF\n";
    import(&series, text).await;
    let expected = [
        "otlp_bytes gauge \"bytes\" \"Four.\"",
        "text gauge \"bytes\" \"Five.\"",
        "v1_seconds summary \"seconds\" \"One.\"",
        "v2 histogram \"\" \"Two.\"",
        "v2_total counter \"\" \"Three.\"",
    ];
    assert_eq!(list_metadata(&series), expected);
    series.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_room_is_not_kept_and_harms_no_sample() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = SeriesConfig { metadata_bytes_max: ByteSize(1_000), ..SeriesConfig::default() };
    let series = start_engine(&directory, config).await;
    let names: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    let gauge = Some((MetricKind::Gauge, "A gauge.", ""));
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), gauge)).collect();
    assert!(!series.has_refused_metadata());
    let written = series.remote_write_v2(&body_v2(&all)).await;
    assert_eq!(written.expect("a request").samples, 100);
    assert!(series.has_refused_metadata());
    assert_eq!(list_metadata(&series).len(), 5);
    series.stop().await;
}
