//! Queries as SQL, and pages of their results.

use std::fmt::Write;
use std::pin::pin;

use egret_base::settings::ByteSize;
use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{
    Client, Error as PgError, GenericClient, Row, RowStream, Statement, ToStatement,
};
use futures_util::TryStreamExt;
use serde_json::Value;

use super::read::COLUMNS;
use crate::core::definition::QueryPath;
use crate::core::path::Segment;
use crate::core::query::{Comparison, Filter, Order, Query, Test};
use crate::core::schema::Scalar;
use crate::model::CollectionKey;

/// A statement with its parameters.
#[derive(Debug, Default)]
pub struct Sql {
    pub text: String,
    values: Vec<Parameter>,
}

/// A parameter. All but numbers are sent as text, which the statement casts.
#[derive(Debug)]
enum Parameter {
    Text(String),
    List(Vec<String>),
    Number(i64),
}

impl Parameter {
    fn value(&self) -> &(dyn ToSql + Sync) {
        match self {
            Self::Text(text) => text,
            Self::List(list) => list,
            Self::Number(number) => number,
        }
    }
}

impl Sql {
    /// The parameters, in order.
    pub fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(Parameter::value).collect()
    }

    fn add(&mut self, parameter: Parameter) -> usize {
        self.values.push(parameter);
        self.values.len()
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.text
            .write_fmt(text)
            .expect("writing to a string cannot fail");
    }
}

/// Part of an order: documents with a value come before those without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderPart {
    /// Documents that have a value at the path of the order.
    Valued,
    /// Documents that have none.
    Valueless,
}

/// SQL expression for the value at a path, as it is compared: strings by code point. Paths lead
/// through objects only, so every key is a text: on an array, `->` and `->>` with a text give NULL,
/// as for any value without that property.
pub fn expression(path: &QueryPath, body: &str) -> String {
    let segments = path.path.segments();
    let mut text = body.to_owned();
    for (place, segment) in segments.iter().enumerate() {
        let Segment::Property(name) = segment else {
            unreachable!("query paths have no `*`")
        };
        let operator = if place + 1 == segments.len() {
            "->>"
        } else {
            "->"
        };
        text = format!("({text} {operator} {}::text)", quoted(name));
    }
    match path.scalar {
        Scalar::String => format!("({text} COLLATE \"C\")"),
        Scalar::Integer | Scalar::Number => format!("({text}::numeric)"),
        Scalar::Boolean => format!("({text}::boolean)"),
    }
}

/// A string literal. Backslashes are literal whatever `standard_conforming_strings` is set to.
fn quoted(text: &str) -> String {
    let text = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", text.replace('\\', "\\\\"))
    } else {
        format!("'{text}'")
    }
}

/// SQL type to which a parameter for a path is cast.
fn read_as(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String => "text",
        Scalar::Integer | Scalar::Number => "numeric",
        Scalar::Boolean => "boolean",
    }
}

fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// One page of a part of the order: at most `limit` documents.
pub fn page(query: &Query, place: CollectionKey, part: OrderPart, limit: i64) -> Sql {
    let mut sql = Sql::default();
    sql.push(format_args!("SELECT 1, {COLUMNS}"));
    from(&mut sql, query, place);
    let order = query.order.as_ref();
    if let Some(order) = order {
        let is_null = match part {
            OrderPart::Valued => "IS NOT NULL",
            OrderPart::Valueless => "IS NULL",
        };
        sql.push(format_args!(
            " AND {} {is_null}",
            expression(&order.path, "d.body")
        ));
    }
    let (sign, direction) = if order.is_some_and(|order| order.is_descending) {
        ("<", " DESC")
    } else {
        (">", "")
    };
    match (&query.after, order, part) {
        (Some(after), Some(order), OrderPart::Valued) => {
            let value = sql.add(Parameter::Text(text_of(&after.value)));
            let number = sql.add(Parameter::Number(after.number.0));
            let (own, kind) = (
                expression(&order.path, "d.body"),
                read_as(order.path.scalar),
            );
            sql.push(format_args!(
                " AND ({own}, d.number) {sign} (${value}::text::{kind}, ${number}::bigint)"
            ));
        }
        // All documents without a value come after the last one with a value: no condition.
        (Some(after), Some(_), OrderPart::Valueless) if !after.value.is_null() => {}
        (Some(after), ..) => {
            let number = sql.add(Parameter::Number(after.number.0));
            sql.push(format_args!(" AND d.number {sign} ${number}::bigint"));
        }
        (None, ..) => {}
    }
    sql.text.push_str(" ORDER BY ");
    if let Some(Order { path, .. }) = order.filter(|_| part == OrderPart::Valued) {
        sql.push(format_args!("{}{direction}, ", expression(path, "d.body")));
    }
    sql.push(format_args!("d.number{direction} LIMIT {limit}"));
    sql
}

