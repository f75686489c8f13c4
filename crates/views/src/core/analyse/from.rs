//! FROM: tables, views, subqueries and joins.

use pg_query::NodeEnum;
use pg_query::protobuf::{Alias, JoinExpr, JoinType, Node as Parsed, RangeVar};

use super::clock::has_clock;
use super::comparisons::refuse_bare_equality;
use super::ctes::Ctes;
use super::expressions::{parse_expression, resolve_expression};
use super::facts::{Relation, RelationKind};
use super::lateral::{LateralJoin, may_be_lateral, subselect_into_from_item};
use super::parse::parse;
use super::scope::{Entry, Scope, find_column};
use super::select::QueryRows;
use super::subqueries::split_conjuncts;
use super::{Analysis, deduplicate, refuse_reserved_names};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::size::{NAMED_SOURCES_MAX, join_size, node_size};
use crate::core::tree::{JoinKind, Node, Source, Stage, StageContents};

impl Analysis<'_> {
    /// All items of FROM, joined without a condition.
    pub(super) fn analyse_from(
        &mut self,
        items: &[Parsed],
        ctes: &Ctes,
    ) -> Result<(Node, Scope), Refusal> {
        let mut joined: Option<(Node, Scope)> = None;
        for item in items {
            if let Some((preceding, scope)) = joined.take_if(|_| may_be_lateral(item)) {
                let lateral_join = LateralJoin { condition: None, keeps_unmatched: false };
                joined = Some(self.join_lateral(preceding, scope, item, lateral_join, ctes)?);
                continue;
            }
            let (node, scope) = self.analyse_from_item(item, ctes)?;
            joined = Some(match joined {
                None => (node, scope),
                Some((before, names)) => {
                    let condition = Expression::constant("true");
                    let both_sides = self.join(JoinKind::Inner, before, node, condition);
                    (both_sides, names.join(scope))
                }
            });
        }
        Ok(joined.unwrap_or((Node::Unit, Scope::default())))
    }

    fn analyse_from_item(&mut self, item: &Parsed, ctes: &Ctes) -> Result<(Node, Scope), Refusal> {
        match &item.node {
            Some(NodeEnum::RangeVar(table)) => self.analyse_table(table, ctes),
            Some(NodeEnum::RangeSubselect(sub)) => {
                let query = sub.subquery.as_ref().and_then(|query| query.node.as_ref());
                let Some(NodeEnum::SelectStmt(query)) = query else {
                    return Err(Refusal::new("a subquery of this kind", -1, "use mode full"));
                };
                let rows = self.select(query, ctes)?;
                Ok(subselect_into_from_item(rows, sub))
            }
            Some(NodeEnum::JoinExpr(expr)) => self.analyse_join(expr, ctes),
            Some(NodeEnum::RangeFunction(function)) => {
                let lateral_join = LateralJoin { condition: None, keeps_unmatched: false };
                self.join_function(Node::Unit, Scope::default(), function, lateral_join)
            }
            Some(NodeEnum::RangeTableSample(sample)) => {
                let advice = "it returns other rows each time";
                Err(Refusal::new("TABLESAMPLE", sample.location, advice))
            }
            _ => Err(Refusal::new("this kind of FROM item", -1, "use mode full")),
        }
    }

    fn analyse_table(&mut self, table: &RangeVar, ctes: &Ctes) -> Result<(Node, Scope), Refusal> {
        if let Some((node, scope)) = ctes.domains.get(&table.relname) {
            return Ok((node.clone(), scope.clone()));
        }
        if table.schemaname.is_empty()
            && let Some(cte) = ctes.get(&table.relname)
        {
            let rows = self.analyse_cte(&cte)?;
            return Ok(into_from_item(rows, table.alias.as_ref(), &table.relname));
        }
        let key = (table.schemaname.clone(), table.relname.clone());
        let facts = self.facts;
        let Some(relation) = facts.relations.get(&key) else {
            let construct = match key.0.as_str() {
                // The server prints its own tables without a schema, and reports no dependency on
                // them.
                "" => format!("the system table `{}`", key.1),
                schema => format!("the relation `{schema}.{}`", key.1),
            };
            let advice = "only tables and views are supported";
            return Err(Refusal::new(construct, table.location, advice));
        };
        let rows = match &relation.kind {
            RelationKind::View(definition) => {
                refuse_reserved_names(definition)?;
                let query = parse(definition)?;
                if relation.has_bare_equality {
                    refuse_bare_equality(definition)?;
                }
                let mut rows = self.select(&query, &Ctes::default())?;
                for ((name, _), column) in rows.columns.iter_mut().zip(&relation.columns) {
                    name.clone_from(column);
                }
                rows
            }
            RelationKind::Table(table_index) => {
                self.scan_table(relation, Source::Table(*table_index))?
            }
        };
        Ok(into_from_item(rows, table.alias.as_ref(), &table.relname))
    }

    /// The rows of a table, with its virtual generated columns computed.
    fn scan_table(&mut self, relation: &Relation, source: Source) -> Result<QueryRows, Refusal> {
        let columns: Vec<(String, ColumnId)> =
            relation.columns.iter().map(|name| (name.clone(), self.new_column())).collect();
        let (virtual_columns, stored_columns): (Vec<_>, Vec<_>) = columns
            .iter()
            .cloned()
            .partition(|(name, _)| relation.virtual_columns.contains_key(name));
        let by_id = stored_columns.iter().map(|(name, id)| (*id, name.clone()));
        let mut node = Node::Scan { source, columns: by_id.collect() };
        if !virtual_columns.is_empty() {
            let scope =
                Scope { entries: vec![scope_entry(stored_columns, None, "")], ..Scope::default() };
            let expressions = virtual_columns.iter().map(|(name, id)| {
                let generation_expression = &relation.virtual_columns[name];
                refuse_reserved_names(generation_expression)?;
                let parsed = parse_expression(generation_expression)?;
                Ok((*id, resolve_expression(&parsed, &scope)?))
            });
            node = Node::Project {
                columns: expressions.collect::<Result<_, Refusal>>()?,
                input: Box::new(node),
            };
        }
        Ok(QueryRows { node, columns, order: Vec::new() })
    }

    fn analyse_join(&mut self, expr: &JoinExpr, ctes: &Ctes) -> Result<(Node, Scope), Refusal> {
        let (Some(left), Some(right)) = (&expr.larg, &expr.rarg) else {
            return Err(Refusal::new("a join without sides", -1, "give both"));
        };
        let (left, left_scope) = self.analyse_from_item(left, ctes)?;
        let is_right = expr.jointype == JoinType::JoinRight as i32;
        let is_full = expr.jointype == JoinType::JoinFull as i32;
        if may_be_lateral(right) && !is_right && !is_full && expr.using_clause.is_empty() {
            let lateral_join = LateralJoin {
                condition: expr.quals.as_deref(),
                keeps_unmatched: expr.jointype == JoinType::JoinLeft as i32,
            };
            let (node, scope) = self.join_lateral(left, left_scope, right, lateral_join, ctes)?;
            return Ok((node, join_scope(scope, Vec::new(), expr.alias.as_ref())));
        }
        let (right, right_scope) = self.analyse_from_item(right, ctes)?;
        let kind = join_kind(expr)?;
        let mut common = Vec::new();
        for name in string_values(&expr.using_clause) {
            let resolve_name = |scope: &Scope| scope.resolve(std::slice::from_ref(&name), -1);
            common.push((name.clone(), resolve_name(&left_scope)?, resolve_name(&right_scope)?));
        }
        let scope = left_scope.join(right_scope);
        let mut conjuncts = Vec::new();
        let on = expr.quals.as_deref();
        if let Some(on) = on.filter(|on| kind == JoinKind::Inner && has_clock(on)) {
            split_conjuncts(on, &mut conjuncts);
        }
        let (clock_conjuncts, others): (Vec<_>, Vec<_>) =
            conjuncts.into_iter().partition(|conjunct| has_clock(conjunct));
        let condition = match (on, &common[..]) {
            (Some(_), _) if !clock_conjuncts.is_empty() => {
                let others = others.iter().map(|one| resolve_expression(one, &scope));
                Expression::conjunction(&others.collect::<Result<Vec<_>, _>>()?)
            }
            (Some(on), _) => resolve_expression(on, &scope)?,
            (None, []) => Expression::constant("true"),
            (None, common) => using_condition(common),
        };
        let mut node = if is_right {
            self.join(kind, right, left, condition)
        } else {
            self.join(kind, left, right, condition)
        };
        if !clock_conjuncts.is_empty() {
            node = self.add_temporal_filter(node, &clock_conjuncts, &scope)?;
        }
        let mut merged = Vec::new();
        for (name, left, right) in common {
            let id = match kind {
                JoinKind::Full => {
                    let id = self.new_column();
                    node = Node::Project {
                        input: Box::new(node),
                        columns: vec![(id, coalesce_columns(left, right))],
                    };
                    id
                }
                _ if is_right => right,
                _ => left,
            };
            merged.push((name, id));
        }
        let scope = join_scope(scope, merged, expr.alias.as_ref());
        Ok((node, scope))
    }

    /// Joins two inputs. A side becomes a stage of its own if the statement for the changes would
    /// be too long.
    pub(super) fn join(
        &mut self,
        kind: JoinKind,
        left: Node,
        right: Node,
        condition: Expression,
    ) -> Node {
        let mut sides = [left, right];
        for _ in 0..sides.len() {
            let [left, right] = [&sides[0], &sides[1]].map(node_size);
            if join_size(kind, left, right).changes <= NAMED_SOURCES_MAX {
                break;
            }
            let longer = usize::from(right.changes > left.changes);
            let side = std::mem::replace(&mut sides[longer], Node::Unit);
            sides[longer] = self.wrap_in_stage(side);
        }
        let [left, right] = sides.map(Box::new);
        Node::Join { kind, left, right, condition }
    }

    /// Materializes `node` as a stage and returns a scan of it. Returns `node` itself if it is a
    /// scan or `Unit`, reads a recursion's own rows, or refers to outer rows.
    pub(super) fn wrap_in_stage(&mut self, node: Node) -> Node {
        let reads_recursion = node.sources().contains(&Source::Recursion);
        if matches!(node, Node::Scan { .. } | Node::Unit) || !node.is_closed() || reads_recursion {
            return node;
        }
        let columns = node.columns();
        let contents = StageContents::Rows { columns: deduplicate(&columns) };
        self.add_stage(Stage { input: node, contents })
    }
}

