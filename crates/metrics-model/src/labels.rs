//! The labels of a series.
//!
//! One string holds all of them, each as remote write 1.0 has it (`Label` as field 1 of its series:
//! `0a length 0a length name 12 length value`), so that a series is compared with what comes over
//! the wire by comparing bytes, and need not be kept twice. A label that is too long for lengths of
//! one byte would not be UTF-8 like that; it is `0b`, the length of its name, the name, the length
//! of its value, the value, where a length has six bits a byte, the lowest first, and a seventh
//! that says whether another byte follows.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The label that holds a metric's name.
pub const METRIC_NAME: &str = "__name__";

/// Before a label of one-byte lengths: field 1, bytes.
const SHORT_TAG: u8 = 0x0a;
/// Before a longer one.
const LONG_TAG: u8 = 0x0b;
const NAME_TAG: u8 = 0x0a;
const VALUE_TAG: u8 = 0x12;

/// Keys and lengths of name and value.
const SHORT_EXTRA_BYTES: usize = 4;
/// What a length of one byte can be.
const SHORT_BYTES_MAX: usize = 0x7f;

const DIGIT_BITS: u32 = 6;
const CONTINUATION_BIT: u8 = 1 << DIGIT_BITS;

/// Labels, sorted by name, each name once, none empty. Two are equal when all of their labels are.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<str>);

impl Default for Labels {
    fn default() -> Self {
        Self("".into())
    }
}

fn push_label(text: &mut String, name: &str, value: &str) {
    let bytes = SHORT_EXTRA_BYTES + name.len() + value.len();
    if bytes > SHORT_BYTES_MAX {
        return push_long_label(text, name, value);
    }
    let mut push_byte = |byte: u8| text.push(char::from(byte));
    push_byte(SHORT_TAG);
    push_byte(bytes as u8);
    push_byte(NAME_TAG);
    push_byte(name.len() as u8);
    text.push_str(name);
    text.push(char::from(VALUE_TAG));
    text.push(char::from(value.len() as u8));
    text.push_str(value);
}

fn push_long_label(text: &mut String, name: &str, value: &str) {
    text.push(char::from(LONG_TAG));
    for part in [name, value] {
        let mut length = part.len();
        loop {
            let digit = length as u8 & (CONTINUATION_BIT - 1);
            length >>= DIGIT_BITS;
            let continuation = if length > 0 { CONTINUATION_BIT } else { 0 };
            text.push(char::from(digit | continuation));
            if length == 0 {
                break;
            }
        }
        text.push_str(part);
    }
}

/// Splits the first label off: name, value, the rest.
#[inline]
fn split_label(text: &str) -> (&str, &str, &str) {
    let bytes = text.as_bytes();
    if bytes[0] == LONG_TAG {
        let (name, rest) = split_long_text(&text[1..]);
        let (value, rest) = split_long_text(rest);
        return (name, value, rest);
    }
    let name_end = SHORT_EXTRA_BYTES + usize::from(bytes[3]);
    let value_at = name_end + 2;
    let value_end = 2 + usize::from(bytes[1]);
    let name = &text[SHORT_EXTRA_BYTES..name_end];
    (name, &text[value_at..value_end], &text[value_end..])
}

fn split_long_text(text: &str) -> (&str, &str) {
    let (mut length, mut shift) = (0, 0);
    for (index, digit) in text.bytes().enumerate() {
        length |= usize::from(digit & (CONTINUATION_BIT - 1)) << shift;
        shift += DIGIT_BITS;
        if digit & CONTINUATION_BIT == 0 {
            return text[index + 1..].split_at(length);
        }
    }
    unreachable!("a length ends, and so does what is that long")
}

/// As [`take`], of what need not be a label in the one form that it has.
fn try_split_label(text: &str) -> Option<(&str, &str, &str)> {
    let byte_at = |index: usize| text.as_bytes().get(index).copied();
    let (name, value, rest) = match byte_at(0)? {
        SHORT_TAG => {
            let name_end = SHORT_EXTRA_BYTES + usize::from(byte_at(3)?);
            let value_end = name_end + 2 + usize::from(byte_at(name_end + 1)?);
            (
                text.get(SHORT_EXTRA_BYTES..name_end)?,
                text.get(name_end + 2..value_end)?,
                text.get(value_end..)?,
            )
        }
        LONG_TAG => {
            let (name, rest) = try_split_long_text(text.get(1..)?)?;
            let (value, rest) = try_split_long_text(rest)?;
            (name, value, rest)
        }
        _ => return None,
    };
    let mut canonical = String::new();
    push_label(&mut canonical, name, value);
    text.starts_with(&canonical).then_some((name, value, rest))
}

