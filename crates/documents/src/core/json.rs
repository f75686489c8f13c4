//! Strict JSON parser: every reader of a stored document gets exactly the values that were sent.
//!
//! JSON readers differ on duplicate properties, numbers that no double holds and lone surrogates;
//! PostgreSQL rejects U+0000. All of these are rejected here, with their position. Numbers are
//! normalized: `1`, `1.0` and `1e0` become the same integer, so that equal values are equal.
//!
//! A parser of our own, since a visitor of serde's never sees the text of a number. Its recursion
//! is bounded by the maximum depth.

use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::core::path;
use crate::error::DocumentsError;
use crate::model::{DEPTH_MAX, Violation, truncate};

mod number;

/// Bytes of a property's name, at most. JSON pointers contain names, and one answer may contain
/// many pointers.
pub const NAME_BYTES_MAX: usize = 1_024;

/// Limits for a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum size in bytes, with numbers such as `1e300` counted as written without an exponent.
    pub bytes_max: usize,
    /// Maximum depth of nesting.
    pub depth_max: usize,
}

/// Why a JSON text is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// The text exceeds its size limit.
    TooLarge {
        /// Size of the text in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        bytes_max: usize,
    },
    /// The text is malformed or contains a value that is not allowed.
    Malformed {
        /// Offset of the first violation in bytes.
        offset: usize,
        /// The violation; its message contains the offset too.
        violation: Violation,
    },
}

impl From<JsonError> for DocumentsError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::TooLarge { bytes, bytes_max } => {
                Self::PayloadTooLarge { bytes, bytes_max, limit: "documents.document_bytes_max" }
            }
            JsonError::Malformed { violation, .. } => Self::violation(violation),
        }
    }
}

/// Parses a value of any kind. Fails with the first violation.
pub fn parse(bytes: &[u8], bounds: Bounds) -> Result<Value, JsonError> {
    let too_large = |bytes| JsonError::TooLarge { bytes, bytes_max: bounds.bytes_max };
    if bytes.len() > bounds.bytes_max {
        return Err(too_large(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        JsonFault::new(offset, "the text is not UTF-8").to_error()
    })?;
    let mut reader =
        JsonReader { text, position: 0, written_out_bytes: 0, depth_max: bounds.depth_max };
    let value = reader.parse_whole().map_err(|fault| fault.to_error())?;
    let written_out = bytes.len().saturating_add(reader.written_out_bytes);
    if written_out > bounds.bytes_max {
        return Err(too_large(written_out));
    }
    Ok(value)
}

/// Parses a document, which must be an object. Fails with the first violation.
pub fn parse_document(bytes: &[u8], bytes_max: usize) -> Result<Value, JsonError> {
    let bounds = Bounds { bytes_max, depth_max: DEPTH_MAX };
    match parse(bytes, bounds)? {
        value @ Value::Object(_) => Ok(value),
        other => {
            let what = format!("a document must be an object, but this is {}", kind(&other));
            Err(JsonFault::new(0, what).to_error())
        }
    }
}

/// Kind of a value, for messages.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// A violation with its path, innermost step first: the path is only built once there is a
/// violation.
struct JsonFault {
    offset: usize,
    message: String,
    steps: Vec<PointerStep>,
}

enum PointerStep {
    Property(String),
    Element(usize),
}

impl JsonFault {
    #[cold]
    fn new(offset: usize, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { offset, message: message.into(), steps: Vec::new() })
    }

    #[cold]
    fn within(mut self: Box<Self>, step: PointerStep) -> Box<Self> {
        self.steps.push(step);
        self
    }

    fn to_error(&self) -> JsonError {
        let mut pointer = String::new();
        for step in self.steps.iter().rev() {
            match step {
                PointerStep::Property(name) => path::push_escaped(&mut pointer, name),
                PointerStep::Element(index) => path::push_escaped(&mut pointer, &index.to_string()),
            }
        }
        let message = format!("{}, at byte {}", self.message, self.offset);
        JsonError::Malformed { offset: self.offset, violation: Violation::new(pointer, message) }
    }
}

type JsonResult<T> = Result<T, Box<JsonFault>>;

