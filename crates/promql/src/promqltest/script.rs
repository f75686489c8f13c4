//! The commands of a file.

use egret_metrics_model::TimeMs;
use regex::Regex;

use super::super::number::{self, duration_ms};
use super::super::syntax::unquote_literal;
use super::compare::Expectation;
use super::notation::{self, SeriesLine};
use super::starts;

pub(super) enum TestCommand {
    Clear,
    Load {
        step_ms: i64,
        lines: Vec<SeriesLine>,
        with_nhcb: bool,
    },
    Eval(Eval),
}

/// Time or times of a query.
#[derive(Clone, Copy)]
pub(super) enum Moments {
    At(TimeMs),
    Range {
        start: TimeMs,
        end: TimeMs,
        step_ms: i64,
    },
}

pub(super) struct Eval {
    pub query: String,
    pub moments: Moments,
    pub expectations: Vec<Expectation>,
    /// Series that the answer has, and no others.
    pub lines: Vec<SeriesLine>,
}

impl Eval {
    pub(super) fn wants(&self, expectation: impl Fn(&Expectation) -> bool) -> bool {
        self.expectations.iter().any(expectation)
    }
}

/// Each command with its line and first line, or why it cannot be read.
pub(super) fn commands(text: &str) -> Vec<(usize, String, Result<TestCommand, String>)> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let is_over = |line: &str| line.is_empty() || line.starts_with('#');
    let mut commands = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let head = lines[at];
        if is_over(head) {
            at += 1;
            continue;
        }
        let first = at + 1;
        if head != "clear" {
            while at + 1 < lines.len() && !is_over(lines[at + 1]) {
                at += 1;
            }
        }
        at += 1;
        commands.push((
            first,
            head.to_owned(),
            command(head, &lines[first..at.max(first)]),
        ));
    }
    commands
}

fn command(head: &str, body: &[&str]) -> Result<TestCommand, String> {
    let (word, rest) = head.split_once(char::is_whitespace).unwrap_or((head, ""));
    match word {
        "clear" => Ok(TestCommand::Clear),
        "load" | "load_with_nhcb" => Ok(TestCommand::Load {
            step_ms: duration(rest)?,
            lines: starts::lines(body)?,
            with_nhcb: word == "load_with_nhcb",
        }),
        _ if word == "eval" || word.starts_with("eval_") => eval(word, rest.trim(), body),
        _ => Err(format!("unknown command {word:?}")),
    }
}

fn duration(text: &str) -> Result<i64, String> {
    duration_ms(text.trim()).ok_or_else(|| format!("{text:?} is no duration"))
}

fn eval(word: &str, rest: &str, body: &[&str]) -> Result<TestCommand, String> {
    let pattern = |pattern: &str| Regex::new(pattern).expect("a pattern of ours is well-formed");
    let instant = pattern(r"^instant\s+(?:at\s+(\S+)\s+)?(.+)$");
    let range = pattern(r"^range\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)\s+(.+)$");
    let (moments, query) = if let Some(found) = range.captures(rest) {
        let moments = Moments::Range {
            start: duration(&found[1])?,
            end: duration(&found[2])?,
            step_ms: duration(&found[3])?,
        };
        (moments, found[4].to_owned())
    } else if let Some(found) = instant.captures(rest) {
        let at = found.get(1).map_or(Ok(0), |at| duration(at.as_str()))?;
        (Moments::At(at), found[2].to_owned())
    } else {
        return Err("expected `eval instant at TIME QUERY` or `eval range from TIME to TIME step STEP QUERY`".to_owned());
    };
    let mut eval = Eval {
        query,
        moments,
        expectations: Vec::new(),
        lines: Vec::new(),
    };
    match word.strip_prefix("eval_") {
        None => {}
        Some("fail") => eval.expectations.push(Expectation::Fail(None)),
        Some("warn") => eval.expectations.push(Expectation::Warn(None)),
        Some("info") => eval.expectations.push(Expectation::Info(None)),
        Some("ordered") => eval.expectations.push(Expectation::Ordered),
        Some(other) => return Err(format!("unknown command \"eval_{other}\"")),
    }
    for line in body {
        expected(line, &mut eval)?;
    }
    Ok(TestCommand::Eval(eval))
}

/// Reads a line below a query.
fn expected(line: &str, eval: &mut Eval) -> Result<(), String> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    match word {
        "expect" => eval.expectations.push(expectation(rest.trim())?),
        "expected_fail_message" => {
            eval.expectations
                .retain(|expectation| !expectation.is_fail());
            let text = Some((false, rest.trim().to_owned()));
            eval.expectations.push(Expectation::Fail(text));
        }
        "expected_fail_regexp" => {
            eval.expectations
                .retain(|expectation| !expectation.is_fail());
            eval.expectations
                .push(Expectation::Fail(Some((true, rest.trim().to_owned()))));
        }
        _ => match number::parse(line) {
            Some(value) => eval.expectations.push(Expectation::Scalar(value)),
            None => eval.lines.push(notation::parse(line)?),
        },
    }
    Ok(())
}

fn expectation(text: &str) -> Result<Expectation, String> {
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
                start: duration(start)?,
                end: duration(end)?,
                step_ms: duration(step)?,
            }
        }
        other => return Err(format!("unknown expectation {other:?}")),
    })
}