fn try_split_long_text(text: &str) -> Option<(&str, &str)> {
    let (mut length, mut shift) = (0_usize, 0);
    for (index, digit) in text.bytes().enumerate().take(5) {
        length |= usize::from(digit & (CONTINUATION_BIT - 1)) << shift;
        shift += DIGIT_BITS;
        if digit & CONTINUATION_BIT == 0 {
            return text.get(index + 1..)?.split_at_checked(length);
        }
    }
    None
}

impl Labels {
    /// Labels of pairs that are sorted by name, each name once; empty values are left out.
    ///
    /// # Panics
    /// When they are not sorted, or a name occurs twice.
    pub fn from_sorted<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut text = String::new();
        let mut last_name = None;
        for (name, value) in pairs {
            assert!(last_name < Some(name), "labels are sorted and none is there twice");
            last_name = Some(name);
            if !value.is_empty() {
                push_label(&mut text, name, value);
            }
        }
        Self(text.into())
    }

    /// Labels of pairs in any order. Of several of one name the last counts; empty values are left
    /// out.
    pub fn new<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut builder = LabelsBuilder::default();
        for (name, value) in pairs {
            builder.set(name, value);
        }
        builder.build()
    }

    /// Name and value of each, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (name, value, after) = split_label(rest);
            rest = after;
            Some((name, value))
        })
    }

    /// The value of a label; empty when it is not there.
    pub fn get(&self, name: &str) -> &str {
        let found = self.iter().find(|(other, _)| *other >= name);
        found.filter(|(other, _)| *other == name).map_or("", |(_, value)| value)
    }

    /// The metric's name; empty when there is none.
    pub fn metric(&self) -> &str {
        self.get(METRIC_NAME)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What identifies them: equal if and only if the labels are. Unless one of them is long, these
    /// are the bytes in which remote write 1.0 has them.
    pub fn as_key(&self) -> &str {
        &self.0
    }

    /// The labels with this key.
    pub fn from_key(key: &str) -> Option<Self> {
        let mut rest = key;
        let mut last_name = None;
        while !rest.is_empty() {
            let (name, value, after) = try_split_label(rest)?;
            if last_name >= Some(name) || value.is_empty() {
                return None;
            }
            (last_name, rest) = (Some(name), after);
        }
        Some(Self(key.into()))
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    /// By the first label that differs: its name, then its value. Fewer labels come first.
    fn cmp(&self, other: &Self) -> Ordering {
        self.iter().cmp(other.iter())
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

fn is_plain_name(name: &str, may_have_colon: bool) -> bool {
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || (may_have_colon && byte == b':');
    name.bytes().all(plain)
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty()
}

impl fmt::Display for Labels {
    /// As PromQL writes a series: `http_requests_total{code="200"}`, names that are not plain in
    /// quotes.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let metric = self.metric();
        let is_outside = is_plain_name(metric, true);
        if is_outside {
            formatter.write_str(metric)?;
        }
        let mut separator = "{";
        if !is_outside && !metric.is_empty() {
            write!(formatter, "{{{metric:?}")?;
            separator = ", ";
        }
        for (name, value) in self.iter().filter(|(name, _)| *name != METRIC_NAME) {
            formatter.write_str(separator)?;
            separator = ", ";
            if is_plain_name(name, false) {
                write!(formatter, "{name}={value:?}")?
            } else {
                write!(formatter, "{name:?}={value:?}")?
            }
        }
        match (separator, metric.is_empty()) {
            ("{", true) => formatter.write_str("{}"),
            ("{", false) => Ok(()),
            _ => formatter.write_str("}"),
        }
    }
}

/// Makes labels from pairs in any order, or changes some.
#[derive(Clone, Debug, Default)]
pub struct LabelsBuilder {
    pairs: Vec<(Box<str>, Box<str>)>,
}

impl LabelsBuilder {
    /// Begins with the labels of a series.
    pub fn from_labels(labels: &Labels) -> Self {
        let pairs = labels.iter().map(|(name, value)| (name.into(), value.into()));
        Self { pairs: pairs.collect() }
    }

    /// Gives a label a value; an empty one takes the label away.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        match self.pairs.binary_search_by(|(other, _)| (**other).cmp(name)) {
            Ok(index) => self.pairs[index].1 = value.into(),
            Err(at) => self.pairs.insert(at, (name.into(), value.into())),
        }
        self
    }

    /// The value of a label; empty when it is not there.
    pub fn get(&self, name: &str) -> &str {
        let position = self.pairs.binary_search_by(|(other, _)| (**other).cmp(name));
        position.map_or("", |at| &self.pairs[at].1)
    }

    /// Takes a label away.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.pairs.retain(|(other, _)| **other != *name);
        self
    }

    /// Keeps labels whose names are wanted.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&str) -> bool) -> &mut Self {
        self.pairs.retain(|(name, _)| is_kept(name));
        self
    }

    /// Returns the labels as built so far.
    pub fn build(&self) -> Labels {
        Labels::from_sorted(self.pairs.iter().map(|(name, value)| (&**name, &**value)))
    }
}

#[cfg(test)]
mod tests;
