//! Consistency check of identities, aliases, edges and bodies, and repair of what can be derived.

use std::collections::{BTreeSet, HashSet};

use egret_postgres::tokio_postgres::{Client, GenericClient};
use uuid::Uuid;

use super::{caller::Caller, database::DatabaseHandle, engine::Documents};
use crate::core::collection::Draft;
use crate::error::DocumentsError;
use crate::model::{CollectionId, CollectionName, DocumentId, DocumentNumber, TenantId};
use crate::store::check::{
    self, AliasOwners, AliasRow, CheckEdges, CheckRow, CheckStatements, DocumentKey,
};
use crate::store::{owner, query::BoundedChunks};
use crate::worker::catalogue::Catalogue;
use crate::worker::session::SETTINGS;

/// Findings of a report, at most; further ones are only counted.
pub(crate) const FINDINGS_MAX: usize = 1_000;

/// Report of a consistency check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// Number of documents checked.
    pub documents: u64,
    /// Number of aliases stored.
    pub aliases: u64,
    /// Number of edges stored.
    pub edges: u64,
    /// Number of inconsistencies, including those not listed in `findings`.
    pub count: u64,
    /// Inconsistencies found, in the order of the check.
    pub findings: Vec<Finding>,
}

/// One inconsistency found by the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind of the inconsistency.
    pub kind: FindingKind,
    /// Collection of the document, if the finding concerns one.
    pub collection: Option<CollectionName>,
    /// Id of the document, if the finding concerns one.
    pub id: Option<DocumentId>,
    /// Description for the operator.
    pub what: String,
    /// Whether it was repaired.
    pub is_repaired: bool,
}

/// Kind of an inconsistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// A body is invalid under its collection's definition. Not repairable: it needs a new body.
    Body,
    /// The stored number of a document does not match its id.
    Number,
    /// The alias of a document is missing: the document is not found by its identity.
    AliasMissing,
    /// Two documents have the same identity. Not repairable: one of them needs another identity.
    AliasTaken,
    /// An alias belongs to no document, or to one with another identity.
    AliasStale,
    /// A document refers to one that does not exist. Not repairable.
    Dangling,
    /// The references of a body, the targets stored with the document and its edges differ.
    Edges,
    /// A row of edges does not match the targets stored with its document.
    EdgeStale,
}

impl FindingKind {
    /// The kind as a code, as in the HTTP API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Body => "body_invalid",
            Self::Number => "number_wrong",
            Self::AliasMissing => "alias_missing",
            Self::AliasTaken => "identity_taken",
            Self::AliasStale => "alias_stale",
            Self::Dangling => "reference_dangling",
            Self::Edges => "edges_wrong",
            Self::EdgeStale => "edge_stale",
        }
    }
}

/// What a repair has to rebuild or delete.
enum Inconsistency {
    Document(DocumentKey),
    /// Edges to rebuild from the targets stored with the document, because its body does not yield
    /// them.
    Noted(DocumentKey),
    Alias(TenantId, Uuid),
    Edges(CheckEdges),
}

impl Documents {
    /// Checks all documents of a database, of all tenants. With `repair`, repairable
    /// inconsistencies are repaired afterwards under the exclusive lock; the check itself does not
    /// block writes.
    ///
    /// # Errors
    /// [`DocumentsError::OwnedElsewhere`]: only the owner of the database's documents can repair.
    pub async fn fsck(&self, caller: &Caller, repair: bool) -> Result<FsckReport, DocumentsError> {
        let handle = self.handle(caller).await?;
        let _permit = self.inner.options.databases.admit(&caller.tenant).await?;
        match fsck(&handle, repair).await {
            Ok(checked) => Ok(checked),
            Err(error) => Err(handle.ownership.check_removal(error).await),
        }
    }
}

