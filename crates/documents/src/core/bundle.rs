//! What becomes of writes that are done all or none.
//!
//! Each may refer to what another one makes, whichever comes first, and one may delete what another one lets go. No two are about the same
//! document or the same identity.

use std::collections::{HashMap, HashSet};

use super::decide::Verdict;
use super::group::{Asked, Met, What};
use super::schedule::{Claims, Key};
use crate::model::{AliasId, DocumentId};

/// What is done for a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing: it is there as it is to be.
    Unchanged,
    /// A new document, with these targets.
    Create(DocumentId, Vec<i64>),
    /// Another body, with these targets.
    Change(Vec<i64>),
    /// Another body, with which it has another identity.
    Rename,
    /// A document goes.
    Remove,
}

/// A write that is not done, by its place, and why.
pub type Refused = (usize, Verdict);

/// What all of them claim together, as far as that is known from the start.
pub fn claims(asked: &[Asked]) -> Claims {
    let mut all = Claims::default();
    for one in asked {
        all.extend(one.claims());
    }
    if asked.len() > 1 {
        all.normalize();
    }
    all
}

/// Decides on them, given what each has met. `next_id` gives ids to new documents.
///
/// # Errors
/// The first that is not done: then none is.
pub fn decide(
    asked: &[Asked],
    met: &[Met],
    mut next_id: impl FnMut() -> DocumentId,
) -> Result<Vec<Fate>, Refused> {
    let mut new = |one: &Asked, met: &Met| match (&one.what, &met.present) {
        (What::Put(None, _), None) => Some(next_id()),
        (What::Restore(id, ..), None) => Some(*id),
        _ => None,
    };
    let pairs = asked.iter().zip(met);
    let made: Vec<Option<DocumentId>> = pairs.map(|(one, met)| new(one, met)).collect();
    let together = match asked.len() {
        1 => Together::of_one(&asked[0], made[0]),
        _ => Together::of(asked, met, &made)?,
    };
    let mut fates = Vec::with_capacity(asked.len());
    for (place, (one, met)) in asked.iter().zip(met).enumerate() {
        let targets = together.targets(one, met);
        let targets = targets.as_deref().unwrap_or(&met.targets);
        let verdict = one.decide(met, targets);
        let fate = match (verdict, made[place]) {
            (Verdict::Unchanged, _) => Fate::Unchanged,
            (Verdict::Create(targets), Some(id)) => Fate::Create(id, targets),
            (Verdict::Change(targets), _) => Fate::Change(targets),
            (Verdict::Remove, _) => Fate::Remove,
            (Verdict::Rename, _) if asked.len() == 1 => Fate::Rename,
            (Verdict::Rename, _) => return Err((place, Verdict::Immutable)),
            (verdict, _) => return Err((place, verdict)),
        };
        fates.push(fate);
    }
    Ok(fates)
}

/// What they do to names that others of them, or they themselves, refer to.
#[derive(Debug, Default)]
struct Together {
    made: HashMap<AliasId, i64>,
    gone: HashSet<AliasId>,
}

impl Together {
    /// One by itself may refer to what it makes.
    fn of_one(one: &Asked, made: Option<DocumentId>) -> Self {
        let (Some(id), Some(draft)) = (made, one.draft()) else {
            return Self::default();
        };
        let is_own = |alias: &&AliasId| draft.references.iter().any(|to| to.alias == **alias);
        let own = draft.aliases.iter().filter(is_own);
        Self {
            made: own.map(|alias| (*alias, id.number())).collect(),
            gone: HashSet::new(),
        }
    }

    fn of(asked: &[Asked], met: &[Met], made: &[Option<DocumentId>]) -> Result<Self, Refused> {
        let mut together = Self::default();
        let mut first: HashMap<Key, usize> = HashMap::new();
        for (place, (one, met)) in asked.iter().zip(met).enumerate() {
            let mut keys = one.claims().alone;
            keys.extend(
                met.present
                    .iter()
                    .flat_map(|present| one.claims_of(present).alone),
            );
            for key in keys {
                let before = *first.entry(key).or_insert(place);
                if before != place {
                    return Err((place, Verdict::Twice { before }));
                }
            }
            match (&one.what, made[place], &met.present) {
                (What::Put(_, draft) | What::Restore(_, draft, _), Some(id), _) => {
                    let names = draft.aliases.iter().map(|alias| (*alias, id.number()));
                    together.made.extend(names);
                }
                (What::Remove(_), _, Some(present)) => together.gone.extend(&present.names),
                _ => {}
            }
        }
        Ok(together)
    }

    /// To what the references of a write are, where that differs from what is there.
    fn targets(&self, one: &Asked, met: &Met) -> Option<Vec<Option<i64>>> {
        if self.made.is_empty() && self.gone.is_empty() {
            return None;
        }
        let references = one.draft().map_or(&[][..], |draft| &draft.references);
        let each = references
            .iter()
            .zip(&met.targets)
            .map(|(reference, there)| {
                let made = self.made.get(&reference.alias).copied();
                let there = there.filter(|_| !self.gone.contains(&reference.alias));
                made.or(there)
            });
        Some(each.collect())
    }
}

#[cfg(test)]
mod tests;
