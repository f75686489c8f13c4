//! Paths: JSON pointers (RFC 6901) in which `*` stands for every element of an array.
//!
//! A path leads through properties; into arrays it leads by `*` alone. So what a path means does not depend on what it meets: `/0` is a property
//! named `0`. A property named `*` has no path.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::core::json::DEPTH_MAX;
use crate::model::cut;

/// Bytes of a path, at most.
pub const PATH_BYTES_MAX: usize = 1_024;

/// A path to places in a document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path(Vec<Segment>);

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// To a property of an object.
    Property(String),
    /// To every element of an array: `*`.
    Each,
}

/// A place that a path leads to, and what is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Selected<'a> {
    /// Which element it took at each `*`.
    pub elements: Vec<u32>,
    /// What is there.
    pub value: &'a Value,
}

impl Path {
    /// Its steps.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether it has a `*`, and so may lead to several places.
    pub fn is_plural(&self) -> bool {
        self.0.contains(&Segment::Each)
    }

    /// What a path without `*` leads to.
    pub fn get<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        get(&self.0, document)
    }

    /// All that it leads to, in the order of the document.
    pub fn select<'a>(&self, document: &'a Value) -> Vec<Selected<'a>> {
        select(&self.0, document)
    }

    /// The JSON pointer of a place that it leads to, by the element that is taken at each `*`.
    pub fn pointer(&self, elements: &[u32]) -> String {
        let mut pointer = String::new();
        let mut elements = elements.iter();
        for segment in &self.0 {
            match (segment, elements.len()) {
                (Segment::Property(name), _) => push_escaped(&mut pointer, name),
                (Segment::Each, 0) => pointer.push_str("/*"),
                (Segment::Each, _) => {
                    let element = elements.next().map_or(0, |element| *element);
                    push_escaped(&mut pointer, &element.to_string());
                }
            }
        }
        pointer
    }

    /// What comes up to its last `*`, and what after it.
    pub(crate) fn at_last_each(&self) -> (&[Segment], &[Segment]) {
        let each = self.0.iter().rposition(|segment| *segment == Segment::Each);
        self.0.split_at(each.map_or(0, |each| each + 1))
    }
}

/// What a way through properties leads to.
pub(crate) fn get<'a>(way: &[Segment], document: &'a Value) -> Option<&'a Value> {
    way.iter()
        .try_fold(document, |value, segment| match segment {
            Segment::Property(name) => value.as_object()?.get(name),
            Segment::Each => None,
        })
}

/// All that a way leads to.
pub(crate) fn select<'a>(way: &[Segment], document: &'a Value) -> Vec<Selected<'a>> {
    let start = Selected {
        elements: Vec::new(),
        value: document,
    };
    let mut selected = vec![start];
    for (at, segment) in way.iter().enumerate() {
        if *segment == Segment::Each {
            selected = selected.iter().flat_map(elements).collect();
            continue;
        }
        selected.retain_mut(|place| match get(&way[at..=at], place.value) {
            Some(value) => {
                place.value = value;
                true
            }
            None => false,
        });
    }
    selected
}

fn elements<'a>(array: &Selected<'a>) -> impl Iterator<Item = Selected<'a>> + use<'a> {
    let way = array.elements.clone();
    let values = array.value.as_array().map_or(&[][..], Vec::as_slice);
    (0..).zip(values).map(move |(index, value)| {
        let mut elements = way.clone();
        elements.push(index);
        Selected { elements, value }
    })
}

impl TryFrom<String> for Path {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown = cut(text, 100);
        if text.len() > PATH_BYTES_MAX {
            return Err(format!(
                "path `{shown}` has more than {PATH_BYTES_MAX} bytes"
            ));
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!(
                "`{shown}` is no path: a path is a JSON pointer such as `/address/city`, with `*` for every element of an array"
            ));
        };
        let segments: Result<Vec<Segment>, String> = rest
            .split('/')
            .map(|token| match token {
                "*" => Ok(Segment::Each),
                token => Ok(Segment::Property(unescaped(token)?.into_owned())),
            })
            .collect();
        let segments = segments.map_err(|what| format!("`{shown}` is no path: {what}"))?;
        if segments.len() >= DEPTH_MAX {
            return Err(format!(
                "path `{shown}` has {} steps, deeper than a document may be",
                segments.len()
            ));
        }
        Ok(Self(segments))
    }
}

impl From<Path> for String {
    fn from(path: Path) -> Self {
        path.pointer(&[])
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pointer(&[]))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

/// Adds a step to a pointer.
pub(crate) fn push_escaped(pointer: &mut String, token: &str) {
    pointer.push('/');
    for character in token.chars() {
        match character {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            other => pointer.push(other),
        }
    }
}

/// A step of a pointer as it is meant.
///
/// # Errors
/// A `~` that is followed by neither `0` nor `1`.
pub(crate) fn unescaped(token: &str) -> Result<Cow<'_, str>, String> {
    if !token.contains('~') {
        return Ok(Cow::Borrowed(token));
    }
    let mut parts = token.split('~');
    let mut meant = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (character, rest) = match part.as_bytes().first() {
            Some(b'0') => ('~', &part[1..]),
            Some(b'1') => ('/', &part[1..]),
            _ => return Err("after `~` comes `0` (for `~`) or `1` (for `/`)".to_owned()),
        };
        meant.push(character);
        meant.push_str(rest);
    }
    Ok(Cow::Owned(meant))
}

#[cfg(test)]
mod tests;
