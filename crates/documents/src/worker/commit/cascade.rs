//! Cascade of an identity change: the bodies of all referring documents get the new identity, and
//! where that is part of their own identity, theirs changes in turn.
//!
//! No other writes run meanwhile. References are stored by number, so edges stay as they are,
//! unless two references share a path in a document and now name another target.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::context::current_document;
use crate::core::collection::{Collection, DeclaredCollection, Draft, RenamedIdentities};
use crate::core::decision::{CurrentDocument, RewrittenDocument, require_targets};
use crate::core::identity::Identity;
use crate::core::rights::{Action, Rights};
use crate::core::write::{WriteContext, WriteRequest};
use crate::error::DocumentsError;
use crate::model::{AliasId, DocumentNumber, TenantId, Violation};
use crate::store::query::BoundedChunks;
use crate::store::read::{AliasKeys, StoredDocument};
use crate::worker::catalogue::Catalogue;
use crate::worker::session::WriterSession;

/// Referring documents read in one query, at most.
const PAGE_DOCUMENTS_MAX: u32 = 1_000;

/// Conflicts listed in an error, at most.
const CONFLICTS_LISTED_MAX: usize = 20;

/// Size limit for rewritten documents, in bytes: they may have grown with an identity.
const REWRITTEN_BYTES_MAX: usize = 1 << 30;

/// A document whose body is being rewritten.
struct PendingRewrite {
    declared: Arc<DeclaredCollection>,
    before: CurrentDocument,
    draft: Draft,
    /// Aliases that the referring documents' bodies contain so far.
    propagated: Vec<AliasId>,
    /// Earlier aliases that some of these bodies still contain.
    earlier: Vec<Vec<AliasId>>,
}

/// Computes all documents that change with the one of a request, which comes first.
///
/// # Errors
/// [`DocumentsError`]: one of the documents cannot change.
pub(super) async fn rewrite(
    session: &WriterSession,
    catalogue: &Catalogue,
    request: &WriteRequest,
    context: &WriteContext,
    cascade_max: u32,
) -> Result<Vec<RewrittenDocument>, DocumentsError> {
    let (Some(draft), Some(current)) = (request.draft(), &context.current) else {
        return Ok(Vec::new());
    };
    let mut cascade = Cascade {
        session,
        catalogue,
        tenant: request.tenant,
        rights: &request.rights,
        cascade_max,
        documents: BTreeMap::new(),
        conflicts: BTreeMap::new(),
        steps: 0,
    };
    let number = current.id.number();
    let first = PendingRewrite {
        declared: request.declared.clone(),
        before: current.clone(),
        draft: draft.clone(),
        propagated: current.aliases.clone(),
        earlier: Vec::new(),
    };
    cascade.documents.insert(number, first);
    cascade.propagate(number).await?;
    cascade.finish(number).await
}

struct Cascade<'a> {
    session: &'a WriterSession,
    catalogue: &'a Catalogue,
    tenant: TenantId,
    rights: &'a Rights,
    cascade_max: u32,
    /// The documents that change, by number.
    documents: BTreeMap<DocumentNumber, PendingRewrite>,
    /// Why a document could not get the new identity of another one, by both numbers, that of the
    /// renamed document first. A further rename may resolve it: parts of an identity that one path
    /// names come one after the other.
    conflicts: BTreeMap<(DocumentNumber, DocumentNumber), Violation>,
    steps: u64,
}

