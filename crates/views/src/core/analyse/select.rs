//! A SELECT, clause by clause.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;

use pg_query::NodeEnum;
use pg_query::protobuf::{Node as Parsed, SelectStmt, SetOperation};

use super::aggregates::{Grouping, check_empty, counts};
use super::expressions::{expression, grouped, names_of, text};
use super::from::strings;
use super::given::Given;
use super::grouping_sets::{Leaves, grouping_sets};
use super::lateral::Sets;
use super::recursion::refuse_clauses;
use super::said::{Said, numbered, ordered, place, said};
use super::scope::Scope;
use super::values::{Found, Value, joined};
use super::windows::{Call, Window, projected};
use super::{Analysis, DEPTH_MAX};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::renumber::afresh;
use crate::core::tree::{Keeps, Node, Stage};

/// What a query comes to.
#[derive(Clone)]
pub struct Rows {
    /// Its rows.
    pub node: Node,
    /// What its columns are called.
    pub columns: Vec<(String, ColumnId)>,
    /// What they are to be sorted by.
    pub order: Vec<(ColumnId, String)>,
}

/// Groups, what is shown of them, and windows over them.
type Grouped = (Node, Vec<(String, Expression)>, Vec<Window>);

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
    /// The values that queries are computed for, by the names that stand for them.
    pub(super) given: BTreeMap<String, (Node, Scope)>,
}

/// A query of WITH.
pub struct Cte {
    pub(super) query: SelectStmt,
    pub(super) columns: Vec<String>,
    /// Those before it.
    pub(super) before: Ctes,
    /// What it is called, where it may name itself.
    pub(super) itself: Option<String>,
    /// Where it stands.
    pub(super) location: i32,
}

impl Ctes {
    pub(super) fn get(&self, name: &str) -> Option<Rc<Cte>> {
        self.by_name.get(name).cloned()
    }

    /// With one more.
    pub(super) fn and(&self, name: &str, cte: Rc<Cte>) -> Self {
        let mut all = self.clone();
        all.by_name.insert(name.to_owned(), cte);
        all
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
        let given = self.given.take();
        let ctes = with(query, ctes)?;
        refuse_what_is_not_covered(query)?;
        let rows = match SetOperation::try_from(query.op) {
            Ok(SetOperation::SetopNone | SetOperation::Undefined) => {
                self.simple(query, &ctes, given.as_ref())?
            }
            _ => self.combined(query, &ctes, given.as_ref())?,
        };
        self.depth -= 1;
        self.limited(rows, query, given.as_ref().map_or(0, Given::len))
    }

    /// A query of WITH, where it is named: its stages are made once.
    pub(super) fn cte(&mut self, cte: &Rc<Cte>) -> Result<Rows, Refusal> {
        let known = self.ctes.iter().find(|(other, _)| Rc::ptr_eq(other, cte));
        if let Some((_, rows)) = known.cloned() {
            let (node, to) = afresh(&rows.node, || self.new_column());
            let columns = rows.columns.into_iter();
            let order = rows.order.into_iter();
            return Ok(Rows {
                columns: columns.map(|(name, id)| (name, to[&id])).collect(),
                order: order.map(|(id, how)| (to[&id], how)).collect(),
                node,
            });
        }
        let mut rows = match self.recursive(cte)? {
            Some(rows) => rows,
            None => self.select(&cte.query, &cte.before)?,
        };
        for ((name, _), alias) in rows.columns.iter_mut().zip(&cte.columns) {
            name.clone_from(alias);
        }
        self.ctes.push((cte.clone(), rows.clone()));
        Ok(rows)
    }

    fn simple(
        &mut self,
        query: &SelectStmt,
        ctes: &Ctes,
        given: Option<&Given>,
    ) -> Result<Rows, Refusal> {
        if !query.values_lists.is_empty() && given.is_none() {
            let rows = self.written_out(query)?;
            return ordered(rows, query);
        }
        let having = query.having_clause.as_deref();
        let all = said(query)?.all;
        let mut expressions = all.iter().map(|(_, target)| target).chain(having);
        let is_grouped = !query.group_clause.is_empty()
            || having.is_some()
            || expressions.any(|one| self.facts.has_aggregate(one));
        let mut query = query.clone();
        let mut ctes = Cow::Borrowed(ctes);
        let mut of_each = None;
        if let Some(given) = given {
            let is_one_group = is_grouped && query.group_clause.is_empty();
            of_each = is_one_group.then(|| given.clone());
            given.put_into(&mut query, is_grouped)?;
            ctes = Cow::Owned(ctes.with_given(given));
        }
        let ctes = &*ctes;
        let (mut node, scope) = self.from(&query.from_clause, ctes)?;
        if let Some(condition) = query.where_clause.as_deref() {
            node = self.filtered(node, condition, &scope, ctes)?;
        }
        let mut said = said(&query)?;
        said.given = given.map_or(0, Given::len);
        let mut values = Vec::new();
        if is_grouped {
            self.take(&mut query, &mut said, |this, one| {
                this.take_values_of_rows(one, ctes, &mut values)
            })?;
            let values = joined(std::mem::take(&mut values), |one| expression(one, &scope))?;
            node = self.with_values(node, values)?;
            node = self.grouped_sets(node, &scope, (&mut query, &mut said))?;
        }
        self.take(&mut query, &mut said, |this, one| {
            this.take_values(one, ctes, &mut values)
        })?;
        self.of_each = of_each;
        let rows = self.shown(&query, said, (node, &scope), (is_grouped, values))?;
        match &query.distinct_clause[..] {
            [] => Ok(rows.rows),
            [Parsed { node: None }] => Ok(self.distinct(rows.rows)),
            _ => Ok(self.distinct_on(rows)),
        }
    }

