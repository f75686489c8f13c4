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

use crate::core::definition::QueryPath;
use crate::core::path::Segment;
use crate::core::query::{Comparison, Filter, Test};
use crate::core::schema::Scalar;

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

    fn add_parameter(&mut self, parameter: Parameter) -> usize {
        self.values.push(parameter);
        self.values.len()
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.text.write_fmt(text).expect("writing to a string cannot fail");
    }
}

/// Part of an order: documents with a value come before those without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderPart {
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
    for (index, segment) in segments.iter().enumerate() {
        let Segment::Property(name) = segment else { unreachable!("query paths have no `*`") };
        let operator = if index + 1 == segments.len() { "->>" } else { "->" };
        text = format!("({text} {operator} {}::text)", quote_literal(name));
    }
    match path.scalar {
        Scalar::String => format!("({text} COLLATE \"C\")"),
        Scalar::Integer | Scalar::Number => format!("({text}::numeric)"),
        Scalar::Boolean => format!("({text}::boolean)"),
    }
}

/// A string literal. Backslashes are literal whatever `standard_conforming_strings` is set to.
fn quote_literal(text: &str) -> String {
    let text = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", text.replace('\\', "\\\\"))
    } else {
        format!("'{text}'")
    }
}

/// SQL type to which a parameter for a path is cast.
fn cast_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String => "text",
        Scalar::Integer | Scalar::Number => "numeric",
        Scalar::Boolean => "boolean",
    }
}

fn parameter_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn push_condition(sql: &mut Sql, filter: &Filter) {
    let expr = expression(&filter.path, "d.body");
    let cast = cast_type(filter.path.scalar);
    match &filter.test {
        Test::Exists(true) => sql.push(format_args!("{expr} IS NOT NULL")),
        Test::Exists(false) => sql.push(format_args!("{expr} IS NULL")),
        Test::In(list) => {
            let list =
                sql.add_parameter(Parameter::List(list.iter().map(parameter_text).collect()));
            sql.push(format_args!("{expr} = ANY (${list}::text[]::{cast}[])"));
        }
        Test::Prefix(prefix) => {
            let first = sql.add_parameter(Parameter::Text(prefix.clone()));
            sql.push(format_args!(
                "{expr} >= ${first}::text AND pg_catalog.starts_with({expr}, ${first}::text)"
            ));
            if let Some(end) = prefix_end(prefix) {
                let end = sql.add_parameter(Parameter::Text(end));
                sql.push(format_args!(" AND {expr} < ${end}::text"));
            }
        }
        Test::Compare(comparison, value) => {
            let sign = comparison_sign(*comparison);
            let value = sql.add_parameter(Parameter::Text(parameter_text(value)));
            sql.push(format_args!("{expr} {sign} ${value}::text::{cast}"));
        }
    }
}

fn comparison_sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::NotEqual => "<>",
        Comparison::Less => "<",
        Comparison::LessOrEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterOrEqual => ">=",
    }
}

/// The first string after all strings with this prefix, by code point; none if there is no such
/// string.
fn prefix_end(prefix: &str) -> Option<String> {
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
    documents_left: u32,
    bytes_left: u64,
    is_empty: bool,
    is_full: bool,
}

impl PageBudget {
    /// Budget of an empty page.
    pub fn new(documents_max: u32, bytes_max: ByteSize) -> Self {
        Self {
            documents_left: documents_max,
            bytes_left: bytes_max.bytes(),
            is_empty: true,
            is_full: false,
        }
    }

    /// Number of rows to request: one more than fits, to find out whether there are more.
    pub(crate) fn rows_to_request(&self) -> i64 {
        i64::from(self.documents_left) + 1
    }

    /// Whether a document did not fit.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes a document of this size if it fits. Once one did not fit no later one does, so that a
    /// page has no gap.
    fn try_take(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let fits = self.documents_left > 0 && (self.is_empty || bytes <= self.bytes_left);
        self.is_full |= !fits;
        if !self.is_full {
            self.documents_left -= 1;
            self.bytes_left = self.bytes_left.saturating_sub(bytes);
            self.is_empty = false;
        }
        !self.is_full
    }
}

