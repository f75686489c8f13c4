//! SQL for the rows of operators: as they are now, as they were, and what changed between.
//!
//! Rows are a multiset with integer weights: a change is the new rows with weight 1 and the old
//! ones with weight -1. An operator that is linear is applied to changes as to rows. For a join of
//! `l` and `r`, of which both may have changed, what changed is
//!
//! ```text
//! Δ(l ⋈ r) = Δl ⋈ r_old + l_new ⋈ Δr
//! ```
//!
//! and the rows of `l` that match nothing (`▷`), which an outer join adds:
//!
//! ```text
//! Δ(l ▷ r) = Δl ▷ r_old + (l_new ▷ r_new - l_new ▷ r_old)
//! ```
//!
//! of which the part in brackets concerns only those rows of `l` that match a row of `Δr`. The rows
//! of `l` that match something (`⋉`) are the others: the same with the sign of the brackets turned.
//! The rows before are the rows now less the changes. For conditions on the clock see
//! `sql/temporal_filter.rs`. Below an operator without changes, the rows before are those now: a
//! refresh in which one of six tables changed has one term.

mod inner;
mod outer;
mod semi;
mod temporal_filter;

use std::collections::BTreeMap;

pub use self::inner::SEPARATE_PAIRS_MAX;
use self::temporal_filter::{CURRENT_TIME, PREVIOUS_TIME, filter_at};
use super::expression::{ColumnId, Expression, Names, quote_identifier, stage_column_name};
use super::tree::{FunctionColumn, JoinKind, Node, Source};

/// Column with the weight of a row.
pub(crate) const WEIGHT: &str = "egret_weight";

/// SQL expression for the snapshot of the last refresh.
pub(crate) const FRONTIER_SNAPSHOT: &str = "(SELECT snapshot FROM egret_frontier)";

/// The common table expression with the refresh point, from the two parameters of every statement
/// of a refresh.
pub(crate) const FRONTIER_CTE: &str =
    "egret_frontier AS (SELECT $1::text::pg_snapshot AS snapshot, $2::text::timestamptz AS clock)";

/// Row estimate from which padding is needed: below it the planner looks rows up by their keys,
/// whatever it assumes.
const PADDED_ROWS_MIN: u64 = 4_097;

/// Rows that never exist, but that the planner counts: without statistics of the changes, it would
/// estimate less than one row for all of them. Follows a SELECT with this list of columns.
pub(crate) fn planner_padding(rows: u64, list: &[String]) -> String {
    match rows {
        ..PADDED_ROWS_MIN => String::new(),
        _ => format!(
            " UNION ALL SELECT {} FROM generate_series(1, {rows}) WHERE {FRONTIER_SNAPSHOT} IS NULL",
            list.join(", ")
        ),
    }
}

/// How a statement reads a source and its changes.
#[derive(Clone, Debug)]
pub struct SourceSql {
    /// The table with the current rows.
    pub rows: String,
    /// Subquery of the changes, with the same columns and [`WEIGHT`]; none if there are none.
    pub changes: Option<String>,
    /// Estimated number of changes; 0 where that is not known.
    pub expected_changes: u64,
    /// Whether no two changes are of the same row.
    pub is_consolidated: bool,
    /// The column with the number of copies of a row; none if each row is there once.
    pub count_column: Option<&'static str>,
}

/// Generates the SQL of operators.
pub(crate) struct Generator<'a> {
    sources: &'a BTreeMap<Source, SourceSql>,
    next_alias: u32,
}

/// One SELECT in parts, to which others can be added.
#[derive(Clone, Debug)]
pub struct Block {
    from: Vec<String>,
    filters: Vec<String>,
    names: Names,
    /// Factors of the weight; none for rows that are there once.
    weights: Vec<String>,
}

impl Block {
    fn new(item: String, names: Names, weight: Option<String>) -> Self {
        Self { from: vec![item], filters: Vec::new(), names, weights: weight.into_iter().collect() }
    }

    /// Names of columns within the block.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The weight of a row, in SQL.
    pub fn weight(&self) -> String {
        if self.weights.is_empty() { "1::bigint".to_owned() } else { self.weights.join(" * ") }
    }

