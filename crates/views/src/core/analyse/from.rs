//! FROM: tables, views, subqueries and joins.

use pg_query::NodeEnum;
use pg_query::protobuf::{Alias, JoinExpr, JoinType, Node as Parsed, RangeVar};

use super::clock::has_clock;
use super::comparisons::refuse_bare_equality;
use super::ctes::Ctes;
use super::expressions::{expression, parse_expression};
use super::facts::{Relation, RelationKind};
use super::lateral::{LateralJoin, by_name, may_depend};
use super::parse::parse;
use super::scope::{Entry, Scope, column_of};
use super::select::QueryRows;
use super::subqueries::split;
use super::{Analysis, distinct, refuse_reserved_names};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::size::{LENGTH_MAX, of_join, size};
use crate::core::tree::{JoinKind, Node, Source, Stage, StageContents};

impl Analysis<'_> {
    /// All items of FROM, joined without a condition.
    pub(super) fn from(&mut self, items: &[Parsed], ctes: &Ctes) -> Result<(Node, Scope), Refusal> {
        let mut all: Option<(Node, Scope)> = None;
        for item in items {
            if let Some((before, scope)) = all.take_if(|_| may_depend(item)) {
                let how = LateralJoin {
                    condition: None,
                    or_nulls: false,
                };
                all = Some(self.lateral(before, scope, item, how, ctes)?);
                continue;
            }
            let (node, scope) = self.item(item, ctes)?;
            all = Some(match all {
                None => (node, scope),
                Some((before, names)) => {
                    let condition = Expression::constant("true");
                    let both = self.join(JoinKind::Inner, before, node, condition);
                    (both, names.join(scope))
                }
            });
        }
        Ok(all.unwrap_or((Node::Unit, Scope::default())))
    }

    fn item(&mut self, item: &Parsed, ctes: &Ctes) -> Result<(Node, Scope), Refusal> {
        match &item.node {
            Some(NodeEnum::RangeVar(table)) => self.table(table, ctes),
            Some(NodeEnum::RangeSubselect(sub)) => {
                let query = sub.subquery.as_ref().and_then(|query| query.node.as_ref());
                let Some(NodeEnum::SelectStmt(query)) = query else {
                    return Err(Refusal::new("a subquery of this kind", -1, "use mode full"));
                };
                let rows = self.select(query, ctes)?;
                Ok(by_name(rows, sub))
            }
            Some(NodeEnum::JoinExpr(expr)) => self.join_expr(expr, ctes),
            Some(NodeEnum::RangeFunction(function)) => {
                let how = LateralJoin {
                    condition: None,
                    or_nulls: false,
                };
                self.function(Node::Unit, Scope::default(), function, how)
            }
            Some(NodeEnum::RangeTableSample(sample)) => {
                let advice = "it returns other rows each time";
                Err(Refusal::new("TABLESAMPLE", sample.location, advice))
            }
            _ => Err(Refusal::new("this kind of FROM item", -1, "use mode full")),
        }
    }

    fn table(&mut self, table: &RangeVar, ctes: &Ctes) -> Result<(Node, Scope), Refusal> {
        if let Some((node, scope)) = ctes.given.get(&table.relname) {
            return Ok((node.clone(), scope.clone()));
        }
        if table.schemaname.is_empty()
            && let Some(cte) = ctes.get(&table.relname)
        {
            let rows = self.cte(&cte)?;
            return Ok(named(rows, table.alias.as_ref(), &table.relname));
        }
        let key = (table.schemaname.clone(), table.relname.clone());
        let facts = self.facts;
        let Some(relation) = facts.relations.get(&key) else {
            let what = match key.0.as_str() {
                // The server prints its own tables without a schema, and reports no dependency on
                // them.
                "" => format!("the system table `{}`", key.1),
                schema => format!("the relation `{schema}.{}`", key.1),
            };
            let advice = "only tables and views are supported";
            return Err(Refusal::new(what, table.location, advice));
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
            RelationKind::Table(at) => self.stored(relation, Source::Table(*at))?,
        };
        Ok(named(rows, table.alias.as_ref(), &table.relname))
    }

    /// The rows of a table, with its virtual generated columns computed.
    fn stored(&mut self, relation: &Relation, source: Source) -> Result<QueryRows, Refusal> {
        let columns: Vec<(String, ColumnId)> = relation
            .columns
            .iter()
            .map(|name| (name.clone(), self.new_column()))
            .collect();
        let (computed, stored): (Vec<_>, Vec<_>) = columns
            .iter()
            .cloned()
            .partition(|(name, _)| relation.computed.contains_key(name));
        let by_id = stored.iter().map(|(name, id)| (*id, name.clone()));
        let mut node = Node::Scan {
            source,
            columns: by_id.collect(),
        };
        if !computed.is_empty() {
            let scope = Scope {
                entries: vec![entry(stored, None, "")],
                ..Scope::default()
            };
            let expressions = computed.iter().map(|(name, id)| {
                let computed = &relation.computed[name];
                refuse_reserved_names(computed)?;
                let parsed = parse_expression(computed)?;
                Ok((*id, expression(&parsed, &scope)?))
            });
            node = Node::Project {
                columns: expressions.collect::<Result<_, Refusal>>()?,
                input: Box::new(node),
            };
        }
        Ok(QueryRows {
            node,
            columns,
            order: Vec::new(),
        })
    }

    fn join_expr(&mut self, expr: &JoinExpr, ctes: &Ctes) -> Result<(Node, Scope), Refusal> {
        let (Some(left), Some(right)) = (&expr.larg, &expr.rarg) else {
            return Err(Refusal::new("a join without sides", -1, "give both"));
        };
        let (left, left_scope) = self.item(left, ctes)?;
        let is_right = expr.jointype == JoinType::JoinRight as i32;
        let is_full = expr.jointype == JoinType::JoinFull as i32;
        if may_depend(right) && !is_right && !is_full && expr.using_clause.is_empty() {
            let how = LateralJoin {
                condition: expr.quals.as_deref(),
                or_nulls: expr.jointype == JoinType::JoinLeft as i32,
            };
            let (node, scope) = self.lateral(left, left_scope, right, how, ctes)?;
            return Ok((node, join_names(scope, Vec::new(), expr.alias.as_ref())));
        }
        let (right, right_scope) = self.item(right, ctes)?;
        let kind = join_kind(expr)?;
        let mut common = Vec::new();
        for name in strings(&expr.using_clause) {
            let of = |scope: &Scope| scope.resolve(std::slice::from_ref(&name), -1);
            common.push((name.clone(), of(&left_scope)?, of(&right_scope)?));
        }
        let scope = left_scope.join(right_scope);
        let mut conjuncts = Vec::new();
        let on = expr.quals.as_deref();
        if let Some(on) = on.filter(|on| kind == JoinKind::Inner && has_clock(on)) {
            split(on, &mut conjuncts);
        }
        let (of_clock, others): (Vec<_>, Vec<_>) =
            conjuncts.into_iter().partition(|one| has_clock(one));
        let condition = match (on, &common[..]) {
            (Some(_), _) if !of_clock.is_empty() => {
                let others = others.iter().map(|one| expression(one, &scope));
                Expression::all(&others.collect::<Result<Vec<_>, _>>()?)
            }
            (Some(on), _) => expression(on, &scope)?,
            (None, []) => Expression::constant("true"),
            (None, common) => equal(common),
        };
        let mut node = if is_right {
            self.join(kind, right, left, condition)
        } else {
            self.join(kind, left, right, condition)
        };
        if !of_clock.is_empty() {
            node = self.recent(node, &of_clock, &scope)?;
        }
        let mut merged = Vec::new();
        for (name, left, right) in common {
            let id = match kind {
                JoinKind::Full => {
                    let id = self.new_column();
                    node = Node::Project {
                        input: Box::new(node),
                        columns: vec![(id, either(left, right))],
                    };
                    id
                }
                _ if is_right => right,
                _ => left,
            };
            merged.push((name, id));
        }
        let scope = join_names(scope, merged, expr.alias.as_ref());
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
            let [left, right] = [&sides[0], &sides[1]].map(size);
            if of_join(kind, left, right).changes <= LENGTH_MAX {
                break;
            }
            let longer = usize::from(right.changes > left.changes);
            let side = std::mem::replace(&mut sides[longer], Node::Unit);
            sides[longer] = self.wrap_in_stage(side);
        }
        let [left, right] = sides.map(Box::new);
        Node::Join {
            kind,
            left,
            right,
            condition,
        }
    }

    /// Materializes `node` as a stage and returns a scan of it. Returns `node` itself if it is a
    /// scan or `Unit`, reads a recursion's own rows, or refers to outer rows.
    pub(super) fn wrap_in_stage(&mut self, node: Node) -> Node {
        let is_of_itself = node.sources().contains(&Source::Itself);
        if matches!(node, Node::Scan { .. } | Node::Unit) || !node.is_closed() || is_of_itself {
            return node;
        }
        let columns = node.columns();
        let keeps = StageContents::Rows {
            columns: distinct(&columns),
        };
        self.stage(Stage {
            input: node,
            contents: keeps,
        })
    }
}

