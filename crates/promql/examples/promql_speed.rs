//! What queries cost once samples are decoded: `cargo run --release -p egret-promql --example
//! promql_speed [FILTER]`.
//!
//! Two sources in memory, made for the purpose: many series of two hours, and fewer of 26 hours,
//! each with 12 labels and a sample every 15 seconds. Of each query the quickest of a few runs is
//! shown, less what reading took, divided by the samples it reads and by the points that come out
//! of its innermost expression, which is what the evaluator's work grows with.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use egret_metrics_model::{LabelMatcher, Labels, TimeSpan};
use egret_promql::{
    EvalOptions, Query, QueryError, QueryResult, SampleColumns, Selection, SeriesSet, Source, Spend,
};

const STEP_MS: i64 = 15_000;
const HOUR_MS: i64 = 3_600_000;
const RUNS_MIN: usize = 5;
/// A query is run so long at least.
const RUN_FOR: Duration = Duration::from_millis(300);

/// When a query is evaluated.
#[derive(Clone, Copy)]
enum EvalTimes {
    /// At the end of the data.
    Once,
    /// Over so many hours up to the end, at so many seconds.
    Over(i64, i64),
}

use EvalTimes::{Once, Over};

/// What is asked, when, and of which source: `true` for that of 26 hours.
const KINDS: [(&str, EvalTimes, bool); 48] = [
    ("requests_total", Once, false),
    ("requests_total{service=\"s7\"}", Over(1, 15), false),
    ("sum(requests_total)", Once, false),
    ("sum by (service) (requests_total)", Once, false),
    ("sum by (service) (requests_total)", Over(1, 15), false),
    ("sum without (instance, pod) (requests_total)", Over(1, 60), false),
    ("sum by (service, zone, status) (requests_total)", Over(1, 60), false),
    ("avg by (service) (load)", Over(1, 60), false),
    ("min by (service) (load)", Over(1, 60), false),
    ("max by (service) (load)", Over(1, 60), false),
    ("count by (service) (load)", Over(1, 60), false),
    ("stddev by (service) (load)", Over(1, 60), false),
    ("quantile by (service) (0.9, load)", Over(1, 60), false),
    ("topk(10, load)", Once, false),
    ("topk(10, load)", Over(1, 60), false),
    ("topk by (service) (3, load)", Over(1, 60), false),
    ("bottomk(10, load)", Over(1, 60), false),
    ("count_values(\"v\", floor(load))", Once, false),
    ("rate(requests_total[5m])", Once, false),
    ("rate(requests_total[5m])", Over(1, 15), false),
    ("sum by (service) (rate(requests_total[5m]))", Once, false),
    ("sum by (service) (rate(requests_total[5m]))", Over(1, 15), false),
    ("sum by (service, status) (increase(requests_total[1h]))", Over(1, 60), false),
    ("irate(requests_total[5m])", Over(1, 60), false),
    ("delta(load[10m])", Over(1, 60), false),
    ("idelta(load[5m])", Over(1, 60), false),
    ("resets(requests_total[30m])", Over(1, 60), false),
    ("changes(load[30m])", Over(1, 60), false),
    ("timestamp(load)", Over(1, 15), false),
    ("avg_over_time(load[5m])", Over(1, 15), false),
    ("sum_over_time(load[30m])", Over(1, 60), false),
    ("max_over_time(load[30m])", Over(1, 60), false),
    ("count_over_time(load[30m])", Over(1, 60), false),
    ("last_over_time(load[30m])", Over(1, 60), false),
    ("stddev_over_time(load[30m])", Over(1, 60), false),
    ("quantile_over_time(0.9, load[30m])", Over(1, 60), false),
    ("deriv(load[30m])", Over(1, 60), false),
    ("histogram_quantile(0.9, sum by (service, le) (rate(latency_bucket[5m])))", Once, false),
    (
        "histogram_quantile(0.9, sum by (service, le) (rate(latency_bucket[5m])))",
        Over(1, 60),
        false,
    ),
    ("histogram_quantile(0.9, rate(latency_bucket[5m]))", Over(1, 60), false),
    ("load / on (instance, pod) group_left sum by (instance, pod) (load)", Over(1, 60), false),
    ("load > 50 and load < 80", Over(1, 60), false),
    ("max_over_time(rate(requests_total{zone=\"z1\"}[5m])[30m:1m])", Over(1, 60), false),
    ("sum by (service) (rate(requests_total[1h]))", Over(24, 300), true),
    ("avg_over_time(load[24h])", Once, true),
    ("avg_over_time(load[6h])", Over(18, 300), true),
    ("max_over_time(load[24h])", Over(1, 300), true),
    ("quantile_over_time(0.99, load[6h])", Over(18, 900), true),
];

