//! All changes of a batch of writes, as the arguments of one statement.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Error as PgError, Statement};
use uuid::Uuid;

use super::edges::{EdgeKeys, EdgeRows};
use super::jsonb::JsonText;
use crate::core::definition::History;
use crate::core::edges::{EDGE_ROW_WIDTH, assign_slots, changed_rows, removed_targets};
use crate::core::write::IdempotentRequest;
use crate::model::{
    AliasId, ChangeKind, CollectionId, CollectionKey, DocumentId, DocumentNumber, Epoch,
    FeedPosition, TenantId, WriteReceipt,
};

/// The changes of a batch, column by column, as `egret.document_write` takes them.
#[derive(Debug, Default)]
pub(crate) struct WriteRows {
    number_max: DocumentNumber,
    requires_durability: bool,
    created: BodyRows,
    created_ids: Vec<Uuid>,
    created_versions: Vec<i32>,
    changed: BodyRows,
    deleted: DocumentKeys,
    removal_checks: RemovalChecks,
    history: HistoryRows,
    restored: DocumentKeys,
    restored_kept: Vec<bool>,
    aliases: NewAliases,
    deleted_aliases: DeletedAliases,
    edges: EdgeRows,
    deleted_edge_rows: EdgeKeys,
    deleted_edges: EdgeKeys,
    /// For each of `deleted_edges`, the index of the write that removes it.
    deleted_edge_writes: Vec<i32>,
    /// Index of the current write, from 1.
    write: i32,
    changes: FeedRows,
    requests: RequestRows,
}

/// Documents with their content, column by column.
#[derive(Debug, Default)]
struct BodyRows {
    tenants: Vec<TenantId>,
    collections: Vec<CollectionId>,
    numbers: Vec<DocumentNumber>,
    bodies: Vec<JsonText>,
    creators: Vec<Option<String>>,
    authors: Vec<Option<String>>,
    traces: Vec<Option<String>>,
    /// End of each document's targets in `targets`.
    ends: Vec<i32>,
    targets: Vec<DocumentNumber>,
}

#[derive(Debug, Default)]
struct DocumentKeys {
    tenants: Vec<TenantId>,
    collections: Vec<CollectionId>,
    numbers: Vec<DocumentNumber>,
}

impl DocumentKeys {
    fn push(&mut self, key: CollectionKey, number: DocumentNumber) {
        self.tenants.push(key.tenant);
        self.collections.push(key.collection);
        self.numbers.push(number);
    }
}

/// Documents whose deletion requires that no other document refers to them.
#[derive(Debug, Default)]
struct RemovalChecks {
    tenants: Vec<TenantId>,
    numbers: Vec<DocumentNumber>,
    /// For each of them, the index of the write that deletes it.
    writes: Vec<i32>,
}

/// Outcome of the statement of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommitOutcome {
    /// It was committed; the feed position of its last change.
    Written(FeedPosition),
    /// Nothing was written: others refer to these documents, which were to be deleted.
    StillReferenced(Vec<DocumentNumber>),
}

/// Previous versions, for the history table.
#[derive(Debug, Default)]
struct HistoryRows {
    keys: DocumentKeys,
    versions: Vec<i32>,
    authors: Vec<Option<String>>,
    deleted: Vec<bool>,
}

/// Idempotent requests with their replies.
#[derive(Debug, Default)]
struct RequestRows {
    tenants: Vec<TenantId>,
    keys: Vec<Uuid>,
    fingerprints: Vec<Uuid>,
    /// End of each request's receipts in `kinds`, `ids` and `versions`.
    ends: Vec<i32>,
    kinds: Vec<i8>,
    ids: Vec<Uuid>,
    versions: Vec<i32>,
}

#[derive(Debug, Default)]
struct NewAliases {
    tenants: Vec<TenantId>,
    collections: Vec<CollectionId>,
    aliases: Vec<Uuid>,
    numbers: Vec<DocumentNumber>,
}

#[derive(Debug, Default)]
struct DeletedAliases {
    tenants: Vec<TenantId>,
    aliases: Vec<Uuid>,
}

#[derive(Debug, Default)]
struct FeedRows {
    kinds: Vec<i8>,
    tenants: Vec<TenantId>,
    collections: Vec<CollectionId>,
    ids: Vec<Uuid>,
    versions: Vec<i32>,
}

/// New content of a document's row.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    /// Body as JSON text.
    pub body: String,
    /// Creator, if different from `author`.
    pub creator: Option<String>,
    /// Author of the write.
    pub author: Option<String>,
    /// Trace id of the write's request.
    pub trace: Option<String>,
    /// Numbers of the documents that it refers to, each once.
    pub targets: Vec<DocumentNumber>,
}

impl BodyRows {
    fn push(&mut self, key: CollectionKey, number: DocumentNumber, content: Content) {
        self.tenants.push(key.tenant);
        self.collections.push(key.collection);
        self.numbers.push(number);
        self.bodies.push(JsonText(content.body));
        let creator = content.creator.or_else(|| content.author.clone());
        self.creators.push(creator);
        self.authors.push(content.author);
        self.traces.push(content.trace);
        self.targets.extend(content.targets);
        let end =
            i32::try_from(self.targets.len()).expect("a batch has a limited number of documents");
        self.ends.push(end);
    }
}

