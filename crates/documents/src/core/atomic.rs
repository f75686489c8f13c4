//! Decisions on requests with several writes, which are executed all or none.
//!
//! A write may refer to documents that others of the request create, before or after it, and may
//! delete a document whose referrers are deleted or changed by others. No two writes may concern
//! the same document or the same identity.

use std::collections::{HashMap, HashSet};

use super::decision::{PlannedWrite, WriteRejection};
use super::schedule::{LockKey, LockSet};
use super::write::{WriteContext, WriteOp, WriteRequest};
use crate::model::{AliasId, DocumentId, DocumentNumber};

/// Index of a rejected write, and why it is rejected.
pub(crate) type IndexedRejection = (usize, WriteRejection);

/// Lock set of all writes, as far as it is known before the look-up.
pub(crate) fn lock_set(requests: &[WriteRequest]) -> LockSet {
    let mut locks = LockSet::default();
    for request in requests {
        locks.extend(request.lock_set());
    }
    if requests.len() > 1 {
        locks.normalize();
    }
    locks
}

/// Plans all writes against the state that was looked up. `next_id` generates ids for new
/// documents.
///
/// # Errors
/// The first rejected write: then all are rejected.
pub(crate) fn decide(
    requests: &[WriteRequest],
    contexts: &[WriteContext],
    mut next_id: impl FnMut() -> DocumentId,
) -> Result<Vec<PlannedWrite>, IndexedRejection> {
    let mut new_id = |request: &WriteRequest, context: &WriteContext| match &request.op {
        _ if context.current.is_some() => None,
        WriteOp::Put(None, _) => Some(next_id()),
        WriteOp::Restore { id, .. } => Some(*id),
        WriteOp::Put(Some(_), _) | WriteOp::Delete(_) => None,
    };
    let pairs = requests.iter().zip(contexts);
    let new_ids: Vec<Option<DocumentId>> =
        pairs.map(|(request, context)| new_id(request, context)).collect();
    let overlay = match requests {
        [request] => AliasOverlay::for_single(request, new_ids[0]),
        _ => AliasOverlay::for_batch(requests, contexts, &new_ids)?,
    };
    let mut plan = Vec::with_capacity(requests.len());
    for (index, (request, context)) in requests.iter().zip(contexts).enumerate() {
        let targets = overlay.targets(request, context);
        let targets = targets.as_deref().unwrap_or(&context.targets);
        match request.decide(context, targets, new_ids[index]) {
            // The cascade of an identity change is computed against stored documents only.
            Ok(PlannedWrite::Rename(_)) if requests.len() > 1 => {
                return Err((index, WriteRejection::Immutable));
            }
            Ok(planned) => plan.push(planned),
            Err(rejection) => return Err((index, rejection)),
        }
    }
    Ok(plan)
}

/// Aliases created and deleted by the writes of the request, so that others can refer to them.
#[derive(Debug, Default)]
struct AliasOverlay {
    created: HashMap<AliasId, DocumentNumber>,
    deleted: HashSet<AliasId>,
}

impl AliasOverlay {
    /// Overlay of a single write, which may refer to the document that it creates.
    fn for_single(request: &WriteRequest, new_id: Option<DocumentId>) -> Self {
        let (Some(id), Some(draft)) = (new_id, request.draft()) else {
            return Self::default();
        };
        let is_target = |alias: &&AliasId| draft.references.iter().any(|to| to.alias == **alias);
        let own = draft.aliases.iter().filter(is_target);
        Self { created: own.map(|alias| (*alias, id.number())).collect(), deleted: HashSet::new() }
    }

    fn for_batch(
        requests: &[WriteRequest],
        contexts: &[WriteContext],
        new_ids: &[Option<DocumentId>],
    ) -> Result<Self, IndexedRejection> {
        let mut overlay = Self::default();
        let mut first_uses: HashMap<LockKey, usize> = HashMap::new();
        for (index, (request, context)) in requests.iter().zip(contexts).enumerate() {
            let mut keys = request.lock_set().exclusive;
            keys.extend(
                context
                    .current
                    .iter()
                    .flat_map(|current| request.found_lock_set(current).exclusive),
            );
            for key in keys {
                let before = *first_uses.entry(key).or_insert(index);
                if before != index {
                    return Err((index, WriteRejection::Duplicate { before }));
                }
            }
            match (&request.op, new_ids[index], &context.current) {
                (WriteOp::Delete(_), _, Some(current)) => overlay.deleted.extend(&current.aliases),
                (_, Some(id), _) => {
                    let aliases = request.draft().into_iter().flat_map(|draft| &draft.aliases);
                    let created = aliases.map(|alias| (*alias, id.number()));
                    overlay.created.extend(created);
                }
                _ => {}
            }
        }
        Ok(overlay)
    }

    /// Targets of a write's references with the overlay applied; none if there is no overlay.
    fn targets(
        &self,
        request: &WriteRequest,
        context: &WriteContext,
    ) -> Option<Vec<Option<DocumentNumber>>> {
        if self.created.is_empty() && self.deleted.is_empty() {
            return None;
        }
        let references = request.draft().map_or(&[][..], |draft| &draft.references);
        let targets = references.iter().zip(&context.targets).map(|(reference, stored)| {
            let created = self.created.get(&reference.alias).copied();
            let stored = stored.filter(|_| !self.deleted.contains(&reference.alias));
            created.or(stored)
        });
        Some(targets.collect())
    }
}

#[cfg(test)]
mod tests;
