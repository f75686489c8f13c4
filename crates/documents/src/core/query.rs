//! Queries: filters on query paths, an order, and a cursor.
//!
//! A filter is a path, an operator and a value: `/origin = JFK`, `/delay > 60`, `/carrier in
//! ["B6","DL"]`, `/tail prefix N7`, `/tail exists true`. A value is JSON; a string may stand
//! without its quotes.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::{Definition, QueryPath};
use super::path::Path;
use super::schema::Scalar;
use crate::error::DocumentsError;
use crate::model::{DocumentNumber, truncate};

/// Filters of a query, at most.
pub(crate) const FILTERS_MAX: usize = 32;
/// Values of `in`, at most.
pub(crate) const VALUES_MAX: usize = 1_000;
/// Bytes of a string at a query path, at most: indexes cannot hold longer ones.
pub(crate) const QUERY_VALUE_BYTES_MAX: usize = 1_024;

/// A parsed query on a collection.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Filters, which all must hold.
    pub filters: Vec<Filter>,
    /// Requested order; none: order of creation.
    pub order: Option<Order>,
    /// Position after which the page begins; none: at the first document.
    pub after: Option<PageCursor>,
}

/// A filter on the value at a path.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// Query path of the value.
    pub path: QueryPath,
    /// Test that the value must pass.
    pub test: Test,
}

/// A test of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// The value compares in this way with a constant.
    Compare(Comparison, Value),
    /// The value is one of these constants.
    In(Vec<Value>),
    /// The string begins with this prefix.
    Prefix(String),
    /// There is a value other than null, or there is none.
    Exists(bool),
}

/// A comparison of a value with a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Equal to the constant.
    Equal,
    /// Different from the constant.
    NotEqual,
    /// Less than the constant.
    Less,
    /// At most the constant.
    LessOrEqual,
    /// Greater than the constant.
    Greater,
    /// At least the constant.
    GreaterOrEqual,
}

/// An order of documents by a value. Documents without it come last.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Query path of the sort key.
    pub path: QueryPath,
    /// Whether the largest values come first.
    pub is_descending: bool,
}

/// Cursor: position of the last document of the previous page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageCursor {
    /// Its sort key; null if it has none.
    #[serde(rename = "v")]
    pub value: Value,
    /// Number of the document.
    #[serde(rename = "n")]
    pub number: DocumentNumber,
    /// The order of the query, as text: a cursor is only valid for the same order.
    #[serde(rename = "o")]
    order: String,
}

/// A query as text.
#[derive(Clone, Debug, Default)]
pub struct QueryText<'a> {
    /// Filters in the syntax of the module.
    pub filters: &'a [String],
    /// Path of the sort key, with a `-` in front for descending order.
    pub sort: Option<&'a str>,
    /// Cursor returned with the previous page.
    pub cursor: Option<&'a str>,
}

impl Query {
    /// Parses a query on a collection.
    ///
    /// # Errors
    /// [`DocumentsError::QueryInvalid`].
    pub fn parse(
        definition: &Definition,
        query_text: &QueryText<'_>,
    ) -> Result<Self, DocumentsError> {
        if query_text.filters.len() > FILTERS_MAX {
            let what = format!("a query may have at most {FILTERS_MAX} conditions (`filters_max`)");
            return Err(invalid(what));
        }
        let filters: Result<Vec<Filter>, String> =
            query_text.filters.iter().map(|text| Filter::parse(definition, text)).collect();
        let order = query_text
            .sort
            .map(|text| Order::parse(definition, text))
            .transpose()
            .map_err(invalid)?;
        let after =
            query_text.cursor.map(|text| PageCursor::decode(text, order.as_ref())).transpose();
        Ok(Self { filters: filters.map_err(invalid)?, order, after: after.map_err(invalid)? })
    }
}

fn invalid(reason: String) -> DocumentsError {
    DocumentsError::QueryInvalid { reason }
}

/// Splits a filter into the query path it begins with, and the rest.
fn split_path<'a>(definition: &Definition, text: &'a str) -> Result<(QueryPath, &'a str), String> {
    let candidates = definition.query.iter().filter_map(|one| {
        let rest = text.strip_prefix(one.path.to_string().as_str())?;
        let ends = rest.is_empty() || rest.starts_with([' ', '=', '!', '<', '>']);
        ends.then_some((one, rest))
    });
    // `/a` is also a prefix of the path `/a b`: prefer the longest.
    let longest = candidates.min_by_key(|(_, rest)| rest.len());
    longest.map(|(path, rest)| (path.clone(), rest)).ok_or_else(|| {
        let declared: Vec<String> =
            definition.query.iter().map(|one| format!("`{}`", one.path)).collect();
        let declared = if declared.is_empty() {
            "it declares none".to_owned()
        } else {
            format!("it declares: {}", declared.join(", "))
        };
        let shown = truncate(text, 100);
        format!(
            "`{shown}` does not begin with a path that `{}` declares in `query`; {declared}",
            definition.collection
        )
    })
}

