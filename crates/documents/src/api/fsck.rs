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
use crate::worker::session::SESSION_SETTINGS;

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
    pub description: String,
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
    EdgesOfTargets(DocumentKey),
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
            Ok(report) => Ok(report),
            Err(error) => Err(handle.ownership.check_removal(error).await),
        }
    }
}

async fn fsck(handle: &DatabaseHandle, repair: bool) -> Result<FsckReport, DocumentsError> {
    let mut client = handle.ownership.connect().await?;
    client.batch_execute(SESSION_SETTINGS).await?;
    let statements = CheckStatements::prepare(&client).await?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    client.batch_execute(begin).await?;
    // Read in the snapshot that is checked.
    let catalogue = Catalogue::read(&client).await?;
    let mut run = FsckRun {
        client: &client,
        statements: &statements,
        catalogue: &catalogue,
        report: FsckReport::default(),
        inconsistencies: Vec::new(),
    };
    run.check_all().await?;
    let FsckRun { report: mut checked, inconsistencies: wrong, .. } = run;
    client.batch_execute("COMMIT").await?;
    if repair && wrong.iter().any(Option::is_some) {
        let guard = handle.ownership.writer.lock_exclusive().await?;
        let mut transaction = client.transaction().await?;
        if !owner::lock_epoch(&transaction, guard.epoch).await? {
            return Err(DocumentsError::Unreachable);
        }
        for (index, inconsistency) in wrong.into_iter().enumerate() {
            let Some(wrong) = inconsistency else { continue };
            let catalogue = handle.ownership.writer.catalogue();
            let savepoint = transaction.transaction().await?;
            let is_repaired =
                match repair_inconsistency(&savepoint, &statements, &catalogue, &wrong).await {
                    Ok(is_repaired) => {
                        savepoint.commit().await?;
                        is_repaired
                    }
                    // The server rejects a statement: the finding stays, the others are repaired.
                    Err(DocumentsError::Server { is_lost: false, .. }) => {
                        savepoint.rollback().await?;
                        false
                    }
                    Err(error) => return Err(error),
                };
            if let Some(finding) = checked.findings.get_mut(index) {
                finding.is_repaired = is_repaired;
            }
        }
        transaction.commit().await?;
        // Cached aliases may be wrong as well.
        handle.ownership.writer.clear_aliases();
        drop(guard);
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
    report: FsckReport,
    /// For each finding in `report`, the inconsistency to repair; none: it cannot be repaired.
    inconsistencies: Vec<Option<Inconsistency>>,
}

impl FsckRun<'_> {
    fn add_finding(
        &mut self,
        kind: FindingKind,
        document: Option<(CollectionId, Uuid)>,
        description: impl Into<String>,
        inconsistency: Option<Inconsistency>,
    ) {
        self.report.count += 1;
        if self.report.findings.len() == FINDINGS_MAX {
            return;
        }
        let declared = document.and_then(|(collection, _)| self.catalogue.get(collection));
        self.report.findings.push(Finding {
            kind,
            collection: declared.map(|declared| declared.collection.name().clone()),
            id: document.map(|(_, id)| DocumentId::from_stored(id)),
            description: description.into(),
            is_repaired: false,
        });
        self.inconsistencies.push(inconsistency);
    }

    async fn check_all(&mut self) -> Result<(), DocumentsError> {
        let counts = self.check_documents().await?;
        let (aliases, edges) = check::count_aliases_and_edges(self.client).await?;
        (self.report.aliases, self.report.edges) = (aliases, edges);
        // All aliases and edges of documents have been counted: only if more are stored, some are
        // stale, and the tables must be scanned.
        if aliases != counts.aliases {
            self.check_aliases().await?;
        }
        if edges != counts.edges {
            self.check_edges().await?;
        }
        Ok(())
    }

    /// Checks documents with their aliases and edges.
    async fn check_documents(&mut self) -> Result<FsckCounts, DocumentsError> {
        let mut counts = FsckCounts::default();
        let mut chunks = BoundedChunks::new(check::PAGE_ROWS_MAX);
        let first = DocumentKey {
            tenant: TenantId::MIN,
            collection: CollectionId::MIN,
            number: DocumentNumber::MIN,
        };
        let mut page =
            check::read_documents(self.client, self.statements, first, &mut chunks).await?;
        while let Some(last) = page.last() {
            let after = last.key();
            self.report.documents += page.len() as u64;
            // The server reads the next page while this one is checked.
            let (client, statements) = (self.client, self.statements);
            let next = check::read_documents(client, statements, after, &mut chunks);
            let (next, page_result) = tokio::join!(next, self.check_page(page, &mut counts));
            page_result?;
            page = next?;
        }
        Ok(counts)
    }

    async fn check_page(
        &mut self,
        page: Vec<CheckRow>,
        counts: &mut FsckCounts,
    ) -> Result<(), DocumentsError> {
        let mut drafts: Vec<(CheckRow, Draft)> = Vec::with_capacity(page.len());
        for row in page {
            let document = Some((row.collection, row.id));
            if DocumentId::from_stored(row.id).number() != row.number {
                self.add_finding(
                    FindingKind::Number,
                    document,
                    "its number does not match its id",
                    None,
                );
            }
            if has_matching_edges(&row) {
                counts.edges += row.edges.len() as u64;
            }
            match parse_draft(self.catalogue, &row) {
                Ok(draft) => drafts.push((row, draft)),
                Err(what) => {
                    self.add_finding(FindingKind::Body, document, what, None);
                    self.check_stored_targets(&row);
                }
            }
        }
        let (tenants, aliases): (Vec<_>, Vec<_>) = collect_aliases(&drafts).into_iter().unzip();
        let owners = check::read_alias_owners(
            self.client,
            &self.statements.alias_owners,
            &tenants,
            &aliases,
        )
        .await?;
        for (row, draft) in drafts {
            counts.aliases += self.check_document(&row, &draft, &owners);
        }
        Ok(())
    }

    /// Checks one document. Returns how many of its aliases lead to it.
    fn check_document(&mut self, row: &CheckRow, draft: &Draft, owners: &AliasOwners) -> u64 {
        let of = Some((row.collection, row.id));
        let mut own_count = 0;
        for alias in &draft.aliases {
            match owners.get(&(row.tenant, alias.0)) {
                Some(owner) if *owner == (row.collection, row.number) => own_count += 1,
                Some(_) => {
                    let what = "another document has its identity";
                    self.add_finding(FindingKind::AliasTaken, of, what, None);
                }
                None => {
                    let wrong = Some(Inconsistency::Document(row.key()));
                    let what = "it is not found by its identity";
                    self.add_finding(FindingKind::AliasMissing, of, what, wrong);
                }
            }
        }
        let mut expected_targets = BTreeSet::new();
        let mut is_resolved = true;
        for reference in &draft.references {
            if let Some((_, number)) = owners.get(&(row.tenant, reference.alias.0)) {
                expected_targets.insert(*number);
                continue;
            }
            is_resolved = false;
            let declared = self.catalogue.get(row.collection);
            let unresolved =
                declared.map(|declared| declared.collection.describe_unresolved(reference));
            let what = unresolved.map(|told| {
                let references = vec![told];
                DocumentsError::UnresolvedReference { references }.to_string()
            });
            self.add_finding(FindingKind::Dangling, of, what.unwrap_or_default(), None);
        }
        let stored_targets: BTreeSet<DocumentNumber> = row.targets.iter().copied().collect();
        if !is_resolved {
            self.check_stored_targets(row);
        } else if stored_targets != expected_targets || !has_matching_edges(row) {
            let what = format!(
                "its body refers to {} documents, its row lists {} targets, and it has {} edges",
                expected_targets.len(),
                row.targets.len(),
                row.edges.len()
            );
            self.add_finding(
                FindingKind::Edges,
                of,
                what,
                Some(Inconsistency::Document(row.key())),
            );
        }
        own_count
    }

    /// Checks the edges of a document against its stored targets only, when its body does not yield
    /// them.
    fn check_stored_targets(&mut self, row: &CheckRow) {
        if !has_matching_edges(row) {
            let what = format!(
                "its row lists {} targets, and it has {} edges",
                row.targets.len(),
                row.edges.len()
            );
            let document = Some((row.collection, row.id));
            self.add_finding(
                FindingKind::Edges,
                document,
                what,
                Some(Inconsistency::EdgesOfTargets(row.key())),
            );
        }
    }

    async fn check_aliases(&mut self) -> Result<(), DocumentsError> {
        let (client, statements) = (self.client, self.statements);
        let (mut tenant, mut alias) = (TenantId::MIN, Uuid::nil());
        let mut chunks = BoundedChunks::new(check::PAGE_ROWS_MAX);
        loop {
            let page = check::read_aliases(client, statements, tenant, alias, &mut chunks).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            (tenant, alias) = (last.tenant, last.alias);
            for row in page.iter().filter(|one| is_stale(self.catalogue, one)) {
                let of = row.document.as_ref().map(|(id, _)| (row.collection, *id));
                let what = match of {
                    Some(_) => "it is found by an identity that it does not have",
                    None => "an identity leads to a document that does not exist",
                };
                let wrong = Some(Inconsistency::Alias(row.tenant, row.alias));
                self.add_finding(FindingKind::AliasStale, of, what, wrong);
            }
        }
    }

    async fn check_edges(&mut self) -> Result<(), DocumentsError> {
        let (client, statements) = (self.client, self.statements);
        let (mut tenant, mut target, mut source) =
            (TenantId::MIN, DocumentNumber::MIN, DocumentNumber::MIN);
        let mut chunks = BoundedChunks::new(check::PAGE_ROWS_MAX);
        loop {
            let next = check::read_edges(client, statements, tenant, target, source, &mut chunks);
            let page = next.await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            (tenant, target, source) = (last.tenant, last.targets[0], last.source);
            for edges in page.into_iter().filter(|edges| !edges.is_listed) {
                let targets: Vec<String> =
                    edges.targets.iter().map(DocumentNumber::to_string).collect();
                let what = format!(
                    "edges lead from document number {} to {}, but its row does not list these \
                     targets",
                    edges.source,
                    targets.join(", ")
                );
                self.add_finding(
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
fn has_matching_edges(row: &CheckRow) -> bool {
    let distinct: BTreeSet<&DocumentNumber> = row.targets.iter().collect();
    row.edges == row.targets && distinct.len() == row.targets.len()
}

fn parse_draft(catalogue: &Catalogue, row: &CheckRow) -> Result<Draft, String> {
    let declared = catalogue.get(row.collection);
    let declared = declared.ok_or("its collection is not declared")?;
    let draft = declared.collection.parse(row.body.as_bytes(), usize::MAX);
    draft.map_err(|error| error.to_string())
}

/// Aliases of these documents and of their targets, each once.
fn collect_aliases(drafts: &[(CheckRow, Draft)]) -> HashSet<(TenantId, Uuid)> {
    let keys = drafts.iter().flat_map(|(row, draft)| {
        let own = draft.aliases.iter().map(|alias| alias.0);
        let referred = draft.references.iter().map(|one| one.alias.0);
        own.chain(referred).map(|alias| (row.tenant, alias))
    });
    keys.collect()
}

/// Whether an alias belongs to no document, or to one with another identity. False if the body
/// cannot be read: that is a finding of its own.
fn is_stale(catalogue: &Catalogue, row: &AliasRow) -> bool {
    let Some((_, body)) = &row.document else {
        return true;
    };
    let aliases = catalogue.get(row.collection).and_then(|declared| {
        let body = serde_json::from_str(body).ok()?;
        declared.aliases(&body).ok()
    });
    aliases.is_some_and(|names| names.iter().all(|name| name.0 != row.alias))
}

/// Repairs an inconsistency if it still exists under the exclusive lock. Returns whether it could.
async fn repair_inconsistency(
    client: &impl GenericClient,
    statements: &CheckStatements,
    catalogue: &Catalogue,
    inconsistency: &Inconsistency,
) -> Result<bool, DocumentsError> {
    match inconsistency {
        Inconsistency::Alias(tenant, alias) => {
            let found = check::read_alias(client, statements, *tenant, *alias).await?;
            if found.is_some_and(|found| is_stale(catalogue, &found)) {
                check::delete_alias(client, *tenant, *alias).await?;
            }
        }
        Inconsistency::Edges(edges) => check::repair_edges(client, edges).await?,
        Inconsistency::EdgesOfTargets(key) => {
            if let Some(row) = check::read_document(client, statements, *key).await? {
                check::replace_edges(client, *key, &row.targets, &row.targets).await?;
            }
        }
        Inconsistency::Document(place) => {
            let Some(row) = check::read_document(client, statements, *place).await? else {
                return Ok(true);
            };
            let Ok(draft) = parse_draft(catalogue, &row) else {
                return Ok(false);
            };
            let drafts = [(row, draft)];
            let (tenants, aliases): (Vec<_>, Vec<_>) = collect_aliases(&drafts).into_iter().unzip();
            let [(row, draft)] = drafts;
            let sql = &statements.alias_owners;
            let owners = check::read_alias_owners(client, sql, &tenants, &aliases).await?;
            let own: Vec<Uuid> = draft.aliases.iter().map(|alias| alias.0).collect();
            let is_free = |alias: &Uuid| {
                let found = owners.get(&(row.tenant, *alias));
                found.is_none_or(|found| *found == (row.collection, row.number))
            };
            let aliases = draft.references.iter().map(|reference| reference.alias.0);
            let targets: Option<BTreeSet<DocumentNumber>> =
                aliases.map(|alias| Some(owners.get(&(row.tenant, alias))?.1)).collect();
            let Some(targets) = targets.filter(|_| own.iter().all(is_free)) else {
                return Ok(false);
            };
            let targets: Vec<DocumentNumber> = targets.into_iter().collect();
            check::repair_document(client, &row, &own, &targets).await?;
        }
    }
    Ok(true)
}