    /// Whether rows may have a weight other than 1.
    pub(crate) fn is_weighted(&self) -> bool {
        !self.weights.is_empty()
    }

    /// The SELECT with these expressions.
    pub fn select(&self, expressions: &[String]) -> String {
        let mut sql = format!("SELECT {}", expressions.join(", "));
        if !self.from.is_empty() {
            sql.push_str(" FROM ");
            sql.push_str(&self.from.join(", "));
        }
        if !self.filters.is_empty() {
            sql.push_str(" WHERE ");
            sql.push_str(&self.filters.join(" AND "));
        }
        sql
    }

    /// The SELECT with these expressions, in which a row is repeated as often as its weight says.
    pub(crate) fn select_repeated(mut self, expressions: &[String]) -> String {
        let weight = self.weight();
        self.from.push(format!("LATERAL generate_series(1, {weight}) AS egret_times"));
        self.select(expressions)
    }

    fn cross_join(mut self, other: Self) -> Self {
        self.from.extend(other.from);
        self.filters.extend(other.filters);
        self.names.extend(other.names);
        self.weights.extend(other.weights);
        self
    }

    fn with_filter(mut self, condition: &Expression) -> Self {
        let condition = condition.to_operand(&self.names);
        if condition != "(true)" {
            self.filters.push(condition);
        }
        self
    }

    fn negate(mut self) -> Self {
        self.weights.push("-1".to_owned());
        self
    }
}

/// A subquery with a name in FROM.
struct NamedSubquery {
    /// The subquery with its alias, as an item of FROM.
    item: String,
    names: Names,
    weight: String,
}

impl<'a> Generator<'a> {
    pub(crate) fn new(sources: &'a BTreeMap<Source, SourceSql>) -> Self {
        Self { sources, next_alias: 0 }
    }

    fn new_alias(&mut self) -> String {
        self.next_alias += 1;
        format!("t{}", self.next_alias)
    }

