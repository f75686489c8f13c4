//! Bytes to a JSON value, strictly: what comes in is what goes out, for whoever reads it.
//!
//! JSON readers differ in what they make of a property that is there twice, of numbers that no double holds, of lone surrogates; PostgreSQL
//! refuses U+0000. Whatever they differ in is refused here, with its place. Numbers are normal in what comes out: `1`, `1.0` and `1e0` are one
//! integer, so that equal values are equal.
//!
//! A parser of our own, since a visitor of serde's never sees the text of a number. Its recursion is bounded by the depth that is allowed.

use serde_json::map::Entry;
use serde_json::{Map, Value};

use crate::core::path;
use crate::error::DocumentsError;
use crate::model::{Violation, cut};

mod number;

/// How deep a document may be nested: an object in a list in an object is three deep.
pub const DEPTH_MAX: usize = 64;

/// Bytes of a property's name, at most. Pointers are made of names, and there may be many pointers in one answer.
pub const NAME_BYTES_MAX: usize = 1_024;

/// What a text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many bytes it may have, numbers such as `1e300` counted as they are written without an exponent.
    pub bytes_max: usize,
    /// How deep it may be nested.
    pub depth_max: usize,
}

/// Why a text is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is too large.
    TooLarge {
        /// How large it is, in bytes.
        bytes: usize,
        /// How large it may be.
        bytes_max: usize,
    },
    /// Something in it is wrong.
    Wrong {
        /// Where it is, in bytes from the beginning.
        at: usize,
        /// What it is; the message names the byte too.
        violation: Violation,
    },
}

impl From<Refusal> for DocumentsError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::TooLarge { bytes, bytes_max } => Self::PayloadTooLarge {
                bytes,
                bytes_max,
                limit: "documents.document_bytes_max",
            },
            Refusal::Wrong { violation, .. } => Self::violation(violation),
        }
    }
}

