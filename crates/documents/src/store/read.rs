//! Look-ups for groups of writes and for single requests.

use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{Client, Error as PgError, Row, Statement};
use serde_json::Value;
use uuid::Uuid;

use super::jsonb::ReceivedJson;
use crate::core::write::DeletedDocument;
use crate::error::DocumentsError;
use crate::model::{
    CollectionId, CollectionKey, DocumentId, DocumentNumber, TenantId, WriteOutcome, WriteReceipt,
};

/// Columns of a document in every statement that returns documents, from the second on.
pub(super) const COLUMNS: &str = "d.collection_id, d.id, d.version, d.targets, d.body, d.modified_at, d.created_by, d.modified_by, d.trace_id";

/// Documents by alias. `OFFSET 0` forces a lookup for each row, whatever the planner estimates for
/// a table that was small.
pub(crate) fn by_alias_sql() -> String {
    format!(
        "SELECT w.place::integer, {COLUMNS} \
         FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS w (tenant_id, alias, place) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document_alias AS a WHERE a.tenant_id = w.tenant_id AND a.alias = w.alias OFFSET 0) AS a \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = w.tenant_id AND d.collection_id = a.collection_id AND d.number = a.number OFFSET 0) AS d"
    )
}

pub(crate) fn by_number_sql() -> String {
    format!(
        "SELECT w.place::integer, {COLUMNS} \
         FROM unnest($1::integer[], $2::integer[], $3::bigint[]) WITH ORDINALITY AS w (tenant_id, collection_id, number, place) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = w.tenant_id AND d.collection_id = w.collection_id AND d.number = w.number OFFSET 0) AS d"
    )
}

/// Numbers of documents by alias.
pub(crate) const RESOLVE_ALIASES_SQL: &str = "SELECT w.place::integer, a.number \
     FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS w (tenant_id, alias, place) \
     CROSS JOIN LATERAL (SELECT * FROM egret.document_alias AS a WHERE a.tenant_id = w.tenant_id AND a.alias = w.alias OFFSET 0) AS a";

/// Documents by alias, documents by number and numbers by alias in one statement. Each row has its
/// kind, and rows of the third kind have the number.
pub(crate) fn look_up_sql() -> String {
    format!(
        "SELECT w.place::integer, {COLUMNS}, 0, NULL::bigint \
         FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS w (tenant_id, alias, place) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document_alias AS a WHERE a.tenant_id = w.tenant_id AND a.alias = w.alias OFFSET 0) AS a \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = w.tenant_id AND d.collection_id = a.collection_id AND d.number = a.number OFFSET 0) AS d \
         UNION ALL \
         SELECT w.place::integer, {COLUMNS}, 1, NULL \
         FROM unnest($3::integer[], $4::integer[], $5::bigint[]) WITH ORDINALITY AS w (tenant_id, collection_id, number, place) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = w.tenant_id AND d.collection_id = w.collection_id AND d.number = w.number OFFSET 0) AS d \
         UNION ALL \
         SELECT w.place::integer, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, a.number \
         FROM unnest($6::integer[], $7::uuid[]) WITH ORDINALITY AS w (tenant_id, alias, place) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document_alias AS a WHERE a.tenant_id = w.tenant_id AND a.alias = w.alias OFFSET 0) AS a"
    )
}

/// Referrers of documents: for each the first ones, and their number, counted up to one over a
/// limit. References of a document to itself do not count, nor do those from excluded documents.
pub(crate) const COUNT_REFERRERS_SQL: &str = "SELECT w.place::integer, counted.referrers, d.collection_id, d.id \
     FROM unnest($1::integer[], $2::bigint[]) WITH ORDINALITY AS w (tenant_id, number, place) \
     CROSS JOIN LATERAL (SELECT count(*) AS referrers FROM ( \
         SELECT FROM egret.document_reference AS e \
         WHERE e.tenant_id = w.tenant_id AND e.target = w.number AND e.source <> w.number AND e.source <> ALL ($5) LIMIT $4::bigint + 1) AS e) AS counted \
     LEFT JOIN LATERAL (SELECT e.collection_id, e.source FROM egret.document_reference AS e \
         WHERE e.tenant_id = w.tenant_id AND e.target = w.number AND e.source <> w.number AND e.source <> ALL ($5) ORDER BY e.source LIMIT $3::bigint) AS first ON true \
     LEFT JOIN LATERAL (SELECT * FROM egret.document AS d \
         WHERE d.tenant_id = w.tenant_id AND d.collection_id = first.collection_id AND d.number = first.source OFFSET 0) AS d ON true \
     WHERE counted.referrers > 0";

