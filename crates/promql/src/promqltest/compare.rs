//! Compares an answer with what a file expects.

use std::collections::HashMap;

use egret_metrics_model::{Labels, TimeMs, is_stale};
use regex::Regex;

use super::super::answer::Result as Yield;
use super::super::number::plain;
use super::super::{Answer, FloatHistogram, SampleValue, SeriesPoints};
use super::notation::SeriesItem;
use super::script::{Eval, Moments};

/// How far two values may be apart, in relation to them.
const TOLERANCE: f64 = 1e-6;

/// A message: whether it is a regular expression, and the text.
type Message = Option<(bool, String)>;

/// Expectation of a test besides its series.
pub(super) enum Expectation {
    Ordered,
    Fail(Message),
    Warn(Message),
    Info(Message),
    NoWarn,
    NoInfo,
    Scalar(f64),
    Text(String),
    /// The instant query yields a range with samples at these times.
    Range {
        start: TimeMs,
        end: TimeMs,
        step_ms: i64,
    },
}

impl Expectation {
    pub(super) fn is_fail(&self) -> bool {
        matches!(self, Self::Fail(_))
    }

    pub(super) fn is_no_vector(&self) -> bool {
        matches!(self, Self::Scalar(_) | Self::Text(_) | Self::Range { .. })
    }
}

fn matches_message(message: &Message, text: &str) -> Result<bool, String> {
    match message {
        None => Ok(true),
        Some((false, wanted)) => Ok(wanted == text),
        Some((true, pattern)) => {
            let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
            Ok(regex.is_match(text))
        }
    }
}

/// Whether an annotation is the expected one, with its place in the query or without it.
fn matches_annotation(message: &Message, text: &str) -> Result<bool, String> {
    let without_place = text.rsplit_once(" (").map_or(text, |(text, _)| text);
    Ok(matches_message(message, text)? || matches_message(message, without_place)?)
}

pub(super) fn check_failure(eval: &Eval, error: &str) -> Result<(), String> {
    for expectation in &eval.expectations {
        if let Expectation::Fail(message) = expectation
            && !matches_message(message, error)?
        {
            let wanted = message.as_ref().map_or("", |(_, text)| text);
            return Err(format!("expected the error {wanted:?}, got {error:?}"));
        }
    }
    Ok(())
}

pub(super) fn check_annotations(eval: &Eval, answer: &Answer) -> Result<(), String> {
    let check_absent = |forbidden: bool, kind: &str, texts: &[String]| {
        if forbidden && !texts.is_empty() {
            Err(format!("expected no {kind}, got {texts:?}"))
        } else {
            Ok(())
        }
    };
    check_absent(eval.expects(|e| matches!(e, Expectation::NoWarn)), "warning", &answer.warnings)?;
    check_absent(eval.expects(|e| matches!(e, Expectation::NoInfo)), "info", &answer.infos)?;
    let warnings = eval.expectations.iter().filter_map(|expectation| match expectation {
        Expectation::Warn(message) => Some(message),
        _ => None,
    });
    let infos = eval.expectations.iter().filter_map(|expectation| match expectation {
        Expectation::Info(message) => Some(message),
        _ => None,
    });
    check_texts("warning", &warnings.collect::<Vec<_>>(), &answer.warnings)?;
    check_texts("info", &infos.collect::<Vec<_>>(), &answer.infos)
}

/// Each expected text is there, and each text is expected.
fn check_texts(kind: &str, expected_messages: &[&Message], texts: &[String]) -> Result<(), String> {
    if expected_messages.is_empty() {
        return Ok(());
    }
    for message in expected_messages {
        let matches: Result<Vec<bool>, String> =
            texts.iter().map(|text| matches_annotation(message, text)).collect();
        if !matches?.contains(&true) {
            let expected_text = message.as_ref().map_or("any", |(_, text)| text);
            return Err(format!("expected the {kind} {expected_text:?}, got {texts:?}"));
        }
    }
    for text in texts {
        let found: Result<Vec<bool>, String> =
            expected_messages.iter().map(|message| matches_annotation(message, text)).collect();
        if !found?.contains(&true) {
            return Err(format!("unexpected {kind} {text:?}"));
        }
    }
    Ok(())
}

/// Whether two numbers are the same within the tolerance.
fn is_near(expected: f64, actual: f64) -> bool {
    if is_stale(expected) || is_stale(actual) {
        return is_stale(expected) && is_stale(actual);
    }
    if expected == actual || (expected.is_nan() && actual.is_nan()) {
        return true;
    }
    let (sum, difference) = (expected.abs() + actual.abs(), (expected - actual).abs());
    if expected == 0.0 || actual == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < TOLERANCE
}

fn is_near_histogram(expected: &FloatHistogram, actual: &FloatHistogram) -> bool {
    let sides = |wanted: &[(i32, f64)], got: &[(i32, f64)]| {
        let mut pairs = wanted.iter().zip(got);
        wanted.len() == got.len() && pairs.all(|(w, g)| w.0 == g.0 && is_near(w.1, g.1))
    };
    expected.schema == actual.schema
        && expected.zero_threshold == actual.zero_threshold
        && is_near(expected.zero_count, actual.zero_count)
        && is_near(expected.count, actual.count)
        && is_near(expected.sum, actual.sum)
        && expected.custom_bounds == actual.custom_bounds
        && sides(&expected.positive, &actual.positive)
        && sides(&expected.negative, &actual.negative)
}

