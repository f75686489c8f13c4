//! What becomes of a write, given what is there.

use crate::model::{AliasId, CollectionId, DocumentId};

/// What stands at a version of a document: it changes with every write, and with nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Etag {
    version: i32,
    /// A document that was deleted and made again begins at version 1 as well.
    of: u32,
}

impl Etag {
    /// That of a version of a document.
    pub fn new(id: DocumentId, version: i32) -> Self {
        let (_, second) = id.uuid().as_u64_pair();
        Self {
            version,
            of: second as u32,
        }
    }

    /// From what [`Display`](std::fmt::Display) wrote; none where it did not.
    pub fn parse(text: &str) -> Option<Self> {
        let (version, of) = text.strip_prefix('"')?.strip_suffix('"')?.split_once('-')?;
        let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_plain(version) || !is_plain(of) || of.len() != 8 {
            return None;
        }
        Some(Self {
            version: version.parse().ok()?,
            of: u32::from_str_radix(of, 16).ok()?,
        })
    }
}

impl std::fmt::Display for Etag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}-{:08x}\"", self.version, self.of)
    }
}

/// Under which condition a write is done (RFC 9110, 13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// None.
    #[default]
    Always,
    /// There is a document.
    IfThere,
    /// There is none.
    IfNotThere,
    /// It is at one of these versions; those that cannot be are left out.
    IfAt(Vec<Etag>),
    /// It is at none of these.
    IfNotAt(Vec<Etag>),
}

impl Condition {
    /// Whether it holds of a document at a version, or of none.
    pub fn holds(&self, at: Option<Etag>) -> bool {
        match self {
            Self::Always => true,
            Self::IfThere => at.is_some(),
            Self::IfNotThere => at.is_none(),
            Self::IfAt(all) => at.is_some_and(|at| all.contains(&at)),
            Self::IfNotAt(all) => at.is_none_or(|at| !all.contains(&at)),
        }
    }
}

/// The document that is there, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// What it is one of.
    pub collection: CollectionId,
    /// Its id.
    pub id: DocumentId,
    /// How often it was written.
    pub version: i32,
    /// The numbers of those that it refers to.
    pub targets: Vec<i64>,
    /// What it is called: its own alias, then those in abstract collections.
    pub names: Vec<AliasId>,
}

/// What is to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// What it is to be called: its own alias, then those in abstract collections.
    pub names: &'a [AliasId],
    /// For each name the number of the document that is called so.
    pub taken: &'a [Option<i64>],
    /// For each reference the number of the document that it is to.
    pub targets: &'a [Option<i64>],
    /// Whether the body is as it is there.
    pub is_same: bool,
    /// Whether the collection allows another identity.
    pub is_mutable: bool,
}

/// What becomes of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is no such document.
    NotFound,
    /// The condition does not hold.
    Mismatch {
        /// At which version it is.
        at: Option<Etag>,
    },
    /// These references are to nothing, by their places.
    Unresolved(Vec<usize>),
    /// The identity may not change.
    Immutable,
    /// It gets another identity, and with it all that refer to it get another body.
    Rename,
    /// An earlier one of those that are done together is about the same document or identity.
    Twice {
        /// Its place.
        before: usize,
    },
    /// Whoever asks lacks a claim.
    Denied {
        /// Its name.
        claim: String,
    },
    /// The document is stored as it cannot be.
    Damaged {
        /// Which.
        id: DocumentId,
        /// What is wrong with it.
        what: String,
    },
    /// Another document is called so, in its collection or in an abstract one.
    Taken {
        /// Which of the names.
        name: usize,
    },
    /// It is there as it is to be.
    Unchanged,
    /// A new document, with these targets, each once.
    Create(Vec<i64>),
    /// Another body, with these targets, each once.
    Change(Vec<i64>),
    /// It goes, if nothing refers to it.
    Remove,
}

/// What becomes of a write that says what is to be there. `is_by_id`: it names a document, which has to be there.
pub fn put(
    present: Option<&Present>,
    wanted: &Wanted<'_>,
    condition: &Condition,
    is_by_id: bool,
) -> Verdict {
    let at = present.map(|present| Etag::new(present.id, present.version));
    if is_by_id && present.is_none() {
        return Verdict::NotFound;
    }
    if !condition.holds(at) {
        return Verdict::Mismatch { at };
    }
    if present.is_some_and(|present| present.names != wanted.names) {
        return match wanted.is_mutable {
            true => Verdict::Rename,
            false => Verdict::Immutable,
        };
    }
    if present.is_some() && wanted.is_same {
        // Its references were to something when it was written, and nothing of that has gone since.
        return Verdict::Unchanged;
    }
    let number = present.map(|present| present.id.number());
    let is_of_another = |taken: &Option<i64>| taken.is_some() && *taken != number;
    if let Some(name) = wanted.taken.iter().position(is_of_another) {
        return Verdict::Taken { name };
    }
    match targets(wanted.targets) {
        Err(missing) => Verdict::Unresolved(missing),
        Ok(targets) => match present {
            None => Verdict::Create(targets),
            Some(_) => Verdict::Change(targets),
        },
    }
}

/// What becomes of a deletion.
pub fn remove(present: Option<&Present>, condition: &Condition) -> Verdict {
    let Some(present) = present else {
        return Verdict::NotFound;
    };
    let at = Some(Etag::new(present.id, present.version));
    match condition.holds(at) {
        true => Verdict::Remove,
        false => Verdict::Mismatch { at },
    }
}

/// The targets of references, in order and each once; else the places of those that are to nothing.
pub fn targets(resolved: &[Option<i64>]) -> Result<Vec<i64>, Vec<usize>> {
    let places = resolved.iter().enumerate();
    let missing: Vec<usize> = places
        .filter(|(_, target)| target.is_none())
        .map(|(place, _)| place)
        .collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    let mut all: Vec<i64> = resolved.iter().copied().flatten().collect();
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests;
