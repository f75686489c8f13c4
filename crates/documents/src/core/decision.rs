//! Decision on a write, given the current state.

use std::fmt;

use super::definition::History;
use crate::model::{AliasId, CollectionId, DocumentId, DocumentNumber, Etag, WriteReceipt};

/// Precondition of a write (RFC 9110, 13.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// No precondition; always holds.
    #[default]
    Always,
    /// `If-Match: *`, the document must exist.
    IfThere,
    /// `If-None-Match: *`, the document must not exist.
    IfNotThere,
    /// `If-Match`: its version must be one of these; malformed tags are left out.
    IfAt(Vec<Etag>),
    /// `If-None-Match`: its version must be none of these.
    IfNotAt(Vec<Etag>),
}

impl Condition {
    /// Whether it holds for a document with this tag, or for no document.
    pub fn holds(&self, etag: Option<Etag>) -> bool {
        match self {
            Self::Always => true,
            Self::IfThere => etag.is_some(),
            Self::IfNotThere => etag.is_none(),
            Self::IfAt(all) => etag.is_some_and(|at| all.contains(&at)),
            Self::IfNotAt(all) => etag.is_none_or(|at| !all.contains(&at)),
        }
    }
}

/// The text of a precondition in the fingerprints of idempotent requests. They are stored: a change
/// of this text would turn repeated requests into reused keys.
impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, etags) = match self {
            Self::Always => return formatter.write_str("Always"),
            Self::IfThere => return formatter.write_str("IfThere"),
            Self::IfNotThere => return formatter.write_str("IfNotThere"),
            Self::IfAt(etags) => ("IfAt", etags),
            Self::IfNotAt(etags) => ("IfNotAt", etags),
        };
        write!(formatter, "{name}([")?;
        for (index, etag) in etags.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            let (version, id_suffix) = (etag.version(), etag.id_suffix());
            write!(formatter, "{separator}Etag {{ version: {version}, id_suffix: {id_suffix} }}")?;
        }
        formatter.write_str("])")
    }
}

/// The current state of a document, as far as decisions need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CurrentDocument {
    /// Number of its collection.
    pub collection: CollectionId,
    /// Id of the document.
    pub id: DocumentId,
    /// Version of the document, from 1.
    pub version: i32,
    /// Numbers of the documents that it refers to.
    pub targets: Vec<DocumentNumber>,
    /// Its aliases: its own first, then those in abstract collections.
    pub aliases: Vec<AliasId>,
}

impl CurrentDocument {
    /// Entity tag of this version.
    pub(crate) fn etag(&self) -> Etag {
        Etag::new(self.id, self.version)
    }
}

/// The requested state of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DesiredDocument<'a> {
    /// Id for the document if it has to be created; none: it must exist already.
    pub new_id: Option<DocumentId>,
    /// Its aliases: its own first, then those in abstract collections.
    pub aliases: &'a [AliasId],
    /// For each alias, the number of the document that has it now.
    pub alias_owners: &'a [Option<DocumentNumber>],
    /// For each reference, the number of its target.
    pub targets: &'a [Option<DocumentNumber>],
    /// Whether the body equals the current one.
    pub has_same_body: bool,
    /// Whether the collection allows the identity to change.
    pub is_mutable: bool,
}

/// What a write does to one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PlannedWrite {
    /// Nothing: an earlier request with the same idempotency key has this receipt.
    Repeat(WriteReceipt),
    /// Nothing: the document is as requested already.
    Unchanged,
    /// Insert a document.
    Create {
        /// Id of the new or restored document.
        id: DocumentId,
        /// Numbers of the documents that it refers to, each once.
        targets: Vec<DocumentNumber>,
    },
    /// Replace the body.
    Change {
        /// Numbers of the documents that it refers to, each once.
        targets: Vec<DocumentNumber>,
    },
    /// Replace the body, by which the identity changes, and with it the bodies of all referring
    /// documents: these documents, the renamed one first. None until the cascade is computed.
    Rename(Vec<RewrittenDocument>),
    /// Delete the document, if no other refers to it.
    Remove,
}

