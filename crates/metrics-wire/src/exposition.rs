//! The text in which a program exposes its metrics to scrapers: Prometheus's text format 0.0.4 and
//! OpenMetrics 1.0, both with names in quotes as Prometheus 3 writes those that are not plain.
//!
//! Specifications: prometheus.io/docs/instrumenting/exposition_formats and
//! prometheus.io/docs/specs/om.

mod write;

use std::borrow::Cow;

use egret_metrics_model::{METRIC_NAME, TimeMs, normalize_nan};

use super::MetricKind;
use super::error::LineError;
pub(crate) use write::append_number;
pub use write::{append_end, append_metadata, append_sample};

/// One of the two text formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// Times are whole milliseconds.
    Prometheus,
    /// Times are seconds; `# EOF` ends the text; samples may have exemplars.
    OpenMetrics,
}

/// Name and value of each label, the metric's name among them under `__name__`, in the order of the
/// text.
pub type TextLabels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// Meaning of a line.
#[derive(Clone, Debug, PartialEq)]
pub enum TextItem<'a, 'l> {
    /// Name and help text of a metric.
    Help(Cow<'a, str>, Cow<'a, str>),
    /// Name and kind of a metric.
    Kind(Cow<'a, str>, MetricKind),
    /// Name and unit of a metric.
    Unit(Cow<'a, str>, Cow<'a, str>),
    /// A sample of a series.
    Sample {
        /// Its series' labels, in memory that the next sample uses again.
        labels: &'l TextLabels<'a>,
        /// Its value; NaN always has the bits of [`egret_metrics_model::NORMAL_NAN_BITS`].
        value: f64,
        /// When, if the line says so.
        time_ms: Option<TimeMs>,
    },
}

/// Reads a text line by line. An error concerns one line; a caller that wants all or nothing stops
/// at the first.
#[derive(Clone, Debug)]
pub struct TextReader<'a> {
    rest: &'a str,
    line_number: u64,
    format: TextFormat,
    labels: TextLabels<'a>,
    has_ended: bool,
}

/// The unread rest of a line.
struct LineCursor<'a> {
    full_line: &'a str,
    rest: &'a str,
}

type Parsed<T> = Result<T, &'static str>;

fn is_name_byte(byte: u8, may_have_colon: bool) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || (byte == b':' && may_have_colon)
}

/// Replaces `\\`, `\n` and, where there are quotes, `\"`. Anything else after a backslash stays
/// with it.
fn unescape(text: &str, has_quotes: bool) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        if next != '\\' {
            out.push(next);
            continue;
        }
        match chars.next() {
            Some('\\') => out.push('\\'),
            Some('n') => out.push('\n'),
            Some('"') if has_quotes => out.push('"'),
            Some(other) => out.extend(['\\', other]),
            None => out.push('\\'),
        }
    }
    Cow::Owned(out)
}

impl<'a> LineCursor<'a> {
    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn eat(&mut self, expected: char) -> bool {
        match self.rest.strip_prefix(expected) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn take_prefix(&mut self, length: usize) -> &'a str {
        let (part, rest) = self.rest.split_at(length);
        self.rest = rest;
        part
    }

