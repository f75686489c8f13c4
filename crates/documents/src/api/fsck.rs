//! Looks whether identities, aliases, edges and bodies agree, and repairs what can be.

use std::collections::{BTreeSet, HashSet};

use egret_postgres::tokio_postgres::{Client, GenericClient};
use tokio::join;
use uuid::Uuid;

use super::{Caller, Documents, Kept};
use crate::core::collection::Draft;
use crate::error::DocumentsError;
use crate::model::{CollectionName, DocumentId};
use crate::store::check::{self, Alias, Called, Edges, Row, Statements};
use crate::store::owner;
use crate::store::query::Portions;
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
    /// Edges lead from a document that does not note them so.
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
    Document((i32, i32, i64)),
    /// Edges of a document that are to be as it notes them: what its body refers to cannot be told.
    Noted((i32, i32, i64)),
    Alias(i32, Uuid),
    Edges(Edges),
}

impl Documents {
    /// Looks at all documents of a database, whosever they are. With `repair`, what can be mended is: writes wait for that, and not while all is
    /// looked at.
    ///
    /// # Errors
    /// What the server says; to repair, this Egret has to be the one that writes.
    pub async fn fsck(&self, caller: &Caller, repair: bool) -> Result<Checked, DocumentsError> {
        let kept = self.kept(caller).await?;
        let _permit = self.inner.options.databases.admit(&caller.tenant).await?;
        match fsck(&kept, repair).await {
            Ok(checked) => Ok(checked),
            Err(error) => Err(kept.keeper.check_removal(error).await),
        }
    }
}

