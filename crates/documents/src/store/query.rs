//! Queries as SQL, and pages of what they find.

use std::fmt::Write;
use std::pin::pin;

use egret_base::settings::Size;
use egret_postgres::tokio_postgres::types::ToSql;
use egret_postgres::tokio_postgres::{
    Client, Error as PgError, GenericClient, Row, RowStream, Statement, ToStatement,
};
use futures_util::TryStreamExt;
use serde_json::Value;

use super::read::COLUMNS;
use super::write::Place;
use crate::core::definition::QueryPath;
use crate::core::path::Segment;
use crate::core::query::{Comparison, Filter, Order, Query, Test};
use crate::core::schema::Scalar;

/// A statement, and what its parameters are.
#[derive(Debug, Default)]
pub struct Sql {
    /// The statement.
    pub text: String,
    values: Vec<Parameter>,
}

/// A parameter. All but numbers go as text, which the statement says what to read as.
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
    /// What its parameters are.
    pub fn values(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(Parameter::value).collect()
    }

    fn add(&mut self, parameter: Parameter) -> usize {
        self.values.push(parameter);
        self.values.len()
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("a string takes it");
    }
}

/// Which part of an order: those with a value come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those that have a value.
    Valued,
    /// Those that have none.
    Valueless,
}

/// The value at a path, as it is compared: of strings the code points. A path leads through objects alone, so each step is by a text:
/// where an array stands in the way, `->` and `->>` then give NULL, as for any other value that has no such property.
pub fn expression(path: &QueryPath, body: &str) -> String {
    let segments = path.path.segments();
    let mut text = body.to_owned();
    for (place, segment) in segments.iter().enumerate() {
        let Segment::Property(name) = segment else {
            unreachable!("documents are found by paths without `*`")
        };
        let operator = match place + 1 == segments.len() {
            true => "->>",
            false => "->",
        };
        text = format!("({text} {operator} {}::text)", quoted(name));
    }
    match path.scalar {
        Scalar::String => format!("({text} COLLATE \"C\")"),
        Scalar::Integer | Scalar::Number => format!("({text}::numeric)"),
        Scalar::Boolean => format!("({text}::boolean)"),
    }
}

/// A string as a constant. Where it has backslashes they are meant as they are, whatever the session thinks of them.
fn quoted(text: &str) -> String {
    let text = text.replace('\'', "''");
    match text.contains('\\') {
        true => format!("E'{}'", text.replace('\\', "\\\\")),
        false => format!("'{text}'"),
    }
}

/// How a parameter is read for a path.
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

/// A page of a part of what is looked for: `limit` documents.
pub fn page(query: &Query, place: Place, part: Part, limit: i64) -> Sql {
    let mut sql = Sql::default();
    sql.push(format_args!("SELECT 1, {COLUMNS}"));
    from(&mut sql, query, place);
    let order = query.order.as_ref();
    if let Some(order) = order {
        let is_null = match part {
            Part::Valued => "IS NOT NULL",
            Part::Valueless => "IS NULL",
        };
        sql.push(format_args!(
            " AND {} {is_null}",
            expression(&order.path, "d.body")
        ));
    }
    let (sign, direction) = match order.is_some_and(|order| order.is_descending) {
        true => ("<", " DESC"),
        false => (">", ""),
    };
    match (&query.after, order, part) {
        (Some(after), Some(order), Part::Valued) => {
            let value = sql.add(Parameter::Text(text_of(&after.value)));
            let number = sql.add(Parameter::Number(after.number));
            let (own, kind) = (
                expression(&order.path, "d.body"),
                read_as(order.path.scalar),
            );
            sql.push(format_args!(
                " AND ({own}, d.number) {sign} (${value}::text::{kind}, ${number}::bigint)"
            ));
        }
        // All that have no value come after the last one that has.
        (Some(after), Some(_), Part::Valueless) if !after.value.is_null() => {}
        (Some(after), ..) => {
            let number = sql.add(Parameter::Number(after.number));
            sql.push(format_args!(" AND d.number {sign} ${number}::bigint"));
        }
        (None, ..) => {}
    }
    sql.text.push_str(" ORDER BY ");
    if let Some(Order { path, .. }) = order.filter(|_| part == Part::Valued) {
        sql.push(format_args!("{}{direction}, ", expression(path, "d.body")));
    }
    sql.push(format_args!("d.number{direction} LIMIT {limit}"));
    sql
}