    /// Does something with every expression of what a query says, and with HAVING.
    fn take(
        &mut self,
        query: &mut SelectStmt,
        said: &mut Said,
        mut each: impl FnMut(&mut Self, &mut Parsed) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let having = query.having_clause.as_deref_mut();
        let said = said.all.iter_mut().map(|(_, one)| one);
        said.chain(having).try_for_each(|one| each(self, one))
    }

    /// What a query shows of rows, with windows and what gives several values.
    fn shown(
        &mut self,
        query: &SelectStmt,
        mut said: Said,
        (node, scope): (Node, &Scope),
        (is_grouped, values): (bool, Vec<Value>),
    ) -> Result<Sorted, Refusal> {
        let mut calls = Vec::new();
        let mut sets = Sets::default();
        for one in &mut said.all {
            self.take_sets(&mut one.1, &mut sets)?;
            self.take_windows(&mut one.1, &query.window_clause, &mut calls)?;
        }
        // They are computed with what is shown, and take the places behind it.
        let shown = said.all.len();
        for call in sets.calls() {
            let mut call = call.clone();
            self.take_windows(&mut call, &query.window_clause, &mut calls)?;
            said.all.push((String::new(), call));
        }
        calls.iter_mut().for_each(|call| call.of_each(said.given()));
        let (node, mut named, windows) = match is_grouped {
            true => self.groups(query, (&said.all, calls), (node, scope), &values)?,
            false => {
                let mut resolved = |one: &Parsed| expression(one, scope);
                let all = said.all.iter();
                let named = all.map(|(name, one)| Ok((name.clone(), resolved(one)?)));
                let named = named.collect::<Result<Vec<_>, Refusal>>()?;
                let calls = calls.into_iter();
                let windows = calls.map(|call| call.resolved(&mut resolved));
                let windows = windows.collect::<Result<_, _>>()?;
                let values = joined(values, resolved)?;
                (self.with_values(node, values)?, named, windows)
            }
        };
        let node = self.windowed(node, windows);
        let of_sets = named.split_off(shown);
        let of_sets: Vec<Expression> = of_sets.into_iter().map(|(_, call)| call).collect();
        let node = sets.expanded(node, &of_sets);
        let rows = self.project(node, named);
        Ok(self.sorted(rows, &said))
    }

    /// What a query says besides what it shows, apart from that.
    fn sorted(&self, mut rows: Rows, said: &Said) -> Sorted {
        let hidden = rows.columns.split_off(said.shown);
        let mut hidden = hidden.into_iter().map(|(_, id)| id);
        let mut on: Vec<ColumnId> = hidden.by_ref().take(said.on).collect();
        let given = rows.columns.iter().rev().take(said.given);
        on.extend(given.map(|(_, id)| *id));
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
        (input, scope): (Node, &Scope),
        values: &[Value],
    ) -> Result<Grouped, Refusal> {
        let keys = |one: &Parsed| expression(key_of(one, targets)?, scope);
        let sets = grouping_sets(query, &keys)?;
        if let [set] = &sets[..] {
            let of = (&set[..], &[][..], values);
            return self.grouped(query, (targets, calls), of, (input, scope));
        }
        let every: Vec<Expression> = sets.iter().flatten().cloned().collect();
        let mut leaves = Leaves {
            scope,
            keys: &every,
            values: values.iter().flat_map(Value::columns).collect(),
            found: Vec::new(),
        };
        let (mut targets, mut calls) = (targets.to_vec(), calls);
        for one in targets.iter_mut().map(|(_, one)| one) {
            self.take_leaves(one, &mut leaves)?;
        }
        for call in &mut calls {
            call.change(&mut |one| self.take_leaves(one, &mut leaves))?;
        }
        let found = leaves.found.into_iter();
        let (columns, found): (Vec<_>, Vec<_>) =
            found.map(|(id, _, one)| (id, (String::new(), one))).unzip();
        let first = self.stages.len();
        let mut nulls = Vec::new();
        let mut inputs = Vec::new();
        for set in &sets {
            let from = (input.clone(), scope);
            let of = (&set[..], &every[..], values);
            let one = self.grouped(query, (&found, Vec::new()), of, from)?;
            nulls.append(&mut self.nulls);
            let own = one.1.into_iter();
            let own: Vec<_> = own.map(|(_, value)| (self.new_column(), value)).collect();
            let mapped = own.iter().map(|(id, _)| *id).collect();
            inputs.push((projected(one.0, own), mapped));
        }
        // Null has the type of the key that others have.
        for (null, key) in nulls {
            let keys = self.stages[first..]
                .iter()
                .flat_map(|stage| match &stage.keeps {
                    Keeps::Groups { keys, .. } => &keys[..],
                    _ => &[],
                });
            let like = keys.clone().find(|(_, other)| *other == key);
            self.typed.extend(like.map(|(like, _)| (null, *like)));
        }
        let mut read = |one: &Parsed| Ok(Expression::read(&text(one)?));
        let named = targets.iter();
        let named = named.map(|(name, one)| Ok((name.clone(), read(one)?)));
        let named = named.collect::<Result<_, Refusal>>()?;
        let windows = calls.into_iter();
        let windows = windows.map(|call| call.resolved(&mut read));
        let windows = windows.collect::<Result<_, _>>()?;
        Ok((Node::UnionAll { inputs, columns }, named, windows))
    }

