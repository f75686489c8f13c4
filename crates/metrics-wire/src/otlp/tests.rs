//! Requests as SDKs send them, and names as Prometheus translates them.

use expect_test::{Expect, expect};
use prost::Message as _;

use super::message::{Buckets, ExponentialHistogram, ExponentialPoint, Metric, ScopeMetrics};
use super::names::{NamedKind, label_name, metric_name, unit_name};
use super::*;

fn show(translated: &OtlpBatch) -> String {
    let mut out = String::new();
    for sample in &translated.samples {
        let labels: Vec<String> =
            sample.labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        let value = match &sample.value {
            OtlpValue::Sample(sample) => format!("{} at {}", sample.value, sample.time_ms),
            OtlpValue::Histogram(histogram) => format!("{histogram:?}"),
        };
        out.push_str(&format!("{} {value}\n", labels.join(",")));
    }
    for metadata in &translated.metadata {
        out.push_str(&format!("{metadata:?}\n"));
    }
    out.push_str(&format!(
        "rejected {}: {}\n",
        translated.rejected_points,
        translated.reasons.join("; ")
    ));
    out
}

fn check(json: &str, expected: Expect) -> OtlpBatch {
    let translated = decode(json.as_bytes(), OtlpEncoding::Json, &OtlpOptions::default())
        .expect("it can be read");
    expected.assert_eq(&show(&translated));
    translated
}

#[test]
fn gauges_and_sums_of_a_service() {
    check(
        r#"{"resourceMetrics":[{
          "resource":{"attributes":[
            {"key":"service.name","value":{"stringValue":"my.service"}},
            {"key":"service.namespace","value":{"stringValue":"shop"}},
            {"key":"service.instance.id","value":{"intValue":"7"}},
            {"key":"host.name","value":{"stringValue":"h1"}}]},
          "scopeMetrics":[{"scope":{"name":"my.library","version":"1.0.0"},"metrics":[
            {"name":"http.server.requests","unit":"1","description":"Requests.","sum":{"aggregationTemporality":2,"isMonotonic":true,
              "dataPoints":[{"asInt":"5","startTimeUnixNano":"1544712660300000000","timeUnixNano":"1544712661300000000",
                "attributes":[{"key":"http.method","value":{"stringValue":"GET"}},{"key":"2xx","value":{"boolValue":true}}]}]}},
            {"name":"system.memory.usage","unit":"By","gauge":{"dataPoints":[
              {"asDouble":10.5,"timeUnixNano":1544712660300000000,"attributes":[
                {"key":"a.b","value":{"arrayValue":{"values":[{"intValue":1},{"stringValue":"x"}]}}},
                {"key":"a_b","value":{"doubleValue":0.5}}]}]}},
            {"name":"ratio","unit":"1","gauge":{"dataPoints":[{"flags":1,"timeUnixNano":"1544712661300000000"}]}}
          ]}]}]}"#,
        expect![[r#"
            __name__="http_server_requests_total",http_method="GET",instance="7",job="shop/my.service",key_2xx="true" 5 at 1544712661300
            __name__="system_memory_usage_bytes",a_b="[1,\"x\"];0.5",instance="7",job="shop/my.service" 10.5 at 1544712660300
            __name__="ratio",instance="7",job="shop/my.service" NaN at 1544712661300
            __name__="target_info",host_name="h1",instance="7",job="shop/my.service" 1 at 1544712660300
            __name__="target_info",host_name="h1",instance="7",job="shop/my.service" 1 at 1544712661300
            OtlpMetadata { metric: "http_server_requests_total", kind: Counter, help: "Requests.", unit: "" }
            OtlpMetadata { metric: "system_memory_usage_bytes", kind: Gauge, help: "", unit: "bytes" }
            OtlpMetadata { metric: "ratio", kind: Gauge, help: "", unit: "" }
            rejected 0: 
        "#]],
    );
}

