//! A SELECT, clause by clause.

use std::collections::BTreeMap;
use std::rc::Rc;

use pg_query::NodeEnum;
use pg_query::protobuf::{self as pb, Node as Parsed, SelectStmt, SetOperation};

use super::aggregates::Grouping;
use super::expressions::{expression, grouped, names_of};
use super::scope::Scope;
use super::{Analysis, DEPTH_MAX};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{Keeps, Node, Stage};

/// What a query comes to.
pub struct Rows {
    /// Its rows.
    pub node: Node,
    /// What its columns are called.
    pub columns: Vec<(String, ColumnId)>,
}

/// The queries of WITH that can be named.
#[derive(Clone, Default)]
pub struct Ctes {
    by_name: BTreeMap<String, Rc<Cte>>,
}

/// A query of WITH.
pub struct Cte {
    query: SelectStmt,
    columns: Vec<String>,
    /// Those before it.
    before: Ctes,
}

impl Ctes {
    pub(super) fn get(&self, name: &str) -> Option<Rc<Cte>> {
        self.by_name.get(name).cloned()
    }
}

impl Analysis<'_> {
    /// A query.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn select(&mut self, query: &SelectStmt, ctes: &Ctes) -> Result<Rows, Refusal> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let what = format!("a query nested deeper than {DEPTH_MAX}");
            return Err(Refusal::new(what, -1, "simplify it"));
        }
        let ctes = with(query, ctes)?;
        refuse_what_is_not_covered(query)?;
        let rows = match SetOperation::try_from(query.op) {
            Ok(SetOperation::SetopUnion) => self.union(query, &ctes)?,
            Ok(SetOperation::SetopNone | SetOperation::Undefined) => self.simple(query, &ctes)?,
            _ => {
                let advice = "use mode full";
                return Err(Refusal::new("INTERSECT or EXCEPT", -1, advice));
            }
        };
        self.depth -= 1;
        Ok(rows)
    }

    /// A query of WITH, where it is named.
    pub(super) fn cte(&mut self, cte: &Cte) -> Result<Rows, Refusal> {
        let mut rows = self.select(&cte.query, &cte.before)?;
        for ((name, _), alias) in rows.columns.iter_mut().zip(&cte.columns) {
            name.clone_from(alias);
        }
        Ok(rows)
    }

    fn union(&mut self, query: &SelectStmt, ctes: &Ctes) -> Result<Rows, Refusal> {
        let mut inputs = Vec::new();
        let mut names = Vec::new();
        for side in [&query.larg, &query.rarg].into_iter().flatten() {
            let rows = self.select(side, ctes)?;
            if names.is_empty() {
                names = rows.columns.iter().map(|(name, _)| name.clone()).collect();
            }
            // Columns of its own, which are cast where the types of the sides differ.
            let own: Vec<(ColumnId, Expression)> = rows
                .columns
                .iter()
                .map(|(_, id)| (self.new_column(), Expression::column(*id)))
                .collect();
            let mapped = own.iter().map(|(id, _)| *id).collect();
            let node = Node::Project {
                input: Box::new(rows.node),
                columns: own,
            };
            inputs.push((node, mapped));
        }
        let columns: Vec<ColumnId> = names.iter().map(|_| self.new_column()).collect();
        let node = Node::UnionAll {
            inputs,
            columns: columns.clone(),
        };
        let rows = Rows {
            node,
            columns: names.into_iter().zip(columns).collect(),
        };
        Ok(if query.all { rows } else { self.distinct(rows) })
    }

    /// Each different row once.
    fn distinct(&mut self, rows: Rows) -> Rows {
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        let columns = rows.columns.into_iter();
        let columns = columns
            .map(|(name, id)| (name, grouping.group_by(Expression::column(id))))
            .collect();
        let (keys, aggregates) = grouping.finish();
        let node = self.stage(Stage {
            input: rows.node,
            keeps: Keeps::Groups { keys, aggregates },
        });
        Rows { node, columns }
    }

    fn simple(&mut self, query: &SelectStmt, ctes: &Ctes) -> Result<Rows, Refusal> {
        let (mut node, scope) = match query.values_lists.is_empty() {
            true => self.from(&query.from_clause, ctes)?,
            false => return Err(Refusal::new("VALUES", -1, "use mode full")),
        };
        if let Some(condition) = query.where_clause.as_deref() {
            node = self.filtered(node, condition, &scope, ctes)?;
        }
        let targets = targets(query)?;
        let having = query.having_clause.as_deref();
        let mut expressions = targets.iter().map(|(_, target)| *target).chain(having);
        let rows = match !query.group_clause.is_empty()
            || having.is_some()
            || expressions.any(|one| self.facts.has_aggregate(one))
        {
            true => self.groups(query, &targets, node, &scope)?,
            false => {
                let named = targets
                    .iter()
                    .map(|(name, target)| Ok((name.clone(), expression(target, &scope)?)))
                    .collect::<Result<Vec<_>, _>>()?;
                self.project(node, named)
            }
        };
        match &query.distinct_clause[..] {
            [] => Ok(rows),
            [Parsed { node: None }] => Ok(self.distinct(rows)),
            _ => Err(Refusal::new("DISTINCT ON", -1, "use mode full")),
        }
    }

    fn project(&mut self, node: Node, named: Vec<(String, Expression)>) -> Rows {
        let mut columns = Vec::new();
        let mut new = Vec::new();
        for (name, expression) in named {
            let id = expression.as_column().unwrap_or_else(|| {
                let id = self.new_column();
                new.push((id, expression));
                id
            });
            columns.push((name, id));
        }
        let node = match new.is_empty() {
            true => node,
            false => Node::Project {
                input: Box::new(node),
                columns: new,
            },
        };
        Rows { node, columns }
    }

    fn groups(
        &mut self,
        query: &SelectStmt,
        targets: &[(String, &Parsed)],
        input: Node,
        scope: &Scope,
    ) -> Result<Rows, Refusal> {
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        for key in &query.group_clause {
            let key = key_of(key, targets)?;
            grouping.group_by(expression(key, scope)?);
        }
        let is_scalar = query.group_clause.is_empty();
        let named = targets
            .iter()
            .map(|(name, target)| Ok((name.clone(), grouped(target, scope, &mut grouping)?)))
            .collect::<Result<Vec<_>, Refusal>>()?;
        let having = query.having_clause.as_deref();
        let having = having
            .map(|having| grouped(having, scope, &mut grouping))
            .transpose()?;
        let (keys, aggregates) = grouping.finish();
        if is_scalar && !keys.is_empty() {
            let advice = "group by it";
            return Err(Refusal::new("a column outside of aggregates", -1, advice));
        }
        let mut node = self.stage(Stage {
            input,
            keeps: Keeps::Groups { keys, aggregates },
        });
        if let Some(condition) = having {
            node = Node::Filter {
                input: Box::new(node),
                condition,
            };
        }
        Ok(self.project(node, named))
    }
}

