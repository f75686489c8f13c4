//! Subqueries that depend on the rows around them in any way.
//!
//! What rows have in the columns that such a query names is kept by a stage, each different value once. The query reads these values as the
//! first of its FROM, and everything in it is said of each of them: it groups by them too, its windows and its LIMIT are of each, its sets are
//! combined for each. What it comes to is joined with the rows by them. (Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015.)
//!
//! ```text
//! SELECT … FROM a, LATERAL (SELECT b.x FROM b WHERE b.t < a.k ORDER BY b.t DESC LIMIT 1) AS l
//!
//! d:  SELECT DISTINCT a.k FROM a
//! l:  the first row for each d.k of SELECT b.x, d.k FROM d, b WHERE b.t < d.k
//!     SELECT … FROM a JOIN l ON a.k = l.k
//! ```

use std::collections::BTreeMap;

use pg_query::protobuf::SelectStmt;

use super::Analysis;
use super::given::{Carried, Given, Outer, outer_of, same};
use super::lateral::Dependent;
use super::nature::Nature;
use super::scope::{Entry, Scope};
use super::select::Ctes;
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{JoinKind, Keeps, Node, Stage};

/// How many queries may be computed by values one within the other: each is looked at in two ways.
const NESTED_MAX: usize = 6;

/// What has been found of a query, so that it can be looked at in another way.
pub struct Mark {
    stages: usize,
    typed: usize,
    compared: usize,
    ctes: usize,
    depth: usize,
}

impl Analysis<'_> {
    /// What has been found so far.
    pub(super) fn mark(&self) -> Mark {
        Mark {
            stages: self.stages.len(),
            typed: self.typed.len(),
            compared: self.compared.len(),
            ctes: self.ctes.len(),
            depth: self.depth,
        }
    }

    /// Forgets what has been found since.
    pub(super) fn back_to(&mut self, mark: &Mark) {
        self.stages.truncate(mark.stages);
        self.typed.truncate(mark.typed);
        self.compared.truncate(mark.compared);
        self.ctes.truncate(mark.ctes);
        self.depth = mark.depth;
        self.nulls.clear();
        self.given = None;
        self.of_each = None;
    }

    /// The different values of rows.
    ///
    /// # Errors
    /// [`Refusal`] where the rows themselves depend on others.
    pub(super) fn given(
        &mut self,
        rows: Node,
        outer: Vec<Outer>,
    ) -> Result<(Node, Given), Refusal> {
        if !rows.is_closed() {
            let what = "a subquery that depends on rows which depend on others themselves";
            return Err(Refusal::new(what, -1, "write it as a join"));
        }
        let rows = match rows.has_join() {
            true => self.apart(rows),
            false => rows,
        };
        let mut keys: Vec<(ColumnId, Expression)> = Vec::new();
        let mut by_table: BTreeMap<String, Vec<(String, ColumnId)>> = BTreeMap::new();
        let mut carried = Vec::new();
        for one in outer {
            let nature = one.value.as_column();
            let nature = nature.map_or(Nature::default(), |id| self.nature(&rows, id));
            let known = keys.iter().find(|(_, key)| *key == one.value);
            let column = match known {
                Some((column, _)) => *column,
                None => {
                    let mut values = vec![one.value.clone()];
                    if !nature.is_exact {
                        // Values that are equal may look different, and something else may be computed of each.
                        values.push(one.value.within("(", ")::text COLLATE \"C\""));
                    }
                    for value in values {
                        let column = self.new_column();
                        keys.push((column, value.clone()));
                        carried.push(Carried {
                            column,
                            outer: value,
                            may_be_null: !nature.is_not_null,
                        });
                        self.compared.push((column, !nature.is_not_null));
                    }
                    let added = if nature.is_exact { 1 } else { 2 };
                    carried[carried.len() - added].column
                }
            };
            let columns = by_table.entry(one.table).or_default();
            columns.push((one.column, column));
        }
        let entries = by_table.into_iter();
        let scope = Scope {
            entries: entries
                .map(|(name, columns)| Entry { name, columns })
                .collect(),
            ..Scope::default()
        };
        let name = self.new_column();
        let node = self.stage(Stage {
            input: rows.clone(),
            keeps: Keeps::Groups {
                keys,
                aggregates: Vec::new(),
            },
        });
        let given = Given {
            name: format!("egret$given{}", name.0),
            node,
            scope,
            carried,
        };
        Ok((rows, given))
    }

    /// What a query comes to for each row, and the rows it is for; none where nothing in it is about them.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn by_values(
        &mut self,
        rows: Node,
        query: &SelectStmt,
        scope: &Scope,
        ctes: &Ctes,
    ) -> Result<Option<(Node, Dependent)>, Refusal> {
        let outer = outer_of(query, |names| {
            scope.resolve(names, -1).ok().map(Expression::column)
        })?;
        if outer.is_empty() {
            return Ok(None);
        }
        let (rows, given) = self.given(rows, outer)?;
        let inner = self.nested(|this| {
            this.given = Some(given.clone());
            this.select(query, ctes)
        })?;
        let mut columns = inner.columns;
        let own = columns.split_off(columns.len() - given.len());
        let inner = Dependent {
            node: inner.node,
            conditions: given.conditions(own.into_iter().map(|(_, id)| id)),
            columns: columns
                .into_iter()
                .map(|(name, id)| (name, Expression::column(id)))
                .collect(),
        };
        Ok(Some((rows, inner)))
    }

    /// Looks at a query that is computed by values.
    ///
    /// # Errors
    /// [`Refusal`] where too many are, one within the other.
    pub(super) fn nested<T>(
        &mut self,
        look: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.nested += 1;
        if self.nested > NESTED_MAX {
            self.nested -= 1;
            let what = format!(
                "more than {NESTED_MAX} subqueries within each other that depend on the rows around them"
            );
            return Err(Refusal::new(what, -1, "write them as joins"));
        }
        let found = look(self);
        self.nested -= 1;
        found
    }

    /// A row for each of the values also where there is no group, of which nothing was counted. The rows, and what stands for columns of
    /// the groups.
    ///
    /// # Errors
    /// [`Refusal`] for aggregates that come to something else of no rows.
    pub(super) fn for_each_value(
        &mut self,
        groups: Node,
        given: &Given,
        (keys, counts): (&[(ColumnId, Expression)], &[ColumnId]),
    ) -> (Node, Vec<(ColumnId, Expression)>) {
        let mut instead = Vec::new();
        let mut conditions = Vec::new();
        let mut columns = Vec::new();
        let scanned = match &given.node {
            Node::Scan { columns, .. } => columns.clone(),
            _ => Vec::new(),
        };
        for (one, (_, name)) in given.carried.iter().zip(scanned) {
            let own = self.new_column();
            columns.push((own, name));
            let of_group = keys
                .iter()
                .find(|(_, key)| key.as_column() == Some(one.column));
            if let Some((key, _)) = of_group {
                let (key, own) = (Expression::column(*key), Expression::column(own));
                conditions.push(same(&own, &key, one.may_be_null));
                instead.extend(key.as_column().map(|key| (key, own)));
            }
        }
        for count in counts {
            let number = Expression::column(*count).within("COALESCE(", ", 0)");
            instead.push((*count, number));
        }
        let values = match &given.node {
            Node::Scan { source, .. } => Node::Scan {
                source: *source,
                columns,
            },
            other => other.clone(),
        };
        let node = self.join(JoinKind::Left, values, groups, Expression::all(&conditions));
        (node, instead)
    }
}
