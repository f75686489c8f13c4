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
use crate::core::decision::targets;
use crate::core::definition::Definitions;
use crate::error::DocumentsError;
use crate::model::{
    CollectionId, CollectionKey, CollectionName, DocumentId, DocumentNumber, TenantId, Violation,
};
use crate::store::query::BoundedChunks;
use crate::store::rebuild::{self, AliasRows, RebuildRow, ReferenceRows};
use crate::store::{check, collections};

/// Documents read in one query, at most.
pub const PAGE: u32 = 1_000;

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
const NAMED_MAX: usize = 20;

/// Collects documents that are invalid under a new definition.
#[derive(Default)]
pub(crate) struct InvalidDocuments {
    violations: Vec<Violation>,
    count: usize,
}

impl InvalidDocuments {
    pub(crate) fn add(&mut self, id: DocumentId, why: &dyn std::fmt::Display) {
        self.count += 1;
        if self.violations.len() < NAMED_MAX {
            let violation = Violation::new("", format!("document {id}: {why}"));
            self.violations.push(violation);
        }
    }

    /// Fails if there are any.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`] with them.
    pub(crate) fn outcome(&self) -> Result<(), DocumentsError> {
        let mut violations = self.violations.clone();
        if self.count > NAMED_MAX {
            let more = self.count - NAMED_MAX;
            violations.push(Violation::new("", format!("and {more} more documents")));
        }
        refuse(violations.into_iter())
    }
}

/// Fails with these violations, if there are any.
///
/// # Errors
/// [`DocumentsError::DefinitionInvalid`].
pub fn refuse(violations: impl Iterator<Item = Violation>) -> Result<(), DocumentsError> {
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
    named: Vec<DeclaredCollection>,
    referring: Vec<DeclaredCollection>,
    offending: InvalidDocuments,
}

impl<'a> Rebuild<'a> {
    /// Determines which collections need new aliases or references after these changes.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`]: the definitions do not fit together.
    pub(crate) fn new(
        transaction: &'a Transaction<'a>,
        all: &Definitions,
        before: &Catalogue,
        redefined: &[CollectionRedefinition],
    ) -> Result<Self, DocumentsError> {
        let mut families: BTreeSet<CollectionName> = BTreeSet::new();
        let mut named = Vec::new();
        for one in redefined {
            let own = one.changes.families(one.new.collection.name());
            if !own.is_empty() {
                named.push(one.new.clone());
                families.extend(own);
            }
        }
        let mut referring = Vec::new();
        for definition in all.iter() {
            let Some(old) = before.declared(&definition.collection) else {
                continue;
            };
            let mut changes = redefined.iter();
            let is_other =
                changes.any(|one| one.old.id == old.id && one.changes.is_of_references());
            let mut to = definition.references.iter().map(|reference| &reference.to);
            if is_other || to.any(|to| families.contains(to)) {
                let collection = Collection::of(all, definition)?;
                let id = old.id;
                referring.push(DeclaredCollection { id, collection });
            }
        }
        Ok(Self {
            transaction,
            tenants: Vec::new(),
            named,
            referring,
            offending: InvalidDocuments::default(),
        })
    }

    /// Executes the rebuild.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`] with the invalid documents; the transaction must then
    /// be rolled back.
    pub(crate) async fn run(&mut self) -> Result<(), DocumentsError> {
        let tenants = collections::tenants(self.transaction).await?;
        self.tenants = tenants.into_values().collect();
        let named = std::mem::take(&mut self.named);
        for one in &named {
            if collections::has_documents(self.transaction, one.id).await? {
                rebuild::forget_names(self.transaction, one.id).await?;
            }
        }
        for one in &named {
            self.each(one, RebuildKind::Names).await?;
        }
        self.offending.outcome()?;
        for one in &std::mem::take(&mut self.referring) {
            self.each(one, RebuildKind::References).await?;
        }
        self.offending.outcome()
    }

    async fn each(
        &mut self,
        declared: &DeclaredCollection,
        kind: RebuildKind,
    ) -> Result<(), DocumentsError> {
        for tenant in self.tenants.clone() {
            let (mut after, mut portions) = (DocumentNumber::MIN, BoundedChunks::new(PAGE));
            loop {
                let of = CollectionKey::new(tenant, declared.id);
                let page = rebuild::page(self.transaction, of, after, &mut portions).await?;
                let Some(last) = page.last() else { break };
                after = last.id.number();
                let mut drafts = Vec::with_capacity(page.len());
                for row in page {
                    // Stored bodies were size-checked when written; no limit here.
                    match declared.collection.read(row.body.as_bytes(), usize::MAX) {
                        Ok(draft) => drafts.push((row, draft)),
                        Err(error) => self.offending.add(row.id, &error),
                    }
                }
                match kind {
                    RebuildKind::Names => self.name(declared.id, &drafts).await?,
                    RebuildKind::References => self.refer(declared, drafts).await?,
                }
            }
        }
        Ok(())
    }

    async fn name(
        &mut self,
        collection: CollectionId,
        drafts: &[(RebuildRow, Draft)],
    ) -> Result<(), DocumentsError> {
        let mut named = AliasRows::default();
        for (row, draft) in drafts {
            for alias in &draft.aliases {
                named.tenants.push(row.tenant);
                named.aliases.push(alias.0);
                named.numbers.push(row.id.number());
            }
        }
        if rebuild::name(self.transaction, collection, &named).await? == 0 {
            return Ok(());
        }
        let called = check::called(
            self.transaction,
            check::CALLED,
            &named.tenants,
            &named.aliases,
        )
        .await?;
        for (row, draft) in drafts {
            let own = (collection, row.id.number());
            let mut all = draft.aliases.iter();
            if all.any(|alias| called.get(&(row.tenant, alias.0)) != Some(&own)) {
                self.offending
                    .add(row.id, &"another document has its identity");
            }
        }
        Ok(())
    }

    async fn refer(
        &mut self,
        declared: &DeclaredCollection,
        drafts: Vec<(RebuildRow, Draft)>,
    ) -> Result<(), DocumentsError> {
        let each = drafts.iter().flat_map(|(row, draft)| {
            let aliases = draft.references.iter().map(|one| one.alias.0);
            aliases.map(|alias| (row.tenant, alias))
        });
        let (tenants, aliases): (Vec<TenantId>, Vec<Uuid>) = each.unzip();
        let called = check::called(self.transaction, check::CALLED, &tenants, &aliases).await?;
        let mut referring = ReferenceRows::default();
        for (row, draft) in drafts {
            let found: Vec<Option<DocumentNumber>> = draft
                .references
                .iter()
                .map(|one| {
                    let (_, number) = called.get(&(row.tenant, one.alias.0))?;
                    Some(*number)
                })
                .collect();
            match targets(&found) {
                Ok(targets) => referring.push(&row, declared.id, &targets),
                Err(missing) => {
                    let told = missing
                        .iter()
                        .map(|place| declared.collection.tell(&draft.references[*place]));
                    let references = told.collect();
                    let error = DocumentsError::UnresolvedReference { references };
                    self.offending.add(row.id, &error);
                }
            }
        }
        Ok(rebuild::refer(self.transaction, declared.id, &referring).await?)
    }
}

#[derive(Clone, Copy)]
enum RebuildKind {
    Names,
    References,
}