/// How many documents are looked for.
pub fn count(query: &Query, place: Place) -> Sql {
    let mut sql = Sql::default();
    sql.text.push_str("SELECT count(*)");
    from(&mut sql, query, place);
    sql
}

/// How many there may be, as the planner thinks.
pub fn plan(query: &Query, place: Place) -> Sql {
    let mut sql = Sql::default();
    sql.text.push_str("EXPLAIN (FORMAT JSON) SELECT 1");
    from(&mut sql, query, place);
    sql
}

fn from(sql: &mut Sql, query: &Query, (tenant, collection): Place) {
    // The collection is said in words: by it the server knows that the indexes of its paths serve.
    sql.push(format_args!(
        " FROM egret.document AS d WHERE d.tenant_id = {} AND d.collection_id = {}",
        tenant.0, collection.0
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

/// The first string after all that begin with a prefix, by code points; none after the last of all.
fn end_of(prefix: &str) -> Option<String> {
    let mut head = prefix.to_owned();
    while let Some(last) = head.pop() {
        // What lies between is no character.
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

/// What a page has room for: so many documents, and so many bytes of them as the server sends them. One document it has, however large that is.
#[derive(Clone, Debug)]
pub struct Room {
    documents: u32,
    bytes: u64,
    is_empty: bool,
    is_full: bool,
}

impl Room {
    /// Of a page that has nothing yet.
    pub fn new(documents_max: u32, bytes_max: Size) -> Self {
        Self {
            documents: documents_max,
            bytes: bytes_max.bytes(),
            is_empty: true,
            is_full: false,
        }
    }

    /// How many rows to ask for: one that there is no room for tells that there are more.
    pub fn asked(&self) -> i64 {
        i64::from(self.documents) + 1
    }

    /// Whether there was a document that there was no room for.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether there is room for another document that takes so many bytes; if so, it is taken. After one that has none no other has any, so
    /// that a page leaves nothing out.
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

/// Rows that the server sends before it is asked whether more are wanted. A usual page is one statement.
pub const ROWS_TOGETHER: i32 = 128;

/// The first rows of a statement, as many as there is room for. What the server sends beyond them is let go as it comes.
///
/// # Errors
/// What the server says.
pub async fn rows(
    client: &Client,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
    room: &mut Room,
) -> Result<Vec<Row>, PgError> {
    let mut rows = Vec::new();
    let sent = client.query_raw(statement, values.iter().copied()).await?;
    collect(sent, &mut rows, room).await?;
    Ok(rows)
}

/// The same of a statement that may have many rows: the server sends no more than [`ROWS_TOGETHER`] of which it is not known whether there is
/// room for them. The session is in no transaction.
///
/// # Errors
/// What the server says.
pub async fn rows_by_parts(
    client: &mut Client,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
    room: &mut Room,
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

/// Bytes of a portion.
const PORTION_BYTES: Size = Size::mib(4);

/// Documents that the first portion is of, at most: nothing is known of their size yet.
const PORTION_FIRST: u32 = 32;

/// Portions of documents that are read one after the other, of which each fits into memory.
#[derive(Clone, Debug)]
pub struct Portions {
    documents_max: u32,
    /// How many are asked for next: so many as there is room for by what was sent last, and no more than twice as many.
    documents: u32,
}

impl Portions {
    /// Of so many documents each, at most: that is what the server may send in vain beyond what there is room for.
    pub fn new(documents_max: u32) -> Self {
        Self {
            documents_max,
            documents: documents_max.min(PORTION_FIRST),
        }
    }

    /// The first rows of a statement, none where it has none. How many are asked for is its last parameter, after these.
    ///
    /// # Errors
    /// What the server says.
    pub async fn next(
        &mut self,
        client: &impl GenericClient,
        statement: &(impl ToStatement + ?Sized + Sync + Send),
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        let asked = i64::from(self.documents);
        let mut all = values.to_vec();
        all.push(&asked);
        let mut room = Room::new(self.documents, PORTION_BYTES);
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

/// What the server has sent.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    rows: u64,
    bytes: u64,
}

/// Adds the rows that there is room for, and counts all.
async fn collect(sent: RowStream, rows: &mut Vec<Row>, room: &mut Room) -> Result<Sent, PgError> {
    let mut sent = pin!(sent);
    let mut all = Sent::default();
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
