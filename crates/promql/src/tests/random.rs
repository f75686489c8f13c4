//! Random queries over small data: at each step a range query yields what an instant query yields
//! at that time, a query that is laid out is the same query, and nothing panics.

use std::collections::BTreeMap;
use std::sync::Arc;

use egret_log::simulated::SplitMix64;
use egret_metrics_model::{Labels, STALE_NAN_BITS, TimeMs};

use super::super::*;

const QUERIES: u64 = 600;
const STEP_MS: i64 = 37_000;
const END_MS: i64 = 900_000;

/// A few series of each kind with gaps, staleness markers, resets, and values that are no numbers.
fn source(chance: &mut SplitMix64) -> MemorySource {
    let mut source = MemorySource::default();
    for at in 0..12_u64 {
        let (a, b, le) = (at % 3, at % 4, ["0.5", "2", "+Inf"][at as usize % 3]);
        let labels = |metric: &str, more: (&str, &str)| {
            let (a, b) = (a.to_string(), b.to_string());
            let pairs = [("__name__", metric), ("a", &a), ("b", &b), more];
            Labels::new(pairs)
        };
        let index = at.to_string();
        let mut total = 0.0;
        for sample in 0..40_u64 {
            let time = (sample * 25_000 + chance.next_below(5000)) as TimeMs;
            if chance.next_below(8) == 0 {
                continue;
            }
            // Quarters, so that sums are exact in whatever order.
            let value = chance.next_below(400) as f64 / 4.0 - 20.0;
            total = if chance.next_below(12) == 0 { 0.25 } else { total + value.abs() };
            let gauge = match chance.next_below(30) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::from_bits(STALE_NAN_BITS),
                _ => value,
            };
            source.add(&labels("x", ("i", &index)), time, gauge);
            source.add(&labels("y_total", ("i", &index)), time, total);
            source.add(&labels("h_bucket", ("le", le)), time, total);
            if at < 4 {
                let histogram = FloatHistogram {
                    count: total,
                    sum: value,
                    positive: vec![(0, total / 2.0), (at as i32, total / 4.0)],
                    ..FloatHistogram::default()
                };
                source.add_histogram(&labels("n", ("i", &index)), time, Arc::new(histogram));
            }
        }
    }
    source
}

const OF_RANGES: &[&str] = &[
    "rate",
    "increase",
    "delta",
    "irate",
    "idelta",
    "resets",
    "changes",
    "deriv",
    "avg_over_time",
    "sum_over_time",
    "min_over_time",
    "max_over_time",
    "count_over_time",
    "last_over_time",
    "first_over_time",
    "stddev_over_time",
    "mad_over_time",
    "present_over_time",
    "absent_over_time",
    "ts_of_max_over_time",
];

/// Makes queries, simpler ones the deeper it is.
struct Grammar {
    chance: SplitMix64,
}

