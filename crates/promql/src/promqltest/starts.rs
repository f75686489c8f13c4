//! When counting began, as `.test` files write it: a line `up@st -1mx3` before that of the series,
//! or `@st …` for all series after it.

use super::super::number::parse_duration_ms;
use super::notation::{self, SeriesLine};

/// The series of a `load`, each with what is said of when counting began.
pub(super) fn parse_lines(body: &[&str]) -> Result<Vec<SeriesLine>, String> {
    let mut lines = Vec::new();
    let mut default: Vec<Option<i64>> = Vec::new();
    let mut pending: Option<SeriesLine> = None;
    for text in body {
        let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        if let Some(series) = first.strip_suffix("@st") {
            let starts = parse_offsets(rest)?;
            if series.is_empty() {
                default = starts
            } else {
                let mut line = notation::parse(series)?;
                line.starts = starts;
                pending = Some(line);
            }
            continue;
        }
        let mut line = notation::parse(text)?;
        line.starts = match pending.take() {
            Some(pending) if pending.labels != line.labels => {
                return Err(format!("{} is not followed by its samples", pending.labels));
            }
            Some(pending) => pending.starts,
            None if default.is_empty() => Vec::new(),
            None => {
                let all = default.iter().copied().cycle();
                all.take(line.items.len()).collect()
            }
        };
        lines.push(line);
    }
    Ok(lines)
}

fn parse_offsets(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut offsets: Vec<Option<i64>> = Vec::new();
    for word in text.split_whitespace() {
        let wrong = || format!("{word:?} is no time before a sample");
        let last_known = offsets.iter().rev().copied().flatten().next();
        let (base, rest) = match word.chars().next() {
            Some('_') => (None, &word[1..]),
            Some('*') => (Some(last_known.unwrap_or(0)), &word[1..]),
            _ => {
                let (base, rest) = parse_leading_duration(word).ok_or_else(wrong)?;
                (Some(base), rest)
            }
        };
        let (increment, rest) = if rest.is_empty() || rest.starts_with('x') {
            (0, rest)
        } else {
            parse_leading_duration(rest).ok_or_else(wrong)?
        };
        // `_x2` are two, `1mx2` are three.
        let count = match (rest.is_empty(), base) {
            (true, _) => 1,
            (false, None) => notation::parse_repetitions(rest)?,
            (false, Some(_)) => notation::parse_repetitions(rest)? + 1,
        };
        offsets.extend((0..count as i64).map(|at| Some(base? + increment * at)));
    }
    Ok(offsets)
}

/// The duration, with or without a sign, that a text begins with, and what follows it.
fn parse_leading_duration(text: &str) -> Option<(i64, &str)> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let length =
        unsigned.find(|c: char| c == 'x' || !c.is_ascii_alphanumeric()).unwrap_or(unsigned.len());
    let ms = parse_duration_ms(&unsigned[..length])?;
    let ms = if text.starts_with('-') { -ms } else { ms };
    Some((ms, &unsigned[length..]))
}
