//! A series and its samples as `.test` files write them: `up{job="a"} 1 2+3x4 _ stale {{count:2
//! buckets:[1 1]}}`.

use std::sync::Arc;

use egret_metrics_model::{CounterReset, Labels, LabelsBuilder, METRIC_NAME, STALE_NAN_BITS};

use super::super::FloatHistogram;
use super::super::number;
use super::super::syntax::unquote_literal;

/// A line: a series with a sample, or none, for each time.
pub(super) struct SeriesLine {
    pub labels: Labels,
    pub items: Vec<SeriesItem>,
    /// How far from each item counting towards it began, in milliseconds; empty where nothing is
    /// said.
    pub starts: Vec<Option<i64>>,
}

#[derive(Clone, Debug)]
pub(super) enum SeriesItem {
    Missing,
    Float(f64),
    /// A histogram, and whether it was written what it says of resets.
    Histogram(Arc<FloatHistogram>, bool),
}

/// What a histogram says of resets.
const RESET_HINT: &str = "counter_reset_hint";
/// Repetitions are bounded, as a file may come from anywhere.
const ITEMS_MAX: usize = 1_000_000;

pub(super) fn parse(line: &str) -> Result<SeriesLine, String> {
    let name_end = line.find(|c: char| c == '{' || c.is_whitespace()).unwrap_or(line.len());
    let mut labels = LabelsBuilder::default();
    labels.set(METRIC_NAME, &line[..name_end]);
    let mut rest = &line[name_end..];
    if let Some(inside) = rest.strip_prefix('{') {
        rest = parse_braces(inside, &mut labels)?;
    }
    let mut items = Vec::new();
    rest = rest.trim_start();
    while !rest.is_empty() {
        rest = parse_entry(rest, &mut items)?.trim_start();
    }
    let labels = labels.build();
    let starts = Vec::new();
    Ok(SeriesLine { labels, items, starts })
}

/// Where a quoted string that begins a text ends.
fn parse_quoted(text: &str) -> Result<(String, &str), String> {
    let quote = text
        .chars()
        .next()
        .filter(|c| matches!(c, '"' | '\'' | '`'))
        .ok_or_else(|| format!("expected a quoted string at {text:?}"))?;
    let mut is_escaped = false;
    let end = text[1..]
        .find(|c: char| {
            let ends = c == quote && !is_escaped;
            is_escaped = c == '\\' && !is_escaped && quote != '`';
            ends
        })
        .ok_or_else(|| format!("a string is not closed at {text:?}"))?
        + 2;
    let bytes =
        unquote_literal(&text[..end]).ok_or_else(|| format!("{} is no string", &text[..end]))?;
    let string = String::from_utf8(bytes).map_err(|_| format!("{} is no UTF-8", &text[..end]))?;
    Ok((string, &text[end..]))
}

/// Reads labels up to the closing brace.
fn parse_braces<'a>(mut rest: &'a str, labels: &mut LabelsBuilder) -> Result<&'a str, String> {
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let name = if rest.starts_with(['"', '\'', '`']) {
            let (name, after) = parse_quoted(rest)?;
            rest = after.trim_start();
            if !rest.starts_with('=') {
                labels.set(METRIC_NAME, &name);
                continue;
            }
            name
        } else {
            let end = rest.find('=').ok_or_else(|| format!("expected `=` in {rest:?}"))?;
            let name = rest[..end].trim().to_owned();
            rest = &rest[end..];
            name
        };
        let (value, after) = parse_quoted(rest[1..].trim_start())?;
        labels.set(&name, &value);
        rest = after;
    }
}

/// Reads one entry, which may stand for several samples.
fn parse_entry<'a>(text: &'a str, items: &mut Vec<SeriesItem>) -> Result<&'a str, String> {
    if text.starts_with("{{") {
        return parse_histograms(text, items);
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let lower = word.to_ascii_lowercase();
    if let Some(times) = lower.strip_prefix('_') {
        let count = if times.is_empty() { 1 } else { parse_repetitions(times)? };
        extend_items(items, std::iter::repeat_n(SeriesItem::Missing, count))?;
        return Ok(rest);
    }
    if let Some(times) = lower.strip_prefix("stale") {
        let count = if times.is_empty() { 0 } else { parse_repetitions(times)? };
        let stale = SeriesItem::Float(f64::from_bits(STALE_NAN_BITS));
        extend_items(items, std::iter::repeat_n(stale, count + 1))?;
        return Ok(rest);
    }
    let value_error = || format!("{word:?} is not a value");
    let (first, after) = parse_leading_number(&lower).ok_or_else(value_error)?;
    let (increment, after) = if after.is_empty() || after.starts_with('x') {
        (0.0, after)
    } else {
        parse_leading_number(after).ok_or_else(value_error)?
    };
    let count = if after.is_empty() { 0 } else { parse_repetitions(after)? };
    let mut next = first;
    let values = (0..count + 1).map(|_| {
        let value = next;
        next += increment;
        SeriesItem::Float(value)
    });
    extend_items(items, values)?;
    Ok(rest)
}

fn extend_items(
    items: &mut Vec<SeriesItem>,
    more: impl ExactSizeIterator<Item = SeriesItem>,
) -> Result<(), String> {
    if items.len() + more.len() > ITEMS_MAX {
        return Err(format!("a line has at most {ITEMS_MAX} samples"));
    }
    items.extend(more);
    Ok(())
}

