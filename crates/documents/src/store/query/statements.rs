//! Statements of queries: which values or documents are read, and in which order.
//!
//! A page is read from one of three sources, and the statement itself chooses: *candidates*, the
//! documents that match the filters on one path, if they are few; the *sort values*, in the
//! requested order; or all documents of the collection, as long as values at a path are still being
//! added. All filters are tested on the documents, whatever the source.

use super::{
    OrderPart, Parameter, Sql, comparison_sign, expression, parameter_text, prefix_end,
    push_condition, quote_literal,
};
use crate::core::definition::QueryPath;
use crate::core::query::{Comparison, Filter, Order, PageCursor, Query, Test};
use crate::core::schema::Scalar;
use crate::model::CollectionKey;
use crate::store::query_values::{kind_letter, property_names};
use crate::store::read::COLUMNS;

/// Candidates that are read for a page and sorted, at most.
pub(crate) const CANDIDATES_MAX: i64 = 10_000;

/// Candidates that are read one by one for an exact count, at most; beyond, all documents are read.
const COUNTED_CANDIDATES_MAX: i64 = 100_000;

/// One page of a part of the order: at most `limit` documents.
pub(crate) fn page_sql(query: &Query, key: CollectionKey, part: OrderPart, limit: i64) -> Sql {
    let page = Page { query, key, part, limit };
    let sorted_path = page.sorted_path();
    let candidate_path =
        selective_path(query, CANDIDATE_RANK_MAX).filter(|path| Some(*path) != sorted_path);
    let candidate_path = candidate_path.filter(|_| !page.is_sorted_by_equality());
    let mut sql = Sql::default();
    if candidate_path.is_none() && sorted_path.is_none() {
        page.push_documents(&mut sql, "");
        return sql;
    }
    let id = |path: Option<&QueryPath>| {
        path.map_or_else(|| "NULL::integer".to_owned(), |path| path_id_sql(path, key))
    };
    sql.push(format_args!(
        "WITH p AS MATERIALIZED (SELECT {} AS candidates, {} AS sorted)",
        id(candidate_path),
        id(sorted_path)
    ));
    let mut condition = String::new();
    if let Some(path) = candidate_path {
        sql.text.push_str(", c AS MATERIALIZED (SELECT v.number");
        push_values(&mut sql, "(SELECT candidates FROM p)", path, query, key);
        let (limit, max) = (CANDIDATES_MAX + 1, CANDIDATES_MAX);
        sql.push(format_args!(
            " LIMIT {limit}), g AS MATERIALIZED (SELECT (SELECT candidates FROM p) IS NOT NULL AND count(*) <= {max} AS few FROM c) ("
        ));
        page.push_candidates(&mut sql, " AND (SELECT few FROM g)");
        sql.text.push_str(") UNION ALL (");
        condition.push_str(" AND NOT (SELECT few FROM g)");
    } else {
        sql.text.push_str(" (");
    }
    if let Some(path) = sorted_path {
        page.push_sorted(&mut sql, path, &condition);
        sql.text.push_str(") UNION ALL (");
        condition.push_str(" AND (SELECT sorted FROM p) IS NULL");
    }
    page.push_documents(&mut sql, &condition);
    // At most one part has rows, and these are in its order.
    sql.text.push(')');
    sql
}

/// Exact number of matching documents.
pub(crate) fn count_sql(query: &Query, key: CollectionKey) -> Sql {
    let mut sql = Sql::default();
    let Some(path) = selective_path(query, RANK_MAX) else {
        sql.text.push_str("SELECT count(*)");
        push_documents(&mut sql, query, key);
        return sql;
    };
    let id = path_id_sql(path, key);
    sql.push(format_args!("WITH p AS MATERIALIZED (SELECT {id} AS id)"));
    if is_only_path(query, path) {
        sql.text.push_str(" SELECT (SELECT count(*)");
        push_values(&mut sql, "(SELECT id FROM p)", path, query, key);
        sql.text.push_str(") + (SELECT count(*)");
        push_documents(&mut sql, query, key);
        sql.text.push_str(" AND (SELECT id FROM p) IS NULL)");
        return sql;
    }
    sql.text.push_str(", c AS MATERIALIZED (SELECT v.number");
    push_values(&mut sql, "(SELECT id FROM p)", path, query, key);
    let (limit, max) = (COUNTED_CANDIDATES_MAX + 1, COUNTED_CANDIDATES_MAX);
    sql.push(format_args!(
        " LIMIT {limit}), g AS MATERIALIZED (SELECT (SELECT id FROM p) IS NOT NULL AND count(*) <= {max} AS few FROM c) \
         SELECT (SELECT count(*)"
    ));
    push_looked_up(&mut sql, "c", key);
    push_filters(&mut sql, query);
    sql.text.push_str(" AND (SELECT few FROM g)) + (SELECT count(*)");
    push_documents(&mut sql, query, key);
    sql.text.push_str(" AND NOT (SELECT few FROM g))");
    sql
}

