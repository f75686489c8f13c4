//! What documents somebody looks for: conditions on declared paths, an order, and where a page begins.
//!
//! A condition is a path, an operator and a value: `/origin = JFK`, `/delay > 60`, `/carrier in ["B6","DL"]`, `/tail prefix N7`,
//! `/tail exists true`. A value is JSON; a string may stand without its quotes.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::{Definition, QueryPath};
use super::path::Path;
use super::schema::Scalar;
use crate::error::DocumentsError;
use crate::model::cut;

/// Conditions of a query, at most.
pub const FILTERS_MAX: usize = 32;
/// Values of `in`, at most.
pub const VALUES_MAX: usize = 1_000;
/// Bytes of a string at a path by which documents are found, at most: indexes hold no longer ones.
pub const QUERY_VALUE_BYTES_MAX: usize = 1_024;

/// What is looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Conditions that all hold.
    pub filters: Vec<Filter>,
    /// The order; none: that in which documents were made.
    pub order: Option<Order>,
    /// Where the page begins.
    pub after: Option<After>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// The path.
    pub path: QueryPath,
    /// What holds of its value.
    pub test: Test,
}

/// What holds of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// It compares so.
    Is(Comparison, Value),
    /// It is one of these.
    In(Vec<Value>),
    /// It begins so.
    Prefix(String),
    /// There is one that is not null, or there is none.
    Exists(bool),
}

/// How a value compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// It is equal.
    Equal,
    /// It is not.
    NotEqual,
    /// It is less.
    Less,
    /// It is not greater.
    LessOrEqual,
    /// It is greater.
    Greater,
    /// It is not less.
    GreaterOrEqual,
}

/// An order of documents. Those without a value come last.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// By which value.
    pub path: QueryPath,
    /// The largest first.
    pub is_descending: bool,
}

/// The last document of the page before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct After {
    /// What it was ordered by.
    #[serde(rename = "v")]
    pub value: Value,
    /// Its number.
    #[serde(rename = "n")]
    pub number: i64,
    /// The order, as it was asked for: a cursor is of no other.
    #[serde(rename = "o")]
    order: String,
}

/// As somebody asks.
#[derive(Clone, Debug, Default)]
pub struct Wording<'a> {
    /// Conditions.
    pub filters: &'a [String],
    /// A path, with `-` before it where the largest comes first.
    pub sort: Option<&'a str>,
    /// From the page before.
    pub cursor: Option<&'a str>,
}

impl Query {
    /// Reads what somebody asks for.
    ///
    /// # Errors
    /// [`DocumentsError::QueryInvalid`].
    pub fn read(definition: &Definition, wording: &Wording<'_>) -> Result<Self, DocumentsError> {
        if wording.filters.len() > FILTERS_MAX {
            let what = format!("a query may have {FILTERS_MAX} conditions, `filters_max`");
            return Err(invalid(what));
        }
        let filters = wording
            .filters
            .iter()
            .map(|text| Filter::read(definition, text));
        let filters: Result<Vec<Filter>, String> = filters.collect();
        let order = wording
            .sort
            .map(|text| Order::read(definition, text))
            .transpose();
        let order = order.map_err(invalid)?;
        let after = wording
            .cursor
            .map(|text| After::read(text, order.as_ref()))
            .transpose();
        Ok(Self {
            filters: filters.map_err(invalid)?,
            order,
            after: after.map_err(invalid)?,
        })
    }
}

fn invalid(reason: String) -> DocumentsError {
    DocumentsError::QueryInvalid { reason }
}

/// The path that a text begins with, and the rest.
fn split_path<'a>(definition: &Definition, text: &'a str) -> Result<(QueryPath, &'a str), String> {
    let known = definition.query.iter().filter_map(|one| {
        let rest = text.strip_prefix(one.path.to_string().as_str())?;
        let ends = rest.is_empty() || rest.starts_with([' ', '=', '!', '<', '>']);
        ends.then_some((one, rest))
    });
    // `/a` is the beginning of a path `/a b` as well.
    let longest = known.min_by_key(|(_, rest)| rest.len());
    longest
        .map(|(path, rest)| (path.clone(), rest))
        .ok_or_else(|| {
            let declared: Vec<String> = definition
                .query
                .iter()
                .map(|one| format!("`{}`", one.path))
                .collect();
            let declared = match declared.is_empty() {
                true => "none is".to_owned(),
                false => format!("these are: {}", declared.join(", ")),
            };
            let asked = cut(text, 100);
            format!(
                "`{asked}` begins with no path that documents of `{}` are found by; {declared}",
                definition.collection
            )
        })
}

