//! Plans the writes of a group, with the checks and cascades that need further queries.

use super::batch::SessionEnd;
use super::cascade;
use super::in_flight::InFlightWrite;
use super::writer::Writer;
use crate::core::atomic;
use crate::core::decision::PlannedWrite;
use crate::core::rights::Action;
use crate::core::schedule::LockSet;
use crate::error::DocumentsError;
use crate::model::{DocumentNumber, Referrers, TenantId};
use crate::store::read::ReferrerCounts;
use crate::worker::catalogue::Catalogue;
use crate::worker::session::WriterSession;

/// Referrers listed in an error, at most.
const REFERRERS_LISTED_MAX: i64 = 20;

/// Referrers counted for an error, at most.
const REFERRERS_COUNTED_MAX: i64 = 10_000;

/// A document to be deleted.
struct RemovalCandidate {
    /// Index of the write in its group.
    write: usize,
    /// Index of the request in the write.
    request: usize,
    /// Number of the document.
    number: DocumentNumber,
}

impl Writer {
    /// Plans the writes of a group that are undecided. Writes that need further locks for it are
    /// put back.
    pub(super) async fn decide(
        &self,
        session: &WriterSession,
        mut group: Vec<InFlightWrite>,
    ) -> Result<Vec<InFlightWrite>, SessionEnd> {
        let undecided = group.iter_mut().filter(|write| write.plan.is_none());
        undecided.for_each(|write| self.plan(write));
        match self.complete_plans(session, &mut group).await {
            Ok(()) => Ok(group),
            Err(error) => Err(self.end_session(group, error)),
        }
    }

    fn plan(&self, write: &mut InFlightWrite) {
        let requests = &write.queued.requests;
        match atomic::decide(requests, &write.contexts, || self.ids.next()) {
            Ok(plan) => write.plan = Some(Ok(plan)),
            Err((index, rejection)) => {
                let error = requests[index].rejection_error(rejection);
                write.reject(index, error);
            }
        }
    }

    /// Completes plans that need further queries: deletions, and cascades of identity changes. A
    /// cascade needs the exclusive lock; a write without it is put back to acquire it.
    async fn complete_plans(
        &self,
        session: &WriterSession,
        group: &mut Vec<InFlightWrite>,
    ) -> Result<(), DocumentsError> {
        let catalogue = self.catalogue();
        check_removals(session, &catalogue, group).await?;
        let is_rename = |write: &mut InFlightWrite| {
            let mut planned = write.planned().iter();
            planned.any(|planned| matches!(planned, PlannedWrite::Rename(_)))
        };
        let renames: Vec<InFlightWrite> = group.extract_if(.., is_rename).collect();
        for mut write in renames {
            if !self.admission.holds_database(write.ticket) {
                self.admission.put_back_with_locks(write, LockSet::whole_database());
                continue;
            }
            let documents = cascade::rewrite(
                session,
                &catalogue,
                &write.queued.requests[0],
                &write.contexts[0],
                self.config.cascade_max,
            );
            match documents.await {
                Ok(documents) => write.plan = Some(Ok(vec![PlannedWrite::Rename(documents)])),
                Err(error) if error.is_session_lost() => {
                    self.put_back_after_loss(vec![write], &error);
                    return Err(error);
                }
                Err(error) => write.reject(0, error),
            }
            group.push(write);
        }
        Ok(())
    }
}

/// Rejects writes of several requests that delete documents to which others refer. The check runs
/// after locking: a write that adds a reference to one of them must wait. For single deletions, the
/// statement of the commit itself checks.
async fn check_removals(
    session: &WriterSession,
    catalogue: &Catalogue,
    group: &mut [InFlightWrite],
) -> Result<(), DocumentsError> {
    for index in 0..group.len() {
        let removals = removals(index, &group[index]);
        if !group[index].is_single() && !removals.is_empty() {
            // References from documents that the write rewrites or deletes do not count.
            let ignored = rewritten_documents(&group[index]);
            reject_referenced(session, catalogue, group, &removals, &ignored).await?;
        }
    }
    Ok(())
}

