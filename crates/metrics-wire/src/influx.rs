//! Influx line protocol, as versions 1 and 2 write it: `measurement,tag=value field=1,other=2i
//! 1700000000`.
//!
//! A field becomes a sample of the series `measurement_field` with the tags as labels, as
//! VictoriaMetrics and Telegraf have it; names stay as they are. Numbers of all types become
//! floats, booleans 1 and 0; strings are counted and left out.
//!
//! Reference: docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol.

use std::borrow::Cow;

use egret_metrics_model::TimeMs;

use super::error::LineError;

/// Unit of a line's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Billionths of a second; the default.
    #[default]
    Nanoseconds,
    /// Millionths of a second.
    Microseconds,
    /// Thousandths of a second.
    Milliseconds,
    /// Whole seconds since 1970.
    Seconds,
    /// Only version 1 has them.
    Minutes,
    /// Only version 1 has them.
    Hours,
}

impl Precision {
    /// As the parameter `precision` of either version names it.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "" | "ns" | "n" => Self::Nanoseconds,
            "us" | "u" | "µ" => Self::Microseconds,
            "ms" => Self::Milliseconds,
            "s" => Self::Seconds,
            "m" => Self::Minutes,
            "h" => Self::Hours,
            _ => return None,
        })
    }

    /// Milliseconds since 1970, rounded towards the past; `None` when they are too many.
    fn to_ms(self, time: i64) -> Option<TimeMs> {
        match self {
            Self::Nanoseconds => Some(time.div_euclid(1_000_000)),
            Self::Microseconds => Some(time.div_euclid(1_000)),
            Self::Milliseconds => Some(time),
            Self::Seconds => time.checked_mul(1_000),
            Self::Minutes => time.checked_mul(60_000),
            Self::Hours => time.checked_mul(3_600_000),
        }
    }
}

/// A parsed line of the protocol.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InfluxPoint<'a> {
    /// Name of the measurement; may be empty.
    pub measurement: Cow<'a, str>,
    /// Name and value of each tag, in the order of the line; empty values are left out.
    pub tags: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Name and value of each field that is no string.
    pub fields: Vec<(Cow<'a, str>, f64)>,
    /// When, if the line says so.
    pub time_ms: Option<TimeMs>,
    /// Fields left out because they are strings.
    pub skipped_strings: u64,
}

impl InfluxPoint<'_> {
    /// Writes the name of a field's metric into `name`.
    pub fn metric_name(&self, field: &str, name: &mut String) {
        name.clear();
        name.push_str(&self.measurement);
        if !name.is_empty() {
            name.push('_');
        }
        name.push_str(field);
    }
}

/// Reads a body line by line. An error concerns one line.
#[derive(Clone, Debug)]
pub struct LineReader<'a> {
    unread: &'a str,
    line_number: u64,
    precision: Precision,
    point: InfluxPoint<'a>,
}

struct Cursor<'a> {
    text: &'a str,
    position: usize,
}

type Parsed<T> = Result<T, &'static str>;

/// What a backslash protects in names and tags, itself among them, as VictoriaMetrics has it.
const ESCAPABLE: &[u8] = b",= \\";