/// Number of candidates, up to one more than [`CANDIDATES_MAX`], and of the matching documents
/// among them; none: no path of the query is selective.
pub(crate) fn candidate_count_sql(query: &Query, key: CollectionKey) -> Option<Sql> {
    let path = selective_path(query, RANK_MAX)?;
    let mut sql = Sql::default();
    let id = path_id_sql(path, key);
    sql.push(format_args!(
        "WITH p AS MATERIALIZED (SELECT {id} AS id), c AS MATERIALIZED (SELECT v.number"
    ));
    push_values(&mut sql, "(SELECT id FROM p)", path, query, key);
    let limit = CANDIDATES_MAX + 1;
    sql.push(format_args!(
        " LIMIT {limit}) SELECT CASE WHEN (SELECT id FROM p) IS NOT NULL THEN (SELECT count(*) FROM c) END, (SELECT count(*)"
    ));
    if is_only_path(query, path) {
        sql.text.push_str(" FROM c)");
    } else {
        push_looked_up(&mut sql, "c", key);
        push_filters(&mut sql, query);
        sql.text.push(')');
    }
    Some(sql)
}

/// The planner's estimate of the number of matching documents.
pub(crate) fn estimate_sql(query: &Query, key: CollectionKey) -> Sql {
    let mut sql = Sql::default();
    sql.text.push_str("EXPLAIN (FORMAT JSON) SELECT 1");
    push_documents(&mut sql, query, key);
    sql
}

/// A part of a page.
struct Page<'a> {
    query: &'a Query,
    key: CollectionKey,
    part: OrderPart,
    limit: i64,
}

