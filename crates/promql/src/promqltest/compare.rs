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

fn says(message: &Message, text: &str) -> Result<bool, String> {
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
fn notes(message: &Message, text: &str) -> Result<bool, String> {
    let without_place = text.rsplit_once(" (").map_or(text, |(text, _)| text);
    Ok(says(message, text)? || says(message, without_place)?)
}

pub(super) fn check_failure(eval: &Eval, error: &str) -> Result<(), String> {
    for expectation in &eval.expectations {
        if let Expectation::Fail(message) = expectation
            && !says(message, error)?
        {
            let wanted = message.as_ref().map_or("", |(_, text)| text);
            return Err(format!("expected the error {wanted:?}, got {error:?}"));
        }
    }
    Ok(())
}

pub(super) fn check_annotations(eval: &Eval, answer: &Answer) -> Result<(), String> {
    let none = |forbidden: bool, what: &str, texts: &[String]| {
        if forbidden && !texts.is_empty() {
            Err(format!("expected no {what}, got {texts:?}"))
        } else {
            Ok(())
        }
    };
    none(
        eval.wants(|e| matches!(e, Expectation::NoWarn)),
        "warning",
        &answer.warnings,
    )?;
    none(
        eval.wants(|e| matches!(e, Expectation::NoInfo)),
        "info",
        &answer.infos,
    )?;
    let warnings = eval
        .expectations
        .iter()
        .filter_map(|expectation| match expectation {
            Expectation::Warn(message) => Some(message),
            _ => None,
        });
    let infos = eval
        .expectations
        .iter()
        .filter_map(|expectation| match expectation {
            Expectation::Info(message) => Some(message),
            _ => None,
        });
    check_texts("warning", &warnings.collect::<Vec<_>>(), &answer.warnings)?;
    check_texts("info", &infos.collect::<Vec<_>>(), &answer.infos)
}

/// Each expected text is there, and each text is expected.
fn check_texts(what: &str, wanted: &[&Message], texts: &[String]) -> Result<(), String> {
    if wanted.is_empty() {
        return Ok(());
    }
    for message in wanted {
        let found: Result<Vec<bool>, String> =
            texts.iter().map(|text| notes(message, text)).collect();
        if !found?.contains(&true) {
            let wanted = message.as_ref().map_or("any", |(_, text)| text);
            return Err(format!("expected the {what} {wanted:?}, got {texts:?}"));
        }
    }
    for text in texts {
        let found: Result<Vec<bool>, String> =
            wanted.iter().map(|message| notes(message, text)).collect();
        if !found?.contains(&true) {
            return Err(format!("unexpected {what} {text:?}"));
        }
    }
    Ok(())
}

/// Whether two numbers are the same within the tolerance.
fn is_near(wanted: f64, got: f64) -> bool {
    if is_stale(wanted) || is_stale(got) {
        return is_stale(wanted) && is_stale(got);
    }
    if wanted == got || (wanted.is_nan() && got.is_nan()) {
        return true;
    }
    let (sum, difference) = (wanted.abs() + got.abs(), (wanted - got).abs());
    if wanted == 0.0 || got == 0.0 || sum < f64::MIN_POSITIVE {
        return difference < TOLERANCE * f64::MIN_POSITIVE;
    }
    difference / sum.min(f64::MAX) < TOLERANCE
}

fn is_near_histogram(wanted: &FloatHistogram, got: &FloatHistogram) -> bool {
    let sides = |wanted: &[(i32, f64)], got: &[(i32, f64)]| {
        let mut pairs = wanted.iter().zip(got);
        wanted.len() == got.len() && pairs.all(|(w, g)| w.0 == g.0 && is_near(w.1, g.1))
    };
    wanted.schema == got.schema
        && wanted.zero_threshold == got.zero_threshold
        && is_near(wanted.zero_count, got.zero_count)
        && is_near(wanted.count, got.count)
        && is_near(wanted.sum, got.sum)
        && wanted.custom_bounds == got.custom_bounds
        && sides(&wanted.positive, &got.positive)
        && sides(&wanted.negative, &got.negative)
}

fn shown(item: &SeriesItem) -> String {
    match item {
        SeriesItem::Missing => "_".to_owned(),
        SeriesItem::Float(value) => plain(*value),
        SeriesItem::Histogram(histogram, _) => format!(
            "{histogram} (schema {}, {:?})",
            histogram.schema, histogram.counter_reset
        ),
    }
}

fn check_item(
    labels: &Labels,
    wanted: &SeriesItem,
    got: &SeriesItem,
    at: TimeMs,
) -> Result<(), String> {
    let same = match (wanted, got) {
        (SeriesItem::Missing, SeriesItem::Missing) => true,
        (SeriesItem::Float(wanted), SeriesItem::Float(got)) => is_near(*wanted, *got),
        (SeriesItem::Histogram(wanted, says_reset), SeriesItem::Histogram(got, _)) => {
            let same_reset = wanted.counter_reset == got.counter_reset;
            is_near_histogram(wanted, got) && (same_reset || !says_reset)
        }
        _ => false,
    };
    if same {
        Ok(())
    } else {
        Err(format!(
            "{labels} at {at} ms: expected {}, got {}",
            shown(wanted),
            shown(got)
        ))
    }
}

/// Samples by labels and time, whatever the answer's kind.
fn by_labels(answer: &Answer) -> Result<HashMap<&Labels, HashMap<TimeMs, SeriesItem>>, String> {
    let mut all: HashMap<&Labels, HashMap<TimeMs, SeriesItem>> = HashMap::new();
    match &answer.result {
        Yield::Vector(samples) => {
            for sample in samples {
                let item = match &sample.value {
                    SampleValue::Float(value) => SeriesItem::Float(*value),
                    SampleValue::Histogram(histogram) => {
                        SeriesItem::Histogram(histogram.clone(), false)
                    }
                };
                all.entry(&sample.labels)
                    .or_default()
                    .insert(sample.time, item);
            }
        }
        Yield::Matrix(series) => {
            for SeriesPoints {
                labels,
                floats,
                histograms,
            } in series
            {
                let items = all.entry(labels).or_default();
                items.extend(
                    floats
                        .iter()
                        .map(|(time, value)| (*time, SeriesItem::Float(*value))),
                );
                items.extend(
                    histograms
                        .iter()
                        .map(|(time, value)| (*time, SeriesItem::Histogram(value.clone(), false))),
                );
            }
        }
        other => return Err(format!("expected series, got {other:?}")),
    }
    Ok(all)
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
            (
                Expectation::Range {
                    start,
                    end,
                    step_ms,
                },
                _,
            ) => {
                moments = Moments::Range {
                    start: *start,
                    end: *end,
                    step_ms: *step_ms,
                };
            }
            _ => {}
        }
    }
    let (start, step_ms) = match moments {
        Moments::At(at) => (at, 0),
        Moments::Range { start, step_ms, .. } => (start, step_ms),
    };
    let mut got = by_labels(answer)?;
    for line in &eval.lines {
        let mut items = got
            .remove(&line.labels)
            .ok_or_else(|| format!("{} is missing", line.labels))?;
        for (at, wanted) in line.items.iter().enumerate() {
            let time = start + at as i64 * step_ms;
            let item = items.remove(&time).unwrap_or(SeriesItem::Missing);
            check_item(&line.labels, wanted, &item, time)?;
        }
        if let Some((time, item)) = items.iter().next() {
            return Err(format!(
                "{} at {time} ms: expected nothing, got {}",
                line.labels,
                shown(item)
            ));
        }
    }
    if let Some((labels, items)) = got.iter().next() {
        let items: Vec<String> = items.values().map(shown).collect();
        return Err(format!("unexpected {labels} {}", items.join(" ")));
    }
    check_order(eval, answer)
}

fn check_order(eval: &Eval, answer: &Answer) -> Result<(), String> {
    let Yield::Vector(samples) = &answer.result else {
        return Ok(());
    };
    if !eval.wants(|expectation| matches!(expectation, Expectation::Ordered)) {
        return Ok(());
    }
    for (line, sample) in eval.lines.iter().zip(samples) {
        if line.labels != sample.labels {
            return Err(format!(
                "expected {} in this place, got {}",
                line.labels, sample.labels
            ));
        }
    }
    Ok(())
}

/// Compares only what an answer has at one time.
pub(super) fn check_middle(eval: &Eval, answer: &Answer, at: TimeMs) -> Result<(), String> {
    let mut got = by_labels(answer)?;
    got.retain(|_, items| items.contains_key(&at));
    for line in &eval.lines {
        let item = got
            .remove(&line.labels)
            .and_then(|mut items| items.remove(&at));
        let wanted = line.items.first().unwrap_or(&SeriesItem::Missing);
        check_item(
            &line.labels,
            wanted,
            &item.unwrap_or(SeriesItem::Missing),
            at,
        )?;
    }
    match got.keys().next() {
        Some(labels) => Err(format!("unexpected {labels} at {at} ms")),
        None => Ok(()),
    }
}
