//! What taking samples in costs: remote write 1.0 from five senders, 2,000 samples a request,
//! 10,000 series with ten labels, acknowledged after the flush. `cargo run --release -p
//! egret-series --example ingest_speed [SECONDS]`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use egret_base::lifecycle::Service;
use egret_base::{SystemClock, SystemEntropy};
use egret_metrics_wire::{WireSample, encode, snappy};
use egret_series::{EngineOptions, Series, SeriesConfig};
use prometheus_client::registry::Registry;

const SERIES: usize = 10_000;
const BATCH: usize = 2_000;
const BODIES: usize = 200;

fn labels(n: usize) -> Vec<(&'static str, String)> {
    vec![
        ("__name__", format!("container_cpu_usage_seconds_total_{}", n % 20)),
        ("cluster", "production-eu-west-1".to_owned()),
        ("container", format!("container-{}", n % 7)),
        ("image", format!("registry.example.com/team/service-{}:v1.{}", n % 31, n % 5)),
        ("instance", format!("10.0.{}.{}:9100", n / 250, n % 250)),
        ("job", "kubernetes-cadvisor".to_owned()),
        ("namespace", format!("namespace-{}", n % 13)),
        ("node", format!("ip-10-0-{}-{}.eu-west-1.compute.internal", n / 250, n % 250)),
        ("pod", format!("service-{}-7d4b9c6f5-{:05x}", n % 31, n)),
        ("region", "eu-west-1".to_owned()),
    ]
}

/// Request `round` of a sender: its series once each.
fn body(sender: usize, round: usize, start_ms: i64) -> Vec<u8> {
    let mut body = Vec::new();
    for n in sender * BATCH..(sender + 1) * BATCH {
        let labels = labels(n);
        let sample = WireSample {
            time_ms: start_ms + round as i64 * 10,
            value: (n * 31 + round * (n % 17)) as f64,
        };
        let series = encode::SeriesToWrite {
            labels: labels.iter().map(|(name, value)| (*name, &**value)).collect(),
            samples: vec![sample],
            ..encode::SeriesToWrite::default()
        };
        encode::append_series_v1(&series, &mut body);
    }
    snappy::encode(&body)
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let after = stat.rsplit_once(") ").expect("a process has a name").1;
    let fields: Vec<&str> = after.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / 100.0
}

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(5, |text| text.parse().expect("seconds"));
    let directory = tempfile::tempdir().expect("a directory");
    let options = EngineOptions {
        config: SeriesConfig::default(),
        directory: directory.path().to_owned(),
        clock: Arc::new(SystemClock),
        entropy: Arc::new(SystemEntropy),
    };
    let mut registry = Registry::default();
    let series = Series::new(options, &mut registry);
    series.start().await.expect("it starts");
    let start_ms = series.now_ms() - 60_000;
    let senders = SERIES / BATCH;
    let mut bodies: Vec<Vec<Vec<u8>>> = (0..senders)
        .map(|sender| (0..BODIES).map(|round| body(sender, round, start_ms)).collect())
        .collect();
    println!("a request has {} bytes", bodies[0][0].len());
    let written = Arc::new(AtomicU64::new(0));
    let mut round = 0;
    let (mut rate, mut cpu) = (0.0, 0.0);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut passes = 0;
    while Instant::now() < until {
        let before = (cpu_seconds(), Instant::now());
        let tasks: Vec<_> = std::mem::take(&mut bodies)
            .into_iter()
            .map(|bodies| {
                let (series, written) = (series.clone(), written.clone());
                tokio::spawn(async move {
                    for body in &bodies {
                        let done = series.remote_write_v1(body).await.expect("it is written");
                        assert_eq!(done.rejected.samples, 0, "{:?}", done.rejected);
                        written.fetch_add(done.samples, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no sender panics");
        }
        let count = written.swap(0, Ordering::Relaxed) as f64;
        rate += count / before.1.elapsed().as_secs_f64();
        cpu += (cpu_seconds() - before.0) * 1e9 / count;
        passes += 1;
        round += BODIES;
        bodies = (0..senders)
            .map(|sender| (0..BODIES).map(|at| body(sender, round + at, start_ms)).collect())
            .collect();
    }
    println!(
        "{:.0} samples/s, {:.0} ns of processor a sample",
        rate / passes as f64,
        cpu / passes as f64
    );
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string takes all");
    for line in text.lines().filter(|line| line.contains("component_seconds_sum")) {
        println!("{line}");
    }
    series.stop().await;
}
