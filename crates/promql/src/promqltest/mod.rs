//! Runs Prometheus's `.test` files: `load` puts samples into memory, `eval` compares answers with
//! what is expected.

mod compare;
mod nhcb;
mod notation;
mod script;
mod starts;

use egret_metrics_model::TimeSpan;

use self::compare::{Expectation, check_annotations, check_failure, check_result};
use self::notation::{SeriesItem, SeriesLine};
use self::script::{Eval, Moments, TestCommand};
use super::{Answer, EvalOptions, MemorySource, Query, QueryError};

/// Result of running a file.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Queries that answered as expected.
    pub passed: usize,
    /// Those that did not, and commands that could not be read.
    pub failures: Vec<Failure>,
    /// How many of the failures are commands that could not be read.
    pub unreadable: usize,
}

/// A command of a file whose outcome differs from the expected one.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The file's name, as it was given.
    pub file: String,
    /// The command's line, from 1.
    pub line: usize,
    /// Text of the command that failed.
    pub command: String,
    /// What was expected, and what came.
    pub message: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, line, command, message } = self;
        write!(formatter, "{file}:{line}: {command}: {message}")
    }
}

/// Runs a file's text. Everything in it is run, whatever fails.
pub fn run(file: &str, text: &str, options: &EvalOptions<'_>) -> Report {
    let mut report = Report::default();
    let mut source = MemorySource::default();
    for (line, head, command) in script::parse_commands(text) {
        report.unreadable += usize::from(command.is_err());
        let result = command.and_then(|command| execute(&command, &mut source, options));
        match result {
            Ok(passed) => report.passed += usize::from(passed),
            Err(message) => report.failures.push(Failure {
                file: file.to_owned(),
                line,
                command: head,
                message,
            }),
        }
    }
    report
}

/// Executes a command; true when it was a query.
fn execute(
    command: &TestCommand,
    source: &mut MemorySource,
    options: &EvalOptions<'_>,
) -> Result<bool, String> {
    match command {
        TestCommand::Clear => source.clear(),
        TestCommand::Load { step_ms, lines, with_nhcb } => {
            load_samples(source, *step_ms, lines);
            if *with_nhcb {
                nhcb::load(source, *step_ms, lines);
            }
            source.mark_resets();
        }
        TestCommand::Eval(eval) => {
            check_eval(eval, source, options)?;
            return Ok(true);
        }
    }
    Ok(false)
}

fn load_samples(source: &mut MemorySource, step_ms: i64, lines: &[SeriesLine]) {
    for line in lines {
        for (index, item) in line.items.iter().enumerate() {
            let time = index as i64 * step_ms;
            let start = line.starts.get(index).copied().flatten().map_or(0, |offset| time + offset);
            match item {
                SeriesItem::Missing => {}
                SeriesItem::Float(value) => {
                    source.add_with_start(&line.labels, time, *value, start);
                }
                SeriesItem::Histogram(histogram, _) => {
                    source.add_histogram_with_start(&line.labels, time, histogram.clone(), start);
                }
            }
        }
    }
}

fn check_eval(eval: &Eval, source: &MemorySource, options: &EvalOptions<'_>) -> Result<(), String> {
    let answer = run_query(eval, eval.moments, source, options);
    let answer = match answer {
        Err(error) if eval.expects(Expectation::is_fail) => {
            return check_failure(eval, &error.to_string());
        }
        Err(error) => return Err(format!("unexpected error: {error}")),
        Ok(_) if eval.expects(Expectation::is_fail) => {
            return Err("expected an error, there is none".to_owned());
        }
        Ok(answer) => answer,
    };
    check_annotations(eval, &answer)?;
    check_result(eval, &answer)?;
    check_as_range(eval, source, options)
}

fn run_query(
    eval: &Eval,
    moments: Moments,
    source: &MemorySource,
    options: &EvalOptions<'_>,
) -> Result<Answer, QueryError> {
    let query = Query::parse(&eval.query)?;
    match moments {
        Moments::At(at) => query.instant(source, at, options),
        Moments::Range { start, end, step_ms } => {
            query.range(source, TimeSpan { start, end }, step_ms, options)
        }
    }
}

/// An instant query must yield the same as the middle of a range query. An order is lost there, and
/// so is what is no vector.
fn check_as_range(
    eval: &Eval,
    source: &MemorySource,
    options: &EvalOptions<'_>,
) -> Result<(), String> {
    const AROUND_MS: i64 = 60_000;
    let Moments::At(at) = eval.moments else {
        return Ok(());
    };
    let is_vector = !eval.expects(Expectation::is_no_vector) && !eval.lines.is_empty();
    // These are other times in a range query.
    let uses_query_bounds = ["start()", "end()", "range()", "step()"]
        .iter()
        .any(|function| eval.query.contains(function));
    if !is_vector
        || uses_query_bounds
        || eval.expects(|expectation| matches!(expectation, Expectation::Ordered))
    {
        return Ok(());
    }
    let moments = Moments::Range { start: at - AROUND_MS, end: at + AROUND_MS, step_ms: AROUND_MS };
    let answer = run_query(eval, moments, source, options)
        .map_err(|error| format!("as a range query: {error}"))?;
    compare::check_middle(eval, &answer, at).map_err(|error| format!("as a range query: {error}"))
}

#[cfg(test)]
mod tests;
