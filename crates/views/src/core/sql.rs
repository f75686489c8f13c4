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
mod recent;
mod semi;

use std::collections::BTreeMap;

pub use self::inner::APART_MAX;
use self::recent::{BEFORE, NOW, asked_at};
use super::expression::{ColumnId, Expression, Names, quoted, stage_column};
use super::tree::{FunctionColumn, JoinKind, Node, Source};

/// Column with the weight of a row.
pub(crate) const WEIGHT: &str = "egret_weight";

/// Name of a view's refresh point in its statements.
pub(crate) const FRONTIER: &str = "(SELECT snapshot FROM egret_frontier)";

/// The common table expression with the refresh point, from the two parameters of every statement
/// of a refresh.
pub(crate) const FRONTIERS: &str =
    "egret_frontier AS (SELECT $1::text::pg_snapshot AS snapshot, $2::text::timestamptz AS clock)";

/// Up to this many rows the planner needs no estimate: whatever it assumes, rows are found by their
/// keys.
const EXPECTED_MIN: u64 = 4_097;

/// Rows that never exist, but that the planner counts: without statistics of the changes, it would
/// estimate less than one row for all of them. Follows a SELECT with this list of columns.
pub fn expecting(rows: u64, list: &[String]) -> String {
    match rows {
        ..EXPECTED_MIN => String::new(),
        _ => format!(
            " UNION ALL SELECT {} FROM generate_series(1, {rows}) WHERE {FRONTIER} IS NULL",
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
    pub expected: u64,
    /// Whether no two changes are of the same row.
    pub is_consolidated: bool,
    /// The column with the number of copies of a row; none if each row is there once.
    pub count: Option<&'static str>,
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
    fn of(item: String, names: Names, weight: Option<String>) -> Self {
        Self {
            from: vec![item],
            filters: Vec::new(),
            names,
            weights: weight.into_iter().collect(),
        }
    }

    /// Names of columns within the block.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The weight of a row, in SQL.
    pub fn weight(&self) -> String {
        if self.weights.is_empty() {
            "1::bigint".to_owned()
        } else {
            self.weights.join(" * ")
        }
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
    pub(crate) fn select_each(mut self, expressions: &[String]) -> String {
        let weight = self.weight();
        self.from.push(format!(
            "LATERAL generate_series(1, {weight}) AS egret_times"
        ));
        self.select(expressions)
    }

    fn and(mut self, other: Self) -> Self {
        self.from.extend(other.from);
        self.filters.extend(other.filters);
        self.names.extend(other.names);
        self.weights.extend(other.weights);
        self
    }

    fn filtered(mut self, condition: &Expression) -> Self {
        let condition = condition.operand(&self.names);
        if condition != "(true)" {
            self.filters.push(condition);
        }
        self
    }

    fn negated(mut self) -> Self {
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
        Self {
            sources,
            next_alias: 0,
        }
    }

    fn alias(&mut self) -> String {
        self.next_alias += 1;
        format!("t{}", self.next_alias)
    }

    fn source(&self, source: Source) -> &'a SourceSql {
        self.sources
            .get(&source)
            .expect("every source of a view is described")
    }

    /// Whether a source below has changes.
    pub(crate) fn is_changed(&self, node: &Node) -> bool {
        let mut sources = node.sources().into_iter();
        node.has_clock() || sources.any(|source| self.source(source).changes.is_some())
    }

    /// The current rows of an operator.
    pub(crate) fn rows(&mut self, node: &Node) -> Vec<Block> {
        match node {
            Node::Unit => vec![unit()],
            Node::Scan { source, columns } => {
                let source = self.source(*source);
                let alias = self.alias();
                let names = qualified(&alias, columns);
                let weight = source.count.map(|count| format!("{alias}.{count}"));
                vec![Block::of(
                    format!("{} AS {alias}", source.rows),
                    names,
                    weight,
                )]
            }
            Node::Join {
                kind: JoinKind::Inner,
                left,
                right,
                condition,
            } => {
                let (left, right) = (self.rows_once(left), self.rows_once(right));
                vec![left.and(right).filtered(condition)]
            }
            Node::Join {
                kind: kind @ (JoinKind::Semi | JoinKind::Anti),
                left,
                right,
                condition,
            } => self.semi_rows(*kind, left, right, condition),
            Node::Join {
                kind,
                left,
                right,
                condition,
            } => vec![self.outer_rows(*kind, left, right, condition)],
            Node::Recent { input, .. } => asked_at(self.rows(input), node, NOW),
            _ => self.through(node, &mut |this, input| this.rows(input)),
        }
    }

    /// The rows before the changes. Rows and their negation may both be among them.
    pub(crate) fn rows_before(&mut self, node: &Node) -> Vec<Block> {
        if !self.is_changed(node) {
            return self.rows(node);
        }
        match node {
            Node::Scan { source, columns } => {
                let source = self.source(*source);
                let changes = source.changes.as_deref().unwrap_or(&source.rows);
                let alias = self.alias();
                let list = |weight: &str| {
                    let names = columns.iter().map(|(_, name)| quoted(name));
                    let weight = format!("{weight} AS {WEIGHT}");
                    names.chain([weight]).collect::<Vec<_>>().join(", ")
                };
                let item = format!(
                    "(SELECT {} FROM {} AS {alias} UNION ALL SELECT {} FROM {changes} AS {alias}) AS {alias}",
                    list(source.count.unwrap_or("1::bigint")),
                    source.rows,
                    list(&format!("-{WEIGHT}")),
                );
                let weight = format!("{alias}.{WEIGHT}");
                vec![Block::of(item, qualified(&alias, columns), Some(weight))]
            }
            Node::Join {
                kind: JoinKind::Inner,
                left,
                right,
                condition,
            } => {
                let left = self.rows_before(left);
                let right = self.rows_before(right);
                let (left, right) = (self.once(left), self.once(right));
                vec![left.and(right).filtered(condition)]
            }
            Node::Unit | Node::Join { .. } => {
                let mut all = self.rows(node);
                all.extend(self.changes(node).into_iter().map(Block::negated));
                all
            }
            Node::Recent { input, .. } => asked_at(self.rows_before(input), node, BEFORE),
            _ => self.through(node, &mut |this, input| this.rows_before(input)),
        }
    }

    /// The changes. A row may be among them several times, with weights that cancel each other out.
    pub(crate) fn changes(&mut self, node: &Node) -> Vec<Block> {
        if !self.is_changed(node) {
            return Vec::new();
        }
        match node {
            Node::Unit => Vec::new(),
            Node::Scan { source, columns } => {
                let source = self.source(*source);
                let changes = source.changes.as_deref().unwrap_or(&source.rows);
                let alias = self.alias();
                let names = qualified(&alias, columns);
                let weight = format!("{alias}.{WEIGHT}");
                let item = format!("{changes} AS {alias}");
                vec![Block::of(item, names, Some(weight))]
            }
            Node::Join {
                kind: kind @ (JoinKind::Semi | JoinKind::Anti),
                left,
                right,
                condition,
            } => self.changes_of_semi(*kind, left, right, condition),
            Node::Join {
                kind,
                left,
                right,
                condition,
            } => {
                let mut all = self.changes_of_matches(left, right, condition);
                if *kind != JoinKind::Inner {
                    all.extend(self.changes_of_unmatched(left, right, condition));
                }
                if *kind == JoinKind::Full {
                    all.extend(self.changes_of_unmatched(right, left, condition));
                }
                all
            }
            Node::Recent { input, .. } => self.changes_of_recent(input, node),
            _ => self.through(node, &mut |this, input| this.changes(input)),
        }
    }

    /// Operators that are applied to changes as to rows.
    fn through(
        &mut self,
        node: &Node,
        below: &mut dyn FnMut(&mut Self, &Node) -> Vec<Block>,
    ) -> Vec<Block> {
        match node {
            Node::Filter { input, condition } => {
                let blocks = below(self, input).into_iter();
                blocks.map(|block| block.filtered(condition)).collect()
            }
            Node::Project { input, columns } => {
                let project = |mut block: Block| {
                    let new: Vec<_> = columns
                        .iter()
                        .map(|(id, expression)| (*id, expression.operand(&block.names)))
                        .collect();
                    block.names.extend(new);
                    block
                };
                below(self, input).into_iter().map(project).collect()
            }
            Node::Expand {
                input,
                call,
                columns,
                or_nulls,
            } => {
                let blocks = below(self, input).into_iter();
                let expand = |block: Block| self.expanded(block, call, columns, or_nulls.as_ref());
                blocks.map(expand).collect()
            }
            Node::UnionAll { inputs, columns } => {
                let mut all = Vec::new();
                for (input, mapped) in inputs {
                    for mut block in below(self, input) {
                        let names = columns.iter().zip(mapped);
                        block.names = names
                            .map(|(id, from)| (*id, block.names[from].clone()))
                            .collect();
                        all.push(block);
                    }
                }
                all
            }
            Node::Unit | Node::Scan { .. } | Node::Recent { .. } | Node::Join { .. } => {
                below(self, node)
            }
        }
    }

    /// Each row with the rows that a function computes from it.
    fn expanded(
        &mut self,
        mut block: Block,
        call: &Expression,
        columns: &[FunctionColumn],
        or_nulls: Option<&Expression>,
    ) -> Block {
        let alias = self.alias();
        let call = call.sql(&block.names);
        let mut list = Vec::new();
        for (id, defined) in columns {
            let name = match defined {
                Some((name, _)) => quoted(name),
                None => stage_column(*id),
            };
            block.names.insert(*id, format!("{alias}.{name}"));
            list.push(match defined {
                Some((_, kind)) => format!("{name} {kind}"),
                None => name,
            });
        }
        let given = format!("{call} AS {alias}({})", list.join(", "));
        block.from.push(match or_nulls {
            None => format!("LATERAL {given}"),
            Some(condition) => format!(
                "LATERAL (SELECT {alias}.* FROM (SELECT) AS egret_row LEFT JOIN LATERAL {given} ON {}) AS {alias}",
                condition.operand(&block.names)
            ),
        });
        block
    }

    fn rows_once(&mut self, node: &Node) -> Block {
        let blocks = self.rows(node);
        self.once(blocks)
    }

    /// Unions several blocks to one.
    fn once(&mut self, blocks: Vec<Block>) -> Block {
        if let [block] = &blocks[..] {
            return block.clone();
        }
        let named = self.named(&blocks);
        Block::of(named.item, named.names, Some(named.weight))
    }

    /// The blocks as a subquery, whose columns are named by their ids.
    fn named(&mut self, blocks: &[Block]) -> NamedSubquery {
        let alias = self.alias();
        let ids: Vec<ColumnId> = match blocks.first() {
            Some(first) => first.names.keys().copied().collect(),
            None => Vec::new(),
        };
        let item = format!("({}) AS {alias}", union(blocks, &ids));
        let name = |id: &ColumnId| (*id, format!("{alias}.{}", stage_column(*id)));
        NamedSubquery {
            item,
            names: ids.iter().map(name).collect(),
            weight: format!("{alias}.{WEIGHT}"),
        }
    }
}

/// All rows of blocks, repeated by their weights. `list` gives the columns of a block.
pub fn each(blocks: &[Block], list: impl Fn(&Block) -> Vec<String>) -> String {
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
pub fn union(blocks: &[Block], columns: &[ColumnId]) -> String {
    let selects = blocks.iter().map(|block| {
        let columns = columns.iter();
        let mut list: Vec<String> = columns
            .map(|id| format!("{} AS {}", block.names[id], stage_column(*id)))
            .collect();
        list.push(format!("{} AS {WEIGHT}", block.weight()));
        block.select(&list)
    });
    selects.collect::<Vec<_>>().join(" UNION ALL ")
}

fn unit() -> Block {
    Block {
        from: Vec::new(),
        filters: Vec::new(),
        names: Names::new(),
        weights: Vec::new(),
    }
}

fn qualified(alias: &str, columns: &[(ColumnId, String)]) -> Names {
    let name = |(id, name): &(ColumnId, String)| (*id, format!("{alias}.{}", quoted(name)));
    columns.iter().map(name).collect()
}

#[cfg(test)]
mod tests;
