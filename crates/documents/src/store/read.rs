//! What is there already of what a group of writes is about, and what single requests ask for.

use std::error::Error;

use egret_postgres::tokio_postgres::types::{FromSql, ToSql, Type};
use egret_postgres::tokio_postgres::{Client, Error as PgError, Row, Statement};
use serde_json::Value;
use uuid::Uuid;

use crate::core::group::Deleted;
use crate::error::DocumentsError;
use crate::model::{CollectionId, DocumentId, Done, Written};

/// The columns of a document in every statement that gives documents, from the second on.
pub(super) const COLUMNS: &str = "d.collection_id, d.id, d.version, d.targets, d.body, d.modified_at, d.created_by, d.modified_by, d.trace_id";

/// Documents by identities. What is looked up of each comes after it is found (`OFFSET 0`), whatever the planner thinks of a table that was small.
pub fn by_alias_sql() -> String {
    format!(
        "SELECT w.place::integer, {COLUMNS} \
         FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS w (tenant_id, alias, place) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document_alias AS a WHERE a.tenant_id = w.tenant_id AND a.alias = w.alias OFFSET 0) AS a \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = w.tenant_id AND d.collection_id = a.collection_id AND d.number = a.number OFFSET 0) AS d"
    )
}

/// Documents by numbers.
pub fn by_number_sql() -> String {
    format!(
        "SELECT w.place::integer, {COLUMNS} \
         FROM unnest($1::integer[], $2::integer[], $3::bigint[]) WITH ORDINALITY AS w (tenant_id, collection_id, number, place) \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = w.tenant_id AND d.collection_id = w.collection_id AND d.number = w.number OFFSET 0) AS d"
    )
}

/// The numbers of documents by identities.
pub const RESOLVE: &str = "SELECT w.place::integer, a.number \
     FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS w (tenant_id, alias, place) \
     CROSS JOIN LATERAL (SELECT * FROM egret.document_alias AS a WHERE a.tenant_id = w.tenant_id AND a.alias = w.alias OFFSET 0) AS a";

/// Documents by identities, documents by numbers and numbers by identities, together: the kind of each row, and the number where it is of the last.
pub fn look_sql() -> String {
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

/// Who refers to documents: for each the first, and how many there are, of which no more are counted than one over a limit. A document that
/// refers to itself does not count, nor do those that let go what they refer to.
pub const REFERRERS: &str = "SELECT w.place::integer, counted.referrers, d.collection_id, d.id \
     FROM unnest($1::integer[], $2::bigint[]) WITH ORDINALITY AS w (tenant_id, number, place) \
     CROSS JOIN LATERAL (SELECT count(*) AS referrers FROM ( \
         SELECT FROM egret.document_reference AS e \
         WHERE e.tenant_id = w.tenant_id AND e.target = w.number AND e.source <> w.number AND e.source <> ALL ($5) LIMIT $4::bigint + 1) AS e) AS counted \
     LEFT JOIN LATERAL (SELECT e.collection_id, e.source FROM egret.document_reference AS e \
         WHERE e.tenant_id = w.tenant_id AND e.target = w.number AND e.source <> w.number AND e.source <> ALL ($5) ORDER BY e.source LIMIT $3::bigint) AS first ON true \
     LEFT JOIN LATERAL (SELECT * FROM egret.document AS d \
         WHERE d.tenant_id = w.tenant_id AND d.collection_id = first.collection_id AND d.number = first.source OFFSET 0) AS d ON true \
     WHERE counted.referrers > 0";

/// The answers of requests that came before.
pub const ANSWERS: &str = "SELECT w.place::integer, r.print, r.kinds, r.ids, r.versions \
     FROM unnest($1::integer[], $2::uuid[]) WITH ORDINALITY AS w (tenant_id, key, place) \
     CROSS JOIN LATERAL (SELECT * FROM egret.document_request AS r WHERE r.tenant_id = w.tenant_id AND r.key = w.key OFFSET 0) AS r";

/// The last versions of documents that are deleted.
pub const DELETED: &str = "SELECT w.place::integer, v.version, v.created_by \
     FROM unnest($1::integer[], $2::integer[], $3::bigint[]) WITH ORDINALITY AS w (tenant_id, collection_id, number, place) \
     CROSS JOIN LATERAL (SELECT v.version, v.created_by FROM egret.document_version AS v \
         WHERE v.tenant_id = w.tenant_id AND v.collection_id = w.collection_id AND v.number = w.number AND v.is_deleted OFFSET 0) AS v";

/// What a request was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// Of what it asked for.
    pub print: Uuid,
    /// What was done.
    pub written: Vec<Written>,
}