impl Page<'_> {
    /// Path whose values are read in the order of the page.
    fn sorted_path(&self) -> Option<&QueryPath> {
        match &self.query.order {
            Some(order) => Some(&order.path),
            None => self.equality().map(|filter| &filter.path),
        }
    }

    /// A filter that only one value passes: documents with it are in order of their numbers.
    fn equality(&self) -> Option<&Filter> {
        self.query.filters.iter().find(|filter| rank(filter) == 0)
    }

    fn is_sorted_by_equality(&self) -> bool {
        self.query.order.is_none() && self.equality().is_some()
    }

    fn sign_and_direction(&self) -> (&'static str, &'static str) {
        let is_descending = self.query.order.as_ref().is_some_and(|order| order.is_descending);
        if is_descending { ("<", " DESC") } else { (">", "") }
    }

    /// The order, if the part has values.
    fn value_order(&self) -> Option<&Order> {
        self.query.order.as_ref().filter(|_| self.part == OrderPart::Valued)
    }

    /// The cursor, unless all documents of the part come after it.
    fn cursor(&self) -> Option<&PageCursor> {
        let is_behind_values = self.query.order.is_some() && self.part == OrderPart::Valueless;
        self.query.after.as_ref().filter(|after| !is_behind_values || after.value.is_null())
    }

    /// Documents that are candidates, sorted.
    fn push_candidates(&self, sql: &mut Sql, condition: &str) {
        sql.push(format_args!("SELECT 1, {COLUMNS}"));
        push_looked_up(sql, "c", self.key);
        sql.text.push_str(condition);
        self.push_tail(sql);
    }

    /// All documents of the collection, sorted.
    fn push_documents(&self, sql: &mut Sql, condition: &str) {
        let collection = collection_condition("d", self.key);
        sql.push(format_args!(
            "SELECT 1, {COLUMNS} FROM egret.document AS d WHERE {collection}{condition}"
        ));
        self.push_tail(sql);
    }

    /// Filters on documents, and their order after the cursor.
    fn push_tail(&self, sql: &mut Sql) {
        push_filters(sql, self.query);
        if let Some(order) = &self.query.order {
            let is_null = match self.part {
                OrderPart::Valued => "IS NOT NULL",
                OrderPart::Valueless => "IS NULL",
            };
            sql.push(format_args!(" AND {} {is_null}", expression(&order.path, "d.body")));
        }
        let (sign, direction) = self.sign_and_direction();
        if let Some(after) = self.cursor() {
            let number = sql.add_parameter(Parameter::Number(after.number.0));
            match self.value_order() {
                Some(order) => {
                    let value = sql.add_parameter(Parameter::Text(parameter_text(&after.value)));
                    let expr = expression(&order.path, "d.body");
                    let cast = super::cast_type(order.path.scalar);
                    sql.push(format_args!(
                        " AND ({expr}, d.number) {sign} (${value}::text::{cast}, ${number}::bigint)"
                    ));
                }
                None => sql.push(format_args!(" AND d.number {sign} ${number}::bigint")),
            }
        }
        sql.text.push_str(" ORDER BY ");
        if let Some(order) = self.value_order() {
            sql.push(format_args!("{}{direction}, ", expression(&order.path, "d.body")));
        }
        sql.push(format_args!("d.number{direction} LIMIT {}", self.limit));
    }

    /// Documents in the order of the values at a path, as their index has it.
    fn push_sorted(&self, sql: &mut Sql, path: &QueryPath, condition: &str) {
        sql.push(format_args!(
            "SELECT 1, {COLUMNS} FROM (SELECT v.number, v.number_key, v.string_key"
        ));
        push_values(sql, "(SELECT sorted FROM p)", path, self.query, self.key);
        if self.query.order.is_some() {
            sql.text.push_str(match self.part {
                OrderPart::Valued => " AND v.has_value",
                OrderPart::Valueless => {
                    " AND NOT v.has_value AND v.number_key = 0 AND v.string_key = ''"
                }
            });
        }
        let (sign, direction) = self.sign_and_direction();
        if let Some(after) = self.cursor() {
            let number = sql.add_parameter(Parameter::Number(after.number.0));
            match self.value_order() {
                Some(order) => {
                    let value = key_text(order.path.scalar, &after.value);
                    let value = sql.add_parameter(Parameter::Text(value));
                    let (numeric, string) = match order.path.scalar {
                        Scalar::String => ("0".to_owned(), format!("${value}::text")),
                        _ => (format!("${value}::text::numeric"), "''".to_owned()),
                    };
                    sql.push(format_args!(
                        " AND (v.number_key, v.string_key, v.number) {sign} ({numeric}, {string}, ${number}::bigint)"
                    ));
                }
                None => sql.push(format_args!(" AND v.number {sign} ${number}::bigint")),
            }
        }
        let collection = collection_condition("x", self.key);
        sql.push(format_args!(
            ") AS v CROSS JOIN LATERAL (SELECT * FROM egret.document AS x \
             WHERE {collection} AND x.number = v.number OFFSET 0) AS d WHERE true{condition}"
        ));
        push_filters(sql, self.query);
        sql.push(format_args!(
            " ORDER BY v.number_key{direction}, v.string_key{direction}, v.number{direction} LIMIT {}",
            self.limit
        ));
    }
}

/// Worst rank of filters by which candidates are chosen.
const CANDIDATE_RANK_MAX: u8 = 4;

/// Worst rank of filters by which documents are counted.
const RANK_MAX: u8 = 5;

/// How selective a filter is likely to be: the lower the better.
fn rank(filter: &Filter) -> u8 {
    match &filter.test {
        Test::Compare(Comparison::Equal, _) => 0,
        Test::In(_) => 1,
        Test::Prefix(_) => 2,
        Test::Exists(true) | Test::Compare(Comparison::NotEqual, _) => 5,
        Test::Compare(..) => 3,
        Test::Exists(false) => 4,
    }
}

/// Path of the filter that is likely to be the most selective one.
fn selective_path(query: &Query, rank_max: u8) -> Option<&QueryPath> {
    let filters = query.filters.iter().filter(|filter| rank(filter) <= rank_max);
    filters.min_by_key(|filter| rank(filter)).map(|filter| &filter.path)
}