/// Rejects single deletions of documents that the statement found to be referenced.
pub(super) async fn check_single_removals(
    session: &WriterSession,
    catalogue: &Catalogue,
    group: &mut [InFlightWrite],
    referenced: &[DocumentNumber],
) -> Result<(), DocumentsError> {
    let single = group.iter().enumerate().filter(|(_, write)| write.is_single());
    let removals = single.flat_map(|(index, write)| removals(index, write));
    let removals: Vec<RemovalCandidate> =
        removals.filter(|removal| referenced.contains(&removal.number)).collect();
    reject_referenced(session, catalogue, group, &removals, &[]).await
}

fn removals(index: usize, write: &InFlightWrite) -> Vec<RemovalCandidate> {
    let planned = write.planned().iter().zip(&write.contexts).enumerate();
    let removed = planned.filter(|(_, (planned, _))| **planned == PlannedWrite::Remove);
    let candidates = removed.filter_map(|(request, (_, context))| {
        Some(RemovalCandidate {
            write: index,
            request,
            number: context.current.as_ref()?.id.number(),
        })
    });
    candidates.collect()
}

/// Documents that a write rewrites or deletes: the targets of the new bodies are checked
/// separately.
fn rewritten_documents(write: &InFlightWrite) -> Vec<DocumentNumber> {
    let rewritten = write.steps().filter(|(_, _, planned)| {
        matches!(planned, PlannedWrite::Remove | PlannedWrite::Change { .. })
    });
    let numbers = rewritten.filter_map(|(_, context, _)| {
        let current = context.current.as_ref()?;
        Some(current.id.number())
    });
    numbers.collect()
}

/// Rejects writes whose removals are referenced, except from `ignored` documents.
async fn reject_referenced(
    session: &WriterSession,
    catalogue: &Catalogue,
    group: &mut [InFlightWrite],
    removals: &[RemovalCandidate],
    ignored: &[DocumentNumber],
) -> Result<(), DocumentsError> {
    let tenants: Vec<TenantId> = removals
        .iter()
        .map(|removal| group[removal.write].queued.requests[removal.request].tenant)
        .collect();
    let numbers: Vec<DocumentNumber> = removals.iter().map(|removal| removal.number).collect();
    let (first_max, count_max) = (REFERRERS_LISTED_MAX, REFERRERS_COUNTED_MAX);
    let counts = session.count_referrers(&tenants, &numbers, ignored, first_max, count_max).await?;
    for (removal, counts) in removals.iter().zip(counts) {
        let write = &mut group[removal.write];
        // A write is rejected for its first removal that fails.
        if matches!(write.plan, Some(Err(_))) {
            continue;
        }
        match counts {
            Err(error) => write.reject(removal.request, error),
            Ok(counts) if counts.count > 0 => {
                let referrers = visible_referrers(catalogue, write, removal.request, counts);
                let error = DocumentsError::StillReferenced { referrers };
                write.reject(removal.request, error);
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// The referrers as the caller may know them: those that it may not see are counted, and not
/// listed.
fn visible_referrers(
    catalogue: &Catalogue,
    write: &InFlightWrite,
    request: usize,
    counts: ReferrerCounts,
) -> Referrers {
    let rights = &write.queued.requests[request].rights;
    let listed = counts.first.into_iter().filter_map(|(collection, id)| {
        let declared = catalogue.by_id(collection)?;
        let definition = declared.collection.definition();
        let is_visible = rights.allows(Action::Read, &definition.collection)
            && rights.is_unrestricted(definition);
        is_visible.then(|| (definition.collection.clone(), id))
    });
    Referrers { count: counts.count, has_more: counts.has_more, first: listed.collect() }
}
