//! The docs against `results/`: a number that claims a result file must be what the file says.
//!
//! A claim is a comment right behind a number, which readers do not see: `4.2 ms<!-- result:
//! branches-event-100.json create.p95 -->`. A factor claims two figures: `12×<!-- result: a.json
//! create / b.json create -->`. How to write them is in `results/README.md`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use egret_tidy::Finding;
use egret_tidy::tree::File;
use serde_json::Value;

use crate::compare::select::Figure;
use crate::result::ResultFile;

const RULE: &str = "result-claim";
const SCHEMA: &str = include_str!("../schema/result-1.schema.json");
const COMMENT_START: &str = "<!--";
const COMMENT_END: &str = "-->";

/// The published results by file name; of one that cannot be read, why.
pub type Published = BTreeMap<String, Result<ResultFile, String>>;

/// A number as a page shows it.
#[derive(Clone, Debug, PartialEq)]
struct PublishedNumber {
    /// Number and unit as they stand there.
    text: String,
    value: f64,
    /// What the last digit stands for.
    precision: f64,
    dimension: Dimension,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    /// A time in milliseconds.
    Time,
    /// A size in bytes.
    Size,
    /// A rate per second.
    Rate,
    Bare,
}

/// Reads a result file and checks it against the schema.
///
/// # Errors
/// When it cannot be read, or is not what the schema says.
pub fn read(path: &Path) -> anyhow::Result<ResultFile> {
    let text = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let value: Value = serde_json::from_slice(&text).context("no JSON")?;
    let schema: Value = serde_json::from_str(SCHEMA).context("the schema")?;
    let schema = jsonschema::validator_for(&schema).context("the schema")?;
    let mut schema_errors = schema.iter_errors(&value);
    if let Some(error) = schema_errors.next() {
        bail!("{}: {}: {error}", path.display(), error.instance_path());
    }
    ResultFile::read(path)
}

/// Every claim of a page that its result file does not bear out.
pub fn check(page: &File, published: &Published) -> Vec<Finding> {
    find_claims(&page.text)
        .into_iter()
        .filter_map(|(line, before, claim)| {
            let problem = check_claim(before, claim, published).err()?;
            Some(Finding::new(RULE, &page.path, line, problem))
        })
        .collect()
}

/// The claims of a page outside code: line, text before on that line, what is claimed.
fn find_claims(text: &str) -> Vec<(usize, &str, &str)> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (index, line) in text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") || start.starts_with("~~~") {
            in_block = !in_block;
        }
        if in_block {
            continue;
        }
        for (offset, _) in line.match_indices(COMMENT_START) {
            let (before, comment) =
                (&line[..offset], line[offset + COMMENT_START.len()..].trim_start());
            let is_code = before.matches('`').count() % 2 == 1;
            if !is_code && let Some(claim) = comment.strip_prefix("result") {
                found.push((index + 1, before, claim));
            }
        }
    }
    found
}

/// Whether the number at the end of `before` is what `claim` says.
fn check_claim(before: &str, claim: &str, published: &Published) -> Result<(), String> {
    let claim = claim
        .strip_prefix(':')
        .and_then(|claim| claim.split_once(COMMENT_END))
        .map(|(claim, _)| claim.trim())
        .ok_or("write it as <!-- result: FILE METRIC --> on one line")?;
    let (actual, dimension) = match claim.split_once(" / ") {
        None => claimed_value(claim, published)?,
        Some((numerator, denominator)) => {
            let ((above, dimension), (below, denominator_dimension)) =
                (claimed_value(numerator, published)?, claimed_value(denominator, published)?);
            if dimension != denominator_dimension {
                return Err(format!("{claim}: a ratio needs two equal units"));
            }
            (above / below, Dimension::Bare)
        }
    };
    let page_number =
        PublishedNumber::parse_suffix(before).ok_or("there is no number before the claim")?;
    if page_number.dimension != dimension {
        return Err(format!("{claim} is in {dimension:?}, not in {:?}", page_number.dimension));
    }
    // Half of the last digit either way, and a little for what binary fractions cannot hold.
    let tolerance = page_number.precision * 0.500_001;
    if (actual - page_number.value).abs() <= tolerance {
        return Ok(());
    }
    Err(format!("{claim} is {}, the page says {}", rounded(actual), page_number.text))
}

/// The value of `FILE METRIC`.
fn claimed_value(claim: &str, published: &Published) -> Result<(f64, Dimension), String> {
    let (name, figure) = claim
        .trim()
        .split_once(' ')
        .ok_or_else(|| format!("`{claim}`: write a file and a metric"))?;
    let file = published
        .get(name)
        .ok_or_else(|| format!("results/{name} does not exist"))?
        .as_ref()
        .map_err(Clone::clone)?;
    let figure = Figure::parse(figure.trim(), &file.metrics).map_err(|error| error.to_string())?;
    let metric = file.metrics.get(&figure.metric);
    let (Some(metric), Some(value)) = (metric, figure.value_in(&file.metrics)) else {
        return Err(format!("results/{name} has no {figure}"));
    };
    let dimension = match metric.unit.as_str() {
        "ms" => Dimension::Time,
        "us" => return Ok((value / 1e3, Dimension::Time)),
        "bytes" => Dimension::Size,
        "1/s" => Dimension::Rate,
        _ => Dimension::Bare,
    };
    Ok((value, dimension))
}

impl PublishedNumber {
    /// The number and unit that `text` ends with; emphasis around them does not matter.
    fn parse_suffix(text: &str) -> Option<Self> {
        let text = text.trim_end().trim_end_matches(['*', '_', '`']).trim_end();
        let is_number_char = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
        let unit_start = text.rfind(is_number_char)? + 1;
        let (before, unit) = text.split_at(unit_start);
        let number_start =
            before.char_indices().rev().take_while(|(_, c)| is_number_char(*c)).last()?.0;
        let number = before[number_start..].replace(',', "");
        let (dimension, factor) = parse_unit(unit.trim_start())?;
        let decimals = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        Some(Self {
            text: text[number_start..].to_owned(),
            value: number.parse::<f64>().ok()? * factor,
            precision: 10_f64.powi(-i32::try_from(decimals).ok()?) * factor,
            dimension,
        })
    }
}

/// Enough digits to correct a page by.
fn rounded(value: f64) -> f64 {
    let digits = format!("{value:.6}");
    digits.parse().unwrap_or(value)
}

fn parse_unit(name: &str) -> Option<(Dimension, f64)> {
    let unit = match name {
        "ns" => (Dimension::Time, 1e-6),
        "µs" => (Dimension::Time, 1e-3),
        "ms" => (Dimension::Time, 1.0),
        "s" => (Dimension::Time, 1e3),
        "B" => (Dimension::Size, 1.0),
        "kB" => (Dimension::Size, 1e3),
        "MB" => (Dimension::Size, 1e6),
        "GB" => (Dimension::Size, 1e9),
        "/s" => (Dimension::Rate, 1.0),
        "%" => (Dimension::Bare, 0.01),
        "" | "×" | "times" => (Dimension::Bare, 1.0),
        _ => return None,
    };
    Some(unit)
}

mod tests;
