//! Paths: JSON pointers (RFC 6901) in which `*` stands for every element of an array.
//!
//! A path leads through properties, and into arrays only by `*`, so its meaning does not depend on
//! the document: `/0` is a property named `0`. A property named `*` cannot be addressed.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{DEPTH_MAX, truncate};

/// Bytes of a path, at most.
pub const PATH_BYTES_MAX: usize = 1_024;

/// A path to one or more places in a document.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Path(Vec<Segment>);

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Segment {
    /// To this property of an object.
    Property(String),
    /// To every element of an array: `*`.
    Each,
}

/// A place to which a path leads, with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct PathMatch<'a> {
    /// Index of the element at each `*`.
    pub elements: Vec<u32>,
    /// The value at this place.
    pub value: &'a Value,
}

impl Path {
    /// The steps of the path.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether it has a `*`, and so may lead to several places.
    pub fn is_plural(&self) -> bool {
        self.0.contains(&Segment::Each)
    }

    /// The value at a path without `*`.
    pub fn get<'a>(&self, document: &'a Value) -> Option<&'a Value> {
        get(&self.0, document)
    }

    /// All places to which it leads, in the order of the document.
    pub fn select<'a>(&self, document: &'a Value) -> Vec<PathMatch<'a>> {
        select(&self.0, document)
    }

    /// JSON pointer to one of its places, given the index at each `*`.
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

    /// The steps up to and including its last `*`, and those after it.
    pub(crate) fn split_at_last_each(&self) -> (&[Segment], &[Segment]) {
        let each = self.0.iter().rposition(|segment| *segment == Segment::Each);
        self.0.split_at(each.map_or(0, |each| each + 1))
    }
}

/// The value at a path of properties.
pub(crate) fn get<'a>(segments: &[Segment], document: &'a Value) -> Option<&'a Value> {
    segments.iter().try_fold(document, |value, segment| match segment {
        Segment::Property(name) => value.as_object()?.get(name),
        Segment::Each => None,
    })
}

/// All places to which these steps lead.
pub(crate) fn select<'a>(segments: &[Segment], document: &'a Value) -> Vec<PathMatch<'a>> {
    let start = PathMatch { elements: Vec::new(), value: document };
    let mut selected = vec![start];
    for (index, segment) in segments.iter().enumerate() {
        if *segment == Segment::Each {
            selected = selected.iter().flat_map(elements).collect();
            continue;
        }
        selected.retain_mut(|path_match| match get(&segments[index..=index], path_match.value) {
            Some(value) => {
                path_match.value = value;
                true
            }
            None => false,
        });
    }
    selected
}

fn elements<'a>(array: &PathMatch<'a>) -> impl Iterator<Item = PathMatch<'a>> + use<'a> {
    let prefix = array.elements.clone();
    let values = array.value.as_array().map_or(&[][..], Vec::as_slice);
    (0..).zip(values).map(move |(index, value)| {
        let mut elements = prefix.clone();
        elements.push(index);
        PathMatch { elements, value }
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
        let shown = truncate(text, 100);
        if text.len() > PATH_BYTES_MAX {
            return Err(format!("path `{shown}` has more than {PATH_BYTES_MAX} bytes"));
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!(
                "`{shown}` is not a path: a path is a JSON pointer such as `/address/city`, with \
                 `*` for every element of an array"
            ));
        };
        let segments = rest
            .split('/')
            .map(|token| match token {
                "*" => Ok(Segment::Each),
                token => Ok(Segment::Property(unescape(token)?.into_owned())),
            })
            .collect::<Result<Vec<Segment>, String>>()
            .map_err(|what| format!("`{shown}` is not a path: {what}"))?;
        if segments.len() >= DEPTH_MAX {
            return Err(format!(
                "path `{shown}` has {} steps, more than the nesting of a document allows",
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

/// Appends an escaped step to a pointer.
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

/// Unescapes a step of a pointer.
///
/// # Errors
/// A `~` is followed by neither `0` nor `1`.
pub(crate) fn unescape(token: &str) -> Result<Cow<'_, str>, String> {
    if !token.contains('~') {
        return Ok(Cow::Borrowed(token));
    }
    let mut parts = token.split('~');
    let mut meant = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (character, rest) = match part.as_bytes().first() {
            Some(b'0') => ('~', &part[1..]),
            Some(b'1') => ('/', &part[1..]),
            _ => return Err("`~` must be followed by `0` (for `~`) or `1` (for `/`)".to_owned()),
        };
        meant.push(character);
        meant.push_str(rest);
    }
    Ok(Cow::Owned(meant))
}

#[cfg(test)]
mod tests;