#[test]
fn histograms_and_summaries() {
    check(
        r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
            {"name":"latency","unit":"s","histogram":{"aggregationTemporality":2,"dataPoints":[
              {"timeUnixNano":"1000000","count":"6","sum":2.5,"bucketCounts":["1","2",3],"explicitBounds":[0.5,10]}]}},
            {"name":"quantiles","summary":{"dataPoints":[
              {"timeUnixNano":"1000000","count":"2","sum":3,"quantileValues":[{"quantile":0.99,"value":"NaN"}]}]}}
          ]}]}]}"#,
        expect![[r#"
            __name__="latency_seconds_sum" 2.5 at 1
            __name__="latency_seconds_count" 6 at 1
            __name__="latency_seconds_bucket",le="0.5" 1 at 1
            __name__="latency_seconds_bucket",le="10" 3 at 1
            __name__="latency_seconds_bucket",le="+Inf" 6 at 1
            __name__="quantiles_sum" 3 at 1
            __name__="quantiles_count" 2 at 1
            __name__="quantiles",quantile="0.99" NaN at 1
            OtlpMetadata { metric: "latency_seconds", kind: Histogram, help: "", unit: "seconds" }
            OtlpMetadata { metric: "quantiles", kind: Summary, help: "", unit: "" }
            rejected 0: 
        "#]],
    );
}

