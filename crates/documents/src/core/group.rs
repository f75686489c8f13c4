//! A write: what it claims, what it meets, and what becomes of it.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::collection::{Collection, Draft};
use super::decide::{Condition, Etag, Present, Verdict, Wanted, put, remove};
use super::identity::v5;
use super::rights::Rights;
use super::schedule::{Claims, Key};
use crate::error::DocumentsError;
use crate::model::{AliasId, CollectionId, DocumentId, TenantId};

/// A collection that is declared in a database.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Its number.
    pub id: CollectionId,
    /// It.
    pub collection: Collection,
}

impl Declared {
    /// What a stored document is called, its own alias first.
    ///
    /// # Errors
    /// Its identity is not what the definition says.
    pub fn names(&self, body: &Value) -> Result<Vec<AliasId>, crate::model::Violation> {
        let families = self.collection.families().iter();
        let alias = families.map(|family| Ok(family.alias(&family.identity(body)?)));
        alias.collect()
    }
}

/// What there is of all that a write is about.
#[derive(Debug, Default)]
pub struct Met {
    /// The document that it is about.
    pub present: Option<Present>,
    /// Whether its body is as it is to be.
    pub is_same: bool,
    /// The claim that keeps whoever asks from that document.
    pub missing: Option<String>,
    /// What is wrong with that document as it is stored.
    pub damaged: Option<(DocumentId, String)>,
    /// The document that is to be restored, where it is deleted.
    pub deleted: Option<Deleted>,
    /// For each name the number of the document that is called so.
    pub taken: Vec<Option<i64>>,
    /// For each reference the number of the document that it is to.
    pub targets: Vec<Option<i64>>,
}

/// A document that is deleted and kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Its last version.
    pub version: i32,
    /// Who made it.
    pub creator: Option<String>,
}

/// A write, as it was asked for.
#[derive(Debug)]
pub struct Asked {
    /// Whose.
    pub tenant: TenantId,
    /// In which collection.
    pub declared: Arc<Declared>,
    /// What is to be done.
    pub what: What,
    /// Under which condition.
    pub condition: Condition,
    /// Who asks.
    pub author: Option<String>,
    /// The request, as its trace calls it.
    pub trace: Option<String>,
    /// What he may.
    pub rights: Arc<Rights>,
}

/// A request that is answered once, however often it comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of its key and of who sends it.
    pub key: Uuid,
    /// Of what it asks for.
    pub print: Uuid,
}

impl Request {
    /// That of a place in a batch.
    pub fn at(self, place: usize) -> Self {
        Self {
            key: v5(self.key, place.to_string()),
            ..self
        }
    }
}

/// What is to be done.
#[derive(Debug)]
pub enum What {
    /// This is to be there; by its identity, or in place of a document.
    Put(Option<DocumentId>, Box<Draft>),
    /// A document is to go.
    Remove(DocumentId),
    /// One that is gone is to be there again, as it was at this version.
    Restore(DocumentId, Box<Draft>, i32),
}

impl Asked {
    /// Its collection has another definition: what was sent is read by that.
    ///
    /// # Errors
    /// It is not what that one allows.
    pub fn reread(&mut self, declared: Arc<Declared>) -> Result<(), DocumentsError> {
        if let What::Put(_, draft) | What::Restore(_, draft, _) = &mut self.what {
            // It was not too large when it came.
            **draft = declared.collection.take(&draft.body, usize::MAX)?;
            let definition = declared.collection.definition();
            if let Some(claim) = self.rights.missing(definition, &draft.body) {
                return Err(DocumentsError::AccessDenied {
                    what: format!("the token lacks the claim `{claim}` for this document"),
                });
            }
        }
        self.declared = declared;
        Ok(())
    }

    /// The body that is to be there.
    pub fn draft(&self) -> Option<&Draft> {
        match &self.what {
            What::Put(_, draft) | What::Restore(_, draft, _) => Some(draft),
            What::Remove(_) => None,
        }
    }

    /// The document that it is about, where it says that.
    pub fn document(&self) -> Option<DocumentId> {
        match &self.what {
            What::Put(id, _) => *id,
            What::Remove(id) | What::Restore(id, ..) => Some(*id),
        }
    }

    /// What it claims, as far as that is known from the start.
    pub fn claims(&self) -> Claims {
        let mut claims = Claims::default();
        if let Some(draft) = self.draft() {
            let names = draft.aliases.iter().map(|alias| self.name(*alias));
            claims.alone.extend(names);
            let targets = draft.references.iter().map(|one| self.name(one.alias));
            claims.shared.extend(targets);
        }
        let number = self.document().map(|id| self.key(id));
        claims.alone.extend(number);
        claims
    }

    /// What it claims besides, now that it is known which document it is about.
    pub fn claims_of(&self, present: &Present) -> Claims {
        let mut alone = vec![self.key(present.id)];
        if let What::Remove(_) = self.what {
            alone.extend(present.names.iter().map(|alias| self.name(*alias)));
        }
        Claims {
            alone,
            ..Claims::default()
        }
    }

    fn name(&self, alias: AliasId) -> Key {
        Key::Name(self.tenant, alias.0)
    }

    fn key(&self, id: DocumentId) -> Key {
        Key::Document(self.tenant, id.number())
    }

    /// What becomes of it, given what it has met; `targets` has for each reference the number of the document that there is.
    pub fn decide(&self, met: &Met, targets: &[Option<i64>]) -> Verdict {
        let present = met.present.as_ref();
        let present = present.filter(|present| present.collection == self.declared.id);
        if let Some((id, what)) = &met.damaged {
            let what = what.clone();
            return Verdict::Damaged { id: *id, what };
        }
        if let Some(claim) = &met.missing {
            // Whoever names a document that he may not see is told that there is none.
            return match self.document() {
                Some(_) => Verdict::NotFound,
                None => Verdict::Denied {
                    claim: claim.clone(),
                },
            };
        }
        let is_mutable = self.declared.collection.definition().identity_mutable;
        let wanted = |names| Wanted {
            names,
            taken: &met.taken,
            targets,
            is_same: met.is_same,
            is_mutable,
        };
        match &self.what {
            What::Put(id, draft) => {
                let wanted = wanted(&draft.aliases);
                put(present, &wanted, &self.condition, id.is_some())
            }
            What::Remove(_) => remove(present, &self.condition),
            What::Restore(_, draft, version) => match (present, &met.deleted) {
                // Somebody else was faster.
                (Some(present), _) => Verdict::Mismatch {
                    at: Some(Etag::new(present.id, present.version)),
                },
                (None, deleted) if deleted.as_ref().map(|one| one.version) != Some(*version) => {
                    Verdict::NotFound
                }
                (None, _) => put(None, &wanted(&draft.aliases), &Condition::Always, false),
            },
        }
    }
}