impl Filter {
    fn parse(definition: &Definition, text: &str) -> Result<Self, String> {
        let (path, rest) = split_path(definition, text.trim_start())?;
        let rest = rest.trim();
        const OPERATORS: [(&str, Comparison); 6] = [
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("=", Comparison::Equal),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let operator = OPERATORS
            .iter()
            .find_map(|(sign, comparison)| Some((*comparison, rest.strip_prefix(sign)?)));
        let test = match (operator, rest.split_once(' ').unwrap_or((rest, ""))) {
            (Some((comparison, value)), _) => {
                Test::Compare(comparison, parse_scalar(&path, value.trim())?)
            }
            (None, ("in", list)) => Test::In(parse_list(&path, list.trim())?),
            (None, ("prefix", value)) => Test::Prefix(parse_prefix(&path, value.trim())?),
            (None, ("exists", "" | "true")) => Test::Exists(true),
            (None, ("exists", "false")) => Test::Exists(false),
            _ => {
                let shown = truncate(text, 100);
                return Err(format!(
                    "`{shown}`: the path must be followed by one of =, !=, <, <=, >, >=, in, \
                     prefix and exists"
                ));
            }
        };
        Ok(Self { path, test })
    }
}

/// Parses a constant of the path's type.
fn parse_scalar(path: &QueryPath, text: &str) -> Result<Value, String> {
    let json: Option<Value> = serde_json::from_str(text).ok();
    let value = match (path.scalar, json) {
        (Scalar::String, Some(Value::String(string))) => Some(Value::String(string)),
        (Scalar::String, _) => Some(Value::String(text.to_owned())),
        (_, Some(value)) => Some(value),
        (_, None) => None,
    };
    value.filter(|value| matches_type(path.scalar, value)).ok_or_else(|| type_mismatch(path, text))
}

fn type_mismatch(path: &QueryPath, text: &str) -> String {
    let expected = match path.scalar {
        Scalar::String => "a string",
        Scalar::Integer | Scalar::Number => "a number",
        Scalar::Boolean => "true or false",
    };
    format!("`{}` is {expected}, but `{}` is not", path.path, truncate(text, 100))
}

fn matches_type(scalar: Scalar, value: &Value) -> bool {
    match scalar {
        // PostgreSQL cannot store U+0000.
        Scalar::String => value.as_str().is_some_and(|text| !text.contains('\0')),
        Scalar::Integer | Scalar::Number => value.is_number(),
        Scalar::Boolean => value.is_boolean(),
    }
}

fn parse_list(path: &QueryPath, text: &str) -> Result<Vec<Value>, String> {
    let list: Vec<Value> = serde_json::from_str(text).map_err(|_| {
        format!("`in` must be followed by a JSON array, but `{}` is not one", truncate(text, 100))
    })?;
    if list.len() > VALUES_MAX {
        return Err(format!("`in` takes at most {VALUES_MAX} values (`values_max`)"));
    }
    match list.iter().find(|value| !matches_type(path.scalar, value)) {
        Some(other) => Err(type_mismatch(path, &other.to_string())),
        None => Ok(list),
    }
}

fn parse_prefix(path: &QueryPath, text: &str) -> Result<String, String> {
    match (path.scalar, parse_scalar(path, text)?) {
        (Scalar::String, Value::String(prefix)) if !prefix.is_empty() => Ok(prefix),
        (Scalar::String, _) => {
            Err("`prefix` must be followed by a string that is not empty".to_owned())
        }
        _ => Err(format!("`prefix` needs a path to strings, but `{}` is not one", path.path)),
    }
}

impl Order {
    fn parse(definition: &Definition, text: &str) -> Result<Self, String> {
        let descending_path = text.strip_prefix('-');
        let (path, rest) = split_path(definition, descending_path.unwrap_or(text))?;
        if !rest.is_empty() {
            return Err(format!(
                "`{}` is not a sort: give a path, with `-` before it for descending order",
                truncate(text, 100)
            ));
        }
        Ok(Self { path, is_descending: descending_path.is_some() })
    }
}

impl PageCursor {
    /// Cursor after a document, in an order.
    pub(crate) fn after_document(
        order: Option<&Order>,
        body: &Value,
        number: DocumentNumber,
    ) -> Self {
        let value = order.and_then(|order| order.path.path.get(body));
        Self {
            value: value.cloned().unwrap_or(Value::Null),
            number,
            order: order.map(Order::to_text).unwrap_or_default(),
        }
    }

    /// Encodes the cursor for clients.
    pub fn encode(&self) -> String {
        let json = serde_json::to_vec(self).expect("a cursor can be written as JSON");
        BASE64_URL_SAFE_NO_PAD.encode(json)
    }

    fn decode(cursor: &str, order: Option<&Order>) -> Result<Self, String> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
        let after: Option<Self> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let is_valid = |after: &Self| {
            let value_matches = |order: &Order| {
                after.value.is_null() || matches_type(order.path.scalar, &after.value)
            };
            after.order == order.map(Order::to_text).unwrap_or_default()
                && order.is_none_or(value_matches)
        };
        after.filter(is_valid).ok_or_else(|| {
            "the cursor is not from a page with this sort: send the `next` of the previous page \
             unchanged"
                .to_owned()
        })
    }
}

impl Order {
    fn to_text(&self) -> String {
        let sign = if self.is_descending { "-" } else { "" };
        format!("{sign}{}", self.path.path)
    }
}

/// The first query path whose string in a document is too long for its index.
pub(crate) fn find_oversized<'a>(paths: &'a [QueryPath], body: &Value) -> Option<&'a Path> {
    let is_oversized = |one: &&QueryPath| {
        let value = one.path.get(body).and_then(Value::as_str);
        value.is_some_and(|text| text.len() > QUERY_VALUE_BYTES_MAX)
    };
    paths.iter().find(is_oversized).map(|one| &one.path)
}

#[cfg(test)]
mod tests;