/// Stored replies to idempotent requests.
pub(crate) const STORED_REPLIES_SQL: &str = "SELECT w.place::integer, r.print, r.kinds, r.ids, r.versions \
     FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS w (tenant_id, key, place) \
     CROSS JOIN LATERAL (SELECT * FROM egret.document_request AS r WHERE r.tenant_id = w.tenant_id AND r.key = w.key OFFSET 0) AS r";

/// Last versions of deleted documents.
pub(crate) const DELETED_SQL: &str = "SELECT w.place::integer, v.version, v.created_by \
     FROM unnest($1::integer[], $2::integer[], $3::bigint[]) WITH ORDINALITY AS w (tenant_id, collection_id, number, place) \
     CROSS JOIN LATERAL (SELECT v.version, v.created_by FROM egret.document_version AS v \
         WHERE v.tenant_id = w.tenant_id AND v.collection_id = w.collection_id AND v.number = w.number AND v.is_deleted OFFSET 0) AS v";

/// Stored reply to an idempotent request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredReply {
    /// Fingerprint of the request's content.
    pub fingerprint: Uuid,
    /// Receipts of its writes.
    pub receipts: Vec<WriteReceipt>,
}

/// Stored replies by idempotency key, in the order of the keys; none where there is none.
pub(crate) async fn stored_replies(
    client: &Client,
    statement: &Statement,
    tenants: &[TenantId],
    keys: &[Uuid],
) -> Result<Vec<Option<StoredReply>>, PgError> {
    let mut replies = vec![None; keys.len()];
    for row in client.query(statement, &[&tenants, &keys]).await? {
        replies[key_index(&row)] = Some(StoredReply::from_row(&row));
    }
    Ok(replies)
}

impl StoredReply {
    pub(crate) fn from_row(row: &Row) -> Self {
        let (kinds, ids): (Vec<i8>, Vec<Uuid>) = (row.get(2), row.get(3));
        let versions: Vec<i32> = row.get(4);
        let rows = kinds.into_iter().zip(ids).zip(versions);
        let receipts = rows.filter_map(|((kind, id), version)| {
            Some(WriteReceipt {
                id: DocumentId::from_stored(id),
                version,
                outcome: WriteOutcome::from_letter(kind)?,
            })
        });
        Self { fingerprint: row.get(1), receipts: receipts.collect() }
    }
}

/// Last versions and creators of deleted documents, in the order of the numbers; none where there
/// is none.
pub(crate) async fn deleted_documents(
    client: &Client,
    statement: &Statement,
    keys: NumberKeys<'_>,
) -> Result<Vec<Option<DeletedDocument>>, PgError> {
    let mut documents = vec![None; keys.numbers.len()];
    let values: [&(dyn ToSql + Sync); 3] = [&keys.tenants, &keys.collections, &keys.numbers];
    for row in client.query(statement, &values).await? {
        documents[key_index(&row)] =
            Some(DeletedDocument { version: row.get(1), creator: row.get(2) });
    }
    Ok(documents)
}

/// A document as it is stored.
#[derive(Clone, Debug)]
pub struct StoredDocument {
    /// Number of its collection.
    pub collection: CollectionId,
    /// Id of the document.
    pub id: DocumentId,
    /// Version of the document, from 1.
    pub version: i32,
    /// Numbers of the documents that it refers to.
    pub targets: Vec<DocumentNumber>,
    /// Body as JSON text.
    pub body: String,
    /// Time of the last write.
    pub modified_at: std::time::SystemTime,
    /// Author of the write that created it.
    pub created_by: Option<String>,
    /// Author of the last write.
    pub modified_by: Option<String>,
    /// Trace id of the last write's request.
    pub trace: Option<String>,
}