/// A document that is rewritten because an identity changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RewrittenDocument {
    /// Its state before.
    pub before: CurrentDocument,
    /// History settings of its collection.
    pub history: History,
    /// The new body, as JSON.
    pub text: String,
    /// Its aliases after the change.
    pub aliases: Vec<AliasId>,
    /// Numbers of the documents that it refers to, each once.
    pub targets: Vec<DocumentNumber>,
}

/// Why a write is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteRejection {
    /// There is no such document.
    NotFound,
    /// The precondition does not hold.
    Mismatch {
        /// Current version, if there is one.
        at: Option<Etag>,
    },
    /// The references at these indexes have no target.
    Unresolved(Vec<usize>),
    /// The identity must not change.
    Immutable,
    /// An earlier item of the batch concerns the same document or identity.
    Duplicate {
        /// Index of the earlier item.
        before: usize,
    },
    /// The caller lacks a claim.
    Denied {
        /// Name of the missing claim.
        claim: String,
    },
    /// The stored document is damaged.
    Damaged {
        /// Id of the damaged document.
        id: DocumentId,
        /// Description of the damage.
        what: String,
    },
    /// Another document has this alias, in the collection or in an abstract one.
    AliasTaken {
        /// Index of the alias.
        alias: usize,
    },
}

/// Decides on a put: compares the current with the desired document.
pub(crate) fn decide_put(
    current: Option<&CurrentDocument>,
    desired: &DesiredDocument<'_>,
    condition: &Condition,
) -> Result<PlannedWrite, WriteRejection> {
    if current.is_none() && desired.new_id.is_none() {
        return Err(WriteRejection::NotFound);
    }
    let at = current.map(CurrentDocument::etag);
    if !condition.holds(at) {
        return Err(WriteRejection::Mismatch { at });
    }
    if current.is_some_and(|current| current.aliases != desired.aliases) {
        return if desired.is_mutable {
            Ok(PlannedWrite::Rename(Vec::new()))
        } else {
            Err(WriteRejection::Immutable)
        };
    }
    if current.is_some() && desired.has_same_body {
        // Its references had targets when it was written, and none of them can have been deleted
        // since.
        return Ok(PlannedWrite::Unchanged);
    }
    let number = current.map(|current| current.id.number());
    let is_taken = |owner: &Option<DocumentNumber>| owner.is_some() && *owner != number;
    if let Some(alias) = desired.alias_owners.iter().position(is_taken) {
        return Err(WriteRejection::AliasTaken { alias });
    }
    let targets = require_targets(desired.targets).map_err(WriteRejection::Unresolved)?;
    Ok(match (current, desired.new_id) {
        (None, Some(id)) => PlannedWrite::Create { id, targets },
        _ => PlannedWrite::Change { targets },
    })
}

/// Decides on a deletion.
pub(crate) fn decide_removal(
    current: Option<&CurrentDocument>,
    condition: &Condition,
) -> Result<PlannedWrite, WriteRejection> {
    let current = current.ok_or(WriteRejection::NotFound)?;
    let at = Some(current.etag());
    if condition.holds(at) {
        Ok(PlannedWrite::Remove)
    } else {
        Err(WriteRejection::Mismatch { at })
    }
}

/// Targets of references, sorted and each once; else the indexes of those without one.
pub(crate) fn require_targets(
    resolved: &[Option<DocumentNumber>],
) -> Result<Vec<DocumentNumber>, Vec<usize>> {
    let missing: Vec<usize> = resolved
        .iter()
        .enumerate()
        .filter(|(_, target)| target.is_none())
        .map(|(index, _)| index)
        .collect();
    if !missing.is_empty() {
        return Err(missing);
    }
    let mut targets: Vec<DocumentNumber> = resolved.iter().copied().flatten().collect();
    targets.sort_unstable();
    targets.dedup();
    Ok(targets)
}

#[cfg(test)]
mod tests;
