//! Looks whether identities, aliases, edges and bodies agree, and repairs what can be.

use std::collections::BTreeSet;

use egret_postgres::tokio_postgres::{Client, GenericClient};
use uuid::Uuid;

use super::{Caller, Documents};
use crate::core::collection::Draft;
use crate::error::DocumentsError;
use crate::model::{CollectionName, DocumentId};
use crate::store::check::{self, Edge, Row};
use crate::store::owner;
use crate::worker::catalogue::Catalogue;
use crate::worker::session::SETTINGS;

/// Findings that are told, at most; all are counted.
pub const FINDINGS_MAX: usize = 1_000;

/// What was looked at, and what does not agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Documents.
    pub documents: u64,
    /// Identities by which they are found.
    pub aliases: u64,
    /// References.
    pub edges: u64,
    /// How much does not agree.
    pub count: u64,
    /// What, as far as it is told.
    pub findings: Vec<Finding>,
}

/// Something that does not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// The document's collection, where there is one.
    pub collection: Option<CollectionName>,
    /// The document, where there is one.
    pub id: Option<DocumentId>,
    /// In words.
    pub what: String,
    /// Whether that was mended.
    pub is_repaired: bool,
}

/// What may not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A body is not what its collection allows. Nobody but its owner can mend that.
    Body,
    /// A document's number is not of its id.
    Number,
    /// A document is not found by its identity.
    AliasMissing,
    /// A document has the identity of another. Nobody but their owner can mend that.
    AliasTaken,
    /// An identity is of no document, or of one that has another.
    AliasStale,
    /// A document refers to one that is not there. Nobody but its owner can mend that.
    Dangling,
    /// What a document refers to is not what it says.
    Edges,
    /// An edge leads from a document that does not refer to that.
    EdgeStale,
}

impl Kind {
    /// As it is told.
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

/// What is to be mended.
enum Wrong {
    Document(Row),
    Alias(i32, Uuid),
    Edge(Edge),
}

impl Documents {
    /// Looks at all documents of a database, whosever they are. With `repair`, what can be mended is: writes wait for that, and not while all is
    /// looked at.
    ///
    /// # Errors
    /// What the server says; to repair, this Egret has to be the one that writes.
    pub async fn fsck(&self, caller: &Caller, repair: bool) -> Result<Checked, DocumentsError> {
        let kept = self.kept(caller).await?;
        let mut client = kept.keeper.client().await?;
        client.batch_execute(SETTINGS).await?;
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        client.batch_execute(begin).await?;
        let catalogue = kept.keeper.writer.catalogue();
        let mut look = Look {
            client: &client,
            catalogue: &catalogue,
            checked: Checked::default(),
            wrong: Vec::new(),
        };
        look.documents().await?;
        look.aliases().await?;
        look.edges().await?;
        let Look {
            mut checked, wrong, ..
        } = look;
        client.batch_execute("COMMIT").await?;
        if repair && wrong.iter().any(Option::is_some) {
            let alone = kept.keeper.writer.alone().await?;
            let transaction = client.transaction().await?;
            if !owner::stays(&transaction, alone.epoch).await? {
                return Err(DocumentsError::Unreachable);
            }
            for (at, wrong) in wrong.into_iter().enumerate() {
                let Some(wrong) = wrong else { continue };
                let is_repaired =
                    mend(&transaction, &kept.keeper.writer.catalogue(), &wrong).await?;
                if let Some(finding) = checked.findings.get_mut(at) {
                    finding.is_repaired = is_repaired;
                }
            }
            transaction.commit().await?;
            // What was remembered may be wrong as well.
            kept.keeper.writer.forget_names();
            drop(alone);
        }
        Ok(checked)
    }
}

struct Look<'a> {
    client: &'a Client,
    catalogue: &'a Catalogue,
    checked: Checked,
    /// Beside each finding what can be mended.
    wrong: Vec<Option<Wrong>>,
}