/// Bytes that end a run of plain characters in a string.
const RUN_TERMINATORS: [bool; 256] = {
    let mut ends = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        ends[byte] = true;
        byte += 1;
    }
    ends[b'"' as usize] = true;
    ends[b'\\' as usize] = true;
    ends
};

struct JsonReader<'a> {
    text: &'a str,
    position: usize,
    /// Additional bytes if every number were written without an exponent.
    written_out_bytes: usize,
    depth_max: usize,
}

impl<'a> JsonReader<'a> {
    fn parse_whole(&mut self) -> JsonResult<Value> {
        let value = self.parse_value(0)?;
        match self.next_byte() {
            None => Ok(value),
            Some(_) => Err(self.unexpected("the end")),
        }
    }

    /// The next byte other than white space, without consuming it.
    #[inline]
    fn next_byte(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.position) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.position += 1;
        }
        None
    }

    #[cold]
    fn unexpected(&self, wanted: &str) -> Box<JsonFault> {
        match self.text[self.text.floor_char_boundary(self.position)..].chars().next() {
            Some(found) => {
                JsonFault::new(self.position, format!("expected {wanted}, found {found:?}"))
            }
            None => JsonFault::new(self.position, format!("expected {wanted}, but the text ends")),
        }
    }

    fn parse_value(&mut self, depth: usize) -> JsonResult<Value> {
        match self.next_byte() {
            Some(b'"') => Ok(Value::String(self.parse_string()?)),
            Some(b'-' | b'0'..=b'9') => self.parse_number(),
            Some(open @ (b'{' | b'[')) => {
                if depth == self.depth_max {
                    let what = format!("it is nested deeper than {depth} levels");
                    return Err(JsonFault::new(self.position, what));
                }
                self.position += 1;
                match open {
                    b'{' => self.parse_object(depth + 1),
                    _ => self.parse_array(depth + 1),
                }
            }
            Some(b't') => self.parse_literal("true", Value::Bool(true)),
            Some(b'f') => self.parse_literal("false", Value::Bool(false)),
            Some(b'n') => self.parse_literal("null", Value::Null),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn parse_literal(&mut self, word: &str, value: Value) -> JsonResult<Value> {
        if !self.text.as_bytes()[self.position..].starts_with(word.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        self.position += word.len();
        Ok(value)
    }

    fn parse_array(&mut self, depth: usize) -> JsonResult<Value> {
        let mut elements = Vec::new();
        if self.next_byte() == Some(b']') {
            self.position += 1;
            return Ok(Value::Array(elements));
        }
        loop {
            let element = self
                .parse_value(depth)
                .map_err(|fault| fault.within(PointerStep::Element(elements.len())))?;
            elements.push(element);
            match self.next_byte() {
                Some(b',') => self.position += 1,
                Some(b']') => break,
                _ => return Err(self.unexpected("`,` or `]`")),
            }
        }
        self.position += 1;
        Ok(Value::Array(elements))
    }

    fn parse_object(&mut self, depth: usize) -> JsonResult<Value> {
        let mut properties = Map::new();
        if self.next_byte() == Some(b'}') {
            self.position += 1;
            return Ok(Value::Object(properties));
        }
        loop {
            self.parse_property(&mut properties, depth)?;
            match self.next_byte() {
                Some(b',') => self.position += 1,
                Some(b'}') => break,
                _ => return Err(self.unexpected("`,` or `}`")),
            }
        }
        self.position += 1;
        Ok(Value::Object(properties))
    }

    fn parse_property(
        &mut self,
        properties: &mut Map<String, Value>,
        depth: usize,
    ) -> JsonResult<()> {
        if self.next_byte() != Some(b'"') {
            return Err(self.unexpected("the name of a property"));
        }
        let name_at = self.position;
        let name = self.parse_string()?;
        if name.len() > NAME_BYTES_MAX {
            let name = truncate(&name, 20);
            let what =
                format!("the name of property `{name}` has more than {NAME_BYTES_MAX} bytes");
            return Err(JsonFault::new(name_at, what));
        }
        match properties.entry(name) {
            Entry::Vacant(entry) => {
                if self.next_byte() != Some(b':') {
                    return Err(self.unexpected("`:`"));
                }
                self.position += 1;
                match self.parse_value(depth) {
                    Ok(value) => entry.insert(value),
                    Err(fault) => {
                        return Err(fault.within(PointerStep::Property(entry.key().clone())));
                    }
                };
                Ok(())
            }
            Entry::Occupied(place) => {
                let step = PointerStep::Property(place.key().clone());
                Err(JsonFault::new(name_at, "this property occurs twice").within(step))
            }
        }
    }

    fn parse_number(&mut self) -> JsonResult<Value> {
        let from = self.position;
        let length = number::length(&self.text.as_bytes()[from..]).map_err(|after| {
            self.position = from + after;
            self.unexpected("a digit")
        })?;
        self.position += length;
        let text = &self.text[from..self.position];
        let (number, written_out_bytes) =
            number::parse(text).map_err(|what| JsonFault::new(from, what))?;
        let extra_bytes = written_out_bytes.saturating_sub(length);
        self.written_out_bytes = self.written_out_bytes.saturating_add(extra_bytes);
        Ok(Value::Number(number))
    }

    /// Parses a string, from its opening to its closing quote.
    fn parse_string(&mut self) -> JsonResult<String> {
        let opening = self.position;
        self.position += 1;
        let run = self.parse_run(opening)?;
        if self.text.as_bytes()[self.position] == b'"' {
            self.position += 1;
            return Ok(run.to_owned());
        }
        let mut string = run.to_owned();
        loop {
            match self.text.as_bytes()[self.position] {
                b'"' => {
                    self.position += 1;
                    return Ok(string);
                }
                b'\\' => string.push(self.parse_escape()?),
                control => {
                    let what = format!("a control character, U+{control:04X}, is not escaped");
                    return Err(JsonFault::new(self.position, what));
                }
            }
            string.push_str(self.parse_run(opening)?);
        }
    }

    /// Everything before the next quote, backslash or control character, which must follow.
    #[inline]
    fn parse_run(&mut self, opening: usize) -> JsonResult<&'a str> {
        let from = self.position;
        let rest = &self.text.as_bytes()[from..];
        let length = rest.iter().position(|byte| RUN_TERMINATORS[usize::from(*byte)]);
        let Some(length) = length else {
            return Err(JsonFault::new(opening, "this string does not end"));
        };
        self.position += length;
        Ok(&self.text[from..self.position])
    }

    /// Parses an escape sequence, from the backslash on.
    fn parse_escape(&mut self) -> JsonResult<char> {
        let at = self.position;
        self.position += 2;
        Ok(match self.text.as_bytes().get(at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.parse_code_point(at),
            _ => {
                let what = "a backslash must be followed by one of `\"\\/bfnrtu`";
                return Err(JsonFault::new(at, what));
            }
        })
    }

    /// Parses `\uXXXX`, or a pair of them for surrogates; `at` is the offset of the backslash.
    fn parse_code_point(&mut self, at: usize) -> JsonResult<char> {
        let unit = self.parse_hex_digits(at)?;
        if unit == 0 {
            return Err(JsonFault::new(at, "U+0000 cannot be stored"));
        }
        if let Some(character) = char::from_u32(unit) {
            return Ok(character);
        }
        let lone_surrogate = || JsonFault::new(at, "half of a surrogate pair is not a character");
        let low_at = self.position;
        if unit > 0xDBFF || !self.text.as_bytes()[low_at..].starts_with(b"\\u") {
            return Err(lone_surrogate());
        }
        self.position += 2;
        let low = self.parse_hex_digits(low_at)?;
        if !(0xDC00..=0xDFFF).contains(&low) {
            return Err(lone_surrogate());
        }
        let point = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        char::from_u32(point).ok_or_else(lone_surrogate)
    }

    /// Parses four hexadecimal digits; `at` is the offset of their escape sequence.
    fn parse_hex_digits(&mut self, at: usize) -> JsonResult<u32> {
        let digits = self.text.as_bytes().get(self.position..self.position + 4);
        let unit = digits.and_then(|digits| {
            digits
                .iter()
                .try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
        });
        self.position += 4;
        unit.ok_or_else(|| JsonFault::new(at, "`\\u` must be followed by four hexadecimal digits"))
    }
}

#[cfg(test)]
pub(crate) mod tests;