/// Exact number of matching documents.
pub fn count(query: &Query, place: CollectionKey) -> Sql {
    let mut sql = Sql::default();
    sql.text.push_str("SELECT count(*)");
    from(&mut sql, query, place);
    sql
}

/// The planner's estimate of the number of matching documents.
pub fn plan(query: &Query, place: CollectionKey) -> Sql {
    let mut sql = Sql::default();
    sql.text.push_str("EXPLAIN (FORMAT JSON) SELECT 1");
    from(&mut sql, query, place);
    sql
}

fn from(sql: &mut Sql, query: &Query, place: CollectionKey) {
    // Tenant and collection are literals: only then the planner can use the partial indexes of the
    // collection's paths.
    sql.push(format_args!(
        " FROM egret.document AS d WHERE d.tenant_id = {} AND d.collection_id = {}",
        place.tenant.0, place.collection.0
    ));
    for filter in &query.filters {
        sql.text.push_str(" AND ");
        condition(sql, filter);
    }
}

fn condition(sql: &mut Sql, filter: &Filter) {
    let own = expression(&filter.path, "d.body");
    let kind = read_as(filter.path.scalar);
    match &filter.test {
        Test::Exists(true) => sql.push(format_args!("{own} IS NOT NULL")),
        Test::Exists(false) => sql.push(format_args!("{own} IS NULL")),
        Test::In(list) => {
            let list = sql.add(Parameter::List(list.iter().map(text_of).collect()));
            sql.push(format_args!("{own} = ANY (${list}::text[]::{kind}[])"));
        }
        Test::Prefix(prefix) => {
            let first = sql.add(Parameter::Text(prefix.clone()));
            sql.push(format_args!(
                "{own} >= ${first}::text AND pg_catalog.starts_with({own}, ${first}::text)"
            ));
            if let Some(end) = end_of(prefix) {
                let end = sql.add(Parameter::Text(end));
                sql.push(format_args!(" AND {own} < ${end}::text"));
            }
        }
        Test::Is(comparison, value) => {
            let sign = match comparison {
                Comparison::Equal => "=",
                Comparison::NotEqual => "<>",
                Comparison::Less => "<",
                Comparison::LessOrEqual => "<=",
                Comparison::Greater => ">",
                Comparison::GreaterOrEqual => ">=",
            };
            let value = sql.add(Parameter::Text(text_of(value)));
            sql.push(format_args!("{own} {sign} ${value}::text::{kind}"));
        }
    }
}

/// The first string after all strings with this prefix, by code point; none if there is no such
/// string.
fn end_of(prefix: &str) -> Option<String> {
    let mut head = prefix.to_owned();
    while let Some(last) = head.pop() {
        // Surrogates are not characters: skip them.
        let next = match u32::from(last) + 1 {
            0xd800..0xe000 => Some('\u{e000}'),
            next => char::from_u32(next),
        };
        if let Some(next) = next {
            head.push(next);
            return Some(head);
        }
    }
    None
}

/// Budget of a page: documents, and bytes as the server sends them. The first document always fits,
/// however large it is.
#[derive(Clone, Debug)]
pub struct PageBudget {
    documents: u32,
    bytes: u64,
    is_empty: bool,
    is_full: bool,
}

impl PageBudget {
    /// Budget of an empty page.
    pub fn new(documents_max: u32, bytes_max: ByteSize) -> Self {
        Self {
            documents: documents_max,
            bytes: bytes_max.bytes(),
            is_empty: true,
            is_full: false,
        }
    }

    /// Number of rows to request: one more than fits, to find out whether there are more.
    pub fn asked(&self) -> i64 {
        i64::from(self.documents) + 1
    }