impl Filter {
    fn read(definition: &Definition, text: &str) -> Result<Self, String> {
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
            (Some((comparison, value)), _) => Test::Is(comparison, scalar(&path, value.trim())?),
            (None, ("in", list)) => Test::In(list_of(&path, list.trim())?),
            (None, ("prefix", value)) => Test::Prefix(prefix(&path, value.trim())?),
            (None, ("exists", "" | "true")) => Test::Exists(true),
            (None, ("exists", "false")) => Test::Exists(false),
            _ => {
                let asked = cut(text, 100);
                return Err(format!(
                    "`{asked}`: after the path comes one of =, !=, <, <=, >, >=, in, prefix and exists"
                ));
            }
        };
        Ok(Self { path, test })
    }
}

/// A value as it is written, of the path's type.
fn scalar(path: &QueryPath, text: &str) -> Result<Value, String> {
    let json: Option<Value> = serde_json::from_str(text).ok();
    let value = match (path.scalar, json) {
        (Scalar::String, Some(Value::String(string))) => Some(Value::String(string)),
        (Scalar::String, _) => Some(Value::String(text.to_owned())),
        (_, Some(value)) => Some(value),
        (_, None) => None,
    };
    value
        .filter(|value| fits(path.scalar, value))
        .ok_or_else(|| wrong(path, text))
}

fn wrong(path: &QueryPath, text: &str) -> String {
    let wanted = match path.scalar {
        Scalar::String => "a string",
        Scalar::Integer | Scalar::Number => "a number",
        Scalar::Boolean => "true or false",
    };
    format!(
        "`{}` is {wanted}, and `{}` is not",
        path.path,
        cut(text, 100)
    )
}

fn fits(scalar: Scalar, value: &Value) -> bool {
    match scalar {
        // The server has no U+0000.
        Scalar::String => value.as_str().is_some_and(|text| !text.contains('\0')),
        Scalar::Integer | Scalar::Number => value.is_number(),
        Scalar::Boolean => value.is_boolean(),
    }
}

fn list_of(path: &QueryPath, text: &str) -> Result<Vec<Value>, String> {
    let list: Vec<Value> = serde_json::from_str(text).map_err(|_| {
        format!(
            "after `in` comes a JSON array, and `{}` is none",
            cut(text, 100)
        )
    })?;
    if list.len() > VALUES_MAX {
        return Err(format!("`in` takes {VALUES_MAX} values, `values_max`"));
    }
    match list.iter().find(|value| !fits(path.scalar, value)) {
        Some(other) => Err(wrong(path, &other.to_string())),
        None => Ok(list),
    }
}

fn prefix(path: &QueryPath, text: &str) -> Result<String, String> {
    match (path.scalar, scalar(path, text)?) {
        (Scalar::String, Value::String(prefix)) if !prefix.is_empty() => Ok(prefix),
        (Scalar::String, _) => Err("after `prefix` comes a string that is not empty".to_owned()),
        _ => Err(format!(
            "`prefix` is of strings, and `{}` is none",
            path.path
        )),
    }
}

impl Order {
    fn read(definition: &Definition, text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('-');
        let (path, rest) = split_path(definition, bare.unwrap_or(text))?;
        if !rest.is_empty() {
            return Err(format!(
                "`{}`: a sort is a path, with `-` before it for the largest first",
                cut(text, 100)
            ));
        }
        Ok(Self {
            path,
            is_descending: bare.is_some(),
        })
    }
}

impl After {
    /// The last document of a page in an order.
    pub fn of(order: Option<&Order>, body: &Value, number: i64) -> Self {
        let value = order.and_then(|order| order.path.path.get(body));
        Self {
            value: value.cloned().unwrap_or(Value::Null),
            number,
            order: order.map(Order::text).unwrap_or_default(),
        }
    }

    /// As it is given out.
    pub fn cursor(&self) -> String {
        let json = serde_json::to_vec(self).expect("it is JSON");
        BASE64_URL_SAFE_NO_PAD.encode(json)
    }

    fn read(cursor: &str, order: Option<&Order>) -> Result<Self, String> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
        let after: Option<Self> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let is_of_order = |after: &Self| {
            let fits =
                |order: &Order| after.value.is_null() || fits(order.path.scalar, &after.value);
            after.order == order.map(Order::text).unwrap_or_default() && order.is_none_or(fits)
        };
        after.filter(is_of_order).ok_or_else(|| {
            "the cursor is not from a page of this order: it is the `next` of the page before, as it was given".to_owned()
        })
    }
}

impl Order {
    fn text(&self) -> String {
        let sign = if self.is_descending { "-" } else { "" };
        format!("{sign}{}", self.path.path)
    }
}

/// What is wrong with a document whose values at these paths are too long to be found by.
pub(crate) fn too_long<'a>(paths: &'a [QueryPath], body: &Value) -> Option<&'a Path> {
    let too_long = |one: &&QueryPath| {
        let value = one.path.get(body).and_then(Value::as_str);
        value.is_some_and(|text| text.len() > QUERY_VALUE_BYTES_MAX)
    };
    paths.iter().find(too_long).map(|one| &one.path)
}

#[cfg(test)]
mod tests;