    fn source_sql(&self, source: Source) -> &'a SourceSql {
        self.sources.get(&source).expect("every source of a view is described")
    }

    /// Whether a source below has changes.
    pub(crate) fn has_changes(&self, node: &Node) -> bool {
        let mut sources = node.sources().into_iter();
        node.has_clock() || sources.any(|source| self.source_sql(source).changes.is_some())
    }

    /// The current rows of an operator.
    pub(crate) fn rows(&mut self, node: &Node) -> Vec<Block> {
        match node {
            Node::Unit => vec![unit_block()],
            Node::Scan { source, columns } => {
                let source = self.source_sql(*source);
                let alias = self.new_alias();
                let names = qualified_names(&alias, columns);
                let weight = source.count_column.map(|count| format!("{alias}.{count}"));
                vec![Block::new(format!("{} AS {alias}", source.rows), names, weight)]
            }
            Node::Join { kind: JoinKind::Inner, left, right, condition } => {
                let (left, right) = (self.rows_as_block(left), self.rows_as_block(right));
                vec![left.cross_join(right).with_filter(condition)]
            }
            Node::Join {
                kind: kind @ (JoinKind::Semi | JoinKind::Anti),
                left,
                right,
                condition,
            } => self.semi_rows(*kind, left, right, condition),
            Node::Join { kind, left, right, condition } => {
                vec![self.outer_rows(*kind, left, right, condition)]
            }
            Node::TemporalFilter { input, .. } => filter_at(self.rows(input), node, CURRENT_TIME),
            _ => self.map_linear(node, &mut |this, input| this.rows(input)),
        }
    }

    /// The rows before the changes. Rows and their negation may both be among them.
    pub(crate) fn rows_before(&mut self, node: &Node) -> Vec<Block> {
        if !self.has_changes(node) {
            return self.rows(node);
        }
        match node {
            Node::Scan { source, columns } => {
                let source = self.source_sql(*source);
                let changes = source.changes.as_deref().unwrap_or(&source.rows);
                let alias = self.new_alias();
                let list = |weight: &str| {
                    let names = columns.iter().map(|(_, name)| quote_identifier(name));
                    let weight = format!("{weight} AS {WEIGHT}");
                    names.chain([weight]).collect::<Vec<_>>().join(", ")
                };
                let item = format!(
                    "(SELECT {} FROM {} AS {alias} UNION ALL SELECT {} FROM {changes} AS {alias}) AS {alias}",
                    list(source.count_column.unwrap_or("1::bigint")),
                    source.rows,
                    list(&format!("-{WEIGHT}")),
                );
                let weight = format!("{alias}.{WEIGHT}");
                vec![Block::new(item, qualified_names(&alias, columns), Some(weight))]
            }
            Node::Join { kind: JoinKind::Inner, left, right, condition } => {
                let left = self.rows_before(left);
                let right = self.rows_before(right);
                let (left, right) = (self.merge_blocks(left), self.merge_blocks(right));
                vec![left.cross_join(right).with_filter(condition)]
            }
            Node::Unit | Node::Join { .. } => {
                let mut blocks = self.rows(node);
                blocks.extend(self.changes(node).into_iter().map(Block::negate));
                blocks
            }
            Node::TemporalFilter { input, .. } => {
                filter_at(self.rows_before(input), node, PREVIOUS_TIME)
            }
            _ => self.map_linear(node, &mut |this, input| this.rows_before(input)),
        }
    }

    /// The changes. A row may be among them several times, with weights that cancel each other out.
    pub(crate) fn changes(&mut self, node: &Node) -> Vec<Block> {
        if !self.has_changes(node) {
            return Vec::new();
        }
        match node {
            Node::Unit => Vec::new(),
            Node::Scan { source, columns } => {
                let source = self.source_sql(*source);
                let changes = source.changes.as_deref().unwrap_or(&source.rows);
                let alias = self.new_alias();
                let names = qualified_names(&alias, columns);
                let weight = format!("{alias}.{WEIGHT}");
                let item = format!("{changes} AS {alias}");
                vec![Block::new(item, names, Some(weight))]
            }
            Node::Join {
                kind: kind @ (JoinKind::Semi | JoinKind::Anti),
                left,
                right,
                condition,
            } => self.changes_of_semi(*kind, left, right, condition),
            Node::Join { kind, left, right, condition } => {
                let mut blocks = self.changes_of_matches(left, right, condition);
                if *kind != JoinKind::Inner {
                    blocks.extend(self.changes_of_unmatched(left, right, condition));
                }
                if *kind == JoinKind::Full {
                    blocks.extend(self.changes_of_unmatched(right, left, condition));
                }
                blocks
            }
            Node::TemporalFilter { input, .. } => self.changes_of_temporal_filter(input, node),
            _ => self.map_linear(node, &mut |this, input| this.changes(input)),
        }
    }

    /// Operators that are applied to changes as to rows.
    fn map_linear(
        &mut self,
        node: &Node,
        generate_input: &mut dyn FnMut(&mut Self, &Node) -> Vec<Block>,
    ) -> Vec<Block> {
        match node {
            Node::Filter { input, condition } => {
                let blocks = generate_input(self, input).into_iter();
                blocks.map(|block| block.with_filter(condition)).collect()
            }
            Node::Project { input, columns } => {
                let project = |mut block: Block| {
                    let projected: Vec<_> = columns
                        .iter()
                        .map(|(id, expression)| (*id, expression.to_operand(&block.names)))
                        .collect();
                    block.names.extend(projected);
                    block
                };
                generate_input(self, input).into_iter().map(project).collect()
            }
            Node::FlatMap { input, call, columns, outer_condition: or_nulls } => {
                let blocks = generate_input(self, input).into_iter();
                let expand =
                    |block: Block| self.join_function(block, call, columns, or_nulls.as_ref());
                blocks.map(expand).collect()
            }
            Node::UnionAll { inputs, columns } => {
                let mut all = Vec::new();
                for (input, mapped) in inputs {
                    for mut block in generate_input(self, input) {
                        let names = columns.iter().zip(mapped);
                        block.names =
                            names.map(|(id, from)| (*id, block.names[from].clone())).collect();
                        all.push(block);
                    }
                }
                all
            }
            Node::Unit | Node::Scan { .. } | Node::TemporalFilter { .. } | Node::Join { .. } => {
                generate_input(self, node)
            }
        }
    }

    /// Each row with the rows that a function computes from it.
    fn join_function(
        &mut self,
        mut block: Block,
        call: &Expression,
        columns: &[FunctionColumn],
        outer_condition: Option<&Expression>,
    ) -> Block {
        let alias = self.new_alias();
        let call = call.to_sql(&block.names);
        let mut list = Vec::new();
        for (id, declaration) in columns {
            let name = match declaration {
                Some((name, _)) => quote_identifier(name),
                None => stage_column_name(*id),
            };
            block.names.insert(*id, format!("{alias}.{name}"));
            list.push(match declaration {
                Some((_, kind)) => format!("{name} {kind}"),
                None => name,
            });
        }
        let function_item = format!("{call} AS {alias}({})", list.join(", "));
        block.from.push(match outer_condition {
            None => format!("LATERAL {function_item}"),
            Some(condition) => format!(
                "LATERAL (SELECT {alias}.* FROM (SELECT) AS egret_row LEFT JOIN LATERAL {function_item} ON {}) AS {alias}",
                condition.to_operand(&block.names)
            ),
        });
        block
    }

    fn rows_as_block(&mut self, node: &Node) -> Block {
        let blocks = self.rows(node);
        self.merge_blocks(blocks)
    }

    /// Unions several blocks to one.
    fn merge_blocks(&mut self, blocks: Vec<Block>) -> Block {
        if let [block] = &blocks[..] {
            return block.clone();
        }
        let named = self.add_subquery(&blocks);
        Block::new(named.item, named.names, Some(named.weight))
    }

    /// The blocks as a subquery, whose columns are named by their ids.
    fn add_subquery(&mut self, blocks: &[Block]) -> NamedSubquery {
        let alias = self.new_alias();
        let ids: Vec<ColumnId> = match blocks.first() {
            Some(first) => first.names.keys().copied().collect(),
            None => Vec::new(),
        };
        let item = format!("({}) AS {alias}", union_all(blocks, &ids));
        let name = |id: &ColumnId| (*id, format!("{alias}.{}", stage_column_name(*id)));
        NamedSubquery {
            item,
            names: ids.iter().map(name).collect(),
            weight: format!("{alias}.{WEIGHT}"),
        }
    }
}