async fn fsck(handle: &DatabaseHandle, repair: bool) -> Result<FsckReport, DocumentsError> {
    let mut client = handle.ownership.client().await?;
    client.batch_execute(SETTINGS).await?;
    let statements = CheckStatements::prepare(&client).await?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    client.batch_execute(begin).await?;
    // Read in the snapshot that is checked.
    let catalogue = Catalogue::read(&client).await?;
    let mut look = FsckRun {
        client: &client,
        statements: &statements,
        catalogue: &catalogue,
        checked: FsckReport::default(),
        wrong: Vec::new(),
    };
    look.all().await?;
    let FsckRun {
        mut checked, wrong, ..
    } = look;
    client.batch_execute("COMMIT").await?;
    if repair && wrong.iter().any(Option::is_some) {
        let alone = handle.ownership.writer.lock_exclusive().await?;
        let mut transaction = client.transaction().await?;
        if !owner::stays(&transaction, alone.epoch).await? {
            return Err(DocumentsError::Unreachable);
        }
        for (at, wrong) in wrong.into_iter().enumerate() {
            let Some(wrong) = wrong else { continue };
            let catalogue = handle.ownership.writer.catalogue();
            let step = transaction.transaction().await?;
            let is_repaired = match mend(&step, &statements, &catalogue, &wrong).await {
                Ok(is_repaired) => {
                    step.commit().await?;
                    is_repaired
                }
                // A statement that the server rejects leaves its finding unrepaired; the others go
                // on.
                Err(DocumentsError::Server { is_lost: false, .. }) => {
                    step.rollback().await?;
                    false
                }
                Err(error) => return Err(error),
            };
            if let Some(finding) = checked.findings.get_mut(at) {
                finding.is_repaired = is_repaired;
            }
        }
        transaction.commit().await?;
        // Cached aliases may be wrong as well.
        handle.ownership.writer.clear_aliases();
        drop(alone);
    }
    Ok(checked)
}

/// Aliases and edges seen from the side of their documents.
#[derive(Debug, Default)]
struct FsckCounts {
    aliases: u64,
    edges: u64,
}

struct FsckRun<'a> {
    client: &'a Client,
    statements: &'a CheckStatements,
    catalogue: &'a Catalogue,
    checked: FsckReport,
    /// For each finding in `report`, the inconsistency to repair; none: it cannot be repaired.
    wrong: Vec<Option<Inconsistency>>,
}