    /// Whether a document did not fit.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes a document of this size if it fits. Once one did not fit no later one does, so that a
    /// page has no gap.
    fn takes(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let fits = self.documents > 0 && (self.is_empty || bytes <= self.bytes);
        self.is_full |= !fits;
        if !self.is_full {
            self.documents -= 1;
            self.bytes = self.bytes.saturating_sub(bytes);
            self.is_empty = false;
        }
        !self.is_full
    }
}

/// Rows that the server sends at once before more are requested. Usual pages need one request.
pub(crate) const ROWS_TOGETHER: i32 = 128;

/// The first rows of a statement, within the budget. Rows beyond it are discarded as they arrive.
pub async fn rows(
    client: &Client,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
    room: &mut PageBudget,
) -> Result<Vec<Row>, PgError> {
    let mut rows = Vec::new();
    let sent = client.query_raw(statement, values.iter().copied()).await?;
    collect(sent, &mut rows, room).await?;
    Ok(rows)
}

/// Like [`read_rows`], for many rows: they are fetched in portions of [`FETCH_ROWS`] until
/// the budget is used up. The session must not be in a transaction.
pub(crate) async fn rows_by_parts(
    client: &mut Client,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
    room: &mut PageBudget,
) -> Result<Vec<Row>, PgError> {
    let mut rows = Vec::new();
    let transaction = client.transaction().await?;
    let portal = transaction.bind(statement, values).await?;
    loop {
        let sent = transaction.query_portal_raw(&portal, ROWS_TOGETHER).await?;
        let sent = collect(sent, &mut rows, room).await?;
        if room.is_full() || sent.rows < ROWS_TOGETHER as u64 {
            break;
        }
    }
    drop(portal);
    transaction.rollback().await?;
    Ok(rows)
}

/// Size of a chunk in bytes.
const PORTION_BYTES: ByteSize = ByteSize::mib(4);

/// Documents of the first chunk, at most: their size is not known yet.
const PORTION_FIRST: u32 = 32;

/// Reads documents in chunks that fit into memory.
#[derive(Clone, Debug)]
pub struct BoundedChunks {
    documents_max: u32,
    /// Documents to request next: as many as fit by the size of the last ones, and at most twice as
    /// many as last time.
    documents: u32,
}

impl BoundedChunks {
    /// Chunks of at most so many documents, which also bounds what the server sends beyond a chunk.
    pub fn new(documents_max: u32) -> Self {
        Self {
            documents_max,
            documents: documents_max.min(PORTION_FIRST),
        }
    }

    /// The next rows of a statement, empty at the end. Its last parameter, after `values`, is the
    /// number of rows.
    pub async fn next<S: ToStatement + ?Sized + Sync + Send>(
        &mut self,
        client: &impl GenericClient,
        statement: &S,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        let asked = i64::from(self.documents);
        let mut all = values.to_vec();
        all.push(&asked);
        let mut room = PageBudget::new(self.documents, PORTION_BYTES);
        let mut rows = Vec::new();
        let sent = client.query_raw(statement, all.iter().copied()).await?;
        let sent = collect(sent, &mut rows, &mut room).await?;
        let each = (sent.bytes / sent.rows.max(1)).max(1);
        let fitting = u32::try_from(PORTION_BYTES.bytes() / each).unwrap_or(u32::MAX);
        let most = self.documents.saturating_mul(2).min(self.documents_max);
        self.documents = fitting.clamp(1, most);
        Ok(rows)
    }
}

/// Rows received from the server, including discarded ones.
#[derive(Clone, Copy, Debug, Default)]
struct StreamTotals {
    rows: u64,
    bytes: u64,
}

/// Collects the rows that fit into the budget, and counts all.
async fn collect(
    sent: RowStream,
    rows: &mut Vec<Row>,
    room: &mut PageBudget,
) -> Result<StreamTotals, PgError> {
    let mut sent = pin!(sent);
    let mut all = StreamTotals::default();
    while let Some(row) = sent.try_next().await? {
        all.rows += 1;
        all.bytes += row.raw_size_bytes() as u64;
        if room.takes(row.raw_size_bytes()) {
            rows.push(row);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