fn format_item(item: &SeriesItem) -> String {
    match item {
        SeriesItem::Missing => "_".to_owned(),
        SeriesItem::Float(value) => plain(*value),
        SeriesItem::Histogram(histogram, _) => {
            format!("{histogram} (schema {}, {:?})", histogram.schema, histogram.counter_reset)
        }
    }
}

fn check_item(
    labels: &Labels,
    wanted: &SeriesItem,
    actual: &SeriesItem,
    time: TimeMs,
) -> Result<(), String> {
    let is_same = match (wanted, actual) {
        (SeriesItem::Missing, SeriesItem::Missing) => true,
        (SeriesItem::Float(wanted), SeriesItem::Float(got)) => is_near(*wanted, *got),
        (SeriesItem::Histogram(wanted, says_reset), SeriesItem::Histogram(got, _)) => {
            let has_same_reset = wanted.counter_reset == got.counter_reset;
            is_near_histogram(wanted, got) && (has_same_reset || !says_reset)
        }
        _ => false,
    };
    if is_same {
        Ok(())
    } else {
        Err(format!(
            "{labels} at {time} ms: expected {}, got {}",
            format_item(wanted),
            format_item(actual)
        ))
    }
}

/// Samples by labels and time, whatever the answer's kind.
fn items_by_labels(
    answer: &Answer,
) -> Result<HashMap<&Labels, HashMap<TimeMs, SeriesItem>>, String> {
    let mut items_by_series: HashMap<&Labels, HashMap<TimeMs, SeriesItem>> = HashMap::new();
    match &answer.result {
        Yield::Vector(samples) => {
            for sample in samples {
                let item = match &sample.value {
                    SampleValue::Float(value) => SeriesItem::Float(*value),
                    SampleValue::Histogram(histogram) => {
                        SeriesItem::Histogram(histogram.clone(), false)
                    }
                };
                items_by_series.entry(&sample.labels).or_default().insert(sample.time, item);
            }
        }
        Yield::Matrix(series) => {
            for SeriesPoints { labels, floats, histograms } in series {
                let items = items_by_series.entry(labels).or_default();
                items.extend(floats.iter().map(|(time, value)| (*time, SeriesItem::Float(*value))));
                items.extend(
                    histograms
                        .iter()
                        .map(|(time, value)| (*time, SeriesItem::Histogram(value.clone(), false))),
                );
            }
        }
        other => return Err(format!("expected series, got {other:?}")),
    }
    Ok(items_by_series)
}

pub(super) fn check_result(eval: &Eval, answer: &Answer) -> Result<(), String> {
    let mut moments = eval.moments;
    for expectation in &eval.expectations {
        match (expectation, &answer.result) {
            (Expectation::Scalar(wanted), Yield::Scalar(_, got)) if is_near(*wanted, *got) => {
                return Ok(());
            }
            (Expectation::Text(wanted), Yield::Text(_, got)) if wanted == got => return Ok(()),
            (Expectation::Scalar(wanted), got) => {
                return Err(format!("expected {}, got {got:?}", plain(*wanted)));
            }
            (Expectation::Text(wanted), got) => {
                return Err(format!("expected {wanted:?}, got {got:?}"));
            }
            (Expectation::Range { start, end, step_ms }, _) => {
                moments = Moments::Range { start: *start, end: *end, step_ms: *step_ms };
            }
            _ => {}
        }
    }
    let (start, step_ms) = match moments {
        Moments::At(at) => (at, 0),
        Moments::Range { start, step_ms, .. } => (start, step_ms),
    };
    let mut actual = items_by_labels(answer)?;
    for line in &eval.lines {
        let mut items =
            actual.remove(&line.labels).ok_or_else(|| format!("{} is missing", line.labels))?;
        for (index, wanted) in line.items.iter().enumerate() {
            let time = start + index as i64 * step_ms;
            let item = items.remove(&time).unwrap_or(SeriesItem::Missing);
            check_item(&line.labels, wanted, &item, time)?;
        }
        if let Some((time, item)) = items.iter().next() {
            return Err(format!(
                "{} at {time} ms: expected nothing, got {}",
                line.labels,
                format_item(item)
            ));
        }
    }
    if let Some((labels, items)) = actual.iter().next() {
        let items: Vec<String> = items.values().map(format_item).collect();
        return Err(format!("unexpected {labels} {}", items.join(" ")));
    }
    check_order(eval, answer)
}

fn check_order(eval: &Eval, answer: &Answer) -> Result<(), String> {
    let Yield::Vector(samples) = &answer.result else {
        return Ok(());
    };
    if !eval.expects(|expectation| matches!(expectation, Expectation::Ordered)) {
        return Ok(());
    }
    for (line, sample) in eval.lines.iter().zip(samples) {
        if line.labels != sample.labels {
            return Err(format!("expected {} in this place, got {}", line.labels, sample.labels));
        }
    }
    Ok(())
}

/// Compares only what an answer has at one time.
pub(super) fn check_middle(eval: &Eval, answer: &Answer, time: TimeMs) -> Result<(), String> {
    let mut actual = items_by_labels(answer)?;
    actual.retain(|_, items| items.contains_key(&time));
    for line in &eval.lines {
        let item = actual.remove(&line.labels).and_then(|mut items| items.remove(&time));
        let expected = line.items.first().unwrap_or(&SeriesItem::Missing);
        check_item(&line.labels, expected, &item.unwrap_or(SeriesItem::Missing), time)?;
    }
    match actual.keys().next() {
        Some(labels) => Err(format!("unexpected {labels} at {time} ms")),
        None => Ok(()),
    }
}
