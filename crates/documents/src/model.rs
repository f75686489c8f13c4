//! Names, numbers and ids of collections and documents, and violations.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// Characters of a name, at most. PostgreSQL's own bound on names is 63 bytes.
pub const NAME_CHARS_MAX: usize = 63;

/// Maximum nesting of a document: an object in a list in an object has depth three.
pub const DEPTH_MAX: usize = 64;

/// Lines of one import request, at most.
pub const IMPORT_LINES_MAX: usize = 2_000;

/// Bytes of a violation's pointer or message, at most; what is longer is cut.
const VIOLATION_BYTES_MAX: usize = 1_000;

egret_base::define_id!(
    /// Names a document for good.
    DocumentId
);

impl DocumentId {
    /// Wraps the id of a stored document.
    pub fn from_stored(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The id as a UUID, as PostgreSQL stores it.
    pub fn uuid(self) -> Uuid {
        self.0
    }

    /// The first half of the id, which is a shorter key: it is unique within a database.
    pub fn number(self) -> DocumentNumber {
        let (first, _) = self.0.as_u64_pair();
        // The timestamp leaves the sign bit clear for the next eight thousand years.
        DocumentNumber(first.cast_signed())
    }
}

/// Number of a document: the first half of its id. It grows with every document of a database.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct DocumentNumber(pub i64);

impl DocumentNumber {
    /// Before all documents.
    pub(crate) const MIN: Self = Self(i64::MIN);
    /// After all documents.
    pub(crate) const MAX: Self = Self(i64::MAX);
}

impl fmt::Display for DocumentNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Epoch of the owner of a database's documents: one more with each owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

impl Epoch {
    /// The epoch after this one.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// Position of a change in the feed, from 1; positions have no gaps. 0 is before all changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedPosition(pub i64);

impl FeedPosition {
    /// The position after all changes.
    pub(crate) const MAX: Self = Self(i64::MAX);
}

impl fmt::Display for FeedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Entity tag of a version of a document: it changes with every write, and only then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Etag {
    version: i32,
    /// Random part of the id: a document deleted and created again starts at version 1 as well.
    id_suffix: u32,
}

impl Etag {
    /// Tag of a version of a document.
    pub fn new(id: DocumentId, version: i32) -> Self {
        let (_, second) = id.uuid().as_u64_pair();
        Self { version, id_suffix: second as u32 }
    }

    pub(crate) fn version(self) -> i32 {
        self.version
    }

    pub(crate) fn id_suffix(self) -> u32 {
        self.id_suffix
    }

    /// Parses the form that [`Display`](fmt::Display) writes; none for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (version, id_suffix) = text.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
        let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_plain(version) || !is_plain(id_suffix) || id_suffix.len() != 8 {
            return None;
        }
        Some(Self {
            version: version.parse().ok()?,
            id_suffix: u32::from_str_radix(id_suffix, 16).ok()?,
        })
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}-{:08x}\"", self.version, self.id_suffix)
    }
}

/// Kind of a change in the feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The document was created.
    Create,
    /// The body was replaced.
    Update,
    /// The document was deleted.
    Delete,
    /// The identity was changed, and the body with it.
    Identity,
}

impl ChangeKind {
    /// Kind for a stored letter, if it is known.
    pub(crate) fn from_letter(letter: i8) -> Option<Self> {
        let all = [Self::Create, Self::Update, Self::Delete, Self::Identity];
        all.into_iter().find(|kind| kind.letter() == letter)
    }

    /// Name of the kind, as in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Identity => "identity_change",
        }
    }

    /// Letter of the kind, as stored.
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

/// Receipt for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReceipt {
    /// Id of the document written.
    pub id: DocumentId,
    /// Version after the write; after a deletion, the last version.
    pub version: i32,
    /// Effect of the write on the document.
    pub outcome: WriteOutcome,
}

