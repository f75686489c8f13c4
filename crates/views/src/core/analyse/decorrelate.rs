//! Subqueries that depend on outer rows in any way.
//!
//! A stage stores the domain: the distinct values of the outer columns that the query refers to.
//! The query reads the domain as its first item of FROM, and is computed for each value: it also
//! groups by the value, its windows and its LIMIT apply to each value, set operations are combined
//! for each value. The result is joined with the outer rows by the values. (Neumann and Kemper,
//! "Unnesting Arbitrary Queries", BTW 2015.)
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
use super::column_properties::ColumnProperties;
use super::ctes::Ctes;
use super::dependent_join::{DecorrelationDomain, DomainColumn, OuterReference, outer_of, same};
use super::lateral::LateralItem;
use super::scope::{Entry, Scope};
use crate::core::expression::{ColumnId, Expression};
use crate::core::refusal::Refusal;
use crate::core::tree::{JoinKind, Node, Stage, StageContents};

/// Bound on nested dependent queries: each is analysed in two ways.
const NESTED_MAX: usize = 6;

/// State of the analysis, to return to before another attempt.
pub(crate) struct AnalysisCheckpoint {
    stages: usize,
    typed: usize,
    compared: usize,
    ctes: usize,
    depth: usize,
}

impl Analysis<'_> {
    /// The current state of the analysis.
    pub(super) fn mark(&self) -> AnalysisCheckpoint {
        AnalysisCheckpoint {
            stages: self.stages.len(),
            typed: self.typed.len(),
            compared: self.compared.len(),
            ctes: self.ctes.len(),
            depth: self.depth,
        }
    }

    /// Discards what was added since the checkpoint.
    pub(super) fn back_to(&mut self, mark: &AnalysisCheckpoint) {
        self.stages.truncate(mark.stages);
        self.typed.truncate(mark.typed);
        self.compared.truncate(mark.compared);
        self.ctes.truncate(mark.ctes);
        self.depth = mark.depth;
        self.nulls.clear();
        self.given = None;
        self.of_each = None;
    }

    /// Adds a stage with the domain: the distinct values of rows.
    ///
    /// # Errors
    /// [`Refusal`] if the rows themselves depend on outer rows.
    pub(super) fn given(
        &mut self,
        rows: Node,
        outer: Vec<OuterReference>,
    ) -> Result<(Node, DecorrelationDomain), Refusal> {
        if !rows.is_closed() {
            let what = "a correlated subquery whose outer rows are correlated too";
            return Err(Refusal::new(what, -1, "write it as a join"));
        }
        let rows = if rows.has_join() {
            self.wrap_in_stage(rows)
        } else {
            rows
        };
        let mut keys: Vec<(ColumnId, Expression)> = Vec::new();
        let mut by_table: BTreeMap<String, Vec<(String, ColumnId)>> = BTreeMap::new();
        let mut carried = Vec::new();
        for one in outer {
            let nature = one.value.as_column();
            let nature = nature.map_or(ColumnProperties::default(), |id| self.nature(&rows, id));
            let known = keys.iter().find(|(_, key)| *key == one.value);
            let column = match known {
                Some((column, _)) => *column,
                None => {
                    let mut values = vec![one.value.clone()];
                    if !nature.is_exact {
                        // Equal values may look different, and expressions may depend on how a
                        // value looks.
                        values.push(one.value.within("(", ")::text COLLATE \"C\""));
                    }
                    for value in values {
                        let column = self.new_column();
                        keys.push((column, value.clone()));
                        carried.push(DomainColumn {
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
            contents: StageContents::Groups {
                keys,
                aggregates: Vec::new(),
            },
        });
        let given = DecorrelationDomain {
            name: format!("egret$given{}", name.0),
            node,
            scope,
            carried,
        };
        Ok((rows, given))
    }

    /// A query computed for each row, and the rows; none if it does not refer to them.
    pub(super) fn decorrelate(
        &mut self,
        rows: Node,
        query: &SelectStmt,
        scope: &Scope,
        ctes: &Ctes,
    ) -> Result<Option<(Node, LateralItem)>, Refusal> {
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
        let inner = LateralItem {
            node: inner.node,
            conditions: given.conditions(own.into_iter().map(|(_, id)| id)),
            columns: columns
                .into_iter()
                .map(|(name, id)| (name, Expression::column(id)))
                .collect(),
        };
        Ok(Some((rows, inner)))
    }

    /// Analyses a dependent query.
    ///
    /// # Errors
    /// [`Refusal`] if dependent queries are nested too deeply.
    pub(super) fn nested<T>(
        &mut self,
        look: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.nested += 1;
        if self.nested > NESTED_MAX {
            self.nested -= 1;
            let what = format!("more than {NESTED_MAX} nested correlated subqueries");
            return Err(Refusal::new(what, -1, "write them as joins"));
        }
        let found = look(self);
        self.nested -= 1;
        found
    }

    /// A row for each value of the domain, also for one without a group, whose counts are 0.
    /// Returns the rows, and the replacements for columns of the groups.
    pub(super) fn for_each_value(
        &mut self,
        groups: Node,
        given: &DecorrelationDomain,
        keys: &[(ColumnId, Expression)],
        counts: &[ColumnId],
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