/// The answers of requests, in the order in which they were asked for; none where there is none.
///
/// # Errors
/// What the server says.
pub async fn answers(
    client: &Client,
    statement: &Statement,
    (tenants, keys): (&[i32], &[Uuid]),
) -> Result<Vec<Option<Answered>>, PgError> {
    let mut all = vec![None; keys.len()];
    for row in client.query(statement, &[&tenants, &keys]).await? {
        all[place(&row)] = Some(Answered::of(&row));
    }
    Ok(all)
}

impl Answered {
    /// That of a row.
    pub fn of(row: &Row) -> Self {
        let (kinds, ids): (Vec<i8>, Vec<Uuid>) = (row.get(2), row.get(3));
        let versions: Vec<i32> = row.get(4);
        let each = kinds.into_iter().zip(ids).zip(versions);
        let written = each.filter_map(|((kind, id), version)| {
            Some(Written {
                id: DocumentId::stored(id),
                version,
                done: Done::of(kind)?,
            })
        });
        Self {
            print: row.get(1),
            written: written.collect(),
        }
    }
}

/// Of documents that are deleted the last version, and who made them, in the order in which they were asked for; none where there is none.
///
/// # Errors
/// What the server says.
pub async fn deleted(
    client: &Client,
    statement: &Statement,
    (tenants, collections, numbers): (&[i32], &[i32], &[i64]),
) -> Result<Vec<Option<Deleted>>, PgError> {
    let mut all = vec![None; numbers.len()];
    let rows = client
        .query(statement, &[&tenants, &collections, &numbers])
        .await?;
    for row in rows {
        all[place(&row)] = Some(Deleted {
            version: row.get(1),
            creator: row.get(2),
        });
    }
    Ok(all)
}

/// A document as it is stored.
#[derive(Clone, Debug)]
pub struct Stored {
    /// What it is one of.
    pub collection: CollectionId,
    /// Its id.
    pub id: DocumentId,
    /// How often it was written, from 1.
    pub version: i32,
    /// The numbers of the documents that it refers to.
    pub targets: Vec<i64>,
    /// JSON.
    pub body: String,
    /// When it was written last.
    pub modified_at: std::time::SystemTime,
    /// Who made it.
    pub created_by: Option<String>,
    /// Who wrote it last.
    pub modified_by: Option<String>,
    /// The request that did, as its trace calls it.
    pub trace: Option<String>,
}

impl Stored {
    /// The document of a row, from its second column on.
    pub fn of(row: &Row) -> Self {
        Self {
            collection: CollectionId(row.get(1)),
            id: DocumentId::stored(row.get(2)),
            version: row.get(3),
            targets: row.get(4),
            body: row.get::<_, Text>(5).0,
            modified_at: row.get(6),
            created_by: row.get(7),
            modified_by: row.get(8),
            trace: row.get(9),
        }
    }

    /// Its body.
    ///
    /// # Errors
    /// It is not what was put there.
    pub fn value(&self) -> Result<Value, DocumentsError> {
        serde_json::from_str(&self.body).map_err(|error| DocumentsError::Damaged {
            id: self.id,
            what: error.to_string(),
        })
    }
}

/// Who refers to a document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// How many, up to the limit that was asked for.
    pub count: i64,
    /// Whether there are more.
    pub is_more: bool,
    /// The first of them.
    pub first: Vec<(CollectionId, DocumentId)>,
}

/// The place in the list that was asked for: the statement counts from one.
fn place(row: &Row) -> usize {
    usize::try_from(row.get::<_, i32>(0) - 1).expect("places begin at one")
}

/// Documents by what names them, in the order in which they were asked for; none where there is none.
///
/// # Errors
/// What the server says.
pub async fn by_alias(
    client: &Client,
    statement: &Statement,
    (tenants, aliases): (&[i32], &[Uuid]),
) -> Result<Vec<Option<Stored>>, PgError> {
    let rows = client.query(statement, &[&tenants, &aliases]).await?;
    Ok(stored(tenants.len(), &rows))
}

/// The same by numbers.
///
/// # Errors
/// What the server says.
pub async fn by_number(
    client: &Client,
    statement: &Statement,
    (tenants, collections, numbers): (&[i32], &[i32], &[i64]),
) -> Result<Vec<Option<Stored>>, PgError> {
    let rows = client
        .query(statement, &[&tenants, &collections, &numbers])
        .await?;
    Ok(stored(tenants.len(), &rows))
}

/// What is looked up together, each with the tenants first.
#[derive(Clone, Copy, Debug)]
pub struct Looked<'a> {
    /// Documents by identities.
    pub by_alias: (&'a [i32], &'a [Uuid]),
    /// Documents by collections and numbers.
    pub by_number: (&'a [i32], &'a [i32], &'a [i64]),
    /// Numbers by identities.
    pub numbers: (&'a [i32], &'a [Uuid]),
}