impl StoredDocument {
    /// Reads a document from a row, from its second column on.
    pub(crate) fn from_row(row: &Row) -> Self {
        Self {
            collection: row.get(1),
            id: DocumentId::from_stored(row.get(2)),
            version: row.get(3),
            targets: row.get(4),
            body: row.get::<_, ReceivedJson>(5).0,
            modified_at: row.get(6),
            created_by: row.get(7),
            modified_by: row.get(8),
            trace: row.get(9),
        }
    }

    /// Parses the body.
    ///
    /// # Errors
    /// [`DocumentsError::Damaged`]: the stored text is not valid JSON.
    pub fn parse_body(&self) -> Result<Value, DocumentsError> {
        serde_json::from_str(&self.body)
            .map_err(|error| DocumentsError::Damaged { id: self.id, what: error.to_string() })
    }
}

/// Referrers of a document, counted up to a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReferrerCounts {
    /// Number of referrers, at most the limit.
    pub count: i64,
    /// Whether there are more than the limit.
    pub has_more: bool,
    /// The first referrers, by id.
    pub first: Vec<(CollectionId, DocumentId)>,
}

/// Index in the list of keys: the statement counts from one.
fn key_index(row: &Row) -> usize {
    usize::try_from(row.get::<_, i32>(0) - 1).expect("the statement counts from one")
}

/// Documents by alias, in the order of the aliases; none where there is none.
pub async fn by_alias(
    client: &Client,
    statement: &Statement,
    keys: AliasKeys<'_>,
) -> Result<Vec<Option<StoredDocument>>, PgError> {
    let values: [&(dyn ToSql + Sync); 2] = [&keys.tenants, &keys.aliases];
    let rows = client.query(statement, &values).await?;
    Ok(parse_documents(keys.tenants.len(), &rows))
}

/// Documents by number, in the order of the numbers; none where there is none.
pub async fn by_number(
    client: &Client,
    statement: &Statement,
    keys: NumberKeys<'_>,
) -> Result<Vec<Option<StoredDocument>>, PgError> {
    let values: [&(dyn ToSql + Sync); 3] = [&keys.tenants, &keys.collections, &keys.numbers];
    let rows = client.query(statement, &values).await?;
    Ok(parse_documents(keys.tenants.len(), &rows))
}

/// Aliases to look up, column by column.
#[derive(Clone, Copy, Debug)]
pub struct AliasKeys<'a> {
    pub tenants: &'a [TenantId],
    pub aliases: &'a [Uuid],
}

/// Documents to look up by their numbers, column by column.
#[derive(Clone, Copy, Debug)]
pub struct NumberKeys<'a> {
    pub tenants: &'a [TenantId],
    pub collections: &'a [CollectionId],
    pub numbers: &'a [DocumentNumber],
}

/// Keys to look up in one statement.
#[derive(Clone, Copy, Debug)]
pub struct LookupQuery<'a> {
    /// Aliases whose documents are read.
    pub by_alias: AliasKeys<'a>,
    /// Collections and numbers whose documents are read.
    pub by_number: NumberKeys<'a>,
    /// Aliases whose documents' numbers are read.
    pub alias_numbers: AliasKeys<'a>,
}

/// Result of a look-up, each kind in the order of its keys.
#[derive(Clone, Debug, Default)]
pub struct LookupRows {
    /// Documents found by alias.
    pub by_alias: Vec<Option<StoredDocument>>,
    /// Documents found by number.
    pub by_number: Vec<Option<StoredDocument>>,
    /// Numbers found by alias.
    pub alias_numbers: Vec<Option<DocumentNumber>>,
}

