//! Both exposition formats, and the process's metrics.

use expect_test::expect;

use super::*;

fn metrics() -> Metrics {
    Metrics::new("1.2.3", Timestamp::from_micros(1_500_000))
}

#[test]
fn counts_requests_and_components() {
    let metrics = metrics();
    metrics.count_request("GET", "/v1/tokens/{id}", 204, Duration::from_millis(3));
    metrics.component_time("server.handle").add(Duration::from_millis(1500));
    let text = metrics.render(Exposition::OpenMetrics);
    for line in [
        "egret_http_requests_total{method=\"GET\",route=\"/v1/tokens/{id}\",status=\"204\"} 1",
        "egret_http_request_duration_seconds_bucket{le=\"0.005\",method=\"GET\",route=\"/v1/tokens/{id}\"} 1",
        "egret_component_seconds_total{component=\"server.handle\"} 1.5",
        "egret_build_info{version=\"1.2.3\"} 1",
        "process_start_time_seconds 1.5",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
        assert!(text.contains(&format!("\n{name} ")), "{name} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn gauges_go_down_again() {
    let metrics = metrics();
    let one = metrics.track_request();
    let two = metrics.track_request();
    assert!(metrics.render(Exposition::Prometheus).contains("egret_http_requests_in_flight 2"));
    drop((one, two));
    assert!(metrics.render(Exposition::Prometheus).contains("egret_http_requests_in_flight 0"));
}

#[test]
fn the_older_format_has_its_own_descriptions() {
    let text = "# HELP a_b Some thing.\n# TYPE a_b counter\n# UNIT a_b seconds\na_b_total 1\n\
                # HELP c C.\n# TYPE c info\nc_info{x=\"# y\"} 1\n# TYPE d unknown\nd 2\n# EOF\n";
    expect![[r##"
        # HELP a_b_total Some thing.
        # TYPE a_b_total counter
        a_b_total 1
        # HELP c_info C.
        # TYPE c_info gauge
        c_info{x="# y"} 1
        # TYPE d untyped
        d 2
    "##]]
    .assert_eq(&exposition::convert_to_prometheus(text));
}

#[test]
fn the_format_follows_the_accept_header() {
    let scraper = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.1";
    assert_eq!(Exposition::from_accept_header(scraper), Exposition::OpenMetrics);
    assert_eq!(Exposition::from_accept_header("*/*"), Exposition::Prometheus);
}