/// All rows of blocks, repeated by their weights. `list` gives the columns of a block.
pub(crate) fn select_repeated_rows(
    blocks: &[Block],
    list: impl Fn(&Block) -> Vec<String>,
) -> String {
    let is_weighted = blocks.iter().any(Block::is_weighted);
    let selects = blocks.iter().map(|block| {
        let mut columns = list(block);
        if is_weighted {
            columns.push(format!("{} AS {WEIGHT}", block.weight()));
        }
        block.select(&columns)
    });
    let rows = selects.collect::<Vec<_>>().join(" UNION ALL ");
    if is_weighted {
        format!("SELECT r.* FROM ({rows}) AS r CROSS JOIN LATERAL generate_series(1, r.{WEIGHT})")
    } else {
        rows
    }
}

/// All rows of blocks, with these columns and their weight.
pub fn union_all(blocks: &[Block], columns: &[ColumnId]) -> String {
    let selects = blocks.iter().map(|block| {
        let columns = columns.iter();
        let mut list: Vec<String> = columns
            .map(|id| format!("{} AS {}", block.names[id], stage_column_name(*id)))
            .collect();
        list.push(format!("{} AS {WEIGHT}", block.weight()));
        block.select(&list)
    });
    selects.collect::<Vec<_>>().join(" UNION ALL ")
}

fn unit_block() -> Block {
    Block { from: Vec::new(), filters: Vec::new(), names: Names::new(), weights: Vec::new() }
}

fn qualified_names(alias: &str, columns: &[(ColumnId, String)]) -> Names {
    let name =
        |(id, name): &(ColumnId, String)| (*id, format!("{alias}.{}", quote_identifier(name)));
    columns.iter().map(name).collect()
}

#[cfg(test)]
mod tests;