/// Numbers that look random and are the same at every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn labels(metric: &str, at: usize, name: &str, value: String) -> Labels {
    let numbered = |prefix: &str, count: usize| format!("{prefix}{}", at % count);
    let pairs = [
        ("__name__", metric.to_owned()),
        ("cluster", "production-eu-central-1".to_owned()),
        ("container", "server".to_owned()),
        ("environment", "production".to_owned()),
        ("instance", format!("10.0.{}.{}:9100", at / 250, at % 250)),
        ("job", numbered("job-", 5)),
        ("namespace", numbered("namespace-", 20)),
        ("pod", format!("service-{}-7d9f8b-{at}", at % 50)),
        ("service", numbered("s", 50)),
        ("team", numbered("team-", 10)),
        ("zone", numbered("z", 3)),
        (name, value),
    ];
    Labels::new(pairs.iter().map(|(name, value)| (*name, &**value)))
}

/// Counters, gauges and the buckets of histograms, so many series of each.
fn source(series: usize, hours: i64) -> Store {
    let mut metrics: [Metric; 3] = Default::default();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let samples = hours * HOUR_MS / STEP_MS;
    let statuses = ["200", "404", "500"];
    for at in 0..series {
        let status = statuses[at % 3].to_owned();
        let counter = labels("requests_total", at, "status", status.clone());
        let gauge = labels("load", at, "status", status);
        let bound = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, f64::INFINITY][at % 8];
        let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
        let bucket = labels("latency_bucket", at / 8, "le", bound);
        let mut columns: [SampleColumns; 3] = Default::default();
        let (mut total, mut observed) = (0.0, 0.0);
        let jitter = (numbers.next() % 15_000) as i64;
        for sample in 0..samples {
            let time = sample * STEP_MS + jitter;
            let more = (numbers.next() % 100) as f64;
            total = if numbers.next().is_multiple_of(5000) { more } else { total + more };
            observed += (numbers.next() % 10) as f64 * ((at % 8) + 1) as f64;
            columns[0].push(time, total);
            columns[1].push(time, (numbers.next() % 100_000) as f64 / 1000.0);
            columns[2].push(time, observed);
        }
        let series = [counter, gauge, bucket].into_iter().zip(columns);
        for (metric, series) in metrics.iter_mut().zip(series) {
            metric.push(series);
        }
    }
    Store {
        metrics,
        samples: AtomicU64::new(0),
        series: AtomicU64::new(0),
        nanos: AtomicU64::new(0),
    }
}

/// The series of a metric.
type Metric = Vec<(Labels, SampleColumns)>;

/// A source that finds a metric by its name, and counts what is read.
struct Store {
    metrics: [Metric; 3],
    samples: AtomicU64,
    series: AtomicU64,
    /// What the source itself took, in nanoseconds.
    nanos: AtomicU64,
}

struct SelectedSeries<'a> {
    series: Vec<&'a (Labels, SampleColumns)>,
    selection: (i64, i64),
    store: &'a Store,
}