/// What is grouped by: an expression, or a place among the targets.
fn key_of<'a>(key: &'a Parsed, targets: &[(String, &'a Parsed)]) -> Result<&'a Parsed, Refusal> {
    match &key.node {
        Some(NodeEnum::GroupingSet(set)) => {
            let advice = "use mode full";
            Err(Refusal::new(
                "GROUPING SETS, ROLLUP or CUBE",
                set.location,
                advice,
            ))
        }
        Some(NodeEnum::AConst(constant)) => match &constant.val {
            Some(pb::a_const::Val::Ival(place)) => {
                let at = usize::try_from(place.ival - 1).ok();
                let target = at.and_then(|at| targets.get(at));
                let none =
                    || Refusal::new("a place in GROUP BY", constant.location, "name a column");
                target.map(|(_, target)| *target).ok_or_else(none)
            }
            _ => Ok(key),
        },
        _ => Ok(key),
    }
}

pub(super) fn targets(query: &SelectStmt) -> Result<Vec<(String, &Parsed)>, Refusal> {
    let mut all = Vec::new();
    for target in &query.target_list {
        let Some(NodeEnum::ResTarget(target)) = &target.node else {
            return Err(Refusal::new(
                "a target without an expression",
                -1,
                "name it",
            ));
        };
        let Some(value) = target.val.as_deref() else {
            continue;
        };
        let name = match (&target.name[..], &value.node) {
            ("", Some(NodeEnum::ColumnRef(column))) => {
                names_of(column).last().cloned().unwrap_or_default()
            }
            (name, _) => name.to_owned(),
        };
        all.push((name, value));
    }
    Ok(all)
}

pub(super) fn with(query: &SelectStmt, ctes: &Ctes) -> Result<Ctes, Refusal> {
    let mut all = ctes.clone();
    let Some(with) = &query.with_clause else {
        return Ok(all);
    };
    if with.recursive {
        return Err(Refusal::new(
            "WITH RECURSIVE",
            with.location,
            "use mode full",
        ));
    }
    for cte in &with.ctes {
        let Some(NodeEnum::CommonTableExpr(cte)) = &cte.node else {
            continue;
        };
        let query = cte.ctequery.as_ref().and_then(|query| query.node.as_ref());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            let advice = "a view only reads";
            return Err(Refusal::new("WITH that changes data", cte.location, advice));
        };
        let columns = cte.aliascolnames.iter();
        let columns = columns.filter_map(|name| match &name.node {
            Some(NodeEnum::String(name)) => Some(name.sval.clone()),
            _ => None,
        });
        let named = Cte {
            query: (**query).clone(),
            columns: columns.collect(),
            before: all.clone(),
        };
        all.by_name.insert(cte.ctename.clone(), Rc::new(named));
    }
    Ok(all)
}

pub(super) fn refuse_what_is_not_covered(query: &SelectStmt) -> Result<(), Refusal> {
    let refused = |what: &str, advice: &str| Err(Refusal::new(what, -1, advice));
    if query.limit_count.is_some() || query.limit_offset.is_some() {
        return refused("LIMIT or OFFSET", "use mode full");
    }
    if !query.sort_clause.is_empty() {
        return refused(
            "ORDER BY",
            "leave it out: say it where you read the view, whose rows have no order",
        );
    }
    if !query.locking_clause.is_empty() {
        return refused("FOR UPDATE or FOR SHARE", "leave it out: a view only reads");
    }
    if !query.window_clause.is_empty() {
        return refused("WINDOW", "use mode full");
    }
    Ok(())
}