#[test]
fn what_is_not_cumulative_is_refused_with_a_reason() {
    let translated = check(
        r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[
            {"name":"d","sum":{"aggregationTemporality":"AGGREGATION_TEMPORALITY_DELTA","dataPoints":[{"asInt":1},{"asInt":2}]}},
            {"name":"!!","gauge":{"dataPoints":[{"asInt":1}]}},
            {"name":"g","gauge":{"dataPoints":[{"timeUnixNano":"1"},{"asInt":-4,"attributes":[{"key":"...","value":{}}]}]}}
          ]}]}]}"#,
        expect![[r#"
            OtlpMetadata { metric: "g", kind: Gauge, help: "", unit: "" }
            rejected 5: metric "d" is not cumulative: set the exporter's temporality to cumulative; metric "!!" has no usable name; a point of "g" has no value; attribute "..." cannot be a label
        "#]],
    );
    let response = encode_response(&translated, OtlpEncoding::Json);
    assert!(
        response
            .starts_with(br#"{"partialSuccess":{"rejectedDataPoints":"5","errorMessage":"metric "#)
    );
    let response = encode_response(&translated, OtlpEncoding::Protobuf);
    assert_eq!(response[0], 0x0a);
    assert!(encode_response(&OtlpBatch::default(), OtlpEncoding::Protobuf).is_empty());
}

fn exponential(scale: i32, offset: i32, counts: &[u64]) -> OtlpBatch {
    translated(ExponentialPoint {
        time_unix_nano: 5_000_000,
        // One of them is in the bucket around zero.
        count: counts.iter().fold(1, |sum, count| sum.saturating_add(*count)),
        sum: Some(1.5),
        scale,
        zero_count: 1,
        positive: Some(Buckets { offset, bucket_counts: counts.to_vec() }),
        ..ExponentialPoint::default()
    })
}

fn translated(point: ExponentialPoint) -> OtlpBatch {
    let metric = Metric {
        name: "e".into(),
        exponential_histogram: Some(ExponentialHistogram {
            data_points: vec![point],
            aggregation_temporality: message::CUMULATIVE,
        }),
        ..Metric::default()
    };
    let scope = ScopeMetrics { metrics: vec![metric] };
    let resource = message::ResourceMetrics { resource: None, scope_metrics: vec![scope] };
    let request = Request { resource_metrics: vec![resource] };
    decode(&request.encode_to_vec(), OtlpEncoding::Protobuf, &OtlpOptions::default())
        .expect("it can be read")
}

/// Schema, then spans, then deltas.
fn native(scale: i32, offset: i32, counts: &[u64]) -> String {
    let translated = exponential(scale, offset, counts);
    match translated.samples.first().map(|sample| &sample.value) {
        Some(OtlpValue::Histogram(histogram)) => {
            assert_eq!(histogram.find_problem(), None);
            let spans: Vec<(i32, u32)> =
                histogram.positive.spans.iter().map(|span| (span.offset, span.length)).collect();
            format!("{} {spans:?} {:?}", histogram.schema, histogram.positive.deltas)
        }
        _ => translated.reasons.join("; "),
    }
}

#[test]
fn exponential_histograms_become_native() {
    assert_eq!(native(1, -1, &[1, 2, 0, 4]), "1 [(0, 4)] [1, 1, -2, 4]");
    assert_eq!(native(0, 5, &[0, 0, 3, 0, 0, 0, 1]), "0 [(8, 1), (3, 1)] [3, -2]");
    // Ten is two more than Prometheus has: four buckets become one.
    assert_eq!(native(10, -5, &[1, 1, 1, 1, 1, 1]), "8 [(-1, 3)] [1, 3, -3]");
    assert_eq!(native(0, 0, &[]), "0 [] []");
    assert_eq!(native(0, 0, &[0, 0]), "0 [] []");
    assert_eq!(native(-5, 0, &[1]), "a histogram of \"e\" has scale -5, below the minimum of -4");
    let large = "a histogram of \"e\" has counts or indices that are too large";
    assert_eq!(native(0, i32::MAX, &[1]), large);
    assert_eq!(native(0, 0, &[u64::MAX]), large);
    assert_eq!(native(31, i32::MIN, &[1]), "8 [(-255, 1)] [1]");
    let refused = translated(ExponentialPoint {
        zero_threshold: f64::INFINITY,
        ..ExponentialPoint::default()
    });
    assert_eq!((refused.samples.len(), refused.rejected_points), (0, 1));
}

#[test]
fn names_of_metrics() {
    let check = |name: &str, unit: &str, kind, expected: &str| {
        let found = metric_name(name, unit, kind).unwrap_or_default();
        assert_eq!(found, expected, "{name} {unit}");
    };
    use NamedKind::{Counter, Gauge, Other};
    check("system.io", "By", Counter, "system_io_bytes_total");
    check("system.io.bytes.total", "By", Counter, "system_io_bytes_total");
    check("broken.metric", "By/s", Gauge, "broken_metric_bytes_per_second");
    check("active.requests", "{requests}", Other, "active_requests");
    check("active.requests", "{requests}/m", Other, "active_requests_per_minute");
    check("utilization", "1", Gauge, "utilization_ratio");
    check("utilization", "1", Counter, "utilization_total");
    check("cpu.temperature", "%", Gauge, "cpu_temperature_percent");
    check("1st.metric", "", Gauge, "_1st_metric");
    check("a::b..c", "foo bar", Gauge, "a::b_c_foo_bar");
    check("latency.ms", "ms", Other, "latency_ms_milliseconds");
    check("...", "", Gauge, "");
    assert_eq!(unit_name("KiBy/s"), "kibibytes_per_second");
    assert_eq!(unit_name("{things}"), "");
}

#[test]
fn names_of_labels() {
    let check = |name: &str, expected: Option<&str>| {
        assert_eq!(label_name(name).as_deref(), expected, "{name}");
    };
    check("http.method", Some("http_method"));
    check("2xx", Some("key_2xx"));
    check("_private", Some("key_private"));
    check("__reserved__", Some("__reserved__"));
    check("größe", Some("gr__e"));
    check("", None);
    check("..", None);
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let options = OtlpOptions::default();
    assert!(decode(b"\xff", OtlpEncoding::Protobuf, &options).is_err());
    let error = decode(b"{\"resourceMetrics\": 5}", OtlpEncoding::Json, &options)
        .expect_err("of another shape");
    assert!(
        error.to_string().starts_with("json does not have the expected structure: "),
        "{error}"
    );
    let few = OtlpOptions { translated_bytes_max: 100, ..options };
    let json = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"g","gauge":{"dataPoints":[{"asInt":1},{"asInt":1}]}}]}]}]}"#;
    let error = decode(json.as_bytes(), OtlpEncoding::Json, &few).expect_err("too many");
    assert!(matches!(error, WireError::Limit(_)));
    assert!(error.to_string().starts_with("limit translated_bytes_max is 100, but "), "{error}");
}

#[test]
fn target_info_is_bounded_whatever_the_times() {
    let json = r#"{"resourceMetrics":[{"resource":{"attributes":[
        {"key":"service.name","value":{"stringValue":"s"}},{"key":"x","value":{"stringValue":"y"}}]},
        "scopeMetrics":[{"metrics":[{"name":"g","gauge":{"dataPoints":[
            {"asInt":1},{"asInt":1,"timeUnixNano":"18446744073709551615"}]}}]}]}]}"#;
    let translated = decode(json.as_bytes(), OtlpEncoding::Json, &OtlpOptions::default())
        .expect("it can be read");
    assert!(translated.samples.len() < 510, "{}", translated.samples.len());
}