/// The names of a join: those of both sides and the merged columns, or only its alias if it has
/// one.
fn join_scope(scope: Scope, merged: Vec<(String, ColumnId)>, alias: Option<&Alias>) -> Scope {
    let Some(alias) = alias else {
        let mut scope = scope;
        scope.using_columns.splice(0..0, merged);
        return scope;
    };
    let mut columns = merged.clone();
    for entry in &scope.entries {
        let others = entry.columns.iter();
        columns.extend(others.filter(|(name, _)| find_column(&merged, name).is_none()).cloned());
    }
    Scope { entries: vec![scope_entry(columns, Some(alias), "")], ..Scope::default() }
}

/// The kind of a join as plans have it: a right join is a left one with its sides exchanged.
fn join_kind(expr: &JoinExpr) -> Result<JoinKind, Refusal> {
    match JoinType::try_from(expr.jointype) {
        Ok(JoinType::JoinInner) => Ok(JoinKind::Inner),
        Ok(JoinType::JoinLeft | JoinType::JoinRight) => Ok(JoinKind::Left),
        Ok(JoinType::JoinFull) => Ok(JoinKind::Full),
        _ => Err(Refusal::new("a join of this kind", -1, "use mode full")),
    }
}

fn using_condition(common: &[(String, ColumnId, ColumnId)]) -> Expression {
    let equal = common.iter().map(|(_, left, right)| {
        let (left, right) = (Expression::internal_name(*left), Expression::internal_name(*right));
        format!("(\"{left}\" = \"{right}\")")
    });
    Expression::from_internal_text(&equal.collect::<Vec<_>>().join(" AND "))
}