/// Executes a look-up by one statement.
pub async fn look_up(
    client: &Client,
    statement: &Statement,
    query: LookupQuery<'_>,
) -> Result<LookupRows, PgError> {
    let (by_alias, by_number, numbers) = (query.by_alias, query.by_number, query.alias_numbers);
    let values: [&(dyn ToSql + Sync); 7] = [
        &by_alias.tenants,
        &by_alias.aliases,
        &by_number.tenants,
        &by_number.collections,
        &by_number.numbers,
        &numbers.tenants,
        &numbers.aliases,
    ];
    let mut rows = LookupRows {
        by_alias: vec![None; by_alias.aliases.len()],
        by_number: vec![None; by_number.numbers.len()],
        alias_numbers: vec![None; numbers.aliases.len()],
    };
    for row in client.query(statement, &values).await? {
        let index = key_index(&row);
        match row.get::<_, i32>(10) {
            0 => rows.by_alias[index] = Some(StoredDocument::from_row(&row)),
            1 => rows.by_number[index] = Some(StoredDocument::from_row(&row)),
            _ => rows.alias_numbers[index] = row.get(11),
        }
    }
    Ok(rows)
}

/// Documents at the indexes that the rows have in their first column.
pub(crate) fn parse_documents(count: usize, rows: &[Row]) -> Vec<Option<StoredDocument>> {
    let mut documents = Vec::new();
    documents.resize_with(count, || None);
    for row in rows {
        documents[key_index(row)] = Some(StoredDocument::from_row(row));
    }
    documents
}

/// Numbers of documents by alias, in the order of the aliases; none where there is none.
pub(crate) async fn resolve_aliases(
    client: &Client,
    statement: &Statement,
    keys: AliasKeys<'_>,
) -> Result<Vec<Option<DocumentNumber>>, PgError> {
    let mut numbers = vec![None; keys.aliases.len()];
    let values: [&(dyn ToSql + Sync); 2] = [&keys.tenants, &keys.aliases];
    for row in client.query(statement, &values).await? {
        numbers[key_index(&row)] = Some(row.get(1));
    }
    Ok(numbers)
}

/// Referrers of documents, except those in `ignored`: of each at most `first_max` are listed and
/// `count_max` counted.
pub(crate) async fn count_referrers(
    client: &Client,
    statement: &Statement,
    tenants: &[TenantId],
    numbers: &[DocumentNumber],
    ignored: &[DocumentNumber],
    first_max: i64,
    count_max: i64,
) -> Result<Vec<ReferrerCounts>, PgError> {
    let mut counts = vec![ReferrerCounts::default(); numbers.len()];
    let values: [&(dyn ToSql + Sync); 5] = [&tenants, &numbers, &first_max, &count_max, &ignored];
    for row in client.query(statement, &values).await? {
        let one = &mut counts[key_index(&row)];
        let count: i64 = row.get(1);
        (one.count, one.has_more) = (count.min(count_max), count > count_max);
        // A dangling edge, whose source does not exist, counts, but cannot be listed.
        let id: Option<Uuid> = row.get(3);
        let listed = id.map(|id| (row.get(2), DocumentId::from_stored(id)));
        one.first.extend(listed);
    }
    for one in &mut counts {
        one.first.sort_by_key(|(_, id)| id.uuid());
    }
    Ok(counts)
}

/// Documents of a collection after a number, in order.
pub(crate) fn export_sql(key: CollectionKey) -> String {
    let (tenant, collection) = (key.tenant.0, key.collection.0);
    format!(
        "SELECT 1, {COLUMNS} FROM egret.document AS d \
         WHERE d.tenant_id = {tenant} AND d.collection_id = {collection} AND d.number > $1 ORDER BY d.number LIMIT $2"
    )
}

/// The documents that refer to one, ordered by number, after a number. Dangling edges do not count.
pub(crate) fn referrers_sql() -> String {
    format!(
        "SELECT 1, {COLUMNS} FROM egret.document_reference AS e \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = $1 AND d.collection_id = e.collection_id AND d.number = e.source OFFSET 0) AS d \
         WHERE e.tenant_id = $1 AND e.target = $2 AND e.source > $3 ORDER BY e.source LIMIT $4"
    )
}