impl FsckRun<'_> {
    fn find(
        &mut self,
        kind: FindingKind,
        of: Option<(CollectionId, Uuid)>,
        what: impl Into<String>,
        wrong: Option<Inconsistency>,
    ) {
        self.checked.count += 1;
        if self.checked.findings.len() == FINDINGS_MAX {
            return;
        }
        let declared = of.and_then(|(collection, _)| self.catalogue.get(collection));
        self.checked.findings.push(Finding {
            kind,
            collection: declared.map(|declared| declared.collection.name().clone()),
            id: of.map(|(_, id)| DocumentId::stored(id)),
            what: what.into(),
            is_repaired: false,
        });
        self.wrong.push(wrong);
    }

    async fn all(&mut self) -> Result<(), DocumentsError> {
        let met = self.documents().await?;
        let (aliases, edges) = check::counts(self.client).await?;
        (self.checked.aliases, self.checked.edges) = (aliases, edges);
        // All aliases and edges of documents have been counted: only if more are stored, some are
        // stale, and the tables must be scanned.
        if aliases != met.aliases {
            self.aliases().await?;
        }
        if edges != met.edges {
            self.edges().await?;
        }
        Ok(())
    }

    /// Checks documents with their aliases and edges.
    async fn documents(&mut self) -> Result<FsckCounts, DocumentsError> {
        let mut met = FsckCounts::default();
        let mut portions = BoundedChunks::new(check::PAGE);
        let first = DocumentKey {
            tenant: TenantId::MIN,
            collection: CollectionId::MIN,
            number: DocumentNumber::MIN,
        };
        let mut page = check::documents(self.client, self.statements, first, &mut portions).await?;
        while let Some(last) = page.last() {
            let after = last.place();
            self.checked.documents += page.len() as u64;
            // The server reads the next page while this one is checked.
            let (client, statements) = (self.client, self.statements);
            let next = check::documents(client, statements, after, &mut portions);
            let (next, looked) = tokio::join!(next, self.page(page, &mut met));
            looked?;
            page = next?;
        }
        Ok(met)
    }

    async fn page(
        &mut self,
        page: Vec<CheckRow>,
        met: &mut FsckCounts,
    ) -> Result<(), DocumentsError> {
        let mut drafts: Vec<(CheckRow, Draft)> = Vec::with_capacity(page.len());
        for row in page {
            let of = Some((row.collection, row.id));
            if DocumentId::stored(row.id).number() != row.number {
                self.find(
                    FindingKind::Number,
                    of,
                    "its number does not match its id",
                    None,
                );
            }
            if is_as_noted(&row) {
                met.edges += row.edges.len() as u64;
            }
            match drafted(self.catalogue, &row) {
                Ok(draft) => drafts.push((row, draft)),
                Err(what) => {
                    self.find(FindingKind::Body, of, what, None);
                    self.noted(&row);
                }
            }
        }
        let (tenants, aliases): (Vec<_>, Vec<_>) = names(&drafts).into_iter().unzip();
        let called =
            check::called(self.client, &self.statements.called, &tenants, &aliases).await?;
        for (row, draft) in drafts {
            met.aliases += self.document(&row, &draft, &called);
        }
        Ok(())
    }

    /// Checks one document. Returns how many of its aliases lead to it.
    fn document(&mut self, row: &CheckRow, draft: &Draft, called: &AliasOwners) -> u64 {
        let of = Some((row.collection, row.id));
        let mut own = 0;
        for alias in &draft.aliases {
            match called.get(&(row.tenant, alias.0)) {
                Some(found) if *found == (row.collection, row.number) => own += 1,
                Some(_) => {
                    let what = "another document has its identity";
                    self.find(FindingKind::AliasTaken, of, what, None);
                }
                None => {
                    let wrong = Some(Inconsistency::Document(row.place()));
                    let what = "it is not found by its identity";
                    self.find(FindingKind::AliasMissing, of, what, wrong);
                }
            }
        }
        let mut wanted = BTreeSet::new();
        let mut is_whole = true;
        for reference in &draft.references {
            if let Some((_, number)) = called.get(&(row.tenant, reference.alias.0)) {
                wanted.insert(*number);
                continue;
            }
            is_whole = false;
            let declared = self.catalogue.get(row.collection);
            let told = declared.map(|declared| declared.collection.tell(reference));
            let what = told.map(|told| {
                let references = vec![told];
                DocumentsError::UnresolvedReference { references }.to_string()
            });
            self.find(FindingKind::Dangling, of, what.unwrap_or_default(), None);
        }
        let said: BTreeSet<DocumentNumber> = row.targets.iter().copied().collect();
        if !is_whole {
            self.noted(row);
        } else if said != wanted || !is_as_noted(row) {
            let what = format!(
                "its body refers to {} documents, its row lists {} targets, and it has {} edges",
                wanted.len(),
                row.targets.len(),
                row.edges.len()
            );
            self.find(
                FindingKind::Edges,
                of,
                what,
                Some(Inconsistency::Document(row.place())),
            );
        }
        own
    }

    /// Checks the edges of a document against its stored targets only, when its body does not yield
    /// them.
    fn noted(&mut self, row: &CheckRow) {
        if !is_as_noted(row) {
            let what = format!(
                "its row lists {} targets, and it has {} edges",
                row.targets.len(),
                row.edges.len()
            );
            let of = Some((row.collection, row.id));
            self.find(
                FindingKind::Edges,
                of,
                what,
                Some(Inconsistency::Noted(row.place())),
            );
        }
    }

    async fn aliases(&mut self) -> Result<(), DocumentsError> {
        let (client, statements) = (self.client, self.statements);
        let (mut tenant, mut alias) = (TenantId::MIN, Uuid::nil());
        let mut portions = BoundedChunks::new(check::PAGE);
        loop {
            let page = check::aliases(client, statements, tenant, alias, &mut portions).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            (tenant, alias) = (last.tenant, last.alias);
            for one in page.iter().filter(|one| is_stale(self.catalogue, one)) {
                let of = one.document.as_ref().map(|(id, _)| (one.collection, *id));
                let what = match of {
                    Some(_) => "it is found by an identity that it does not have",
                    None => "an identity leads to a document that does not exist",
                };
                let wrong = Some(Inconsistency::Alias(one.tenant, one.alias));
                self.find(FindingKind::AliasStale, of, what, wrong);
            }
        }
    }

    async fn edges(&mut self) -> Result<(), DocumentsError> {
        let (client, statements) = (self.client, self.statements);
        let (mut tenant, mut target, mut source) =
            (TenantId::MIN, DocumentNumber::MIN, DocumentNumber::MIN);
        let mut portions = BoundedChunks::new(check::PAGE);
        loop {
            let next = check::edges(client, statements, tenant, target, source, &mut portions);
            let page = next.await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            (tenant, target, source) = (last.tenant, last.targets[0], last.source);
            for edges in page.into_iter().filter(|edges| !edges.is_said) {
                let targets: Vec<String> = edges
                    .targets
                    .iter()
                    .map(DocumentNumber::to_string)
                    .collect();
                let what = format!(
                    "edges lead from document number {} to {}, but its row does not list these \
                     targets",
                    edges.source,
                    targets.join(", ")
                );
                self.find(
                    FindingKind::EdgeStale,
                    None,
                    what,
                    Some(Inconsistency::Edges(edges)),
                );
            }
        }
    }
}