impl Store {
    fn count_nanos(&self, began: Instant) {
        let nanos = began.elapsed().as_nanos() as u64;
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

impl Source for Store {
    fn select(
        &self,
        selection: &Selection,
        _: Spend<'_>,
    ) -> Result<Box<dyn SeriesSet + '_>, QueryError> {
        let began = Instant::now();
        let is_name = |one: &&LabelMatcher| &*one.matcher().name == "__name__";
        let (names, others): (Vec<_>, Vec<_>) = selection.matchers.iter().partition(is_name);
        let of_name = |metric: &&Metric| {
            let name = metric[0].0.metric();
            names.iter().all(|one| one.matches(name))
        };
        let takes = |series: &&(Labels, SampleColumns)| {
            let mut others = others.iter();
            others.all(|one| one.matches(series.0.get(&one.matcher().name)))
        };
        let metrics = self.metrics.iter().filter(of_name);
        let series: Vec<_> = metrics.flatten().filter(takes).collect();
        self.series.fetch_add(series.len() as u64, Ordering::Relaxed);
        self.count_nanos(began);
        Ok(Box::new(SelectedSeries {
            series,
            selection: (selection.start, selection.end),
            store: self,
        }))
    }
}

impl SeriesSet for SelectedSeries<'_> {
    fn len(&self) -> usize {
        self.series.len()
    }

    fn labels(&self, index: usize) -> &Labels {
        &self.series[index].0
    }

    fn read(&self, index: usize, into: &mut SampleColumns) -> Result<(), QueryError> {
        let began = Instant::now();
        into.clear();
        let columns = &self.series[index].1;
        let (start, end) = self.selection;
        let from = columns.times.partition_point(|time| *time < start);
        let to = columns.times.partition_point(|time| *time <= end);
        into.times.extend_from_slice(&columns.times[from..to]);
        into.values.extend_from_slice(&columns.values[from..to]);
        let samples = &self.store.samples;
        samples.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.store.count_nanos(began);
        Ok(())
    }
}

fn run(query: &Query, when: EvalTimes, source: &Store, end: i64) -> (Duration, usize) {
    let before = source.nanos.load(Ordering::Relaxed);
    let began = Instant::now();
    let answer = match when {
        Once => query.instant(source, end, &EvalOptions::default()),
        Over(hours, seconds) => {
            let start = end - hours * HOUR_MS;
            let span = TimeSpan { start, end };
            query.range(source, span, seconds * 1000, &EvalOptions::default())
        }
    };
    let in_source = source.nanos.load(Ordering::Relaxed) - before;
    let took = began.elapsed() - Duration::from_nanos(in_source);
    let points = match answer.expect("the query has an answer").result {
        QueryResult::Vector(samples) => samples.len(),
        QueryResult::Matrix(series) => series.iter().map(|one| one.floats.len()).sum(),
        other => panic!("expected series, got {other:?}"),
    };
    assert!(points > 0, "an answer without points says nothing");
    (took, points)
}

fn main() {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let sources = [(source(5000, 2), 2 * HOUR_MS), (source(200, 26), 26 * HOUR_MS)];
    println!("     ms  ns/sample  ns/point   samples   points  query");
    let mut logarithms = Vec::new();
    for (text, when, is_long) in KINDS.iter().filter(|kind| kind.0.contains(&filter)) {
        let query = Query::parse(text).expect("PromQL");
        let (source, end) = &sources[usize::from(*is_long)];
        source.samples.store(0, Ordering::Relaxed);
        source.series.store(0, Ordering::Relaxed);
        run(&query, *when, source, *end);
        let samples = source.samples.load(Ordering::Relaxed);
        let steps = match when {
            Once => 1,
            Over(hours, seconds) => hours * 3600 / seconds + 1,
        };
        let evaluated = source.series.load(Ordering::Relaxed) as f64 * steps as f64;
        let began = Instant::now();
        let mut runs = Vec::new();
        while runs.len() < RUNS_MIN || began.elapsed() < RUN_FOR {
            runs.push(run(&query, *when, source, *end));
        }
        let (took, points) = runs.into_iter().min().expect("there are runs");
        let nanos = took.as_nanos() as f64;
        logarithms.push((nanos / 1e6).ln());
        let shown = match when {
            Once => format!("{text} once"),
            Over(hours, seconds) => format!("{text} over {hours} h at {seconds} s"),
        };
        println!(
            "{:7.2} {:10.2} {:9.2} {samples:9} {points:8}  {shown}",
            nanos / 1e6,
            nanos / samples as f64,
            nanos / evaluated,
        );
    }
    let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
    println!("geometric mean {:.3} ms", mean.exp());
}