/// What there is of it, in the order in which it was asked for.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Documents by identities.
    pub by_alias: Vec<Option<Stored>>,
    /// Documents by collections and numbers.
    pub by_number: Vec<Option<Stored>>,
    /// Numbers by identities.
    pub numbers: Vec<Option<i64>>,
}

/// Looks all of it up by one statement.
///
/// # Errors
/// What the server says.
pub async fn look(
    client: &Client,
    statement: &Statement,
    asked: Looked<'_>,
) -> Result<Seen, PgError> {
    let ((tenants, aliases), (owners, collections, numbers)) = (asked.by_alias, asked.by_number);
    let (of, names) = asked.numbers;
    let values: [&(dyn ToSql + Sync); 7] = [
        &tenants,
        &aliases,
        &owners,
        &collections,
        &numbers,
        &of,
        &names,
    ];
    let mut seen = Seen {
        by_alias: vec![None; aliases.len()],
        by_number: vec![None; numbers.len()],
        numbers: vec![None; names.len()],
    };
    for row in client.query(statement, &values).await? {
        let place = place(&row);
        match row.get::<_, i32>(10) {
            0 => seen.by_alias[place] = Some(Stored::of(&row)),
            1 => seen.by_number[place] = Some(Stored::of(&row)),
            _ => seen.numbers[place] = row.get(11),
        }
    }
    Ok(seen)
}

/// Documents at the places that rows name in their first column.
pub fn stored(count: usize, rows: &[Row]) -> Vec<Option<Stored>> {
    let mut all = Vec::new();
    all.resize_with(count, || None);
    for row in rows {
        all[place(row)] = Some(Stored::of(row));
    }
    all
}

/// The numbers of documents by identities, in the order in which they were asked for; none where there is none.
///
/// # Errors
/// What the server says.
pub async fn resolve(
    client: &Client,
    statement: &Statement,
    (tenants, aliases): (&[i32], &[Uuid]),
) -> Result<Vec<Option<i64>>, PgError> {
    let mut all = vec![None; aliases.len()];
    for row in client.query(statement, &[&tenants, &aliases]).await? {
        all[place(&row)] = Some(row.get(1));
    }
    Ok(all)
}

/// Who refers to documents, those that `let_go` aside: of each at most `first_max` are named and `count_max` counted.
///
/// # Errors
/// What the server says.
pub async fn referrers(
    client: &Client,
    statement: &Statement,
    (tenants, numbers): (&[i32], &[i64]),
    let_go: &[i64],
    (first_max, count_max): (i64, i64),
) -> Result<Vec<Counted>, PgError> {
    let mut all = vec![Counted::default(); numbers.len()];
    let values: [&(dyn ToSql + Sync); 5] = [&tenants, &numbers, &first_max, &count_max, &let_go];
    for row in client.query(statement, &values).await? {
        let one = &mut all[place(&row)];
        let count: i64 = row.get(1);
        (one.count, one.is_more) = (count.min(count_max), count > count_max);
        // An edge may lead from a document that is not there: that one counts, and is not named.
        let id: Option<Uuid> = row.get(3);
        let named = id.map(|id| (CollectionId(row.get(2)), DocumentId::stored(id)));
        one.first.extend(named);
    }
    for one in &mut all {
        one.first.sort_by_key(|(_, id)| id.uuid());
    }
    Ok(all)
}

/// JSON as the server has it.
pub(super) struct Text(pub(super) String);

impl<'a> FromSql<'a> for Text {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        match raw {
            [1, text @ ..] => Ok(Self(std::str::from_utf8(text)?.to_owned())),
            _ => Err("the server sends JSON in a format that is not known".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::JSONB
    }
}

/// Documents of a collection after a number, in order.
pub fn export_sql(tenant: i32, collection: i32) -> String {
    format!(
        "SELECT 1, {COLUMNS} FROM egret.document AS d \
         WHERE d.tenant_id = {tenant} AND d.collection_id = {collection} AND d.number > $1 ORDER BY d.number LIMIT $2"
    )
}

/// The documents that refer to one, in the order of their numbers from `after` on. Edges from nowhere do not count.
pub fn referring_sql() -> String {
    format!(
        "SELECT 1, {COLUMNS} FROM egret.document_reference AS e \
         CROSS JOIN LATERAL (SELECT * FROM egret.document AS d \
             WHERE d.tenant_id = $1 AND d.collection_id = e.collection_id AND d.number = e.source OFFSET 0) AS d \
         WHERE e.tenant_id = $1 AND e.target = $2 AND e.source > $3 ORDER BY e.source LIMIT $4"
    )
}