impl Cascade<'_> {
    fn too_large(&self) -> DocumentsError {
        DocumentsError::CascadeTooLarge { cascade_max: self.cascade_max }
    }

    /// Propagates new identities to referring documents, until none is left.
    async fn propagate(&mut self, first: DocumentNumber) -> Result<(), DocumentsError> {
        let mut renamed = VecDeque::from([first]);
        while let Some(number) = renamed.pop_front() {
            self.steps += 1;
            // Identities that are part of each other could form a cycle.
            if self.steps > 4 * u64::from(self.cascade_max) {
                return Err(self.too_large());
            }
            let document =
                self.documents.get_mut(&number).expect("it was inserted before it was queued");
            let identities = identities(&document.declared.collection, &document.draft.body)?;
            let mut changed = RenamedIdentities::new();
            for known in document.earlier.iter().chain([&document.propagated]) {
                let aliases = known.iter().zip(&document.draft.aliases).zip(&identities);
                let aliases = aliases.filter(|((before, after), _)| before != after);
                changed.extend(aliases.map(|((before, _), identity)| (*before, identity.clone())));
            }
            let propagated =
                std::mem::replace(&mut document.propagated, document.draft.aliases.clone());
            document.earlier.push(propagated);
            if !changed.is_empty() {
                renamed.extend(self.rewrite_referrers(number, &changed).await?);
            }
            if !self.has_conflict(number) {
                let document = self.documents.get_mut(&number);
                document.expect("documents are not removed").earlier.clear();
            }
        }
        self.ensure_no_conflict()
    }

    /// Whether some document could not get the new identity of this one.
    fn has_conflict(&self, number: DocumentNumber) -> bool {
        let pairs = (number, DocumentNumber::MIN)..=(number, DocumentNumber::MAX);
        self.conflicts.range(pairs).next().is_some()
    }

    /// Rejects the rename if a document can hold only one of two values.
    fn ensure_no_conflict(&self) -> Result<(), DocumentsError> {
        let conflicts = self.conflicts.iter().take(CONFLICTS_LISTED_MAX);
        let violations: Vec<Violation> = conflicts
            .map(|((_, referrer), conflict)| {
                let document = &self.documents[referrer];
                let what = format!(
                    "document {} of `{}`, which refers to this one, at `{}`: {}",
                    document.before.id,
                    document.declared.collection.name(),
                    conflict.pointer,
                    conflict.message
                );
                Violation::new("", what)
            })
            .collect();
        if violations.is_empty() {
            Ok(())
        } else {
            Err(DocumentsError::ValidationFailed { violations })
        }
    }

    /// Writes a new identity into the bodies of referring documents. Returns the numbers of those
    /// whose own identity changes by it.
    async fn rewrite_referrers(
        &mut self,
        target: DocumentNumber,
        changed: &RenamedIdentities,
    ) -> Result<Vec<DocumentNumber>, DocumentsError> {
        let (mut renamed, mut after) = (Vec::new(), DocumentNumber::MIN);
        let mut chunks = BoundedChunks::new(PAGE_DOCUMENTS_MAX);
        loop {
            let referrers =
                self.session.read_referrers(self.tenant, target, after, &mut chunks).await?;
            let Some(last) = referrers.last() else {
                return Ok(renamed);
            };
            after = last.id.number();
            for stored in referrers {
                let number = stored.id.number();
                if !self.documents.contains_key(&number) {
                    let document = self.pending_rewrite(stored)?;
                    self.documents.insert(number, document);
                    if self.documents.len() > self.cascade_max as usize {
                        return Err(self.too_large());
                    }
                }
                let document =
                    self.documents.get_mut(&number).expect("it was inserted if it was missing");
                let collection = &document.declared.collection;
                let conflict_key = (target, number);
                let body = match collection.update_references(&document.draft.body, changed) {
                    Ok(body) => body,
                    Err(conflict) => {
                        check_rights(self.rights, collection, [&document.draft.body])?;
                        self.conflicts.insert(conflict_key, conflict);
                        continue;
                    }
                };
                self.conflicts.remove(&conflict_key);
                let Some(body) = body else {
                    continue;
                };
                check_rights(self.rights, collection, [&document.draft.body, &body])?;
                document.draft = draft(collection, &body)?;
                if document.draft.aliases != document.propagated {
                    renamed.push(number);
                }
            }
        }
    }

    fn pending_rewrite(&self, stored: StoredDocument) -> Result<PendingRewrite, DocumentsError> {
        let declared = self.catalogue.by_id(stored.collection);
        let declared = declared.ok_or_else(|| DocumentsError::Damaged {
            id: stored.id,
            what: "its collection is not declared".to_owned(),
        })?;
        let (before, body) = current_document(&declared, stored)?;
        let draft = draft(&declared.collection, &body)?;
        let propagated = before.aliases.clone();
        Ok(PendingRewrite { declared, propagated, earlier: Vec::new(), before, draft })
    }

    /// Resolves all aliases and references, and returns the documents to write.
    async fn finish(self, first: DocumentNumber) -> Result<Vec<RewrittenDocument>, DocumentsError> {
        let owners_after: HashMap<AliasId, DocumentNumber> = self
            .documents
            .iter()
            .flat_map(|(number, document)| {
                let aliases = document.draft.aliases.iter();
                aliases.map(|alias| (*alias, *number))
            })
            .collect();
        let aliases_before: HashSet<AliasId> = self
            .documents
            .values()
            .flat_map(|document| document.before.aliases.iter().copied())
            .collect();
        let stored = self.resolve_aliases(&owners_after).await?;
        // The stored owner of an alias, unless it is about to lose the alias.
        let remaining_owner =
            |alias: &AliasId| stored.get(alias).filter(|_| !aliases_before.contains(alias));
        // Prefer the new owner.
        let find_owner =
            |alias: &AliasId| owners_after.get(alias).or_else(|| remaining_owner(alias)).copied();
        let mut rewritten = Vec::with_capacity(self.documents.len());
        for (number, document) in self.documents {
            let collection = &document.declared.collection;
            for (index, alias) in document.draft.aliases.iter().enumerate() {
                let is_taken = remaining_owner(alias).is_some_and(|owner| *owner != number);
                if owners_after.get(alias) != Some(&number) || is_taken {
                    return Err(DocumentsError::IdentityConflict {
                        collection: collection.identity_scopes()[index].collection.clone(),
                    });
                }
            }
            let references = &document.draft.references;
            let resolved: Vec<Option<DocumentNumber>> =
                references.iter().map(|target| find_owner(&target.alias)).collect();
            let targets = require_targets(&resolved).map_err(|missing| {
                let unresolved =
                    missing.iter().map(|index| collection.describe_unresolved(&references[*index]));
                DocumentsError::UnresolvedReference { references: unresolved.collect() }
            })?;
            rewritten.push(RewrittenDocument {
                history: collection.definition().history,
                before: document.before,
                text: document.draft.text,
                aliases: document.draft.aliases,
                targets,
            });
        }
        let first = rewritten.iter().position(|document| document.before.id.number() == first);
        rewritten.swap(0, first.expect("the renamed document is one of them"));
        Ok(rewritten)
    }

    /// Looks up the numbers of all aliases that the documents claim or refer to.
    async fn resolve_aliases(
        &self,
        claimed: &HashMap<AliasId, DocumentNumber>,
    ) -> Result<HashMap<AliasId, DocumentNumber>, DocumentsError> {
        let documents = self.documents.values();
        let references = documents.flat_map(|document| &document.draft.references);
        let mut aliases: Vec<Uuid> = references.map(|target| target.alias.0).collect();
        aliases.extend(claimed.keys().map(|alias| alias.0));
        aliases.sort_unstable();
        aliases.dedup();
        let tenants = vec![self.tenant; aliases.len()];
        let keys = AliasKeys { tenants: &tenants, aliases: &aliases };
        let numbers = self.session.resolve_aliases(keys).await?;
        let found = aliases.into_iter().zip(numbers);
        Ok(found.filter_map(|(alias, number)| Some((AliasId(alias), number?))).collect())
    }
}