impl HistoryRows {
    /// Adds the current version of a document, of which at most `versions_max` are kept.
    fn push(
        &mut self,
        key: CollectionKey,
        number: DocumentNumber,
        versions_max: u32,
        author: Option<&String>,
        is_deleted: bool,
    ) {
        let versions_max = i32::try_from(versions_max).expect("a definition allows few versions");
        self.keys.push(key, number);
        self.versions.push(versions_max);
        self.authors.push(author.cloned());
        self.deleted.push(is_deleted);
    }
}

impl WriteRows {
    /// Requires that the commit is flushed before it is acknowledged.
    pub(crate) fn require_durability(&mut self) {
        self.requires_durability = true;
    }

    pub(crate) fn requires_durability(&self) -> bool {
        self.requires_durability
    }

    /// Inserts a document, a new or a restored one, with this version.
    pub(crate) fn create(
        &mut self,
        key: CollectionKey,
        id: DocumentId,
        version: i32,
        content: Content,
    ) {
        let number = id.number();
        self.number_max = self.number_max.max(number);
        for row in content.targets.chunks(EDGE_ROW_WIDTH) {
            self.edges.push(key, row, number);
        }
        self.created.push(key, number, content);
        self.created_ids.push(id.uuid());
        self.created_versions.push(version);
    }

    /// Replaces the body of a document; updates its edges, given the targets of its last version.
    pub(crate) fn change(
        &mut self,
        key: CollectionKey,
        number: DocumentNumber,
        before: &[DocumentNumber],
        mut content: Content,
    ) {
        for target in removed_targets(before, &content.targets) {
            self.delete_edge(key.tenant, target, number);
        }
        content.targets = assign_slots(before, &content.targets);
        let (deleted, inserted) = changed_rows(before, &content.targets);
        for row in deleted {
            self.deleted_edge_rows.push(key.tenant, row[0], number);
        }
        for row in inserted {
            self.edges.push(key, row, number);
        }
        self.changed.push(key, number, content);
    }

    /// Deletes a document with its edges.
    pub(crate) fn remove(
        &mut self,
        key: CollectionKey,
        number: DocumentNumber,
        targets: &[DocumentNumber],
    ) {
        self.deleted.push(key, number);
        for row in targets.chunks(EDGE_ROW_WIDTH) {
            self.deleted_edge_rows.push(key.tenant, row[0], number);
        }
        for target in targets {
            self.delete_edge(key.tenant, *target, number);
        }
    }

    fn delete_edge(&mut self, tenant: TenantId, target: DocumentNumber, source: DocumentNumber) {
        self.deleted_edges.push(tenant, target, source);
        self.deleted_edge_writes.push(self.write);
    }

    /// Starts the next write of the batch. Edges removed by earlier writes no longer block its
    /// removals.
    pub(crate) fn begin_write(&mut self) {
        self.write += 1;
    }

    /// Makes a deletion fail if documents other than itself refer to the document.
    pub(crate) fn check_unreferenced(&mut self, tenant: TenantId, number: DocumentNumber) {
        self.removal_checks.tenants.push(tenant);
        self.removal_checks.numbers.push(number);
        self.removal_checks.writes.push(self.write);
    }

    /// Keeps the version that is replaced, as the collection's history settings say.
    pub(crate) fn keep_version(
        &mut self,
        key: CollectionKey,
        number: DocumentNumber,
        history: History,
        author: Option<&String>,
    ) {
        if history.versions > 0 {
            self.history.push(key, number, history.versions, author, false);
        }
    }

    /// Keeps the version that is deleted, as the collection's history settings say. If deleted
    /// documents are not kept, all versions are dropped.
    pub(crate) fn keep_deleted(
        &mut self,
        key: CollectionKey,
        number: DocumentNumber,
        history: History,
        author: Option<&String>,
    ) {
        let versions_max = if history.deleted { history.versions } else { 0 };
        if history.versions > 0 || history.deleted {
            self.history.push(key, number, versions_max, author, history.deleted);
        }
    }

    /// Removes the deleted version of a document that is restored from the history, or keeps it as
    /// an earlier version, depending on the history settings.
    pub(crate) fn restore_version(
        &mut self,
        key: CollectionKey,
        number: DocumentNumber,
        history: History,
    ) {
        self.restored.push(key, number);
        self.restored_kept.push(history.versions > 0);
    }

    /// Stores the reply to an idempotent request.
    pub(crate) fn add_reply(
        &mut self,
        tenant: TenantId,
        request: IdempotentRequest,
        receipts: &[WriteReceipt],
    ) {
        let requests = &mut self.requests;
        requests.tenants.push(tenant);
        requests.keys.push(request.key);
        requests.fingerprints.push(request.fingerprint);
        for receipt in receipts {
            requests.kinds.push(receipt.outcome.letter());
            requests.ids.push(receipt.id.uuid());
            requests.versions.push(receipt.version);
        }
        let end =
            i32::try_from(requests.ids.len()).expect("a batch has a limited number of writes");
        requests.ends.push(end);
    }

