//! Parses the settings of retention and downsampling.
//!
//! `series.keep` is a list of `{selector} duration`, `series.coarsen` one of `{selector} after
//! duration every duration`, both separated by semicolons: `{job="debug"} 1d; {__name__=~"tmp_.*"}
//! 6h`.

use egret_metrics_model::LabelMatcher;
use egret_metrics_model::number::duration_ms;
use egret_promql::parse_selector;

use egret_blocks::core::plan::{DownsampleRule, Policy, RetentionRule};

/// Selectors are read by PromQL, so that a semicolon or a blank within quotes belongs to them.
fn split_selector(text: &str) -> Result<(Vec<LabelMatcher>, &str), String> {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == '}' => {
                let (selector, rest) = text.split_at(at + 1);
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
fn rule<'a>(selector: &str, rest: &'a str, words: &[&str]) -> Result<(Vec<i64>, &'a str), String> {
    let (said, after) = rest.split_once(';').unwrap_or((rest, ""));
    let said = said.trim();
    let form = format!("`{{selector}} {}`", words.join(" "));
    let wrong = || format!("`{said}` after `{selector}` is not of the form {form}");
    let mut durations = Vec::new();
    let mut parts = said.split_whitespace();
    for (at, word) in words.iter().enumerate() {
        let Some(part) = parts.next() else {
            let (rule, missing) = (format!("{selector} {said}"), words[at..].join(" "));
            let rule = rule.trim_end();
            return Err(format!(
                "`{missing}` is missing after `{rule}`: the form is {form}"
            ));
        };
        match *word {
            "duration" => match duration_ms(part) {
                Some(0) => {
                    return Err(format!("`{part}` after `{selector}` must be longer than 0"));
                }
                Some(duration) if duration > 0 => durations.push(duration),
                _ => return Err(wrong()),
            },
            word if word == part => {}
            _ => return Err(wrong()),
        }
    }
    match parts.next() {
        None => Ok((durations, after)),
        Some(_) => Err(wrong()),
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
        let (selector, after) = split_selector(rest)?;
        let text = rest[..rest.len() - after.len()].trim();
        let (durations, after) = rule(text, after, &["duration"])?;
        rules.push(RetentionRule {
            selector,
            keep_ms: durations[0],
        });
        rest = after;
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
        let (selector, after) = split_selector(rest)?;
        let text = rest[..rest.len() - after.len()].trim();
        let words = ["after", "duration", "every", "duration"];
        let (durations, after) = rule(text, after, &words)?;
        let said = &rest[..rest.len() - after.len()];
        let name = said.trim().trim_end_matches(';').trim_end();
        rules.push(DownsampleRule {
            name: name.into(),
            selector,
            after_ms: durations[0],
            interval_ms: durations[1],
        });
        rest = after;
    }
    Ok(rules)
}

/// What is wanted of blocks.
///
/// # Errors
/// What is wrong with `keep` or `coarsen`, after the name of the setting.
pub fn policy(
    keep: &str,
    coarsen: &str,
    keep_ms: Option<i64>,
    bytes_max: Option<u64>,
) -> Result<Policy, (&'static str, String)> {
    Ok(Policy {
        keep_ms: keep_ms.unwrap_or(i64::MAX),
        keep: parse_keep(keep).map_err(|reason| ("series.keep", reason))?,
        bytes_max: bytes_max.unwrap_or(u64::MAX),
        coarsen: parse_coarsen(coarsen).map_err(|reason| ("series.coarsen", reason))?,
        ..Policy::default()
    })
}

#[cfg(test)]
mod tests;
