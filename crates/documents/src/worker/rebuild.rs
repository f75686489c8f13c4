//! Names documents anew, and finds anew what they refer to, when what is declared of them changes.
//!
//! All of it is one transaction in which nothing else is written. Names come first: references are found by them. Edges are by number, so those who
//! refer to a document that is called differently go on doing so, as long as they name it by what it is called now.

use std::collections::BTreeSet;
use std::sync::Arc;

use egret_postgres::tokio_postgres::Transaction;
use uuid::Uuid;

use super::catalogue::Catalogue;
use crate::core::collection::{Collection, Draft};
use crate::core::compatibility::Changes;
use crate::core::decide::targets;
use crate::core::definition::Definitions;
use crate::core::group::Declared;
use crate::error::DocumentsError;
use crate::model::{CollectionId, CollectionName, DocumentId, TenantId, Violation};
use crate::store::query::Portions;
use crate::store::rebuild::{self, Named, Referring, Row};
use crate::store::{check, collections};

/// Documents that are read at a time, at most.
pub const PAGE: u32 = 1_000;

/// A collection that is not what it was: by its definition, or by those of others.
pub struct Redefined {
    /// As it is.
    pub old: Arc<Declared>,
    /// As it is to be.
    pub new: Declared,
    /// The difference.
    pub changes: Changes,
}

impl Redefined {
    /// Its definitions, before and after.
    pub fn sources(&self) -> (serde_json::Value, serde_json::Value) {
        let source = |collection: &Collection| collection.definition().source.clone();
        (source(&self.old.collection), source(&self.new.collection))
    }
}

/// Documents that are named where they are not what a definition says.
const NAMED_MAX: usize = 20;

/// Documents that are not what a definition says.
#[derive(Default)]
pub struct Offending {
    violations: Vec<Violation>,
    count: usize,
}

impl Offending {
    /// One more.
    pub fn add(&mut self, id: DocumentId, why: &dyn std::fmt::Display) {
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
    pub fn outcome(&self) -> Result<(), DocumentsError> {
        let mut violations = self.violations.clone();
        if self.count > NAMED_MAX {
            let more = self.count - NAMED_MAX;
            violations.push(Violation::new("", format!("and {more} more documents")));
        }
        refuse(violations.into_iter())
    }
}

/// Fails with these, if there are any.
///
/// # Errors
/// [`DocumentsError::DefinitionInvalid`].
pub fn refuse(violations: impl Iterator<Item = Violation>) -> Result<(), DocumentsError> {
    let violations: Vec<Violation> = violations.collect();
    match violations.is_empty() {
        true => Ok(()),
        false => Err(DocumentsError::DefinitionInvalid { violations }),
    }
}

/// See the module.
pub struct Rebuild<'a> {
    transaction: &'a Transaction<'a>,
    tenants: Vec<TenantId>,
    named: Vec<Declared>,
    referring: Vec<Declared>,
    offending: Offending,
}

impl<'a> Rebuild<'a> {
    /// What follows from these changes.
    ///
    /// # Errors
    /// Definitions that do not fit together.
    pub fn new(
        transaction: &'a Transaction<'a>,
        all: &Definitions,
        before: &Catalogue,
        redefined: &[Redefined],
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
                referring.push(Declared { id, collection });
            }
        }
        Ok(Self {
            transaction,
            tenants: Vec::new(),
            named,
            referring,
            offending: Offending::default(),
        })
    }

    /// Carries it out.
    ///
    /// # Errors
    /// [`DocumentsError::DefinitionInvalid`] with the documents for which it cannot be; the transaction is to be given up then.
    pub async fn run(&mut self) -> Result<(), DocumentsError> {
        let tenants = collections::tenants(self.transaction).await?;
        self.tenants = tenants.into_values().collect();
        let named = std::mem::take(&mut self.named);
        for one in &named {
            if collections::has_documents(self.transaction, one.id).await? {
                rebuild::forget_names(self.transaction, one.id).await?;
            }
        }
        for one in &named {
            self.each(one, Kind::Names).await?;
        }
        self.offending.outcome()?;
        for one in &std::mem::take(&mut self.referring) {
            self.each(one, Kind::References).await?;
        }
        self.offending.outcome()
    }

    async fn each(&mut self, declared: &Declared, kind: Kind) -> Result<(), DocumentsError> {
        for tenant in self.tenants.clone() {
            let (mut after, mut portions) = (i64::MIN, Portions::new(PAGE));
            loop {
                let of = (tenant, declared.id);
                let page = rebuild::page(self.transaction, of, after, &mut portions).await?;
                let Some(last) = page.last() else { break };
                after = last.id.number();
                let mut drafts = Vec::with_capacity(page.len());
                for row in page {
                    // None is larger for it.
                    match declared.collection.read(row.body.as_bytes(), usize::MAX) {
                        Ok(draft) => drafts.push((row, draft)),
                        Err(error) => self.offending.add(row.id, &error),
                    }
                }
                match kind {
                    Kind::Names => self.name(declared.id, &drafts).await?,
                    Kind::References => self.refer(declared, drafts).await?,
                }
            }
        }
        Ok(())
    }

    async fn name(
        &mut self,
        collection: CollectionId,
        drafts: &[(Row, Draft)],
    ) -> Result<(), DocumentsError> {
        let mut named = Named::default();
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
            let own = (collection.0, row.id.number());
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
        declared: &Declared,
        drafts: Vec<(Row, Draft)>,
    ) -> Result<(), DocumentsError> {
        let each = drafts.iter().flat_map(|(row, draft)| {
            let aliases = draft.references.iter().map(|one| one.alias.0);
            aliases.map(|alias| (row.tenant, alias))
        });
        let (tenants, aliases): (Vec<i32>, Vec<Uuid>) = each.unzip();
        let called = check::called(self.transaction, check::CALLED, &tenants, &aliases).await?;
        let mut referring = Referring::default();
        for (row, draft) in drafts {
            let found = draft.references.iter().map(|one| {
                let (_, number) = called.get(&(row.tenant, one.alias.0))?;
                Some(*number)
            });
            let found: Vec<Option<i64>> = found.collect();
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
enum Kind {
    Names,
    References,
}
