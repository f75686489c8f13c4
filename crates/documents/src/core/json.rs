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
use crate::model::{DEPTH_MAX, Violation, cut};

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
    Wrong {
        /// Offset of the first violation in bytes.
        at: usize,
        /// The violation; its message contains the offset too.
        violation: Violation,
    },
}

impl From<JsonError> for DocumentsError {
    fn from(refusal: JsonError) -> Self {
        match refusal {
            JsonError::TooLarge { bytes, bytes_max } => Self::PayloadTooLarge {
                bytes,
                bytes_max,
                limit: "documents.document_bytes_max",
            },
            JsonError::Wrong { violation, .. } => Self::violation(violation),
        }
    }
}

/// Parses a value of any kind. Fails with the first violation.
pub fn read(bytes: &[u8], bounds: Bounds) -> Result<Value, JsonError> {
    let too_large = |bytes| JsonError::TooLarge {
        bytes,
        bytes_max: bounds.bytes_max,
    };
    if bytes.len() > bounds.bytes_max {
        return Err(too_large(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        JsonFault::new(at, "the text is not UTF-8").refusal()
    })?;
    let mut reader = JsonReader {
        text,
        at: 0,
        written_out_bytes: 0,
        depth_max: bounds.depth_max,
    };
    let value = reader.whole().map_err(|fault| fault.refusal())?;
    let written_out = bytes.len().saturating_add(reader.written_out_bytes);
    if written_out > bounds.bytes_max {
        return Err(too_large(written_out));
    }
    Ok(value)
}

/// Parses a document, which must be an object. Fails with the first violation.
pub fn read_document(bytes: &[u8], bytes_max: usize) -> Result<Value, JsonError> {
    let bounds = Bounds {
        bytes_max,
        depth_max: DEPTH_MAX,
    };
    match read(bytes, bounds)? {
        value @ Value::Object(_) => Ok(value),
        other => {
            let what = format!("a document must be an object, but this is {}", kind(&other));
            Err(JsonFault::new(0, what).refusal())
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
    at: usize,
    message: String,
    way: Vec<PointerStep>,
}

enum PointerStep {
    Property(String),
    Element(usize),
}

impl JsonFault {
    #[cold]
    fn new(at: usize, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            at,
            message: message.into(),
            way: Vec::new(),
        })
    }

    #[cold]
    fn within(mut self: Box<Self>, step: PointerStep) -> Box<Self> {
        self.way.push(step);
        self
    }

    fn refusal(&self) -> JsonError {
        let mut pointer = String::new();
        for step in self.way.iter().rev() {
            match step {
                PointerStep::Property(name) => path::push_escaped(&mut pointer, name),
                PointerStep::Element(index) => path::push_escaped(&mut pointer, &index.to_string()),
            }
        }
        let message = format!("{}, at byte {}", self.message, self.at);
        JsonError::Wrong {
            at: self.at,
            violation: Violation::new(pointer, message),
        }
    }
}

type JsonResult<T> = Result<T, Box<JsonFault>>;

/// Bytes that end a run of plain characters in a string.
const ENDS_RUN: [bool; 256] = {
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
    at: usize,
    /// Additional bytes if every number were written without an exponent.
    written_out_bytes: usize,
    depth_max: usize,
}

impl<'a> JsonReader<'a> {
    fn whole(&mut self) -> JsonResult<Value> {
        let value = self.value(0)?;
        match self.next_byte() {
            None => Ok(value),
            Some(_) => Err(self.unexpected("the end")),
        }
    }

    /// The next byte other than white space, without consuming it.
    #[inline]
    fn next_byte(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
        None
    }

    #[cold]
    fn unexpected(&self, wanted: &str) -> Box<JsonFault> {
        match self.text[self.text.floor_char_boundary(self.at)..]
            .chars()
            .next()
        {
            Some(found) => JsonFault::new(self.at, format!("expected {wanted}, found {found:?}")),
            None => JsonFault::new(self.at, format!("expected {wanted}, but the text ends")),
        }
    }

    fn value(&mut self, depth: usize) -> JsonResult<Value> {
        match self.next_byte() {
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(open @ (b'{' | b'[')) => {
                if depth == self.depth_max {
                    let what = format!("it is nested deeper than {depth} levels");
                    return Err(JsonFault::new(self.at, what));
                }
                self.at += 1;
                match open {
                    b'{' => self.object(depth + 1),
                    _ => self.array(depth + 1),
                }
            }
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> JsonResult<Value> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> JsonResult<Value> {
        let mut elements = Vec::new();
        if self.next_byte() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(elements));
        }
        loop {
            let element = self
                .value(depth)
                .map_err(|fault| fault.within(PointerStep::Element(elements.len())))?;
            elements.push(element);
            match self.next_byte() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.unexpected("`,` or `]`")),
            }
        }
        self.at += 1;
        Ok(Value::Array(elements))
    }

    fn object(&mut self, depth: usize) -> JsonResult<Value> {
        let mut properties = Map::new();
        if self.next_byte() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(properties));
        }
        loop {
            self.property(&mut properties, depth)?;
            match self.next_byte() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.unexpected("`,` or `}`")),
            }
        }
        self.at += 1;
        Ok(Value::Object(properties))
    }

    fn property(&mut self, properties: &mut Map<String, Value>, depth: usize) -> JsonResult<()> {
        if self.next_byte() != Some(b'"') {
            return Err(self.unexpected("the name of a property"));
        }
        let name_at = self.at;
        let name = self.string()?;
        if name.len() > NAME_BYTES_MAX {
            let name = cut(&name, 20);
            let what =
                format!("the name of property `{name}` has more than {NAME_BYTES_MAX} bytes");
            return Err(JsonFault::new(name_at, what));
        }
        match properties.entry(name) {
            Entry::Vacant(place) => {
                if self.next_byte() != Some(b':') {
                    return Err(self.unexpected("`:`"));
                }
                self.at += 1;
                match self.value(depth) {
                    Ok(value) => place.insert(value),
                    Err(fault) => {
                        return Err(fault.within(PointerStep::Property(place.key().clone())));
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

    fn number(&mut self) -> JsonResult<Value> {
        let from = self.at;
        let length = number::length(&self.text.as_bytes()[from..]).map_err(|after| {
            self.at = from + after;
            self.unexpected("a digit")
        })?;
        self.at += length;
        let text = &self.text[from..self.at];
        let (number, written_out_bytes) =
            number::read(text).map_err(|what| JsonFault::new(from, what))?;
        let more = written_out_bytes.saturating_sub(length);
        self.written_out_bytes = self.written_out_bytes.saturating_add(more);
        Ok(Value::Number(number))
    }

    /// Parses a string, from its opening to its closing quote.
    fn string(&mut self) -> JsonResult<String> {
        let opening = self.at;
        self.at += 1;
        let run = self.run(opening)?;
        if self.text.as_bytes()[self.at] == b'"' {
            self.at += 1;
            return Ok(run.to_owned());
        }
        let mut string = run.to_owned();
        loop {
            match self.text.as_bytes()[self.at] {
                b'"' => {
                    self.at += 1;
                    return Ok(string);
                }
                b'\\' => string.push(self.escaped()?),
                control => {
                    let what = format!("a control character, U+{control:04X}, is not escaped");
                    return Err(JsonFault::new(self.at, what));
                }
            }
            string.push_str(self.run(opening)?);
        }
    }

    /// Everything before the next quote, backslash or control character, which must follow.
    #[inline]
    fn run(&mut self, opening: usize) -> JsonResult<&'a str> {
        let from = self.at;
        let rest = &self.text.as_bytes()[from..];
        let length = rest.iter().position(|byte| ENDS_RUN[usize::from(*byte)]);
        let Some(length) = length else {
            return Err(JsonFault::new(opening, "this string does not end"));
        };
        self.at += length;
        Ok(&self.text[from..self.at])
    }

    /// Parses an escape sequence, from the backslash on.
    fn escaped(&mut self) -> JsonResult<char> {
        let at = self.at;
        self.at += 2;
        Ok(match self.text.as_bytes().get(at + 1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.code_point(at),
            _ => {
                let what = "a backslash must be followed by one of `\"\\/bfnrtu`";
                return Err(JsonFault::new(at, what));
            }
        })
    }

    /// Parses `\uXXXX`, or a pair of them for surrogates; `at` is the offset of the backslash.
    fn code_point(&mut self, at: usize) -> JsonResult<char> {
        let unit = self.hexadecimal(at)?;
        if unit == 0 {
            return Err(JsonFault::new(at, "U+0000 cannot be stored"));
        }
        if let Some(character) = char::from_u32(unit) {
            return Ok(character);
        }
        let lone = || JsonFault::new(at, "half of a surrogate pair is not a character");
        let low_at = self.at;
        if unit > 0xDBFF || !self.text.as_bytes()[low_at..].starts_with(b"\\u") {
            return Err(lone());
        }
        self.at += 2;
        let low = self.hexadecimal(low_at)?;
        if !(0xDC00..=0xDFFF).contains(&low) {
            return Err(lone());
        }
        let point = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        char::from_u32(point).ok_or_else(lone)
    }

    /// Parses four hexadecimal digits; `at` is the offset of their escape sequence.
    fn hexadecimal(&mut self, at: usize) -> JsonResult<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let unit = digits.and_then(|digits| {
            digits.iter().try_fold(0, |unit, digit| {
                Some(unit * 16 + char::from(*digit).to_digit(16)?)
            })
        });
        self.at += 4;
        unit.ok_or_else(|| JsonFault::new(at, "`\\u` must be followed by four hexadecimal digits"))
    }
}

#[cfg(test)]
pub(crate) mod tests;