/// Effect of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The document was created.
    Created,
    /// The body was replaced.
    Changed,
    /// The document was as requested already.
    Unchanged,
    /// The document was deleted.
    Removed,
}

impl WriteOutcome {
    /// Effect for a stored letter, if it is known.
    pub(crate) fn from_letter(letter: i8) -> Option<Self> {
        let all = [Self::Created, Self::Changed, Self::Unchanged, Self::Removed];
        all.into_iter().find(|outcome| outcome.letter() == letter)
    }

    /// Letter of the effect, as stored.
    pub fn letter(self) -> i8 {
        let letter = match self {
            Self::Created => b'c',
            Self::Changed => b'u',
            Self::Unchanged => b'n',
            Self::Removed => b'd',
        };
        letter.cast_signed()
    }

    /// Name of the effect, as in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Removed => "removed",
        }
    }
}

/// Documents that refer to a document, counted up to a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referrers {
    /// Number of referrers, at most the limit.
    pub count: i64,
    /// Whether there are more than the limit.
    pub has_more: bool,
    /// The first referrers that the caller may see, each with its collection.
    pub first: Vec<(CollectionName, DocumentId)>,
}

/// A reference without a target, described for an error message.
#[derive(Clone, Debug, PartialEq)]
pub struct UnresolvedReference {
    /// Name of the reference in its collection.
    pub reference: CollectionName,
    /// Name of the collection that it refers to.
    pub target_collection: CollectionName,
    /// JSON pointer to each part of the identity in the document.
    pub pointers: Vec<String>,
    /// The identity that it names: values by path in the target.
    pub identity: BTreeMap<String, Value>,
}

/// Alias of a document: its identity as a UUIDv5, unique within the collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AliasId(pub Uuid);

impl fmt::Display for AliasId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a tenant in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub i32);

impl TenantId {
    /// Before all tenants.
    pub(crate) const MIN: Self = Self(i32::MIN);
}

/// Number of a collection in a database, the same for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CollectionId(pub i32);

impl CollectionId {
    /// Before all collections.
    pub(crate) const MIN: Self = Self(i32::MIN);
}

/// Tenant and collection of documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectionKey {
    pub(crate) tenant: TenantId,
    pub(crate) collection: CollectionId,
}

impl CollectionKey {
    pub(crate) fn new(tenant: TenantId, collection: CollectionId) -> Self {
        Self { tenant, collection }
    }
}

/// A collection's name, or that of one of its references: a lower-case letter, then up to 62 of
/// those, digits, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CollectionName(String);

impl CollectionName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for CollectionName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut bytes = text.bytes();
        let starts_with_letter = bytes.next().is_some_and(|first| first.is_ascii_lowercase());
        let has_valid_rest = bytes.all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-')
        });
        if starts_with_letter && has_valid_rest && text.len() <= NAME_CHARS_MAX {
            return Ok(Self(text));
        }
        Err(format!(
            "`{}` is not a valid name: use 1 to {NAME_CHARS_MAX} of a-z, 0-9, `_` and `-`, and \
             begin with a letter",
            truncate(&text, NAME_CHARS_MAX)
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

/// A violation at one place of a JSON text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// JSON pointer of the place (RFC 6901).
    pub pointer: String,
    /// What is wrong there, and what would be right.
    pub message: String,
}

impl Violation {
    /// Creates a violation. Long texts are cut, so that a response with many violations stays
    /// small.
    pub fn new(pointer: impl AsRef<str>, message: impl AsRef<str>) -> Self {
        Self {
            pointer: truncate(pointer.as_ref(), VIOLATION_BYTES_MAX),
            message: truncate(message.as_ref(), VIOLATION_BYTES_MAX),
        }
    }

    /// The same violation in a larger text that contains this one at a pointer.
    pub(crate) fn with_pointer_prefix(self, pointer: &str) -> Self {
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

/// A text, cut to at most this many bytes, with an ellipsis if it was longer.
pub(crate) fn truncate(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(bytes_max);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests;