    /// Up to the next blank.
    fn take_word(&mut self) -> &'a str {
        let end = self.rest.find([' ', '\t']).unwrap_or(self.rest.len());
        let word = self.take_prefix(end);
        self.skip_blanks();
        word
    }

    /// After the opening quote.
    fn parse_quoted(&mut self) -> Parsed<Cow<'a, str>> {
        let mut is_escaped = false;
        let end = self.rest.bytes().position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        let Some(end) = end else {
            return Err("a quote is not closed");
        };
        let text = self.take_prefix(end);
        self.eat('"');
        Ok(unescape(text, true))
    }

    /// A name, plain or in quotes.
    fn parse_name(&mut self, may_have_colon: bool) -> Parsed<Cow<'a, str>> {
        if self.eat('"') {
            let name = self.parse_quoted()?;
            return if name.is_empty() { Err("a name is empty") } else { Ok(name) };
        }
        let is_part = |byte: &u8| is_name_byte(*byte, may_have_colon);
        let end = self.rest.bytes().take_while(is_part).count();
        if end == 0 || self.rest.as_bytes()[0].is_ascii_digit() {
            return Err("a name is expected: letters, digits and _, or anything in quotes");
        }
        Ok(Cow::Borrowed(self.take_prefix(end)))
    }

    /// After the opening brace. A name in quotes without a value is the metric's.
    fn parse_labels(&mut self, labels: &mut TextLabels<'a>) -> Parsed<()> {
        loop {
            self.skip_blanks();
            if self.eat('}') {
                return Ok(());
            }
            let is_quoted = self.rest.starts_with('"');
            let name = self.parse_name(false)?;
            self.skip_blanks();
            if self.eat('=') {
                self.skip_blanks();
                if !self.eat('"') {
                    return Err("a label's value is expected in quotes");
                }
                labels.push((name, self.parse_quoted()?));
            } else if is_quoted && labels.iter().all(|(name, _)| name != METRIC_NAME) {
                labels.push((Cow::Borrowed(METRIC_NAME), name));
            } else {
                return Err("= is expected after a label's name");
            }
            self.skip_blanks();
            if !self.eat(',') && !self.rest.starts_with('}') {
                return Err(", or } is expected after a label");
            }
        }
    }

    fn parse_value(&mut self) -> Parsed<f64> {
        let word = self.take_word();
        if word.is_empty() {
            return Err("a value is expected");
        }
        let value: f64 = word.parse().map_err(|_| "the value is not a number")?;
        Ok(normalize_nan(value))
    }

    fn parse_time(&mut self, format: TextFormat) -> Parsed<Option<TimeMs>> {
        if self.rest.is_empty() || self.rest.starts_with('#') {
            return Ok(None);
        }
        let word = self.take_word();
        if format == TextFormat::Prometheus {
            let time = word.parse();
            return time.map(Some).map_err(|_| "the time is not a whole number of milliseconds");
        }
        let seconds: f64 = word.parse().map_err(|_| "the time is not a number of seconds")?;
        let time = (seconds * 1000.0).round();
        if time.abs() < i64::MAX as f64 {
            Ok(Some(time as i64))
        } else {
            Err("the time is not a number of seconds")
        }
    }

    /// It is not kept, but it must be one.
    fn check_exemplar(&mut self) -> Parsed<()> {
        self.eat('#');
        self.skip_blanks();
        if !self.eat('{') {
            return Err("{ is expected at the start of an exemplar");
        }
        self.parse_labels(&mut Vec::new())?;
        self.skip_blanks();
        self.parse_value()?;
        self.parse_time(TextFormat::OpenMetrics).map(drop)
    }

    fn parse_sample(
        &mut self,
        format: TextFormat,
        labels: &mut TextLabels<'a>,
    ) -> Parsed<(f64, Option<TimeMs>)> {
        labels.clear();
        if !self.rest.starts_with('{') {
            let name = self.parse_name(true)?;
            labels.push((Cow::Borrowed(METRIC_NAME), name));
        }
        let length_before = self.rest.len();
        self.skip_blanks();
        let has_blank = self.rest.len() < length_before;
        if self.eat('{') {
            self.parse_labels(labels)?;
            self.skip_blanks();
        } else if !has_blank {
            return Err("{ or a blank is expected after the metric's name");
        }
        if labels.iter().all(|(name, _)| name != METRIC_NAME) {
            return Err("the metric has no name");
        }
        let value = self.parse_value()?;
        let time_ms = self.parse_time(format)?;
        if self.rest.starts_with('#') && format == TextFormat::OpenMetrics {
            self.check_exemplar()?;
        }
        if self.rest.is_empty() {
            Ok((value, time_ms))
        } else {
            Err("nothing is expected after value and time")
        }
    }
}

