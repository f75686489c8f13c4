//! Queries, as tables and small pictures.

use std::collections::BTreeMap;

use egret_base::Timestamp;
use serde::Deserialize;

use super::Success;
use crate::api::Api;
use crate::cli;
use crate::failure::Failure;
use crate::output::{Output, decode, listing, printable};

/// Number of steps in a range for which no step is given.
const DEFAULT_STEPS: u64 = 60;

/// The widest picture: a range with [`DEFAULT_STEPS`] between its ends has a bar for each of its
/// times.
const WIDTH_MAX: usize = DEFAULT_STEPS as usize + 1;

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A time in seconds, and a value as text.
type Point = (f64, String);

#[derive(Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum QueryResult {
    Scalar(Point),
    String(Point),
    Vector(Vec<Sample>),
    Matrix(Vec<Points>),
}

#[derive(Deserialize)]
struct Sample {
    metric: BTreeMap<String, String>,
    value: Option<Point>,
    histogram: Option<(f64, Histogram)>,
}

#[derive(Deserialize)]
struct Histogram {
    count: String,
    sum: String,
}

#[derive(Deserialize)]
struct Points {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<Point>,
    #[serde(default)]
    histograms: Vec<(f64, Histogram)>,
}

pub(super) async fn instant(
    query: &str,
    at: Option<&str>,
    api: &Api,
    output: Output,
) -> Result<(), Failure> {
    let mut form = vec![("query", query)];
    form.extend(at.map(|at| ("time", at)));
    let answer = api.post_prometheus_form(&["query"], &form).await?;
    output.print_answer(&answer, |response: Success<QueryResult>| {
        response.print_notes(output);
        format_result(response.data)
    })
}

fn format_result(result: QueryResult) -> String {
    match result {
        QueryResult::Scalar((_, text)) | QueryResult::String((_, text)) => printable(&text),
        QueryResult::Vector(samples) if samples.is_empty() => NO_SERIES_MESSAGE.to_owned(),
        QueryResult::Vector(samples) => {
            let rows = samples.into_iter().map(|sample| {
                let value = match (sample.value, sample.histogram) {
                    (Some((_, value)), _) => value,
                    (None, Some((_, histogram))) => histogram.text(),
                    (None, None) => String::new(),
                };
                vec![series_name(&sample.metric), value]
            });
            listing(&["series", "value"], rows)
        }
        QueryResult::Matrix(series) if series.is_empty() => NO_SERIES_MESSAGE.to_owned(),
        QueryResult::Matrix(series) => {
            let rows = series.into_iter().flat_map(|entry| {
                let name = series_name(&entry.metric);
                let numbers = entry.values.into_iter();
                let histograms =
                    entry.histograms.into_iter().map(|(at, histogram)| (at, histogram.text()));
                numbers
                    .chain(histograms)
                    .map(move |(at, value)| vec![name.clone(), format_time(at), value])
            });
            listing(&["series", "time", "value"], rows)
        }
    }
}

/// Said when no series has a value.
const NO_SERIES_MESSAGE: &str =
    "no series has a value there: `egret series labels __name__` lists the metrics";

pub(super) async fn range(range: &cli::Range, api: &Api, output: Output) -> Result<(), Failure> {
    let end = match &range.end {
        Some(end) => parse_seconds(end)?,
        None => server_time(api).await?,
    };
    let start = match &range.start {
        Some(start) => parse_seconds(start)?,
        None => end - range.last.0 as f64 / 1e3,
    };
    let step = match range.step {
        Some(step) => step.0 as f64 / 1e3,
        None => ((end - start) / DEFAULT_STEPS as f64).max(0.001),
    };
    let [start, end, step] = [start, end, step].map(|seconds| (seconds * 1e3).round() as i64);
    let slots = Slots { start_ms: start, end_ms: end, step_ms: step };
    let [start, end, step] = [start, end, step].map(|ms| format!("{:.3}", ms as f64 / 1e3));
    let form = [("query", range.query.as_str()), ("start", &start), ("end", &end), ("step", &step)];
    let answer = api.post_prometheus_form(&["query_range"], &form).await?;
    if output.is_json() {
        return output.print_json(&answer);
    }
    let response: Success<QueryResult> = decode(&answer)?;
    response.print_notes(output);
    let QueryResult::Matrix(series) = response.data else {
        return output.print_text(&format_result(response.data));
    };
    if series.is_empty() {
        return output.print_text(NO_SERIES_MESSAGE);
    }
    let rows = series.iter().map(|entry| {
        let numbers = slots.slot_values(&entry.values);
        let finite = || numbers.iter().flatten().copied();
        let last = entry.values.last().map(|(_, value)| value.clone());
        let histogram = entry.histograms.last().map(|(_, histogram)| histogram.text());
        vec![
            series_name(&entry.metric),
            sparkline(&numbers),
            short_number(finite().fold(f64::NAN, f64::min)),
            short_number(finite().fold(f64::NAN, f64::max)),
            last.or(histogram).unwrap_or_default(),
        ]
    });
    output.print_text(&listing(&["series", "values", "min", "max", "last"], rows))
}