fn coalesce_columns(left: ColumnId, right: ColumnId) -> Expression {
    let (left, right) = (Expression::internal_name(left), Expression::internal_name(right));
    Expression::from_internal_text(&format!("COALESCE(\"{left}\", \"{right}\")"))
}

/// Rows with their name in FROM.
pub(crate) fn into_from_item(rows: QueryRows, alias: Option<&Alias>, name: &str) -> (Node, Scope) {
    let scope = Scope { entries: vec![scope_entry(rows.columns, alias, name)], ..Scope::default() };
    (rows.node, scope)
}

/// An item of FROM with its column names.
pub(crate) fn scope_entry(
    columns: Vec<(String, ColumnId)>,
    alias: Option<&Alias>,
    name: &str,
) -> Entry {
    let mut entry = Entry { name: name.to_owned(), columns };
    if let Some(alias) = alias {
        entry.name.clone_from(&alias.aliasname);
        for ((name, _), other) in entry.columns.iter_mut().zip(string_values(&alias.colnames)) {
            *name = other;
        }
    }
    entry
}

/// The strings of parse nodes.
pub(crate) fn string_values(nodes: &[Parsed]) -> Vec<String> {
    let names = nodes.iter().filter_map(|node| match &node.node {
        Some(NodeEnum::String(name)) => Some(name.sval.clone()),
        _ => None,
    });
    names.collect()
}
