//! Liveness, readiness, status, metrics and profiles.

use std::sync::Arc;

use egret_base::lifecycle::Readiness;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::test_server::{TestServer, TestServerSetup, problem};

#[tokio::test]
async fn readiness_names_what_is_not_ready() {
    let test_server = TestServer::start().await;
    let alive: Value = test_server.get("/healthz").await.json().await.unwrap();
    assert_eq!(alive, json!({"status": "ok"}));
    let mut ready: Value = test_server.get("/readyz").await.json().await.unwrap();
    // Conditions are those of the whole process, other tests' too.
    assert!(ready["conditions"].take().is_array());
    let services = json!([{"name": "postgres", "ready": true}, {"name": "server", "ready": true}]);
    assert_eq!(
        ready,
        json!({"ready": true, "services": services, "failed": [], "conditions": null})
    );
    *test_server.readiness.lock().unwrap() = Readiness::NotReady("starting".to_owned());
    let response = test_server.get("/readyz").await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "1");
    let report: Value = response.json().await.unwrap();
    assert_eq!(
        report["services"][0],
        json!({"name": "postgres", "ready": false, "reason": "starting"})
    );
    assert_eq!(test_server.get("/healthz").await.status(), StatusCode::OK);
    test_server.stop().await;
}

#[tokio::test]
async fn status_has_a_section_per_engine() {
    let section = Arc::new(|| -> egret_base::lifecycle::BoxFuture<'static, Value> {
        Box::pin(async { json!({"total": 3}) })
    });
    let test_server =
        TestServerSetup::new().start(|builder| builder.status("branches", section)).await;
    test_server.clock.advance(std::time::Duration::from_millis(1_234));
    let status: Value = test_server.get("/v1/status").await.json().await.unwrap();
    assert_eq!(status["version"], "0.0.0-test");
    assert_eq!(status["commit"], "0123456789ab");
    assert_eq!(status["build_profile"], "dev");
    assert_eq!(status["started_at"], "2027-01-15T08:00:00.000000Z");
    assert_eq!(status["uptime_ms"], 1_234);
    assert_eq!(status["branches"], json!({"total": 3}));
    assert_eq!(status["services"][1]["name"], "server");
    test_server.stop().await;
}

#[tokio::test]
async fn metrics_count_requests_by_route() {
    let test_server = TestServer::start().await;
    test_server.request_without_token(Method::GET, "/v1/tokens/abc").send().await.unwrap();
    test_server.request_without_token(Method::DELETE, "/v1/tokens/abc").send().await.unwrap();
    test_server.request_without_token(Method::GET, "/some/thing/else").send().await.unwrap();
    test_server.request_without_token(Method::HEAD, "/healthz").send().await.unwrap();
    let response = test_server.get("/metrics").await;
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.unwrap();
    for line in [
        "egret_http_requests_total{method=\"GET\",route=\"/v1/tokens/{id}\",status=\"405\"} 1",
        "egret_http_requests_total{method=\"DELETE\",route=\"/v1/tokens/{id}\",status=\"401\"} 1",
        "egret_http_requests_total{method=\"GET\",route=\"unmatched\",status=\"404\"} 1",
        "egret_http_requests_total{method=\"HEAD\",route=\"/healthz\",status=\"200\"} 1",
        "egret_http_requests_in_flight 1",
        "egret_build_info{version=\"0.0.0-test\"} 1",
        "# TYPE egret_http_requests_total counter",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(
        text.contains("egret_component_seconds_total{component=\"server.authorize\"}"),
        "{text}"
    );
    let open = test_server
        .request(Method::GET, "/metrics")
        .header("accept", "application/openmetrics-text; version=1.0.0");
    let response = open.send().await.unwrap();
    assert!(
        response.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("application/openmetrics-text")
    );
    assert!(response.text().await.unwrap().ends_with("# EOF\n"));
    test_server.stop().await;
}

/// Removes the empty file that the profiler library keeps open as long as its process lives.
fn remove_profiler_file() {
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else {
            continue;
        };
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let is_temporary =
            target.parent() == Some(&std::env::temp_dir()) && name.starts_with(".tmp");
        if is_temporary && target.metadata().is_ok_and(|file| file.is_file() && file.len() == 0) {
            std::fs::remove_file(&target).unwrap();
        }
    }
}

#[tokio::test]
async fn one_profile_at_a_time_and_bounded() {
    let test_server = TestServer::start().await;
    for (seconds, part) in [(0, "0 is too short"), (61, "profile_duration_max")] {
        let response = test_server.get(&format!("/debug/profile?seconds={seconds}")).await;
        let detail = problem(response, 400, "profile_duration").await["detail"].to_string();
        assert!(detail.contains(part), "{detail}");
    }
    let one = test_server.get("/debug/profile?seconds=1");
    let two = test_server.get("/debug/profile?seconds=1");
    let (one, two) = tokio::join!(one, two);
    let (profile, refused) = if one.status() == StatusCode::OK { (one, two) } else { (two, one) };
    problem(refused, 409, "profile_running").await;
    assert_eq!(profile.headers()["content-type"], "image/svg+xml");
    let svg = profile.text().await.unwrap();
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    let folded = test_server.get("/debug/profile?seconds=1&format=folded").await;
    assert_eq!(folded.status(), StatusCode::OK);
    for line in folded.text().await.unwrap().lines() {
        let (_, samples) = line.rsplit_once(' ').unwrap();
        assert!(samples.parse::<u64>().unwrap() > 0, "{line}");
    }
    test_server.stop().await;
    remove_profiler_file();
}