/// See [`Documents::fsck`].
async fn fsck(kept: &Kept, repair: bool) -> Result<Checked, DocumentsError> {
    let mut client = kept.keeper.client().await?;
    client.batch_execute(SETTINGS).await?;
    let statements = Statements::prepare(&client).await?;
    let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    client.batch_execute(begin).await?;
    // As they are in the state that is looked at.
    let catalogue = Catalogue::read(&client).await?;
    let mut look = Look {
        client: &client,
        statements: &statements,
        catalogue: &catalogue,
        checked: Checked::default(),
        wrong: Vec::new(),
    };
    look.all().await?;
    let Look {
        mut checked, wrong, ..
    } = look;
    client.batch_execute("COMMIT").await?;
    if repair && wrong.iter().any(Option::is_some) {
        let alone = kept.keeper.writer.alone().await?;
        let mut transaction = client.transaction().await?;
        if !owner::stays(&transaction, alone.epoch).await? {
            return Err(DocumentsError::Unreachable);
        }
        for (at, wrong) in wrong.into_iter().enumerate() {
            let Some(wrong) = wrong else { continue };
            let catalogue = kept.keeper.writer.catalogue();
            let step = transaction.transaction().await?;
            let is_repaired = match mend(&step, &statements, &catalogue, &wrong).await {
                Ok(is_repaired) => {
                    step.commit().await?;
                    is_repaired
                }
                // What the server does not take is left as it is; the others are mended.
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
        // What was remembered may be wrong as well.
        kept.keeper.writer.forget_names();
        drop(alone);
    }
    Ok(checked)
}

/// How many aliases and edges were met from the documents that they are of.
#[derive(Debug, Default)]
struct Met {
    aliases: u64,
    edges: u64,
}

struct Look<'a> {
    client: &'a Client,
    statements: &'a Statements,
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

    async fn all(&mut self) -> Result<(), DocumentsError> {
        let met = self.documents().await?;
        let (aliases, edges) = check::counts(self.client).await?;
        (self.checked.aliases, self.checked.edges) = (aliases, edges);
        // All that documents have was met from them: only where there is more, something is of none, or not as one notes it.
        if aliases != met.aliases {
            self.aliases().await?;
        }
        if edges != met.edges {
            self.edges().await?;
        }
        Ok(())
    }

    /// Looks at the documents, and at what they are called and refer to.
    async fn documents(&mut self) -> Result<Met, DocumentsError> {
        let mut met = Met::default();
        let mut portions = Portions::new(check::PAGE);
        let first = (i32::MIN, i32::MIN, i64::MIN);
        let mut page = check::documents(self.client, self.statements, first, &mut portions).await?;
        while let Some(last) = page.last() {
            let after = last.place();
            self.checked.documents += page.len() as u64;
            // The server reads the next ones meanwhile.
            let (client, statements) = (self.client, self.statements);
            let next = check::documents(client, statements, after, &mut portions);
            let (next, looked) = join!(next, self.page(page, &mut met));
            looked?;
            page = next?;
        }
        Ok(met)
    }

    async fn page(&mut self, page: Vec<Row>, met: &mut Met) -> Result<(), DocumentsError> {
        let mut drafts: Vec<(Row, Draft)> = Vec::with_capacity(page.len());
        for row in page {
            let of = Some((row.collection, row.id));
            if DocumentId::stored(row.id).number() != row.number {
                self.find(Kind::Number, of, "its number is not of its id", None);
            }
            if is_as_noted(&row) {
                met.edges += row.edges.len() as u64;
            }
            match drafted(self.catalogue, &row) {
                Ok(draft) => drafts.push((row, draft)),
                Err(what) => {
                    self.find(Kind::Body, of, what, None);
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

    /// Looks at a document. Returns how many of its names are its own.
    fn document(&mut self, row: &Row, draft: &Draft, called: &Called) -> u64 {
        let of = Some((row.collection, row.id));
        let mut own = 0;
        for alias in &draft.aliases {
            match called.get(&(row.tenant, alias.0)) {
                Some(found) if *found == (row.collection, row.number) => own += 1,
                Some(_) => {
                    let what = "another document has its identity";
                    self.find(Kind::AliasTaken, of, what, None);
                }
                None => {
                    let wrong = Some(Wrong::Document(row.place()));
                    let what = "it is not found by its identity";
                    self.find(Kind::AliasMissing, of, what, wrong);
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
            let declared = self.catalogue.by_number(row.collection);
            let told = declared.map(|declared| declared.collection.tell(reference));
            let what = told.map(|told| {
                let references = vec![told];
                DocumentsError::UnresolvedReference { references }.to_string()
            });
            self.find(Kind::Dangling, of, what.unwrap_or_default(), None);
        }
        let said: BTreeSet<i64> = row.targets.iter().copied().collect();
        if !is_whole {
            self.noted(row);
        } else if said != wanted || !is_as_noted(row) {
            let what = format!(
                "its body refers to {} documents, {} are noted with it, and {} edges are there",
                wanted.len(),
                row.targets.len(),
                row.edges.len()
            );
            self.find(Kind::Edges, of, what, Some(Wrong::Document(row.place())));
        }
        own
    }

    /// Looks at a document of which only what is noted with it can be told.
    fn noted(&mut self, row: &Row) {
        if !is_as_noted(row) {
            let what = format!(
                "{} references are noted with it, and {} edges are there",
                row.targets.len(),
                row.edges.len()
            );
            let of = Some((row.collection, row.id));
            self.find(Kind::Edges, of, what, Some(Wrong::Noted(row.place())));
        }
    }

    async fn aliases(&mut self) -> Result<(), DocumentsError> {
        let mut after = (i32::MIN, Uuid::nil());
        let mut portions = Portions::new(check::PAGE);
        loop {
            let page = check::aliases(self.client, self.statements, after, &mut portions).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = (last.tenant, last.alias);
            for one in page.iter().filter(|one| is_stale(self.catalogue, one)) {
                let of = one.document.as_ref().map(|(id, _)| (one.collection, *id));
                let what = match of {
                    Some(_) => "it is found by an identity that it does not have",
                    None => "an identity is of a document that is not there",
                };
                let wrong = Some(Wrong::Alias(one.tenant, one.alias));
                self.find(Kind::AliasStale, of, what, wrong);
            }
        }
    }

    async fn edges(&mut self) -> Result<(), DocumentsError> {
        let mut after = (i32::MIN, i64::MIN, i64::MIN);
        let mut portions = Portions::new(check::PAGE);
        loop {
            let page = check::edges(self.client, self.statements, after, &mut portions).await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = (last.tenant, last.targets[0], last.source);
            for edges in page.into_iter().filter(|edges| !edges.is_said) {
                let targets: Vec<String> = edges.targets.iter().map(i64::to_string).collect();
                let what = format!(
                    "edges lead from document number {} to {}, and that one does not note them so",
                    edges.source,
                    targets.join(", ")
                );
                self.find(Kind::EdgeStale, None, what, Some(Wrong::Edges(edges)));
            }
        }
    }
}

/// Whether the edges of a document are as it notes them, each once.
fn is_as_noted(row: &Row) -> bool {
    let once: BTreeSet<&i64> = row.targets.iter().collect();
    row.edges == row.targets && once.len() == row.targets.len()
}

fn drafted(catalogue: &Catalogue, row: &Row) -> Result<Draft, String> {
    let declared = catalogue.by_number(row.collection);
    let declared = declared.ok_or("it is of a collection that is not declared")?;
    let draft = declared.collection.read(row.body.as_bytes(), usize::MAX);
    draft.map_err(|error| error.to_string())
}

/// What documents are called and what they refer to, each once.
fn names(drafts: &[(Row, Draft)]) -> HashSet<(i32, Uuid)> {
    let each = drafts.iter().flat_map(|(row, draft)| {
        let own = draft.aliases.iter().map(|alias| alias.0);
        let referred = draft.references.iter().map(|one| one.alias.0);
        own.chain(referred).map(|alias| (row.tenant, alias))
    });
    each.collect()
}

/// Whether an alias is of no document, or of one that has another identity. Of one that cannot be read nobody can tell: that is found by itself.
fn is_stale(catalogue: &Catalogue, one: &Alias) -> bool {
    let Some((_, body)) = &one.document else {
        return true;
    };
    let names = catalogue.by_number(one.collection).and_then(|declared| {
        let body = serde_json::from_str(body).ok()?;
        declared.names(&body).ok()
    });
    names.is_some_and(|names| names.iter().all(|name| name.0 != one.alias))
}

/// Mends what is still wrong, now that nobody writes. Returns whether it could.
async fn mend(
    client: &impl GenericClient,
    statements: &Statements,
    catalogue: &Catalogue,
    wrong: &Wrong,
) -> Result<bool, DocumentsError> {
    match wrong {
        Wrong::Alias(tenant, alias) => {
            let found = check::alias(client, statements, (*tenant, *alias)).await?;
            if found.is_some_and(|found| is_stale(catalogue, &found)) {
                check::forget_alias(client, *tenant, *alias).await?;
            }
        }
        Wrong::Edges(edges) => check::mend_edges(client, edges).await?,
        Wrong::Noted(place) => {
            if let Some(row) = check::document(client, statements, *place).await? {
                check::lay(client, *place, &row.targets, &row.targets).await?;
            }
        }
        Wrong::Document(place) => {
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
            let referred = draft.references.iter();
            let referred = referred.map(|one| called.get(&(row.tenant, one.alias.0)));
            let targets: Option<BTreeSet<i64>> = referred.map(|found| Some(found?.1)).collect();
            let Some(targets) = targets.filter(|_| own.iter().all(is_own)) else {
                return Ok(false);
            };
            let targets: Vec<i64> = targets.into_iter().collect();
            check::mend(client, &row, &own, &targets).await?;
        }
    }
    Ok(true)
}
