//! The commands of a file.

use egret_metrics_model::TimeMs;
use regex::Regex;

use super::super::number::{self, parse_duration_ms};
use super::super::syntax::unquote_literal;
use super::compare::Expectation;
use super::notation::{self, SeriesLine};
use super::starts;

pub(super) enum TestCommand {
    Clear,
    Load { step_ms: i64, lines: Vec<SeriesLine>, with_nhcb: bool },
    Eval(Eval),
}

/// Time or times of a query.
#[derive(Clone, Copy)]
pub(super) enum Moments {
    At(TimeMs),
    Range { start: TimeMs, end: TimeMs, step_ms: i64 },
}

pub(super) struct Eval {
    pub query: String,
    pub moments: Moments,
    pub expectations: Vec<Expectation>,
    /// Series that the answer has, and no others.
    pub lines: Vec<SeriesLine>,
}

impl Eval {
    pub(super) fn expects(&self, expectation: impl Fn(&Expectation) -> bool) -> bool {
        self.expectations.iter().any(expectation)
    }
}

/// Each command with its line and first line, or why it cannot be read.
pub(super) fn parse_commands(text: &str) -> Vec<(usize, String, Result<TestCommand, String>)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let ends_command = |line: &str| line.is_empty() || line.starts_with('#');
    let mut commands = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let head = lines[index];
        if ends_command(head) {
            index += 1;
            continue;
        }
        let first_line = index + 1;
        if head != "clear" {
            while index + 1 < lines.len() && !ends_command(lines[index + 1]) {
                index += 1;
            }
        }
        index += 1;
        commands.push((
            first_line,
            head.to_owned(),
            parse_command(head, &lines[first_line..index.max(first_line)]),
        ));
    }
    commands
}

fn parse_command(head: &str, body: &[&str]) -> Result<TestCommand, String> {
    let (word, rest) = head.split_once(char::is_whitespace).unwrap_or((head, ""));
    match word {
        "clear" => Ok(TestCommand::Clear),
        "load" | "load_with_nhcb" => Ok(TestCommand::Load {
            step_ms: parse_duration(rest)?,
            lines: starts::parse_lines(body)?,
            with_nhcb: word == "load_with_nhcb",
        }),
        _ if word == "eval" || word.starts_with("eval_") => parse_eval(word, rest.trim(), body),
        _ => Err(format!("unknown command {word:?}")),
    }
}

fn parse_duration(text: &str) -> Result<i64, String> {
    parse_duration_ms(text.trim()).ok_or_else(|| format!("{text:?} is no duration"))
}

fn parse_eval(word: &str, rest: &str, body: &[&str]) -> Result<TestCommand, String> {
    let pattern = |pattern: &str| Regex::new(pattern).expect("a pattern of ours is well-formed");
    let instant = pattern(r"^instant\s+(?:at\s+(\S+)\s+)?(.+)$");
    let range = pattern(r"^range\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)\s+(.+)$");
    let (moments, query) = if let Some(captures) = range.captures(rest) {
        let moments = Moments::Range {
            start: parse_duration(&captures[1])?,
            end: parse_duration(&captures[2])?,
            step_ms: parse_duration(&captures[3])?,
        };
        (moments, captures[4].to_owned())
    } else if let Some(found) = instant.captures(rest) {
        let at = found.get(1).map_or(Ok(0), |at| parse_duration(at.as_str()))?;
        (Moments::At(at), found[2].to_owned())
    } else {
        return Err("expected `eval instant at TIME QUERY` or `eval range from TIME to TIME step STEP QUERY`".to_owned());
    };
    let mut eval = Eval { query, moments, expectations: Vec::new(), lines: Vec::new() };
    match word.strip_prefix("eval_") {
        None => {}
        Some("fail") => eval.expectations.push(Expectation::Fail(None)),
        Some("warn") => eval.expectations.push(Expectation::Warn(None)),
        Some("info") => eval.expectations.push(Expectation::Info(None)),
        Some("ordered") => eval.expectations.push(Expectation::Ordered),
        Some(other) => return Err(format!("unknown command \"eval_{other}\"")),
    }
    for line in body {
        parse_expected(line, &mut eval)?;
    }
    Ok(TestCommand::Eval(eval))
}

/// Reads a line below a query.
fn parse_expected(line: &str, eval: &mut Eval) -> Result<(), String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word {
        "expect" => eval.expectations.push(parse_expectation(rest.trim())?),
        "expected_fail_message" => {
            eval.expectations.retain(|expectation| !expectation.is_fail());
            let text = Some((false, rest.trim().to_owned()));
            eval.expectations.push(Expectation::Fail(text));
        }
        "expected_fail_regexp" => {
            eval.expectations.retain(|expectation| !expectation.is_fail());
            eval.expectations.push(Expectation::Fail(Some((true, rest.trim().to_owned()))));
        }
        _ => match number::parse(line) {
            Some(value) => eval.expectations.push(Expectation::Scalar(value)),
            None => eval.lines.push(notation::parse(line)?),
        },
    }
    Ok(())
}

fn parse_expectation(text: &str) -> Result<Expectation, String> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    let message = || match rest.split_once(':') {
        None if rest.is_empty() => Ok(None),
        Some(("msg", text)) => Ok(Some((false, text.trim().to_owned()))),
        Some(("regex", text)) => Ok(Some((true, text.trim().to_owned()))),
        _ => Err(format!("expected `msg: …` or `regex: …`, found {rest:?}")),
    };
    Ok(match word {
        "ordered" => Expectation::Ordered,
        "fail" => Expectation::Fail(message()?),
        "warn" => Expectation::Warn(message()?),
        "info" => Expectation::Info(message()?),
        "no_warn" => Expectation::NoWarn,
        "no_info" => Expectation::NoInfo,
        "string" => {
            let bytes = unquote_literal(rest).ok_or_else(|| format!("{rest} is no string"))?;
            Expectation::Text(String::from_utf8_lossy(&bytes).into_owned())
        }
        "range" => {
            let words: Vec<&str> = rest.split_whitespace().collect();
            let ["vector", "from", start, "to", end, "step", step] = words[..] else {
                return Err("expected `range vector from TIME to TIME step STEP`".to_owned());
            };
            Expectation::Range {
                start: parse_duration(start)?,
                end: parse_duration(end)?,
                step_ms: parse_duration(step)?,
            }
        }
        other => return Err(format!("unknown expectation {other:?}")),
    })
}