/// Whether the edges of a document equal its stored targets, each once.
fn is_as_noted(row: &CheckRow) -> bool {
    let once: BTreeSet<&DocumentNumber> = row.targets.iter().collect();
    row.edges == row.targets && once.len() == row.targets.len()
}

fn drafted(catalogue: &Catalogue, row: &CheckRow) -> Result<Draft, String> {
    let declared = catalogue.get(row.collection);
    let declared = declared.ok_or("its collection is not declared")?;
    let draft = declared.collection.read(row.body.as_bytes(), usize::MAX);
    draft.map_err(|error| error.to_string())
}

/// Aliases of these documents and of their targets, each once.
fn names(drafts: &[(CheckRow, Draft)]) -> HashSet<(TenantId, Uuid)> {
    let each = drafts.iter().flat_map(|(row, draft)| {
        let own = draft.aliases.iter().map(|alias| alias.0);
        let referred = draft.references.iter().map(|one| one.alias.0);
        own.chain(referred).map(|alias| (row.tenant, alias))
    });
    each.collect()
}

/// Whether an alias belongs to no document, or to one with another identity. False if the body
/// cannot be read: that is a finding of its own.
fn is_stale(catalogue: &Catalogue, one: &AliasRow) -> bool {
    let Some((_, body)) = &one.document else {
        return true;
    };
    let names = catalogue.get(one.collection).and_then(|declared| {
        let body = serde_json::from_str(body).ok()?;
        declared.aliases(&body).ok()
    });
    names.is_some_and(|names| names.iter().all(|name| name.0 != one.alias))
}

/// Repairs an inconsistency if it still exists under the exclusive lock. Returns whether it could.
async fn mend(
    client: &impl GenericClient,
    statements: &CheckStatements,
    catalogue: &Catalogue,
    wrong: &Inconsistency,
) -> Result<bool, DocumentsError> {
    match wrong {
        Inconsistency::Alias(tenant, alias) => {
            let found = check::alias(client, statements, *tenant, *alias).await?;
            if found.is_some_and(|found| is_stale(catalogue, &found)) {
                check::forget_alias(client, *tenant, *alias).await?;
            }
        }
        Inconsistency::Edges(edges) => check::mend_edges(client, edges).await?,
        Inconsistency::Noted(place) => {
            if let Some(row) = check::document(client, statements, *place).await? {
                check::lay(client, *place, &row.targets, &row.targets).await?;
            }
        }
        Inconsistency::Document(place) => {
            let Some(row) = check::document(client, statements, *place).await? else {
                return Ok(true);
            };
            let Ok(draft) = drafted(catalogue, &row) else {
                return Ok(false);
            };
            let drafts = [(row, draft)];
            let (tenants, aliases): (Vec<_>, Vec<_>) = names(&drafts).into_iter().unzip();
            let [(row, draft)] = drafts;
            let called = check::called(client, &statements.called, &tenants, &aliases).await?;
            let own: Vec<Uuid> = draft.aliases.iter().map(|alias| alias.0).collect();
            let is_own = |alias: &Uuid| {
                let found = called.get(&(row.tenant, *alias));
                found.is_none_or(|found| *found == (row.collection, row.number))
            };
            let referred = draft
                .references
                .iter()
                .map(|one| called.get(&(row.tenant, one.alias.0)));
            let targets: Option<BTreeSet<DocumentNumber>> =
                referred.map(|found| Some(found?.1)).collect();
            let Some(targets) = targets.filter(|_| own.iter().all(is_own)) else {
                return Ok(false);
            };
            let targets: Vec<DocumentNumber> = targets.into_iter().collect();
            check::mend(client, &row, &own, &targets).await?;
        }
    }
    Ok(true)
}
