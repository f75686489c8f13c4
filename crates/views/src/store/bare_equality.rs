//! Comparisons in rules of views whose operators the server does not print, and that are not
//! PostgreSQL's own: printed and parsed again, they may be other comparisons.

use std::collections::{BTreeMap, BTreeSet};

use egret_postgres::tokio_postgres::Transaction;

use crate::core::rule_tree::{BareEqualities, bare_equalities};
use crate::error::ViewsError;

/// How a relation compares where the server prints no operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BareEquality {
    /// Whether an operator is not PostgreSQL's own.
    pub is_own: bool,
    /// Whether values of a type with an equality of its own are compared by another one, as where
    /// that one is not on the search path.
    pub is_foreign: bool,
}

/// Reads how relations compare, by the rules of those that are views.
pub(crate) async fn read_bare_equalities(
    transaction: &Transaction<'_>,
    relations: &[u32],
) -> Result<BTreeMap<u32, BareEquality>, ViewsError> {
    let sql = "SELECT ev_class, ev_action::text FROM pg_catalog.pg_rewrite \
               WHERE ev_class = ANY ($1::oid[]) AND rulename = '_RETURN'";
    let rows = transaction.query(sql, &[&relations]).await?;
    let rules: BTreeMap<u32, BareEqualities> =
        rows.iter().map(|row| (row.get(0), bare_equalities(row.get(1)))).collect();
    let all = |of: fn(&BareEqualities) -> &BTreeSet<u32>| -> Vec<u32> {
        let oids: BTreeSet<u32> = rules.values().flat_map(of).copied().collect();
        oids.into_iter().collect()
    };
    let (operators, types) = (all(|rule| &rule.operators), all(|rule| &rule.types));
    if operators.is_empty() {
        return Ok(BTreeMap::new());
    }
    let sql = include_str!("sql/own_equality.sql");
    let rows = transaction.query(sql, &[&operators, &types]).await?;
    let own = |is_operator: bool| -> BTreeSet<u32> {
        let rows = rows.iter();
        rows.filter(|row| row.get::<_, bool>("is_operator") == is_operator)
            .map(|row| row.get("oid"))
            .collect()
    };
    let (own_operators, own_types) = (own(true), own(false));
    let equality = |rule: &BareEqualities| {
        let is_own = !rule.operators.is_disjoint(&own_operators);
        BareEquality { is_own, is_foreign: !is_own && !rule.types.is_disjoint(&own_types) }
    };
    Ok(rules.iter().map(|(oid, rule)| (*oid, equality(rule))).collect())
}