/// The kind with a name; `None` when there is no such kind.
fn parse_kind(word: &str) -> Option<MetricKind> {
    Some(match word {
        "counter" => MetricKind::Counter,
        "gauge" => MetricKind::Gauge,
        "histogram" => MetricKind::Histogram,
        "gaugehistogram" => MetricKind::GaugeHistogram,
        "summary" => MetricKind::Summary,
        "info" => MetricKind::Info,
        "stateset" => MetricKind::StateSet,
        "untyped" | "unknown" => MetricKind::Unknown,
        _ => return None,
    })
}

enum Comment<'a, 'l> {
    Item(TextItem<'a, 'l>),
    Ignored,
    EndOfText,
}

fn parse_comment<'a, 'l>(line: &mut LineCursor<'a>, format: TextFormat) -> Parsed<Comment<'a, 'l>> {
    line.eat('#');
    let has_blank = line.rest.starts_with([' ', '\t']);
    line.skip_blanks();
    if !has_blank {
        return Ok(Comment::Ignored);
    }
    let word = line.take_word();
    let is_open_metrics = format == TextFormat::OpenMetrics;
    match word {
        "EOF" if is_open_metrics && line.rest.is_empty() => return Ok(Comment::EndOfText),
        "HELP" | "TYPE" => {}
        "UNIT" if is_open_metrics => {}
        _ => return Ok(Comment::Ignored),
    }
    let name = line.parse_name(true)?;
    if !line.rest.is_empty() && !line.rest.starts_with([' ', '\t']) {
        return Err("a blank is expected after the metric's name");
    }
    line.skip_blanks();
    let rest = line.take_prefix(line.rest.len());
    Ok(Comment::Item(match word {
        "HELP" => TextItem::Help(name, unescape(rest, is_open_metrics)),
        "UNIT" => TextItem::Unit(name, Cow::Borrowed(rest)),
        _ => match parse_kind(rest.trim_end_matches([' ', '\t'])) {
            Some(kind) => TextItem::Kind(name, kind),
            None => return Err("the type is unknown"),
        },
    }))
}

impl<'a> TextReader<'a> {
    /// Begins to read a text.
    pub fn new(text: &'a str, format: TextFormat) -> Self {
        Self { rest: text, line_number: 0, format, labels: Vec::new(), has_ended: false }
    }

    /// Whether `# EOF` was read, without which an OpenMetrics text is cut off.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Lines read so far.
    pub fn lines_read(&self) -> u64 {
        self.line_number
    }

    fn next_line(&mut self) -> Option<LineCursor<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        self.line_number += 1;
        let (full_line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
        self.rest = rest;
        let whole = full_line.strip_suffix('\r').unwrap_or(full_line);
        Some(LineCursor { full_line: whole, rest: whole })
    }

    /// What the next line says that says something; `None` at the end.
    ///
    /// # Errors
    /// [`LineError`] when it cannot be read; the next can be all the same.
    #[expect(clippy::should_implement_trait, reason = "items borrow from the reader")]
    pub fn next(&mut self) -> Option<Result<TextItem<'a, '_>, LineError>> {
        loop {
            let mut line = self.next_line()?;
            line.skip_blanks();
            let number = self.line_number;
            let line_error = move |line: &LineCursor<'_>, problem| LineError {
                line: number,
                column: (line.full_line.len() - line.rest.len()) as u64 + 1,
                problem,
            };
            if line.rest.is_empty() {
                continue;
            }
            if self.has_ended {
                return Some(Err(line_error(&line, "nothing is expected after # EOF")));
            }
            if line.rest.starts_with('#') {
                match parse_comment(&mut line, self.format) {
                    Ok(Comment::Item(item)) => return Some(Ok(item)),
                    Ok(Comment::Ignored) => {}
                    Ok(Comment::EndOfText) => self.has_ended = true,
                    Err(problem) => return Some(Err(line_error(&line, problem))),
                }
                continue;
            }
            let sample = line.parse_sample(self.format, &mut self.labels);
            return Some(match sample {
                Ok((value, time_ms)) => {
                    Ok(TextItem::Sample { labels: &self.labels, value, time_ms })
                }
                Err(problem) => Err(line_error(&line, problem)),
            });
        }
    }
}

#[cfg(test)]
mod tests;