/// Rows that the server sends at once before more are requested. Usual pages need one request.
pub(crate) const FETCH_ROWS: i32 = 128;

/// The first rows of a statement, within the budget. Rows beyond it are discarded as they arrive.
pub async fn read_rows(
    client: &Client,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
    budget: &mut PageBudget,
) -> Result<Vec<Row>, PgError> {
    let mut rows = Vec::new();
    let stream = client.query_raw(statement, values.iter().copied()).await?;
    collect_rows(stream, &mut rows, budget).await?;
    Ok(rows)
}

/// Like [`read_rows`], for many rows: they are fetched in portions of [`FETCH_ROWS`] until
/// the budget is used up. The session must not be in a transaction.
pub(crate) async fn read_rows_in_parts(
    client: &mut Client,
    statement: &Statement,
    values: &[&(dyn ToSql + Sync)],
    budget: &mut PageBudget,
) -> Result<Vec<Row>, PgError> {
    let mut rows = Vec::new();
    let transaction = client.transaction().await?;
    let portal = transaction.bind(statement, values).await?;
    loop {
        let stream = transaction.query_portal_raw(&portal, FETCH_ROWS).await?;
        let totals = collect_rows(stream, &mut rows, budget).await?;
        if budget.is_full() || totals.rows < FETCH_ROWS as u64 {
            break;
        }
    }
    drop(portal);
    transaction.rollback().await?;
    Ok(rows)
}

/// Size of a chunk in bytes.
const CHUNK_BYTES: ByteSize = ByteSize::mib(4);

/// Documents of the first chunk, at most: their size is not known yet.
const FIRST_CHUNK_DOCUMENTS_MAX: u32 = 32;

/// Reads documents in chunks that fit into memory.
#[derive(Clone, Debug)]
pub struct BoundedChunks {
    documents_max: u32,
    /// Documents to request next: as many as fit by the size of the last ones, and at most twice as
    /// many as last time.
    next_documents: u32,
}

impl BoundedChunks {
    /// Chunks of at most so many documents, which also bounds what the server sends beyond a chunk.
    pub fn new(documents_max: u32) -> Self {
        Self { documents_max, next_documents: documents_max.min(FIRST_CHUNK_DOCUMENTS_MAX) }
    }

    /// The next rows of a statement, empty at the end. Its last parameter, after `values`, is the
    /// number of rows.
    pub async fn next<S: ToStatement + ?Sized + Sync + Send>(
        &mut self,
        client: &impl GenericClient,
        statement: &S,
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PgError> {
        let limit = i64::from(self.next_documents);
        let mut parameters = values.to_vec();
        parameters.push(&limit);
        let mut budget = PageBudget::new(self.next_documents, CHUNK_BYTES);
        let mut rows = Vec::new();
        let stream = client.query_raw(statement, parameters.iter().copied()).await?;
        let totals = collect_rows(stream, &mut rows, &mut budget).await?;
        let row_bytes = (totals.bytes / totals.rows.max(1)).max(1);
        let fitting = u32::try_from(CHUNK_BYTES.bytes() / row_bytes).unwrap_or(u32::MAX);
        let next_max = self.next_documents.saturating_mul(2).min(self.documents_max);
        self.next_documents = fitting.clamp(1, next_max);
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
async fn collect_rows(
    stream: RowStream,
    rows: &mut Vec<Row>,
    budget: &mut PageBudget,
) -> Result<StreamTotals, PgError> {
    let mut sent = pin!(stream);
    let mut totals = StreamTotals::default();
    while let Some(row) = sent.try_next().await? {
        totals.rows += 1;
        totals.bytes += row.raw_size_bytes() as u64;
        if budget.try_take(row.raw_size_bytes()) {
            rows.push(row);
        }
    }
    Ok(totals)
}

mod statements;

pub(crate) use statements::{
    CANDIDATES_MAX, candidate_count_sql, count_sql, estimate_sql, page_sql,
};

#[cfg(test)]
mod tests;
