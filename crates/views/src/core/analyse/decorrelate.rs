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
use super::dependent_join::{
    DecorrelationDomain, DomainColumn, OuterReference, outer_references, same_value_condition,
};
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
    pub(super) fn checkpoint(&self) -> AnalysisCheckpoint {
        AnalysisCheckpoint {
            stages: self.stages.len(),
            typed: self.typed_like.len(),
            compared: self.lookup_keys.len(),
            ctes: self.analysed_ctes.len(),
            depth: self.depth,
        }
    }

    /// Discards what was added since the checkpoint.
    pub(super) fn restore_checkpoint(&mut self, checkpoint: &AnalysisCheckpoint) {
        self.stages.truncate(checkpoint.stages);
        self.typed_like.truncate(checkpoint.typed);
        self.lookup_keys.truncate(checkpoint.compared);
        self.analysed_ctes.truncate(checkpoint.ctes);
        self.depth = checkpoint.depth;
        self.null_keys.clear();
        self.next_domain = None;
        self.next_group_domain = None;
    }

    /// Adds a stage with the domain: the distinct values of rows.
    ///
    /// # Errors
    /// [`Refusal`] if the rows themselves depend on outer rows.
    pub(super) fn add_domain(
        &mut self,
        rows: Node,
        outer: Vec<OuterReference>,
    ) -> Result<(Node, DecorrelationDomain), Refusal> {
        if !rows.is_closed() {
            let construct = "a correlated subquery whose outer rows are correlated too";
            return Err(Refusal::new(construct, -1, "write it as a join"));
        }
        let rows = if rows.can_multiply_rows() { self.wrap_in_stage(rows) } else { rows };
        let mut keys: Vec<(ColumnId, Expression)> = Vec::new();
        let mut by_table: BTreeMap<String, Vec<(String, ColumnId)>> = BTreeMap::new();
        let mut domain_columns = Vec::new();
        for reference in outer {
            let value_column = reference.value.as_column();
            let properties = value_column
                .map_or(ColumnProperties::default(), |id| self.column_properties(&rows, id));
            let known_key = keys.iter().find(|(_, key)| *key == reference.value);
            let column = match known_key {
                Some((column, _)) => *column,
                None => {
                    let mut values = vec![reference.value.clone()];
                    if !properties.is_exact {
                        // Equal values may look different, and expressions may depend on how a
                        // value looks.
                        values.push(reference.value.wrap("(", ")::text COLLATE \"C\""));
                    }
                    for value in values {
                        let column = self.new_column();
                        keys.push((column, value.clone()));
                        domain_columns.push(DomainColumn {
                            column,
                            outer: value,
                            may_be_null: !properties.is_not_null,
                        });
                        self.lookup_keys.push((column, !properties.is_not_null));
                    }
                    let added_count = if properties.is_exact { 1 } else { 2 };
                    domain_columns[domain_columns.len() - added_count].column
                }
            };
            let columns = by_table.entry(reference.table).or_default();
            columns.push((reference.column, column));
        }
        let entries = by_table.into_iter();
        let scope = Scope {
            entries: entries.map(|(name, columns)| Entry { name, columns }).collect(),
            ..Scope::default()
        };
        let name = self.new_column();
        let node = self.add_stage(Stage {
            input: rows.clone(),
            contents: StageContents::Groups { keys, aggregates: Vec::new() },
        });
        let domain = DecorrelationDomain {
            name: format!("egret$given{}", name.0),
            node,
            scope,
            domain_columns,
        };
        Ok((rows, domain))
    }

    /// A query computed for each row, and the rows; none if it does not refer to them.
    pub(super) fn decorrelate(
        &mut self,
        rows: Node,
        query: &SelectStmt,
        scope: &Scope,
        ctes: &Ctes,
    ) -> Result<Option<(Node, LateralItem)>, Refusal> {
        let outer =
            outer_references(query, |names| scope.resolve(names, -1).ok().map(Expression::column))?;
        if outer.is_empty() {
            return Ok(None);
        }
        let (rows, domain) = self.add_domain(rows, outer)?;
        let inner = self.analyse_nested(|this| {
            this.next_domain = Some(domain.clone());
            this.select(query, ctes)
        })?;
        let mut columns = inner.columns;
        let domain_column_ids = columns.split_off(columns.len() - domain.len());
        let inner = LateralItem {
            node: inner.node,
            conditions: domain.join_conditions(domain_column_ids.into_iter().map(|(_, id)| id)),
            columns: columns.into_iter().map(|(name, id)| (name, Expression::column(id))).collect(),
        };
        Ok(Some((rows, inner)))
    }

    /// Analyses a dependent query.
    ///
    /// # Errors
    /// [`Refusal`] if dependent queries are nested too deeply.
    pub(super) fn analyse_nested<T>(
        &mut self,
        analyse: impl FnOnce(&mut Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.nesting_depth += 1;
        if self.nesting_depth > NESTED_MAX {
            self.nesting_depth -= 1;
            let construct = format!("more than {NESTED_MAX} nested correlated subqueries");
            return Err(Refusal::new(construct, -1, "write them as joins"));
        }
        let result = analyse(self);
        self.nesting_depth -= 1;
        result
    }

    /// A row for each value of the domain, also for one without a group, whose counts are 0.
    /// Returns the rows, and the replacements for columns of the groups.
    pub(super) fn join_groups_to_domain(
        &mut self,
        groups: Node,
        domain: &DecorrelationDomain,
        keys: &[(ColumnId, Expression)],
        counts: &[ColumnId],
    ) -> (Node, Vec<(ColumnId, Expression)>) {
        let mut replacements = Vec::new();
        let mut conditions = Vec::new();
        let mut columns = Vec::new();
        let scanned = match &domain.node {
            Node::Scan { columns, .. } => columns.clone(),
            _ => Vec::new(),
        };
        for (domain_column, (_, name)) in domain.domain_columns.iter().zip(scanned) {
            let value_column = self.new_column();
            columns.push((value_column, name));
            let group_key =
                keys.iter().find(|(_, key)| key.as_column() == Some(domain_column.column));
            if let Some((key, _)) = group_key {
                let (key, value) = (Expression::column(*key), Expression::column(value_column));
                conditions.push(same_value_condition(&value, &key, domain_column.may_be_null));
                replacements.extend(key.as_column().map(|key| (key, value)));
            }
        }
        for count in counts {
            let number = Expression::column(*count).wrap("COALESCE(", ", 0)");
            replacements.push((*count, number));
        }
        let values = match &domain.node {
            Node::Scan { source, .. } => Node::Scan { source: *source, columns },
            other => other.clone(),
        };
        let node = self.join(JoinKind::Left, values, groups, Expression::conjunction(&conditions));
        (node, replacements)
    }
}
