//! Parses the settings of retention and downsampling.
//!
//! `series.keep` is a list of `{selector} duration`, `series.coarsen` one of `{selector} after
//! duration every duration`, both separated by semicolons: `{job="debug"} 1d; {__name__=~"tmp_.*"}
//! 6h`.

use egret_metrics_model::LabelMatcher;
use egret_metrics_model::number::parse_duration_ms;
use egret_promql::parse_selector;

use egret_blocks::core::plan::{DownsampleRule, Policy, RetentionRule};

/// Selectors are read by PromQL, so that a semicolon or a blank within quotes belongs to them.
fn split_selector(text: &str) -> Result<(Vec<LabelMatcher>, &str), String> {
    let mut quote = None;
    let mut escaped = false;
    for (index, c) in text.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '}' => {
                let (selector, rest) = text.split_at(index + 1);
                let selector = selector.trim_start();
                let matchers = parse_selector(selector).map_err(|error| error.to_string())?;
                return Ok((matchers, rest));
            }
            None => {}
        }
    }
    Err(format!("`{text}` does not begin with a selector in braces"))
}

/// The durations of a rule: what follows its selector is of these words.
fn parse_durations<'a>(
    selector: &str,
    rest: &'a str,
    words: &[&str],
) -> Result<(Vec<i64>, &'a str), String> {
    let (rule_text, remaining) = rest.split_once(';').unwrap_or((rest, ""));
    let said = rule_text.trim();
    let form = format!("`{{selector}} {}`", words.join(" "));
    let form_error = || format!("`{said}` after `{selector}` is not of the form {form}");
    let mut durations = Vec::new();
    let mut parts = said.split_whitespace();
    for (index, word) in words.iter().enumerate() {
        let Some(part) = parts.next() else {
            let (rule, missing) = (format!("{selector} {said}"), words[index..].join(" "));
            let rule = rule.trim_end();
            return Err(format!("`{missing}` is missing after `{rule}`: the form is {form}"));
        };
        match *word {
            "duration" => match parse_duration_ms(part) {
                Some(0) => {
                    return Err(format!("`{part}` after `{selector}` must be longer than 0"));
                }
                Some(duration) if duration > 0 => durations.push(duration),
                _ => return Err(form_error()),
            },
            word if word == part => {}
            _ => return Err(form_error()),
        }
    }
    match parts.next() {
        None => Ok((durations, remaining)),
        Some(_) => Err(form_error()),
    }
}

/// The rules of `series.keep`.
///
/// # Errors
/// What is wrong with the first rule that is.
pub(crate) fn parse_keep(text: &str) -> Result<Vec<RetentionRule>, String> {
    let mut rules = Vec::new();
    let mut rest = text;
    while !rest.trim().is_empty() {
        let (selector, after_selector) = split_selector(rest)?;
        let text = rest[..rest.len() - after_selector.len()].trim();
        let (durations, remaining) = parse_durations(text, after_selector, &["duration"])?;
        rules.push(RetentionRule { selector, keep_ms: durations[0] });
        rest = remaining;
    }
    Ok(rules)
}

/// The rules of `series.coarsen`. Blocks that one was applied to remember its text.
///
/// # Errors
/// What is wrong with the first rule that is.
pub(crate) fn parse_coarsen(text: &str) -> Result<Vec<DownsampleRule>, String> {
    let mut rules = Vec::new();
    let mut rest = text;
    while !rest.trim().is_empty() {
        let (selector, after_selector) = split_selector(rest)?;
        let text = rest[..rest.len() - after_selector.len()].trim();
        let words = ["after", "duration", "every", "duration"];
        let (durations, remaining) = parse_durations(text, after_selector, &words)?;
        let rule_text = &rest[..rest.len() - remaining.len()];
        let name = rule_text.trim().trim_end_matches(';').trim_end();
        rules.push(DownsampleRule {
            name: name.into(),
            selector,
            after_ms: durations[0],
            interval_ms: durations[1],
        });
        rest = remaining;
    }
    Ok(rules)
}

/// What is wanted of blocks.
///
/// # Errors
/// What is wrong with `keep` or `coarsen`, after the name of the setting.
pub(crate) fn parse_policy(
    keep: &str,
    coarsen: &str,
    keep_ms: Option<i64>,
    bytes_max: Option<u64>,
) -> Result<Policy, (&'static str, String)> {
    Ok(Policy {
        keep_ms: keep_ms.unwrap_or(i64::MAX),
        retention_rules: parse_keep(keep).map_err(|reason| ("series.keep", reason))?,
        bytes_max: bytes_max.unwrap_or(u64::MAX),
        downsample_rules: parse_coarsen(coarsen).map_err(|reason| ("series.coarsen", reason))?,
        ..Policy::default()
    })
}

#[cfg(test)]
mod tests;