    /// The groups by one set of keys. Those of `every` that it has not are null.
    fn grouped(
        &mut self,
        query: &SelectStmt,
        (targets, calls): (&[(String, Parsed)], Vec<Call>),
        (set, every, values): (&[Expression], &[Expression], &[Value]),
        (input, scope): (Node, &Scope),
    ) -> Result<Grouped, Refusal> {
        let mut grouping = Grouping::new(self.facts, &mut self.next_column);
        for key in set {
            grouping.group_by(key.clone());
        }
        for key in every {
            grouping.leave_out(key.clone());
        }
        let mut resolved = |one: &Parsed| grouped(one, scope, &mut grouping);
        let mut named = targets
            .iter()
            .map(|(name, target)| Ok((name.clone(), resolved(target)?)))
            .collect::<Result<Vec<_>, Refusal>>()?;
        let calls = calls.into_iter();
        let windows = calls.map(|call| call.resolved(&mut resolved));
        let mut windows = windows.collect::<Result<Vec<_>, _>>()?;
        let having = query.having_clause.as_deref();
        let mut having = having.map(&mut resolved).transpose()?;
        let mut values = joined(values.to_vec(), resolved)?;
        let nulls = grouping.nulls();
        let (keys, aggregates) = grouping.finish();
        if set.is_empty() && !keys.is_empty() {
            let advice = "group by it";
            return Err(Refusal::new("a column outside of aggregates", -1, advice));
        }
        let of_each = self.of_each.take();
        let of_each = of_each.map(|given| (given, keys.clone(), aggregates.clone()));
        let mut node = self.stage(Stage {
            input,
            keeps: Keeps::Groups { keys, aggregates },
        });
        if let Some((given, keys, aggregates)) = of_each {
            check_empty(&aggregates)?;
            let of_groups = (&keys[..], &counts(&aggregates)[..]);
            let (each, instead) = self.for_each_value(node, &given, of_groups);
            node = each;
            let named = named.iter_mut().map(|(_, one)| one);
            let windows = windows.iter_mut().flat_map(Window::expressions);
            let of_values = values.iter_mut().flat_map(Found::outer);
            for one in named.chain(windows).chain(&mut having).chain(of_values) {
                for (column, other) in &instead {
                    *one = one.with(*column, other);
                }
            }
        }
        let null = |(id, _): &(ColumnId, _)| (*id, Expression::constant("NULL"));
        node = projected(node, nulls.iter().map(null).collect());
        self.nulls = nulls;
        node = self.with_values(node, values)?;
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
    for cte in &with.ctes {
        let Some(NodeEnum::CommonTableExpr(cte)) = &cte.node else {
            continue;
        };
        let query = cte.ctequery.as_ref().and_then(|query| query.node.as_ref());
        let Some(NodeEnum::SelectStmt(query)) = query else {
            let advice = "a view only reads";
            return Err(Refusal::new("WITH that changes data", cte.location, advice));
        };
        refuse_clauses(cte)?;
        let named = Cte {
            query: (**query).clone(),
            columns: strings(&cte.aliascolnames),
            before: all.clone(),
            itself: with.recursive.then(|| cte.ctename.clone()),
            location: cte.location,
        };
        // The server has those first that others name.
        all = all.and(&cte.ctename, Rc::new(named));
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