impl Look<'_> {
    fn find(
        &mut self,
        kind: Kind,
        of: Option<(i32, Uuid)>,
        what: impl Into<String>,
        wrong: Option<Wrong>,
    ) {
        self.checked.count += 1;
        if self.checked.findings.len() == FINDINGS_MAX {
            return;
        }
        let declared = of.and_then(|(collection, _)| self.catalogue.by_number(collection));
        self.checked.findings.push(Finding {
            kind,
            collection: declared.map(|declared| declared.collection.name().clone()),
            id: of.map(|(_, id)| DocumentId::stored(id)),
            what: what.into(),
            is_repaired: false,
        });
        self.wrong.push(wrong);
    }

    async fn documents(&mut self) -> Result<(), DocumentsError> {
        let mut after = (i32::MIN, i32::MIN, i64::MIN);
        loop {
            let page = check::documents(self.client, after).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = (last.tenant, last.collection, last.number);
            self.checked.documents += page.len() as u64;
            let mut drafts: Vec<(Row, Draft)> = Vec::with_capacity(page.len());
            for row in page {
                let of = Some((row.collection, row.id));
                if DocumentId::stored(row.id).number() != row.number {
                    self.find(Kind::Number, of, "its number is not of its id", None);
                }
                match drafted(self.catalogue, &row) {
                    Ok(draft) => drafts.push((row, draft)),
                    Err(what) => self.find(Kind::Body, of, what, None),
                }
            }
            let (tenants, aliases) = names(&drafts);
            let found = check::called(self.client, &tenants, &aliases).await?;
            let mut found = found.into_iter();
            for (row, draft) in drafts {
                let own: Vec<_> = found.by_ref().take(draft.aliases.len()).collect();
                let referred: Vec<_> = found.by_ref().take(draft.references.len()).collect();
                self.document(row, &draft, &own, &referred);
            }
        }
    }

    fn document(
        &mut self,
        row: Row,
        draft: &Draft,
        own: &[Option<(i32, i64)>],
        referred: &[Option<(i32, i64)>],
    ) {
        let of = Some((row.collection, row.id));
        for found in own {
            match found {
                Some(found) if *found == (row.collection, row.number) => {}
                Some(_) => self.find(
                    Kind::AliasTaken,
                    of,
                    "another document has its identity",
                    None,
                ),
                None => {
                    let wrong = Some(Wrong::Document(row.clone()));
                    let what = "it is not found by its identity";
                    self.find(Kind::AliasMissing, of, what, wrong);
                }
            }
        }
        for (reference, found) in draft.references.iter().zip(referred) {
            if found.is_none() {
                let declared = self.catalogue.by_number(row.collection);
                let told = declared.map(|declared| declared.collection.tell(reference));
                let what = told.map(|told| {
                    let references = vec![told];
                    DocumentsError::UnresolvedReference { references }.to_string()
                });
                self.find(Kind::Dangling, of, what.unwrap_or_default(), None);
            }
        }
        let wanted: BTreeSet<i64> = referred
            .iter()
            .flatten()
            .map(|(_, number)| *number)
            .collect();
        let said: BTreeSet<i64> = row.targets.iter().copied().collect();
        let there: BTreeSet<i64> = row.edges.iter().copied().collect();
        if said != wanted || there != wanted {
            let what = format!(
                "its body refers to {} documents, {} are noted with it, and {} edges are there",
                wanted.len(),
                said.len(),
                there.len()
            );
            let is_whole = referred.iter().all(Option::is_some);
            let wrong = is_whole.then_some(Wrong::Document(row));
            self.find(Kind::Edges, of, what, wrong);
        }
    }

    async fn aliases(&mut self) -> Result<(), DocumentsError> {
        let mut after = (i32::MIN, Uuid::nil());
        loop {
            let page = check::aliases(self.client, after).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = (last.tenant, last.alias);
            self.checked.aliases += page.len() as u64;
            for one in page {
                let wrong = Some(Wrong::Alias(one.tenant, one.alias));
                let Some((id, body)) = one.document else {
                    let what = "an identity is of a document that is not there";
                    self.find(Kind::AliasStale, None, what, wrong);
                    continue;
                };
                let names = self
                    .catalogue
                    .by_number(one.collection)
                    .and_then(|declared| {
                        let body = serde_json::from_str(&body).ok()?;
                        declared.names(&body).ok()
                    });
                // What is wrong with the body itself has been found before.
                let Some(names) = names else { continue };
                if names.iter().all(|name| name.0 != one.alias) {
                    let what = "it is found by an identity that it does not have";
                    let of = Some((one.collection, id));
                    self.find(Kind::AliasStale, of, what, wrong);
                }
            }
        }
    }

    async fn edges(&mut self) -> Result<(), DocumentsError> {
        let mut after = (i32::MIN, i64::MIN, i64::MIN);
        loop {
            let page = check::edges(self.client, after).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = (last.tenant, last.target, last.source);
            self.checked.edges += page.len() as u64;
            for edge in page.into_iter().filter(|edge| !edge.is_said) {
                let what = format!(
                    "an edge leads from document number {} to {}, and that one does not refer to it",
                    edge.source, edge.target
                );
                self.find(Kind::EdgeStale, None, what, Some(Wrong::Edge(edge)));
            }
        }
    }
}

fn drafted(catalogue: &Catalogue, row: &Row) -> Result<Draft, String> {
    let declared = catalogue.by_number(row.collection);
    let declared = declared.ok_or("it is of a collection that is not declared")?;
    let draft = declared.collection.read(row.body.as_bytes(), usize::MAX);
    draft.map_err(|error| error.to_string())
}

/// What documents are called and what they refer to, one after the other.
fn names(drafts: &[(Row, Draft)]) -> (Vec<i32>, Vec<Uuid>) {
    let each = drafts.iter().flat_map(|(row, draft)| {
        let own = draft.aliases.iter().map(|alias| alias.0);
        let referred = draft.references.iter().map(|one| one.alias.0);
        own.chain(referred).map(|alias| (row.tenant, alias))
    });
    each.unzip()
}

/// Mends what is still wrong, now that nobody writes. Returns whether it could.
async fn mend(
    client: &impl GenericClient,
    catalogue: &Catalogue,
    wrong: &Wrong,
) -> Result<bool, DocumentsError> {
    match wrong {
        Wrong::Alias(tenant, alias) => check::forget_alias(client, *tenant, *alias).await?,
        Wrong::Edge(edge) => check::forget_edge(client, edge).await?,
        Wrong::Document(row) => {
            let place = (row.tenant, row.collection, row.number);
            let Some(row) = check::document(client, place).await? else {
                return Ok(true);
            };
            let Ok(draft) = drafted(catalogue, &row) else {
                return Ok(false);
            };
            let drafts = [(row, draft)];
            let (tenants, aliases) = names(&drafts);
            let [(row, draft)] = drafts;
            let found = check::called(client, &tenants, &aliases).await?;
            let (own, referred) = found.split_at(draft.aliases.len());
            let is_own = |found: &Option<(i32, i64)>| {
                found.is_none_or(|found| found == (row.collection, row.number))
            };
            if !own.iter().all(is_own) || referred.iter().any(Option::is_none) {
                return Ok(false);
            }
            let targets: BTreeSet<i64> = referred
                .iter()
                .flatten()
                .map(|(_, number)| *number)
                .collect();
            let targets: Vec<i64> = targets.into_iter().collect();
            let names = &aliases[..draft.aliases.len()];
            check::mend(client, &row, names, &targets).await?;
        }
    }
    Ok(true)
}