impl Grammar {
    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.chance.next_below(words.len() as u64) as usize]
    }

    fn selector(&mut self) -> String {
        let metric = self.pick(&["x", "y_total", "h_bucket", "n", "x", "y_total"]);
        let matchers =
            self.pick(&["", "{a=\"1\"}", "{a!=\"1\"}", "{b=~\"1|2\"}", "{a=~\".+\",b!~\"[12]\"}"]);
        format!("{metric}{matchers}")
    }

    fn reach(&mut self) -> &'static str {
        self.pick(&["", "", "", " offset 1m", " offset -30s", " @ 400", " @ 300 offset 1m"])
    }

    fn range(&mut self, depth: u32) -> String {
        let window = self.pick(&["1m", "90s", "5m", "2m * 2"]);
        if depth > 0 && self.chance.next_below(5) == 0 {
            let inner = self.vector(depth - 1);
            let step = self.pick(&["", "30s", "40s"]);
            return format!("({inner})[{window}:{step}]{}", self.reach());
        }
        format!("{}[{window}]{}", self.selector(), self.reach())
    }

    fn scalar(&mut self, depth: u32) -> String {
        match self.chance.next_below(if depth == 0 { 3 } else { 6 }) {
            0 => self.pick(&["1", "0.5", "-3", "2e1", "NaN", "1m"]).to_owned(),
            1 => "time()".to_owned(),
            2 => "pi()".to_owned(),
            3 => format!("scalar({})", self.vector(depth - 1)),
            4 => format!("-({})", self.scalar(depth - 1)),
            _ => {
                let operator = self.pick(&["+", "*", "/", "%", "^", "> bool"]);
                let (left, right) = (self.scalar(depth - 1), self.scalar(depth - 1));
                format!("({left} {operator} {right})")
            }
        }
    }

    fn vector(&mut self, depth: u32) -> String {
        if depth == 0 {
            return format!("{}{}", self.selector(), self.reach());
        }
        let below = depth - 1;
        match self.chance.next_below(9) {
            0 => format!("{}{}", self.selector(), self.reach()),
            1 | 2 => {
                let function = self.pick(OF_RANGES);
                format!("{function}({})", self.range(below))
            }
            3 => {
                let word = self.pick(&["anchored", "smoothed"]);
                let function = self.pick(&["rate", "increase", "delta"]);
                format!("{function}({}[2m] {word})", self.selector())
            }
            4 => {
                let function = self.pick(&[
                    "abs",
                    "ceil",
                    "-",
                    "sgn",
                    "timestamp",
                    "histogram_count",
                    "absent",
                    "sort",
                    "vector",
                    "clamp",
                    "round",
                    "label_replace",
                    "histogram_quantile",
                    "quantile_over_time",
                    "histogram_sum",
                ]);
                let inner = self.vector(below);
                match function {
                    "-" => format!("-({inner})"),
                    "vector" => format!("vector({})", self.scalar(below)),
                    "clamp" => format!("clamp({inner}, {}, 10)", self.scalar(below)),
                    "round" => format!("round({inner}, 0.5)"),
                    "label_replace" => {
                        format!("label_replace({inner}, \"c\", \"$1\", \"a\", \"(.*)\")")
                    }
                    "histogram_quantile" => format!("histogram_quantile(0.7, {inner})"),
                    "quantile_over_time" => {
                        format!("quantile_over_time(0.3, {})", self.range(below))
                    }
                    function => format!("{function}({inner})"),
                }
            }
            5 | 6 => self.aggregation(below),
            _ => self.operation(below),
        }
    }

    fn aggregation(&mut self, depth: u32) -> String {
        let grouping = self.pick(&["", " by (a)", " by (a, b, le)", " without (i)", " by ()"]);
        if self.chance.next_below(4) == 0 {
            // Which of equals is chosen depends on the order of series, which is that of the source
            // only here.
            let name = self.pick(&["topk", "bottomk", "limitk"]);
            return format!("{name}{grouping} (2, {})", self.selector());
        }
        let inner = self.vector(depth);
        match self.pick(&[
            "sum",
            "avg",
            "min",
            "max",
            "count",
            "group",
            "stddev",
            "quantile",
            "limit_ratio",
        ]) {
            "quantile" => format!("quantile{grouping} (0.4, {inner})"),
            "limit_ratio" => format!("limit_ratio{grouping} (0.5, {inner})"),
            name => format!("{name}{grouping} ({inner})"),
        }
    }

    fn operation(&mut self, depth: u32) -> String {
        let operator =
            self.pick(&["+", "-", "*", "/", "==", "!=", ">", "<= bool", "and", "or", "unless"]);
        let is_set = matches!(operator, "and" | "or" | "unless");
        let matching = if is_set {
            self.pick(&["", " on (a)", " ignoring (i)"])
        } else {
            self.pick(&[
                "",
                " on (a, b)",
                " ignoring (i, le)",
                " on (a) group_left ()",
                " on (b) group_right ()",
                " fill (1)",
            ])
        };
        let left = self.vector(depth);
        if !is_set && self.chance.next_below(3) == 0 {
            let scalar = self.scalar(depth);
            return match self.chance.next_below(2) {
                0 => format!("({left} {operator} {scalar})"),
                _ => format!("({scalar} {operator} {left})"),
            };
        }
        let right = self.vector(depth);
        format!("({left} {operator}{matching} {right})")
    }
}