/// Whether the values at a path decide which documents match.
fn is_only_path(query: &Query, path: &QueryPath) -> bool {
    query.filters.iter().all(|filter| filter.path == *path)
}

/// Number of a path; NULL unless its values are complete.
fn path_id_sql(path: &QueryPath, key: CollectionKey) -> String {
    let names: Vec<String> = property_names(path).into_iter().map(quote_literal).collect();
    format!(
        "(SELECT p.path_id FROM egret.query_path AS p WHERE p.collection_id = {} \
         AND p.path = ARRAY[{}]::text[] AND p.kind = '{}' AND p.state = 'a' LIMIT 1)",
        key.collection.0,
        names.join(", "),
        kind_letter(path.scalar)
    )
}

/// A constant as it is stored in a key column.
fn key_text(scalar: Scalar, value: &serde_json::Value) -> String {
    match (scalar, value.as_bool()) {
        (Scalar::Boolean, Some(value)) => u8::from(value).to_string(),
        _ => parameter_text(value),
    }
}

/// The values at a path that pass all filters on it.
fn push_values(sql: &mut Sql, id: &str, path: &QueryPath, query: &Query, key: CollectionKey) {
    sql.push(format_args!(
        " FROM egret.document_value AS v WHERE v.path_id = {id} AND v.tenant_id = {}",
        key.tenant.0
    ));
    for filter in query.filters.iter().filter(|filter| filter.path == *path) {
        push_value_condition(sql, filter);
    }
}

fn push_value_condition(sql: &mut Sql, filter: &Filter) {
    let scalar = filter.path.scalar;
    let (column, cast) = match scalar {
        Scalar::String => ("v.string_key", "text"),
        _ => ("v.number_key", "numeric"),
    };
    let is_present = !matches!(filter.test, Test::Exists(false));
    sql.text.push_str(match (is_present, scalar) {
        (true, Scalar::String) => " AND v.has_value AND v.number_key = 0",
        (true, _) => " AND v.has_value AND v.string_key = ''",
        (false, _) => " AND NOT v.has_value AND v.number_key = 0 AND v.string_key = ''",
    });
    match &filter.test {
        Test::Exists(_) => {}
        Test::In(list) => {
            let list = list.iter().map(|value| key_text(scalar, value)).collect();
            let list = sql.add_parameter(Parameter::List(list));
            sql.push(format_args!(" AND {column} = ANY (${list}::text[]::{cast}[])"));
        }
        Test::Prefix(prefix) => {
            let first = sql.add_parameter(Parameter::Text(prefix.clone()));
            sql.push(format_args!(" AND {column} >= ${first}::text"));
            if let Some(end) = prefix_end(prefix) {
                let end = sql.add_parameter(Parameter::Text(end));
                sql.push(format_args!(" AND {column} < ${end}::text"));
            }
        }
        Test::Compare(comparison, value) => {
            let sign = comparison_sign(*comparison);
            let value = sql.add_parameter(Parameter::Text(key_text(scalar, value)));
            sql.push(format_args!(" AND {column} {sign} ${value}::text::{cast}"));
        }
    }
}

/// The documents of these numbers, each looked up by itself.
fn push_looked_up(sql: &mut Sql, numbers: &str, key: CollectionKey) {
    let collection = collection_condition("x", key);
    sql.push(format_args!(
        " FROM {numbers} AS v CROSS JOIN LATERAL (SELECT * FROM egret.document AS x \
         WHERE {collection} AND x.number = v.number OFFSET 0) AS d WHERE true"
    ));
}

/// The documents of the collection that pass all filters.
fn push_documents(sql: &mut Sql, query: &Query, key: CollectionKey) {
    let collection = collection_condition("d", key);
    sql.push(format_args!(" FROM egret.document AS d WHERE {collection}"));
    push_filters(sql, query);
}

/// Condition on the tenant and the collection of documents.
fn collection_condition(alias: &str, key: CollectionKey) -> String {
    let (tenant, collection) = (key.tenant.0, key.collection.0);
    format!("{alias}.tenant_id = {tenant} AND {alias}.collection_id = {collection}")
}

fn push_filters(sql: &mut Sql, query: &Query) {
    for filter in &query.filters {
        sql.text.push_str(" AND ");
        push_condition(sql, filter);
    }
}