/// Drops backslashes before what they protect; before anything else they are themselves.
fn unescape<'a>(text: &'a str, special: &[u8]) -> Cow<'a, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(index) = rest.find('\\') {
        out.push_str(&rest[..index]);
        rest = &rest[index + 1..];
        match rest.as_bytes().first() {
            Some(next) if special.contains(next) => {
                out.push(char::from(*next));
                rest = &rest[1..];
            }
            _ => out.push('\\'),
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

impl<'a> Cursor<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn eat(&mut self, expected: u8) -> bool {
        let is_match = self.peek() == Some(expected);
        self.position += usize::from(is_match);
        is_match
    }

    fn skip_blanks(&mut self) {
        while self.eat(b' ') {}
    }

    fn is_at_end(&self) -> bool {
        matches!(self.peek(), None | Some(b'\n' | b'\r'))
    }

    /// Up to one of `stops` that no backslash protects, or the line's end.
    fn take_until(&mut self, stops: &[u8]) -> &'a str {
        let start = self.position;
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.position) {
            if byte == b'\n' || stops.contains(&byte) {
                break;
            }
            let next = bytes.get(self.position + 1);
            let is_escape =
                byte == b'\\' && next.is_some_and(|next| stops.contains(next) || *next == b'\\');
            self.position += 1 + usize::from(is_escape);
        }
        &self.text[start..self.position]
    }

    fn parse_key(&mut self) -> Parsed<Cow<'a, str>> {
        let key = self.take_until(b",= ");
        if key.is_empty() {
            return Err("a name is expected");
        }
        if !self.eat(b'=') {
            return Err("= is expected after a name");
        }
        Ok(unescape(key, ESCAPABLE))
    }

    /// After the opening quote; newlines are part of a string.
    fn skip_string(&mut self) -> Parsed<()> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.position) {
            self.position += 1;
            match byte {
                b'"' => return Ok(()),
                b'\\' if matches!(bytes.get(self.position), Some(b'"' | b'\\')) => {
                    self.position += 1
                }
                _ => {}
            }
        }
        Err("a quote is not closed")
    }

    fn parse_field_value(&mut self) -> Parsed<Option<f64>> {
        if self.eat(b'"') {
            return self.skip_string().map(|()| None);
        }
        let start = self.position;
        while !matches!(self.peek(), None | Some(b',' | b' ' | b'\n' | b'\r')) {
            self.position += 1;
        }
        let word = &self.text[start..self.position];
        const FIELD_VALUE_ERROR: &str =
            "a field's value is not a number, a boolean or a quoted string";
        let value = match word {
            "t" | "T" | "true" | "True" | "TRUE" => 1.0,
            "f" | "F" | "false" | "False" | "FALSE" => 0.0,
            _ => match word.as_bytes().last() {
                Some(b'i') => {
                    let number: Result<i64, _> = word[..word.len() - 1].parse();
                    number.map_err(|_| "a value with suffix i is not an integer of 64 bits")? as f64
                }
                Some(b'u') => {
                    let number: Result<u64, _> = word[..word.len() - 1].parse();
                    number.map_err(
                        |_| "a value with suffix u is not an unsigned integer of 64 bits",
                    )? as f64
                }
                // The protocol knows neither NaN nor infinity.
                Some(b'0'..=b'9' | b'.') => word.parse().map_err(|_| FIELD_VALUE_ERROR)?,
                _ => return Err(FIELD_VALUE_ERROR),
            },
        };
        Ok(Some(value))
    }

    fn parse_point(&mut self, precision: Precision, point: &mut InfluxPoint<'a>) -> Parsed<()> {
        point.tags.clear();
        point.fields.clear();
        (point.time_ms, point.skipped_strings) = (None, 0);
        point.measurement = unescape(self.take_until(b", "), ESCAPABLE);
        while self.eat(b',') {
            let key = self.parse_key()?;
            let value = unescape(self.take_until(b",= "), ESCAPABLE);
            if self.peek() == Some(b'=') {
                return Err("a tag's value has a = without a backslash");
            }
            if !value.is_empty() {
                point.tags.push((key, value));
            }
        }
        if !self.eat(b' ') {
            return Err("a blank and fields are expected after measurement and tags");
        }
        self.skip_blanks();
        loop {
            let key = self.parse_key()?;
            match self.parse_field_value()? {
                Some(value) => point.fields.push((key, value)),
                None => point.skipped_strings += 1,
            }
            if !self.eat(b',') {
                break;
            }
        }
        if !self.is_at_end() && !self.eat(b' ') {
            return Err(", or a blank is expected after a field");
        }
        self.skip_blanks();
        if !self.is_at_end() {
            let start = self.position;
            while matches!(self.peek(), Some(b'-' | b'+' | b'0'..=b'9')) {
                self.position += 1;
            }
            let time = self.text[start..self.position].parse::<i64>();
            let time = time.ok().and_then(|time| precision.to_ms(time));
            point.time_ms = Some(time.ok_or("the time is not a whole number, or too large")?);
            self.skip_blanks();
        }
        if self.is_at_end() { Ok(()) } else { Err("nothing is expected after the time") }
    }
}

impl<'a> LineReader<'a> {
    /// Begins to read a body.
    pub fn new(text: &'a str, precision: Precision) -> Self {
        Self { unread: text, line_number: 0, precision, point: InfluxPoint::default() }
    }

    /// Moves on behind the line that ends at or after `position`.
    fn skip_line(&mut self, position: usize) {
        let end = self.unread[position..]
            .find('\n')
            .map(|offset| position + offset + 1)
            .unwrap_or(self.unread.len());
        let newlines = self.unread[..position].bytes().filter(|byte| *byte == b'\n').count();
        self.line_number += newlines as u64;
        self.unread = &self.unread[end..];
    }

    /// The next line that is neither empty nor a comment; `None` at the end.
    ///
    /// # Errors
    /// [`LineError`] when it cannot be read; the next can be all the same.
    #[expect(clippy::should_implement_trait, reason = "points borrow from the reader")]
    pub fn next(&mut self) -> Option<Result<&InfluxPoint<'a>, LineError>> {
        loop {
            let blanks =
                self.unread.len() - self.unread.trim_start_matches([' ', '\t', '\r']).len();
            self.unread = &self.unread[blanks..];
            if self.unread.is_empty() {
                return None;
            }
            self.line_number += 1;
            if self.unread.starts_with(['#', '\n']) {
                self.skip_line(0);
                continue;
            }
            let mut cursor = Cursor { text: self.unread, position: 0 };
            let line = self.line_number;
            let result = cursor.parse_point(self.precision, &mut self.point);
            return Some(match result {
                Ok(()) => {
                    self.skip_line(cursor.position);
                    Ok(&self.point)
                }
                Err(problem) => {
                    // A quote that is not closed must not swallow the lines that follow.
                    let consumed = &self.unread.as_bytes()[..cursor.position];
                    let column =
                        consumed.iter().position(|byte| *byte == b'\n').unwrap_or(cursor.position);
                    self.skip_line(column);
                    Err(LineError { line, column: (blanks + column) as u64 + 1, problem })
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