/// The times of a range: all series have their places in the same.
struct Slots {
    start_ms: i64,
    end_ms: i64,
    step_ms: i64,
}

impl Slots {
    /// The number of each time; none where there is no value that can be drawn.
    fn slot_values(&self, points: &[Point]) -> Vec<Option<f64>> {
        let steps = (self.end_ms - self.start_ms) / self.step_ms.max(1);
        let mut numbers = vec![None; usize::try_from(steps).map_or(0, |steps| steps + 1)];
        for (seconds, text) in points {
            let since_ms = (seconds * 1e3).round() as i64 - self.start_ms;
            let index = usize::try_from(since_ms / self.step_ms.max(1));
            let slot = index.ok().and_then(|at| numbers.get_mut(at));
            let number = text.parse().ok().filter(|number: &f64| number.is_finite());
            if let Some(slot) = slot {
                *slot = number;
            }
        }
        numbers
    }
}

/// A bar for each number, or for the mean of several where there are many; a blank where there is
/// none.
fn sparkline(numbers: &[Option<f64>]) -> String {
    let finite = || numbers.iter().flatten().copied();
    let low = finite().fold(f64::INFINITY, f64::min);
    let high = finite().fold(f64::NEG_INFINITY, f64::max);
    let group_size = numbers.len().div_ceil(WIDTH_MAX).max(1);
    let bars = numbers.chunks(group_size).map(|some| {
        let count = some.iter().flatten().count();
        if count == 0 {
            return ' ';
        }
        let mean = some.iter().flatten().sum::<f64>() / count as f64;
        let share = if high > low { (mean - low) / (high - low) } else { 0.0 };
        BARS[(share * (BARS.len() - 1) as f64).round() as usize]
    });
    bars.collect()
}

/// A number in a few digits; nothing when there is none.
fn short_number(number: f64) -> String {
    if number.is_nan() {
        return String::new();
    }
    let text = format!("{number:.4}");
    if text.contains('.') && number.abs() < 1e15 {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{number:e}")
    }
}

impl Histogram {
    fn text(&self) -> String {
        format!("count {}, sum {}", self.count, self.sum)
    }
}

/// A series as PromQL writes it.
fn series_name(metric: &BTreeMap<String, String>) -> String {
    let labels: Vec<String> = metric
        .iter()
        .filter(|(name, _)| *name != "__name__")
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    let metric = metric.get("__name__").map_or("", String::as_str);
    if labels.is_empty() && !metric.is_empty() {
        printable(metric)
    } else {
        printable(&format!("{metric}{{{}}}", labels.join(", ")))
    }
}

fn format_time(seconds: f64) -> String {
    Timestamp::from_micros((seconds * 1e6).round() as i64).to_string()
}

/// The server's time, in seconds since 1970: samples are stored by it, and the clock of this
/// machine may differ.
pub(super) async fn server_time(api: &Api) -> Result<f64, Failure> {
    let answer = api.post_prometheus_form(&["query"], &[("query", "time()")]).await?;
    match decode::<Success<QueryResult>>(&answer)?.data {
        QueryResult::Scalar((at, _)) => Ok(at),
        _ => Err(Failure::failed("unexpected_answer", "the time of the server is not a number")),
    }
}

/// A time as the server reads it.
fn parse_seconds(text: &str) -> Result<f64, Failure> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Ok(seconds);
    }
    let time: Timestamp = text.parse().map_err(|error: String| Failure::usage(error))?;
    Ok(time.as_micros() as f64 / 1e6)
}

#[cfg(test)]
mod tests;