/// Parses the number of repetitions, such as `x10`.
pub(super) fn parse_repetitions(text: &str) -> Result<usize, String> {
    let count = text.strip_prefix('x').and_then(|count| count.parse().ok());
    let count = count.filter(|count: &usize| *count < ITEMS_MAX);
    count.ok_or_else(|| format!("{text:?} is no repetition, expected for example \"x10\""))
}

/// The number a text begins with, and what follows it.
fn parse_leading_number(text: &str) -> Option<(f64, &str)> {
    let bytes = text.as_bytes();
    let mut end = usize::from(matches!(bytes.first()?, b'+' | b'-'));
    while end < bytes.len() {
        // An `x` begins the repetitions, so that hexadecimal numbers cannot be written here.
        let is_exponent = end > 0 && matches!(bytes[end], b'+' | b'-') && bytes[end - 1] == b'e';
        let is_digit = bytes[end] == b'.' || bytes[end].is_ascii_alphanumeric();
        if bytes[end] == b'x' || !(is_digit || is_exponent) {
            break;
        }
        end += 1;
    }
    Some((number::parse(&text[..end])?, &text[end..]))
}

/// `{{…}}`, `{{…}}x3`, `{{…}}+{{…}}x3`, `{{…}}-{{…}}x3`.
fn parse_histograms<'a>(text: &'a str, items: &mut Vec<SeriesItem>) -> Result<&'a str, String> {
    let mut has_reset_hint =
        text.split_once("}}").is_some_and(|(inside, _)| inside.contains(RESET_HINT));
    let (first, mut rest) = parse_histogram(text)?;
    let mut step = None;
    if let Some(sign) = rest.chars().next().filter(|c| matches!(c, '+' | '-')) {
        has_reset_hint =
            rest.split_once("}}").is_some_and(|(inside, _)| inside.contains(RESET_HINT));
        let (increment, after) = parse_histogram(&rest[1..])?;
        step = Some((sign, increment));
        rest = after;
    }
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (times, rest) = rest.split_at(end);
    let count = if times.is_empty() { 0 } else { parse_repetitions(times)? };
    let mut next = first;
    for index in 0..=count {
        extend_items(
            items,
            std::iter::once(SeriesItem::Histogram(Arc::new(next.clone()), has_reset_hint)),
        )?;
        if index < count
            && let Some((sign, increment)) = &step
        {
            let result = if *sign == '+' { next.add(increment) } else { next.subtract(increment) };
            result.map_err(|_| "histograms of different kinds cannot be added".to_owned())?;
        }
    }
    Ok(rest)
}

fn parse_histogram(text: &str) -> Result<(FloatHistogram, &str), String> {
    let inside = text.strip_prefix("{{").and_then(|inside| inside.split_once("}}"));
    let (inside, rest) = inside.ok_or_else(|| format!("expected `{{{{…}}}}` at {text:?}"))?;
    let mut histogram = FloatHistogram::default();
    let (mut offsets, mut buckets) = ([0_i32; 2], [Vec::new(), Vec::new()]);
    let mut fields = inside.trim();
    while !fields.is_empty() {
        let (name, after) =
            fields.split_once(':').ok_or_else(|| format!("expected `name:value` at {fields:?}"))?;
        let after = after.trim_start();
        let (value, next) = match after.strip_prefix('[') {
            Some(list) => {
                list.split_once(']').ok_or_else(|| format!("a list is not closed at {after:?}"))?
            }
            None => after.split_at(after.find(char::is_whitespace).unwrap_or(after.len())),
        };
        fields = next.trim_start();
        let value_error = || format!("{value:?} is not a value of {name:?}");
        let number = || number::parse(value).ok_or_else(value_error);
        let list = || {
            value
                .split_whitespace()
                .map(number::parse)
                .collect::<Option<Vec<f64>>>()
                .ok_or_else(value_error)
        };
        match name.trim() {
            "schema" => histogram.schema = value.parse().map_err(|_| value_error())?,
            "sum" => histogram.sum = number()?,
            "count" => histogram.count = number()?,
            "z_bucket" => histogram.zero_count = number()?,
            "z_bucket_w" => histogram.zero_threshold = number()?,
            "custom_values" => histogram.custom_bounds = list()?.into(),
            "buckets" => buckets[0] = list()?,
            "n_buckets" => buckets[1] = list()?,
            "offset" => offsets[0] = value.parse().map_err(|_| value_error())?,
            "n_offset" => offsets[1] = value.parse().map_err(|_| value_error())?,
            RESET_HINT => {
                histogram.counter_reset = match value {
                    "unknown" => CounterReset::Unknown,
                    "reset" => CounterReset::Reset,
                    "not_reset" => CounterReset::NotReset,
                    "gauge" => CounterReset::Gauge,
                    _ => return Err(value_error()),
                }
            }
            other => return Err(format!("histograms have no {other:?}")),
        }
    }
    let to_side = |sign_index: usize| {
        let counts = buckets[sign_index].iter().enumerate().filter(|(_, count)| **count != 0.0);
        counts
            .map(|(index, count)| (offsets[sign_index].saturating_add(index as i32), *count))
            .collect()
    };
    histogram.positive = to_side(0);
    histogram.negative = to_side(1);
    Ok((histogram, rest))
}