/// Rejects the change of a document that the caller may not write, in its present or its new form.
///
/// # Errors
/// [`DocumentsError::AccessDenied`], with the collection's name only if the caller may read it.
fn check_rights<'a>(
    rights: &Rights,
    collection: &Collection,
    bodies: impl IntoIterator<Item = &'a Value>,
) -> Result<(), DocumentsError> {
    let definition = collection.definition();
    let may_write = rights.allows(Action::Write, &definition.collection);
    let is_within_claims =
        bodies.into_iter().all(|body| rights.missing_claim(definition, body).is_none());
    if may_write && is_within_claims {
        return Ok(());
    }
    let documents = if rights.allows(Action::Read, &definition.collection) {
        format!("documents of collection `{}`", definition.collection)
    } else {
        "documents".to_owned()
    };
    Err(DocumentsError::AccessDenied {
        what: format!(
            "{documents} that this token may not write refer to this one and would change with \
             its identity: use a token that may write them"
        ),
    })
}

/// The identities of a body, one for each of its collection's families.
fn identities(collection: &Collection, body: &Value) -> Result<Vec<Identity>, DocumentsError> {
    let result: Result<Vec<Identity>, _> =
        collection.identity_scopes().iter().map(|family| family.identity(body)).collect();
    result.map_err(DocumentsError::violation)
}

fn draft(collection: &Collection, body: &Value) -> Result<Draft, DocumentsError> {
    collection.parse_value(body, REWRITTEN_BYTES_MAX)
}