    /// Adds an alias of a document, in its collection or in an abstract one.
    pub(crate) fn add_alias(&mut self, key: CollectionKey, alias: AliasId, number: DocumentNumber) {
        self.aliases.tenants.push(key.tenant);
        self.aliases.collections.push(key.collection);
        self.aliases.aliases.push(alias.0);
        self.aliases.numbers.push(number);
    }

    pub(crate) fn delete_alias(&mut self, tenant: TenantId, alias: AliasId) {
        self.deleted_aliases.tenants.push(tenant);
        self.deleted_aliases.aliases.push(alias.0);
    }

    /// Adds a change to the feed.
    pub(crate) fn add_change(
        &mut self,
        kind: ChangeKind,
        key: CollectionKey,
        id: DocumentId,
        version: i32,
    ) {
        self.changes.kinds.push(kind.letter());
        self.changes.tenants.push(key.tenant);
        self.changes.collections.push(key.collection);
        self.changes.ids.push(id.uuid());
        self.changes.versions.push(version);
    }

    /// Writes everything in one transaction. On an error nothing was written, unless the connection
    /// failed: then the outcome is unknown.
    pub(crate) async fn execute(
        &self,
        client: &Client,
        statement: &Statement,
        epoch: Epoch,
        batch: i64,
    ) -> Result<CommitOutcome, PgError> {
        let is_relaxed = !self.requires_durability;
        let mut values: Vec<&(dyn ToSql + Sync)> =
            vec![&epoch, &batch, &self.number_max, &is_relaxed];
        values.extend(self.document_columns());
        values.extend(self.history_columns());
        values.extend(self.alias_and_edge_columns());
        values.extend(self.change_and_reply_columns());
        let row = client.query_one(statement, &values).await?;
        Ok(match row.get(1) {
            Some(referenced) => CommitOutcome::StillReferenced(referenced),
            None => CommitOutcome::Written(row.get(0)),
        })
    }

    fn document_columns(&self) -> [&(dyn ToSql + Sync); 25] {
        let (created, changed, deleted) = (&self.created, &self.changed, &self.deleted);
        [
            &created.tenants,
            &created.collections,
            &self.created_ids,
            &created.numbers,
            &self.created_versions,
            &created.bodies,
            &created.creators,
            &created.authors,
            &created.traces,
            &created.ends,
            &created.targets,
            &changed.tenants,
            &changed.collections,
            &changed.numbers,
            &changed.bodies,
            &changed.authors,
            &changed.traces,
            &changed.ends,
            &changed.targets,
            &deleted.tenants,
            &deleted.collections,
            &deleted.numbers,
            &self.removal_checks.tenants,
            &self.removal_checks.numbers,
            &self.removal_checks.writes,
        ]
    }

    fn history_columns(&self) -> [&(dyn ToSql + Sync); 10] {
        let (history, restored) = (&self.history, &self.restored);
        [
            &history.keys.tenants,
            &history.keys.collections,
            &history.keys.numbers,
            &history.versions,
            &history.authors,
            &history.deleted,
            &restored.tenants,
            &restored.collections,
            &restored.numbers,
            &self.restored_kept,
        ]
    }

    fn alias_and_edge_columns(&self) -> Vec<&(dyn ToSql + Sync)> {
        let (inserted, deleted) = (&self.aliases, &self.deleted_aliases);
        let (edge_rows, edges) = (&self.deleted_edge_rows, &self.deleted_edges);
        let mut columns: Vec<&(dyn ToSql + Sync)> = vec![
            &inserted.tenants,
            &inserted.collections,
            &inserted.aliases,
            &inserted.numbers,
            &deleted.tenants,
            &deleted.aliases,
        ];
        columns.extend(self.edges.columns());
        let deleted_edges: [&(dyn ToSql + Sync); 7] = [
            &edge_rows.tenants,
            &edge_rows.targets,
            &edge_rows.sources,
            &edges.tenants,
            &edges.targets,
            &edges.sources,
            &self.deleted_edge_writes,
        ];
        columns.extend(deleted_edges);
        columns
    }

    fn change_and_reply_columns(&self) -> [&(dyn ToSql + Sync); 12] {
        let (changes, requests) = (&self.changes, &self.requests);
        [
            &changes.kinds,
            &changes.tenants,
            &changes.collections,
            &changes.ids,
            &changes.versions,
            &requests.tenants,
            &requests.keys,
            &requests.fingerprints,
            &requests.ends,
            &requests.kinds,
            &requests.ids,
            &requests.versions,
        ]
    }
}

/// Number of parameters of `egret.document_write`.
const PARAMETERS: usize = 71;

/// The statement of [`WriteRows::execute`].
pub(crate) fn write_sql() -> String {
    let parameters: Vec<String> = (1..=PARAMETERS).map(|index| format!("${index}")).collect();
    format!("SELECT reached, held FROM egret.document_write({})", parameters.join(", "))
}
