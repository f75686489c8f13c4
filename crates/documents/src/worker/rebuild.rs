//! Rebuilds aliases and references when definitions change.
//!
//! It runs in one transaction while no other writes run. Aliases come first, because references are
//! resolved by them. Edges hold numbers, so documents that refer to a renamed one keep doing so, as
//! long as their bodies contain its new identity.

use std::collections::BTreeSet;
use std::sync::Arc;

use egret_postgres::tokio_postgres::Transaction;
use uuid::Uuid;

use super::catalogue::Catalogue;
use crate::core::collection::DeclaredCollection;
use crate::core::collection::{Collection, Draft};
use crate::core::compatibility::DefinitionDiff;
use crate::core::decision::require_targets;
use crate::core::definition::Definitions;
use crate::error::DocumentsError;
use crate::model::{
    CollectionId, CollectionKey, CollectionName, DocumentId, DocumentNumber, TenantId, Violation,
};
use crate::store::query::BoundedChunks;
use crate::store::rebuild::{self, AliasRows, RebuildRow, ReferenceRows};
use crate::store::{check, collections};

/// Documents read in one query, at most.
pub(crate) const PAGE_DOCUMENTS_MAX: u32 = 1_000;

/// A collection whose compiled definition changes, by its own definition or by those of others.
pub(crate) struct CollectionRedefinition {
    /// The collection before the change.
    pub old: Arc<DeclaredCollection>,
    /// The collection after the change.
    pub new: DeclaredCollection,
    /// The differences between both.
    pub changes: DefinitionDiff,
}

impl CollectionRedefinition {
    /// Its definitions before and after, as declared.
    pub(crate) fn sources(&self) -> (serde_json::Value, serde_json::Value) {
        let source = |collection: &Collection| collection.definition().source.clone();
        (source(&self.old.collection), source(&self.new.collection))
    }
}

/// Invalid documents listed in an error, at most.
const LISTED_MAX: usize = 20;

/// Collects documents that are invalid under a new definition.
#[derive(Default)]
pub(crate) struct InvalidDocuments {
    violations: Vec<Violation>,
    count: usize,
}

impl InvalidDocuments {
    pub(crate) fn add(&mut self, id: DocumentId, reason: &dyn std::fmt::Display) {
        self.count += 1;
        if self.violations.len() < LISTED_MAX {
            let violation = Violation::new("", format!("document {id}: {reason}"));
            self.violations.push(violation);
        }
    }

    /// Fails if there are any.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`] with them.
    pub(crate) fn ensure_empty(&self) -> Result<(), DocumentsError> {
        let mut violations = self.violations.clone();
        if self.count > LISTED_MAX {
            let more = self.count - LISTED_MAX;
            violations.push(Violation::new("", format!("and {more} more documents")));
        }
        ensure_no_violations(violations.into_iter())
    }
}

/// Fails with these violations, if there are any.
///
/// # Errors
/// [`DocumentsError::DefinitionInvalid`].
pub(crate) fn ensure_no_violations(
    violations: impl Iterator<Item = Violation>,
) -> Result<(), DocumentsError> {
    let violations: Vec<Violation> = violations.collect();
    if violations.is_empty() {
        Ok(())
    } else {
        Err(DocumentsError::DefinitionInvalid { violations })
    }
}

pub(crate) struct Rebuild<'a> {
    transaction: &'a Transaction<'a>,
    tenants: Vec<TenantId>,
    alias_collections: Vec<DeclaredCollection>,
    reference_collections: Vec<DeclaredCollection>,
    invalid: InvalidDocuments,
}

impl<'a> Rebuild<'a> {
    /// Determines which collections need new aliases or references after these changes.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`]: the definitions do not fit together.
    pub(crate) fn new(
        transaction: &'a Transaction<'a>,
        definitions: &Definitions,
        before: &Catalogue,
        redefined: &[CollectionRedefinition],
    ) -> Result<Self, DocumentsError> {
        let mut families: BTreeSet<CollectionName> = BTreeSet::new();
        let mut alias_collections = Vec::new();
        for redefinition in redefined {
            let own_families =
                redefinition.changes.changed_scopes(redefinition.new.collection.name());
            if !own_families.is_empty() {
                alias_collections.push(redefinition.new.clone());
                families.extend(own_families);
            }
        }
        let mut reference_collections = Vec::new();
        for definition in definitions.iter() {
            let Some(old) = before.by_name(&definition.collection) else {
                continue;
            };
            let mut changed = redefined.iter();
            let has_changed_references =
                changed.any(|one| one.old.id == old.id && one.changes.has_changed_references());
            let mut targets = definition.references.iter().map(|reference| &reference.to);
            if has_changed_references || targets.any(|to| families.contains(to)) {
                let collection = Collection::compile(definitions, definition)?;
                let id = old.id;
                reference_collections.push(DeclaredCollection { id, collection });
            }
        }
        Ok(Self {
            transaction,
            tenants: Vec::new(),
            alias_collections,
            reference_collections,
            invalid: InvalidDocuments::default(),
        })
    }