/// Reads a value of any kind.
///
/// # Errors
/// The first thing that is wrong.
pub fn read(bytes: &[u8], bounds: Bounds) -> Result<Value, Refusal> {
    let too_large = |bytes| Refusal::TooLarge {
        bytes,
        bytes_max: bounds.bytes_max,
    };
    if bytes.len() > bounds.bytes_max {
        return Err(too_large(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        Fault::new(at, "this is not UTF-8").refusal()
    })?;
    let mut reader = Reader {
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

/// Reads a document: an object.
///
/// # Errors
/// The first thing that is wrong.
pub fn read_document(bytes: &[u8], bytes_max: usize) -> Result<Value, Refusal> {
    let bounds = Bounds {
        bytes_max,
        depth_max: DEPTH_MAX,
    };
    match read(bytes, bounds)? {
        value @ Value::Object(_) => Ok(value),
        other => {
            let what = format!("a document is an object, this is {}", kind(&other));
            Err(Fault::new(0, what).refusal())
        }
    }
}

/// What kind of value it is, in words.
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

/// What is wrong, and the way to it from the innermost step outwards: nothing is remembered of the way until something is wrong.
struct Fault {
    at: usize,
    message: String,
    way: Vec<Step>,
}

enum Step {
    Property(String),
    Element(usize),
}

impl Fault {
    #[cold]
    fn new(at: usize, message: impl Into<String>) -> Box<Self> {
        Box::new(Self {
            at,
            message: message.into(),
            way: Vec::new(),
        })
    }

    #[cold]
    fn within(mut self: Box<Self>, step: Step) -> Box<Self> {
        self.way.push(step);
        self
    }

    fn refusal(&self) -> Refusal {
        let mut pointer = String::new();
        for step in self.way.iter().rev() {
            match step {
                Step::Property(name) => path::push_escaped(&mut pointer, name),
                Step::Element(index) => path::push_escaped(&mut pointer, &index.to_string()),
            }
        }
        let message = format!("{}, at byte {}", self.message, self.at);
        Refusal::Wrong {
            at: self.at,
            violation: Violation::new(pointer, message),
        }
    }
}

type Read<T> = Result<T, Box<Fault>>;

/// Which bytes end a run of plain characters in a string.
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

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// How many bytes more it would be with every number written without an exponent.
    written_out_bytes: usize,
    depth_max: usize,
}

impl<'a> Reader<'a> {
    fn whole(&mut self) -> Read<Value> {
        let value = self.value(0)?;
        match self.next_byte() {
            None => Ok(value),
            Some(_) => Err(self.unexpected("the end")),
        }
    }

    /// The next byte that is no white space; it is not passed.
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
    fn unexpected(&self, wanted: &str) -> Box<Fault> {
        match self.text[self.text.floor_char_boundary(self.at)..]
            .chars()
            .next()
        {
            Some(found) => Fault::new(self.at, format!("{wanted} is expected, not {found:?}")),
            None => Fault::new(self.at, format!("{wanted} is expected, but the text ends")),
        }
    }

    fn value(&mut self, depth: usize) -> Read<Value> {
        match self.next_byte() {
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(open @ (b'{' | b'[')) => {
                if depth == self.depth_max {
                    let what = format!("it is nested deeper than {depth}");
                    return Err(Fault::new(self.at, what));
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

    fn word(&mut self, word: &str, value: Value) -> Read<Value> {
        if !self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            return Err(self.unexpected("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Read<Value> {
        let mut elements = Vec::new();
        if self.next_byte() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(elements));
        }
        loop {
            let element = self
                .value(depth)
                .map_err(|fault| fault.within(Step::Element(elements.len())))?;
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

    fn object(&mut self, depth: usize) -> Read<Value> {
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

    fn property(&mut self, properties: &mut Map<String, Value>, depth: usize) -> Read<()> {
        if self.next_byte() != Some(b'"') {
            return Err(self.unexpected("the name of a property"));
        }
        let name_at = self.at;
        let name = self.string()?;
        if name.len() > NAME_BYTES_MAX {
            let name = cut(&name, 20);
            let what =
                format!("the name of property `{name}` has more than {NAME_BYTES_MAX} bytes");
            return Err(Fault::new(name_at, what));
        }
        match properties.entry(name) {
            Entry::Vacant(place) => {
                if self.next_byte() != Some(b':') {
                    return Err(self.unexpected("`:`"));
                }
                self.at += 1;
                match self.value(depth) {
                    Ok(value) => place.insert(value),
                    Err(fault) => return Err(fault.within(Step::Property(place.key().clone()))),
                };
                Ok(())
            }
            Entry::Occupied(place) => {
                let step = Step::Property(place.key().clone());
                Err(Fault::new(name_at, "this property is there twice").within(step))
            }
        }
    }

    fn number(&mut self) -> Read<Value> {
        let from = self.at;
        let length = number::length(&self.text.as_bytes()[from..]).map_err(|after| {
            self.at = from + after;
            self.unexpected("a digit")
        })?;
        self.at += length;
        let text = &self.text[from..self.at];
        let (number, written_out_bytes) =
            number::read(text).map_err(|what| Fault::new(from, what))?;
        let more = written_out_bytes.saturating_sub(length);
        self.written_out_bytes = self.written_out_bytes.saturating_add(more);
        Ok(Value::Number(number))
    }

    /// A string, from its opening quote to behind the closing one.
    fn string(&mut self) -> Read<String> {
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
                    return Err(Fault::new(self.at, what));
                }
            }
            string.push_str(self.run(opening)?);
        }
    }

    /// What comes before the next quote, backslash or control character, which is there.
    #[inline]
    fn run(&mut self, opening: usize) -> Read<&'a str> {
        let from = self.at;
        let rest = &self.text.as_bytes()[from..];
        let length = rest.iter().position(|byte| ENDS_RUN[usize::from(*byte)]);
        let Some(length) = length else {
            return Err(Fault::new(opening, "this string does not end"));
        };
        self.at += length;
        Ok(&self.text[from..self.at])
    }

    /// The character that an escape stands for, from the backslash on.
    fn escaped(&mut self) -> Read<char> {
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
                let what = "a backslash comes before one of `\"\\/bfnrtu`, here it does not";
                return Err(Fault::new(at, what));
            }
        })
    }

    /// The character of `\uXXXX`, or of two of them that are surrogates; `at` is that of its backslash.
    fn code_point(&mut self, at: usize) -> Read<char> {
        let unit = self.hexadecimal(at)?;
        if unit == 0 {
            return Err(Fault::new(at, "U+0000 cannot be stored"));
        }
        if let Some(character) = char::from_u32(unit) {
            return Ok(character);
        }
        let lone = || Fault::new(at, "half of a surrogate pair is no character");
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

    /// Four hexadecimal digits; `at` is where their escape begins.
    fn hexadecimal(&mut self, at: usize) -> Read<u32> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4);
        let unit = digits.and_then(|digits| {
            digits.iter().try_fold(0, |unit, digit| {
                Some(unit * 16 + char::from(*digit).to_digit(16)?)
            })
        });
        self.at += 4;
        unit.ok_or_else(|| Fault::new(at, "four hexadecimal digits come after `\\u`"))
    }
}

#[cfg(test)]
pub(crate) mod tests;
