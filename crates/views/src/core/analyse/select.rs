//! A SELECT, clause by clause.

use std::collections::BTreeMap;
use std::rc::Rc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SetOperation};

use super::aggregates::Grouping;
use super::expressions::{expression, grouped, names_of};
use super::said::{Said, direction, named_by, numbered, place, said, sorts};
use super::scope::{Scope, column_of};
use super::windows::{Call, Window, projected};
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
    /// What they are to be sorted by.
    pub order: Vec<(ColumnId, String)>,
}

/// Rows with what else is said of them.
struct Sorted {
    rows: Rows,
    /// What there is only one row of, each.
    on: Vec<ColumnId>,
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
        self.limited(rows, query)
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
            order: Vec::new(),
        };
        let mut rows = if query.all { rows } else { self.distinct(rows) };
        for one in sorts(query) {
            let column = match place(one.node.as_deref()) {
                Some(place) => rows.columns.get(place).map(|(_, id)| *id),
                None => {
                    named_by(one.node.as_deref()).and_then(|name| column_of(&rows.columns, &name))
                }
            };
            let refused = || Refusal::new("ORDER BY of this kind", -1, "name a column");
            rows.order
                .push((column.ok_or_else(refused)?, direction(one)));
        }
        Ok(rows)
    }

    /// Each different row once.
    fn distinct(&mut self, rows: Rows) -> Rows {
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        let mut key = |id: ColumnId| grouping.group_by(Expression::column(id));
        let columns = rows.columns.into_iter();
        let columns = columns.map(|(name, id)| (name, key(id))).collect();
        // The server sees to it that it is among the columns.
        let order = rows.order.into_iter();
        let order = order.map(|(id, how)| (key(id), how)).collect();
        let (keys, aggregates) = grouping.finish();
        let node = self.stage(Stage {
            input: rows.node,
            keeps: Keeps::Groups { keys, aggregates },
        });
        Rows {
            node,
            columns,
            order,
        }
    }

    fn simple(&mut self, query: &SelectStmt, ctes: &Ctes) -> Result<Rows, Refusal> {
        let (mut node, scope) = match query.values_lists.is_empty() {
            true => self.from(&query.from_clause, ctes)?,
            false => return Err(Refusal::new("VALUES", -1, "use mode full")),
        };
        if let Some(condition) = query.where_clause.as_deref() {
            node = self.filtered(node, condition, &scope, ctes)?;
        }
        let mut calls = Vec::new();
        let mut said = said(query)?;
        for one in &mut said.all {
            self.take_windows(&mut one.1, &query.window_clause, &mut calls)?;
        }
        let having = query.having_clause.as_deref();
        let mut expressions = said.all.iter().map(|(_, target)| target).chain(having);
        let over = calls.iter().map(Call::parsed).collect::<Vec<_>>();
        let mut is_grouped = !query.group_clause.is_empty() || having.is_some();
        is_grouped |= expressions.any(|one| self.facts.has_aggregate(one));
        is_grouped |= over.iter().any(|one| self.facts.has_aggregate(one));
        let (node, named, windows) = match is_grouped {
            true => self.groups(query, (&said.all, calls), node, &scope)?,
            false => {
                let mut resolved = |one: &Parsed| expression(one, &scope);
                let all = said.all.iter();
                let named = all.map(|(name, one)| Ok((name.clone(), resolved(one)?)));
                let named = named.collect::<Result<Vec<_>, Refusal>>()?;
                let calls = calls.into_iter();
                let windows = calls.map(|call| call.resolved(&mut resolved));
                (node, named, windows.collect::<Result<_, _>>()?)
            }
        };
        let node = self.windowed(node, windows);
        let rows = self.project(node, named);
        let rows = self.sorted(rows, &said);
        match &query.distinct_clause[..] {
            [] => Ok(rows.rows),
            [Parsed { node: None }] => Ok(self.distinct(rows.rows)),
            _ => Ok(self.distinct_on(rows)),
        }
    }

    /// What a query says besides what it shows, apart from that.
    fn sorted(&self, mut rows: Rows, said: &Said) -> Sorted {
        let hidden = rows.columns.split_off(said.shown);
        let mut hidden = hidden.into_iter().map(|(_, id)| id);
        let on = hidden.by_ref().take(said.on).collect();
        rows.order = hidden.zip(said.directions.iter().cloned()).collect();
        Sorted { rows, on }
    }

    /// The first row of those that have something in common.
    fn distinct_on(&mut self, sorted: Sorted) -> Rows {
        let Sorted { rows, on } = sorted;
        let number = self.new_column();
        let window = numbered(&on, &rows.order);
        let first = Expression::column(number).tested("= 1");
        let windows = vec![(number, window)];
        let node = self.partitioned(rows.node, on, windows, Some(first));
        Rows { node, ..rows }
    }

    fn project(&mut self, node: Node, named: Vec<(String, Expression)>) -> Rows {
        let mut columns = Vec::new();
        let mut new: Vec<(ColumnId, Expression)> = Vec::new();
        for (name, expression) in named {
            let known = new.iter().find(|(_, known)| *known == expression);
            let known = known.map(|(id, _)| *id);
            let id = known.or_else(|| expression.as_column()).unwrap_or_else(|| {
                let id = self.new_column();
                new.push((id, expression));
                id
            });
            columns.push((name, id));
        }
        Rows {
            node: projected(node, new),
            columns,
            order: Vec::new(),
        }
    }

    fn groups(
        &mut self,
        query: &SelectStmt,
        (targets, calls): (&[(String, Parsed)], Vec<Call>),
        input: Node,
        scope: &Scope,
    ) -> Result<(Node, Vec<(String, Expression)>, Vec<Window>), Refusal> {
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        for key in &query.group_clause {
            let key = key_of(key, targets)?;
            grouping.group_by(expression(key, scope)?);
        }
        let is_scalar = query.group_clause.is_empty();
        let mut resolved = |one: &Parsed| grouped(one, scope, &mut grouping);
        let named = targets
            .iter()
            .map(|(name, target)| Ok((name.clone(), resolved(target)?)))
            .collect::<Result<Vec<_>, Refusal>>()?;
        let calls = calls.into_iter();
        let windows = calls.map(|call| call.resolved(&mut resolved));
        let windows = windows.collect::<Result<_, _>>()?;
        let having = query.having_clause.as_deref();
        let having = having.map(resolved).transpose()?;
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
        Ok((node, named, windows))
    }
}

/// What is grouped by: an expression, or a place among the targets.
fn key_of<'a>(key: &'a Parsed, targets: &'a [(String, Parsed)]) -> Result<&'a Parsed, Refusal> {
    match &key.node {
        Some(NodeEnum::GroupingSet(set)) => {
            let advice = "use mode full";
            Err(Refusal::new(
                "GROUPING SETS, ROLLUP or CUBE",
                set.location,
                advice,
            ))
        }
        Some(NodeEnum::AConst(constant)) => {
            let Some(place) = place(Some(key)) else {
                return Ok(key);
            };
            let none = || Refusal::new("a place in GROUP BY", constant.location, "name a column");
            let target = targets.get(place);
            target.map(|(_, target)| target).ok_or_else(none)
        }
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
    if !query.locking_clause.is_empty() {
        return refused("FOR UPDATE or FOR SHARE", "leave it out: a view only reads");
    }
    Ok(())
}