    /// Executes the rebuild.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`] with the invalid documents; the transaction must then
    /// be rolled back.
    pub(crate) async fn run(&mut self) -> Result<(), DocumentsError> {
        let tenants = collections::read_tenants(self.transaction).await?;
        self.tenants = tenants.into_values().collect();
        let alias_collections = std::mem::take(&mut self.alias_collections);
        for declared in &alias_collections {
            if collections::has_documents(self.transaction, declared.id).await? {
                rebuild::delete_aliases(self.transaction, declared.id).await?;
            }
        }
        for one in &alias_collections {
            self.rebuild_collection(one, RebuildKind::Aliases).await?;
        }
        self.invalid.ensure_empty()?;
        for one in &std::mem::take(&mut self.reference_collections) {
            self.rebuild_collection(one, RebuildKind::References).await?;
        }
        self.invalid.ensure_empty()
    }

    async fn rebuild_collection(
        &mut self,
        declared: &DeclaredCollection,
        kind: RebuildKind,
    ) -> Result<(), DocumentsError> {
        for tenant in self.tenants.clone() {
            let (mut after, mut chunks) =
                (DocumentNumber::MIN, BoundedChunks::new(PAGE_DOCUMENTS_MAX));
            loop {
                let key = CollectionKey::new(tenant, declared.id);
                let page = rebuild::read_page(self.transaction, key, after, &mut chunks).await?;
                let Some(last) = page.last() else { break };
                after = last.id.number();
                let mut drafts = Vec::with_capacity(page.len());
                for row in page {
                    // Stored bodies were size-checked when written; no limit here.
                    match declared.collection.parse(row.body.as_bytes(), usize::MAX) {
                        Ok(draft) => drafts.push((row, draft)),
                        Err(error) => self.invalid.add(row.id, &error),
                    }
                }
                match kind {
                    RebuildKind::Aliases => self.rebuild_aliases(declared.id, &drafts).await?,
                    RebuildKind::References => self.rebuild_references(declared, drafts).await?,
                }
            }
        }
        Ok(())
    }

    async fn rebuild_aliases(
        &mut self,
        collection: CollectionId,
        drafts: &[(RebuildRow, Draft)],
    ) -> Result<(), DocumentsError> {
        let mut rows = AliasRows::default();
        for (row, draft) in drafts {
            for alias in &draft.aliases {
                rows.tenants.push(row.tenant);
                rows.aliases.push(alias.0);
                rows.numbers.push(row.id.number());
            }
        }
        if rebuild::insert_aliases(self.transaction, collection, &rows).await? == 0 {
            return Ok(());
        }
        let owners = check::read_alias_owners(
            self.transaction,
            check::ALIAS_OWNERS_SQL,
            &rows.tenants,
            &rows.aliases,
        )
        .await?;
        for (row, draft) in drafts {
            let own_key = (collection, row.id.number());
            let mut aliases = draft.aliases.iter();
            if aliases.any(|alias| owners.get(&(row.tenant, alias.0)) != Some(&own_key)) {
                self.invalid.add(row.id, &"another document has its identity");
            }
        }
        Ok(())
    }

    async fn rebuild_references(
        &mut self,
        declared: &DeclaredCollection,
        drafts: Vec<(RebuildRow, Draft)>,
    ) -> Result<(), DocumentsError> {
        let keys = drafts.iter().flat_map(|(row, draft)| {
            let aliases = draft.references.iter().map(|reference| reference.alias.0);
            aliases.map(|alias| (row.tenant, alias))
        });
        let (tenants, aliases): (Vec<TenantId>, Vec<Uuid>) = keys.unzip();
        let owners =
            check::read_alias_owners(self.transaction, check::ALIAS_OWNERS_SQL, &tenants, &aliases)
                .await?;
        let mut rows = ReferenceRows::default();
        for (row, draft) in drafts {
            let resolved: Vec<Option<DocumentNumber>> = draft
                .references
                .iter()
                .map(|one| {
                    let (_, number) = owners.get(&(row.tenant, one.alias.0))?;
                    Some(*number)
                })
                .collect();
            match require_targets(&resolved) {
                Ok(targets) => rows.push(&row, declared.id, &targets),
                Err(missing) => {
                    let unresolved = missing.iter().map(|index| {
                        declared.collection.describe_unresolved(&draft.references[*index])
                    });
                    let references = unresolved.collect();
                    let error = DocumentsError::UnresolvedReference { references };
                    self.invalid.add(row.id, &error);
                }
            }
        }
        Ok(rebuild::update_references(self.transaction, declared.id, &rows).await?)
    }
}

#[derive(Clone, Copy)]
enum RebuildKind {
    Aliases,
    References,
}