/// The names of a join: those of both sides and the merged columns, or only its alias if it has
/// one.
fn join_names(scope: Scope, merged: Vec<(String, ColumnId)>, alias: Option<&Alias>) -> Scope {
    let Some(alias) = alias else {
        let mut scope = scope;
        scope.merged.splice(0..0, merged);
        return scope;
    };
    let mut columns = merged.clone();
    for entry in &scope.entries {
        let others = entry.columns.iter();
        columns.extend(
            others
                .filter(|(name, _)| column_of(&merged, name).is_none())
                .cloned(),
        );
    }
    Scope {
        entries: vec![entry(columns, Some(alias), "")],
        ..Scope::default()
    }
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

fn equal(common: &[(String, ColumnId, ColumnId)]) -> Expression {
    let equal = common.iter().map(|(_, left, right)| {
        let (left, right) = (Expression::mark(*left), Expression::mark(*right));
        format!("(\"{left}\" = \"{right}\")")
    });
    Expression::read(&equal.collect::<Vec<_>>().join(" AND "))
}

fn either(left: ColumnId, right: ColumnId) -> Expression {
    let (left, right) = (Expression::mark(left), Expression::mark(right));
    Expression::read(&format!("COALESCE(\"{left}\", \"{right}\")"))
}

/// Rows with their name in FROM.
pub fn named(rows: QueryRows, alias: Option<&Alias>, name: &str) -> (Node, Scope) {
    let scope = Scope {
        entries: vec![entry(rows.columns, alias, name)],
        ..Scope::default()
    };
    (rows.node, scope)
}

/// An item of FROM with its column names.
pub fn entry(columns: Vec<(String, ColumnId)>, alias: Option<&Alias>, name: &str) -> Entry {
    let mut entry = Entry {
        name: name.to_owned(),
        columns,
    };
    if let Some(alias) = alias {
        entry.name.clone_from(&alias.aliasname);
        for ((name, _), other) in entry.columns.iter_mut().zip(strings(&alias.colnames)) {
            *name = other;
        }
    }
    entry
}

/// The strings of parse nodes.
pub fn strings(nodes: &[Parsed]) -> Vec<String> {
    let names = nodes.iter().filter_map(|node| match &node.node {
        Some(NodeEnum::String(name)) => Some(name.sval.clone()),
        _ => None,
    });
    names.collect()
}
