//! Targets that are scraped over HTTP, as they come, fail and go.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use egret_base::{Clock, SystemClock};
use egret_metrics_model::is_stale;
use egret_series::core::rules::NewSample;
use egret_series::core::scrape::Exposition;
use egret_series::worker::scrape::{OwnTarget, Scraper, ScraperOptions};
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::web::{Answer, Memory, Request, first_matching, serve};

fn scraper(directory: &Path, own: Vec<OwnTarget>, memory: &Arc<Memory>) -> Arc<Scraper> {
    scraper_with_clock(Arc::new(SystemClock), directory, own, memory)
}

fn scraper_with_clock(
    clock: Arc<dyn Clock>,
    directory: &Path,
    own: Vec<OwnTarget>,
    memory: &Arc<Memory>,
) -> Arc<Scraper> {
    let options = ScraperOptions {
        files: vec![directory.join("*.yml").display().to_string()],
        targets_max: 2,
        ..ScraperOptions::default()
    };
    Arc::new(Scraper::new(options, &own, clock, memory.clone(), memory.clone()))
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("a file");
    path.display().to_string()
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

fn has_value(metric: &'static str, value: f64) -> impl Fn(&NewSample) -> bool {
    move |sample| sample.labels.metric() == metric && sample.value == value
}

fn is_stale_marker(metric: &'static str) -> impl Fn(&NewSample) -> bool {
    move |sample| sample.labels.metric() == metric && is_stale(sample.value)
}

/// A packed page of OpenMetrics, with an exemplar and a label that Egret sets itself.
fn open_metrics() -> Answer {
    Answer {
        status: 200,
        headers: "content-type: application/openmetrics-text; version=1.0.0\r\ncontent-encoding: gzip\r\n"
            .to_owned(),
        body: gzip(b"# TYPE hits counter\nhits_total{job=\"own\"} 7 # {id=\"a\"} 1\n# EOF\n"),
    }
}

fn check_request(request: &Request) {
    assert_eq!(request.line, "GET /m?a=b+c");
    for header in [
        "authorization: bearer s3cret",
        "accept-encoding: gzip",
        "x-prometheus-scrape-timeout-seconds: 0.3",
        "accept: application/openmetrics-text;version=1.0.0",
    ] {
        assert!(request.head.contains(header), "{header} in {}", request.head);
    }
}

#[tokio::test]
async fn a_target_comes_fails_and_goes() {
    let state = Arc::new(AtomicU8::new(0));
    let answers = state.clone();
    let mut web = serve(move |_: &Request| match answers.load(Ordering::Relaxed) {
        0 => Some(open_metrics()),
        _ => Some(Answer::status(500)),
    })
    .await;
    let directory = tempfile::tempdir().expect("a directory");
    let token = write(directory.path(), "token", "s3cret\n");
    let job = format!(
        "scrape_configs:\n- job_name: web\n  scrape_interval: 300ms\n  metrics_path: /m\n  params: {{a: ['b c']}}\n  \
         authorization: {{credentials_file: {token}}}\n  static_configs: [{{targets: ['{}', 'dropped:1']}}]\n  \
         relabel_configs: [{{source_labels: [__address__], regex: 'dropped.*', action: drop}}]\n",
        web.address
    );
    write(directory.path(), "a.yml", &job);
    let memory = Arc::new(Memory::default());
    let mut samples = memory.listen();
    let scraper = scraper(directory.path(), Vec::new(), &memory);
    scraper.reload().await.expect("the file is good");

    let hits = first_matching(&mut samples, "a sample", has_value("hits_total", 7.0)).await;
    let wanted =
        format!("hits_total{{exported_job=\"own\", instance={:?}, job=\"web\"}}", web.address);
    assert_eq!(hits.labels.to_string(), wanted);
    first_matching(&mut samples, "up", has_value("up", 1.0)).await;
    check_request(&first_matching(&mut web.requests, "a request", |_| true).await);
    let status = serde_json::to_value(scraper.status()).expect("JSON");
    assert_eq!(status["activeTargets"][0]["health"], "up");
    assert_eq!(status["activeTargets"][0]["scrapeInterval"], "300ms");
    assert_eq!(status["droppedTargetCounts"]["web"], 1);

    state.store(1, Ordering::Relaxed);
    first_matching(&mut samples, "the end of a series", is_stale_marker("hits_total")).await;
    first_matching(&mut samples, "up", has_value("up", 0.0)).await;
    let status = scraper.status();
    assert_eq!(
        status.active_targets[0].last_error,
        "server returned HTTP status 500 Internal Server Error"
    );

    state.store(0, Ordering::Relaxed);
    first_matching(&mut samples, "the series again", has_value("hits_total", 7.0)).await;
    write(directory.path(), "a.yml", "scrape_configs:\n- job_name: x\n  scheme: ftp\n");
    let error = scraper.reload().await.expect_err("the file is bad");
    assert!(error.to_string().contains("a.yml: 2:3: job \"x\": scheme \"ftp\""), "{error}");
    assert_eq!(scraper.status().active_targets.len(), 1);
    write(directory.path(), "a.yml", "");
    scraper.reload().await.expect("the file is good");
    first_matching(&mut samples, "the end of the target", is_stale_marker("up")).await;
    assert!(scraper.status().active_targets.is_empty());
    scraper.stop().await;
}

#[tokio::test]
async fn a_target_that_does_not_answer_holds_up_no_other_configuration() {
    let mut web = serve(|_: &Request| None).await;
    let directory = tempfile::tempdir().expect("a directory");
    let job = format!(
        "scrape_configs:\n- job_name: silent\n  scrape_interval: 1h\n  scrape_timeout: 1h\n  \
         static_configs: [{{targets: ['{}']}}]\n",
        web.address
    );
    write(directory.path(), "a.yml", &job);
    let memory = Arc::new(Memory::default());
    let clock = crate::engine::clock();
    let scraper = scraper_with_clock(clock.clone(), directory.path(), Vec::new(), &memory);
    scraper.reload().await.expect("the file is good");
    // The target's loop, which plans its first scrape within the hour to come.
    tokio::task::yield_now().await;
    clock.advance(std::time::Duration::from_secs(3_600));
    first_matching(&mut web.requests, "a request", |_| true).await;
    write(directory.path(), "a.yml", "");
    scraper.reload().await.expect("the file is good");
    assert!(scraper.status().active_targets.is_empty());
    scraper.stop().await;
}

/// Why the first scrape of a target fails that answers so.
async fn scrape_failure(
    lines: &str,
    answer: impl Fn() -> Option<Answer> + Send + Sync + 'static,
) -> String {
    let web = serve(move |_: &Request| answer()).await;
    let directory = tempfile::tempdir().expect("a directory");
    let job = format!(
        "scrape_configs:\n- job_name: a\n  scrape_interval: 1s\n  static_configs: [{{targets: ['{}']}}]\n{lines}",
        web.address
    );
    write(directory.path(), "a.yml", &job);
    let memory = Arc::new(Memory::default());
    let mut samples = memory.listen();
    let scraper = scraper(directory.path(), Vec::new(), &memory);
    scraper.reload().await.expect("the file is good");
    first_matching(&mut samples, "a scrape that fails", has_value("up", 0.0)).await;
    let error = scraper.status().active_targets[0].last_error.clone();
    scraper.stop().await;
    error
}

#[tokio::test]
async fn what_is_too_long_or_too_late_is_an_error() {
    let limit = "  body_size_limit: 1kB\n";
    let long = || Some(Answer::text(&"a".repeat(2_000)));
    let of_gzip = |body: &[u8]| {
        let body = body.to_vec();
        move || {
            Some(Answer {
                status: 200,
                headers: "content-encoding: gzip\r\n".to_owned(),
                body: body.clone(),
            })
        }
    };
    let bomb = of_gzip(&gzip(&vec![b'\n'; 500_000]));
    let page = || Some(Answer::text("<html>"));
    let redirect = || Some(Answer::status(302));
    let failures = tokio::join!(
        scrape_failure(limit, long),
        scrape_failure(limit, bomb),
        scrape_failure("", || None),
        scrape_failure("", of_gzip(b"not gzip")),
        scrape_failure("", page),
        scrape_failure("  follow_redirects: false\n", redirect),
    );
    let too_long = "body size limit exceeded (limit: 1024 bytes)";
    assert_eq!(failures.0, too_long);
    assert_eq!(failures.1, too_long);
    assert_eq!(failures.2, "no answer within 1s");
    assert!(failures.3.starts_with("the body is not gzip"), "{}", failures.3);
    assert!(failures.4.starts_with("line 1, byte 1: a name is expected"), "{}", failures.4);
    assert_eq!(failures.5, "server returned HTTP status 302 Found");
}

#[tokio::test]
async fn lists_of_targets_are_read_again() {
    let web =
        serve(|request: &Request| Some(Answer::text(&format!("path{{p={:?}}} 1\n", request.line))))
            .await;
    let directory = tempfile::tempdir().expect("a directory");
    let list = |path: &str| {
        let list =
            serde_json::json!([{"targets": [web.address], "labels": {"__metrics_path__": path}}]);
        write(directory.path(), "list.json", &list.to_string())
    };
    let pattern = list("/one").replace("list.json", "l*.json");
    let job = format!(
        "scrape_configs:\n- job_name: a\n  scrape_interval: 50ms\n  file_sd_configs: [{{files: ['{pattern}'], refresh_interval: 100ms}}]\n"
    );
    write(directory.path(), "a.yml", &job);
    let memory = Arc::new(Memory::default());
    let mut samples = memory.listen();
    let scraper = scraper(directory.path(), Vec::new(), &memory);
    scraper.reload().await.expect("the files are good");
    first_matching(&mut samples, "the first target", |it| it.labels.get("p") == "GET /one").await;
    list("/two");
    first_matching(&mut samples, "the end of the first", |it| {
        it.labels.get("p") == "GET /one" && is_stale(it.value)
    })
    .await;
    first_matching(&mut samples, "the second target", |it| it.labels.get("p") == "GET /two").await;
    write(directory.path(), "list.json", "no list");
    first_matching(&mut samples, "the second target still", |it| it.labels.get("p") == "GET /two")
        .await;
    assert_eq!(scraper.status().active_targets.len(), 1);
    write(directory.path(), "list.json", "[{targets: ['http://b/m']}]");
    let error = scraper.reload().await.expect_err("a URL is no target");
    let said = "list.json: job \"a\": target \"http://b/m\" is not host:port";
    assert!(error.to_string().contains(said), "{error}");
    scraper.stop().await;
}

struct CountingExposition(Mutex<u32>);

impl Exposition for CountingExposition {
    fn render(&self) -> String {
        let mut count = self.0.lock().expect("no panic");
        *count += 1;
        format!("own_renders_total {count}\n")
    }
}

#[tokio::test]
async fn this_program_is_scraped_without_http() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = OwnTarget {
        job: "egret".to_owned(),
        instance: "here".to_owned(),
        url: "http://here/metrics".to_owned(),
        interval_ms: 50,
        timeout_ms: 50,
        collect: Arc::new(CountingExposition(Mutex::new(0))),
    };
    let memory = Arc::new(Memory::default());
    let mut samples = memory.listen();
    let scraper = scraper(directory.path(), vec![own], &memory);
    scraper.reload().await.expect("there are no files");
    let sample =
        first_matching(&mut samples, "a sample", has_value("own_renders_total", 2.0)).await;
    assert_eq!(sample.labels.to_string(), "own_renders_total{instance=\"here\", job=\"egret\"}");
    scraper.reload().await.expect("there are no files");
    first_matching(&mut samples, "more of them", has_value("own_renders_total", 4.0)).await;
    scraper.stop().await;
}

#[tokio::test]
async fn more_targets_than_allowed_change_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let memory = Arc::new(Memory::default());
    let scraper = scraper(directory.path(), Vec::new(), &memory);
    let job = |targets: &str| {
        format!("scrape_configs: [{{job_name: a, static_configs: [{{targets: {targets}}}]}}]")
    };
    write(directory.path(), "a.yml", &job("['a:1', 'b:1']"));
    scraper.reload().await.expect("two are allowed");
    write(directory.path(), "a.yml", &job("['a:1', 'b:1', 'c:1']"));
    let error = scraper.reload().await.expect_err("three are not");
    assert!(error.to_string().contains("series.scrape_targets_max is 2"), "{error}");
    assert_eq!(scraper.status().active_targets.len(), 2);
    scraper.stop().await;
}
