//! The nouns: names and numbers of collections and documents, and what is wrong with one of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Characters of a name, at most. PostgreSQL's own bound on names is 63 bytes.
pub const NAME_CHARS_MAX: usize = 63;

/// Bytes of a violation's pointer or message, at most; what is longer is cut.
const VIOLATION_BYTES_MAX: usize = 1_000;

egret_base::define_id!(
    /// Names a document for good.
    DocumentId
);

impl DocumentId {
    /// The id of a document that is stored.
    pub fn stored(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// As PostgreSQL has it.
    pub fn uuid(self) -> Uuid {
        self.0
    }

    /// Its first half, by which documents are told apart where room matters: no two of a database have the same.
    pub fn number(self) -> i64 {
        let (first, _) = self.0.as_u64_pair();
        // The time of the next eight thousand years leaves the sign alone.
        first.cast_signed()
    }
}

/// What became of a document, as the feed tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Create,
    /// It has another body.
    Update,
    /// It is gone.
    Delete,
    /// It has another identity, and another body with it.
    Identity,
}

impl ChangeKind {
    /// From what is stored.
    pub fn of(letter: i8) -> Option<Self> {
        let all = [Self::Create, Self::Update, Self::Delete, Self::Identity];
        all.into_iter().find(|kind| kind.letter() == letter)
    }

    /// As it is told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Identity => "identity_change",
        }
    }

    /// As it is stored.
    pub fn letter(self) -> i8 {
        let letter = match self {
            Self::Create => b'c',
            Self::Update => b'u',
            Self::Delete => b'd',
            Self::Identity => b'i',
        };
        letter.cast_signed()
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The document.
    pub id: DocumentId,
    /// At which version it is; was, if it is gone.
    pub version: i32,
    /// What was done.
    pub done: Done,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It is new.
    Created,
    /// It has another body.
    Changed,
    /// It was so already.
    Unchanged,
    /// It is gone.
    Removed,
}

impl Done {
    /// From what is stored.
    pub fn of(letter: i8) -> Option<Self> {
        let all = [Self::Created, Self::Changed, Self::Unchanged, Self::Removed];
        all.into_iter().find(|done| done.letter() == letter)
    }

    /// As it is stored.
    pub fn letter(self) -> i8 {
        let letter = match self {
            Self::Created => b'c',
            Self::Changed => b'u',
            Self::Unchanged => b'n',
            Self::Removed => b'd',
        };
        letter.cast_signed()
    }

    /// As it is told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Removed => "removed",
        }
    }
}

/// Who refers to a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referrers {
    /// How many, as far as they were counted.
    pub count: i64,
    /// Whether there are more.
    pub is_more: bool,
    /// The first of them, each with its collection.
    pub first: Vec<(CollectionName, DocumentId)>,
}

/// An identity of a collection, as a UUIDv5: two documents of a collection with the same identity have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AliasId(pub Uuid);

impl fmt::Display for AliasId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A tenant's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub i32);

/// A collection's number, the same for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub i32);

/// A collection's name, or that of one of its references: a lower-case letter, then up to 62 of those, digits, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CollectionName(String);

impl CollectionName {
    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CollectionName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut bytes = text.bytes();
        let begins = bytes.next().is_some_and(|first| first.is_ascii_lowercase());
        let goes_on = bytes.all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
        });
        if begins && goes_on && text.len() <= NAME_CHARS_MAX {
            return Ok(Self(text));
        }
        Err(format!(
            "`{}` is no name: it has 1 to {NAME_CHARS_MAX} of a-z, 0-9, `_` and `-`, a letter first",
            cut(&text, NAME_CHARS_MAX)
        ))
    }
}

impl FromStr for CollectionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::try_from(text.to_owned())
    }
}

impl From<CollectionName> for String {
    fn from(name: CollectionName) -> Self {
        name.0
    }
}

impl fmt::Display for CollectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong at one place of a JSON text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The place, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// What is wrong there, and what would be right.
    pub message: String,
}

impl Violation {
    /// A violation. What is very long is cut, so that an answer of many stays small.
    pub fn new(pointer: impl AsRef<str>, message: impl AsRef<str>) -> Self {
        Self {
            pointer: cut(pointer.as_ref(), VIOLATION_BYTES_MAX),
            message: cut(message.as_ref(), VIOLATION_BYTES_MAX),
        }
    }

    /// The same of a text that stands at a pointer in a larger one.
    pub(crate) fn below(self, pointer: &str) -> Self {
        Self::new(format!("{pointer}{}", self.pointer), self.message)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => f.write_str(&self.message),
            pointer => write!(f, "{pointer}: {}", self.message),
        }
    }
}

/// A text, or its beginning where it has more bytes than these.
pub(crate) fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests;