type Points = BTreeMap<(Labels, TimeMs), SampleValue>;

fn points(answer: Answer) -> Points {
    match answer.result {
        QueryResult::Vector(samples) => {
            let points = samples.into_iter();
            points.map(|one| ((one.labels, one.time), one.value)).collect()
        }
        QueryResult::Matrix(series) => {
            let points = series.into_iter().flat_map(|one| {
                let labels = one.labels;
                let floats =
                    one.floats.into_iter().map(|(time, value)| (time, SampleValue::Float(value)));
                let histograms = one.histograms.into_iter();
                let histograms =
                    histograms.map(|(time, value)| (time, SampleValue::Histogram(value)));
                let all: Vec<_> = floats.chain(histograms).collect();
                all.into_iter().map(move |(time, value)| ((labels.clone(), time), value))
            });
            points.collect()
        }
        QueryResult::Scalar(time, value) => {
            let point = ((Labels::default(), time), SampleValue::Float(value));
            BTreeMap::from([point])
        }
        other @ QueryResult::Text(..) => panic!("no query yields {other:?}"),
    }
}

fn is_same(left: &SampleValue, right: &SampleValue) -> bool {
    match (left, right) {
        (SampleValue::Float(left), SampleValue::Float(right)) => {
            let is_near = (left - right).abs() <= 1e-9 * left.abs().max(right.abs());
            left == right || left.is_nan() && right.is_nan() || is_near
        }
        (SampleValue::Histogram(left), SampleValue::Histogram(right)) => {
            (left.count - right.count).abs() <= 1e-9 * left.count.abs()
                || left.count.is_nan()
                || left.count == right.count
        }
        _ => false,
    }
}

/// Compares a range query with an instant query at each of its steps.
fn check(text: &str, source: &MemorySource) {
    let query = Query::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let again = Query::parse(&query.format()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(query.tree(), again.tree(), "{text} is laid out as {}", query.format());
    let options = EvalOptions::default();
    let span = TimeSpan { start: 0, end: END_MS };
    let range = query.range(source, span, STEP_MS, &options);
    let times = (0..=END_MS).step_by(STEP_MS as usize);
    let instants: Result<Vec<_>, _> = times.map(|at| query.instant(source, at, &options)).collect();
    let (range, instants) = match (range, instants) {
        (Ok(range), Ok(instants)) => (points(range), instants),
        (Err(_), Err(_)) => return,
        (Ok(_), Err(error)) => panic!("{text}: only as an instant query: {error}"),
        (Err(error), Ok(_)) => panic!("{text}: only as a range query: {error}"),
    };
    let instants: Points = instants.into_iter().flat_map(points).collect();
    for (at, value) in &instants {
        let found = range.get(at).unwrap_or_else(|| panic!("{text}: {at:?} is not in the range"));
        assert!(is_same(value, found), "{text}: {at:?}: {value:?} at once, {found:?} in the range");
    }
    for at in range.keys() {
        assert!(instants.contains_key(at), "{text}: {at:?} is only in the range");
    }
}

#[test]
fn a_range_is_its_instants() {
    for seed in 0..QUERIES {
        let mut chance = SplitMix64::new(seed / 20 + 1);
        let source = source(&mut chance);
        let mut grammar = Grammar { chance: SplitMix64::new(seed + 1000) };
        let text = grammar.vector(3);
        check(&text, &source);
    }
}
