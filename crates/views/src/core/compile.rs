//! Compiles a plan to tables and statements, once the types of its columns are known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::column_types::{ColumnType, Types};
use super::expression::{ColumnId, Expression, stage_column};
use super::lookups::StageInput;
use super::maintain::{
    AggregateMaintenance, RecursionStage, ReduceStage, RowStage, TopKStage, WindowStage, carried,
    computed, read,
};
use super::scales::{Scales, of_expression};
use super::sql::{Block, Generator, SourceSql, union};
use super::tree::{Aggregate, JoinKind, Node, Source, Stage, StageContents};
use crate::core::maintain::delta::Delta;
use crate::core::maintain::statement::Statement;
use crate::core::maintain::table::Table;

/// A stage with its table and statements.
#[derive(Clone, Debug)]
pub struct CompiledStage {
    /// The operator whose rows the stage stores.
    pub input: Node,
    /// How the stage stores and maintains its rows.
    pub storage: StageStorage,
}

/// Storage of a stage, by the kind of its contents.
#[derive(Clone, Debug)]
pub enum StageStorage {
    /// Single rows, by key or with a count.
    Rows(RowStage),
    /// One row for each group.
    Groups(ReduceStage),
    /// Rows with window functions over their partitions.
    Partitions(WindowStage),
    /// The first rows of an order.
    Top(TopKStage),
    /// The rows of a recursive query.
    Recursion(RecursionStage),
}

impl CompiledStage {
    /// The table that stores the stage.
    pub fn table(&self) -> &Table {
        match &self.storage {
            StageStorage::Rows(rows) => &rows.table,
            StageStorage::Groups(groups) => &groups.table,
            StageStorage::Partitions(partitions) => &partitions.rows.table,
            StageStorage::Top(top) => &top.rows.table,
            StageStorage::Recursion(recursion) => &recursion.rows.table,
        }
    }

    /// The column with the number of copies of a row, for readers of the stage; none if each row is
    /// there once.
    pub fn count(&self) -> Option<&'static str> {
        match &self.storage {
            StageStorage::Recursion(recursion) => recursion.count(),
            _ => self.table().count,
        }
    }

    /// The stage's input, and the keys of groups that it recomputes.
    pub fn reads(&self, types: &Types) -> StageInput<'_> {
        let of = |asked| StageInput {
            input: &self.input,
            asked,
        };
        let groups = match &self.storage {
            StageStorage::Rows(_) | StageStorage::Top(_) | StageStorage::Recursion(_) => {
                return of(Vec::new());
            }
            StageStorage::Partitions(partitions) => return of(partitions.keys.iter().collect()),
            StageStorage::Groups(groups) => groups,
        };
        // Equal key values may look different: the group is then queried for one that exists.
        let mut shown = groups.keys.iter();
        let mut aggregates = groups.aggregates.iter();
        let asks = shown.any(|(id, _)| !types[id].is_exact)
            || aggregates.any(|(_, carried)| {
                *carried == AggregateMaintenance::Asked || carried.end().is_some()
            });
        let keys = groups
            .keys
            .iter()
            .filter(|_| asks)
            .filter(|(id, _)| types[id].is_not_null);
        of(keys.map(|(_, key)| key).collect())
    }

    /// The columns that later stages and readers see.
    pub fn seen(&self) -> Vec<ColumnId> {
        match &self.storage {
            StageStorage::Rows(rows) => rows.columns.clone(),
            StageStorage::Groups(groups) => groups.columns(),
            StageStorage::Partitions(partitions) => partitions.rows.columns.clone(),
            StageStorage::Top(top) => top.rows.columns.clone(),
            StageStorage::Recursion(recursion) => recursion.rows.columns.clone(),
        }
    }

    /// The statement that applies the changes in `sources`; none if there are none. It writes the
    /// changes of the stage to `sink`. If a join yields more than `rows_max` rows, before opposite
    /// ones are merged, it applies nothing.
    pub fn apply(
        &self,
        types: &Types,
        sources: &BTreeMap<Source, SourceSql>,
        sink: Option<&str>,
        rows_max: Option<u64>,
    ) -> Option<Statement> {
        let sources = &*self.with_itself(sources);
        let mut generator = Generator::new(sources);
        let changes = generator.changes(&self.input);
        if changes.is_empty() {
            return None;
        }
        let delta = Delta {
            expected: self.expected(sources),
            // The server's numbers are signed.
            rows_max: rows_max
                .map(|rows_max| rows_max.min(i64::MAX.unsigned_abs() - 1))
                .filter(|_| {
                    self.input.has_join() || matches!(self.storage, StageStorage::Recursion(_))
                }),
            is_consolidated: changes.len() == 1 && self.keeps_apart(sources),
            sink,
        };
        Some(match &self.storage {
            StageStorage::Rows(rows) => rows.apply(types, &union(&changes, &rows.columns), &delta),
            StageStorage::Groups(groups) => {
                let now = generator.rows(&self.input);
                groups.apply(types, &changes, &now, &delta)
            }
            StageStorage::Partitions(partitions) => {
                let now = generator.rows(&self.input);
                partitions.apply(types, &changes, &now, &delta)
            }
            StageStorage::Top(top) => {
                let now = generator.rows(&self.input);
                top.apply(types, &changes, &now, &delta)
            }
            StageStorage::Recursion(recursion) => {
                recursion.apply(types, &self.input, sources, &changes, &delta)
            }
        })
    }

    /// The sources, with the stage itself where it is recursive.
    fn with_itself<'a>(
        &self,
        sources: &'a BTreeMap<Source, SourceSql>,
    ) -> Cow<'a, BTreeMap<Source, SourceSql>> {
        let StageStorage::Recursion(recursion) = &self.storage else {
            return Cow::Borrowed(sources);
        };
        Cow::Owned(recursion.reading(sources, &self.table().name, self.count()))
    }

    /// Whether distinct rows of a changed source stay distinct in the stage: then consolidated
    /// changes of the source are consolidated in the stage too. Rows of other sources differ by
    /// their keys, which are stored.
    fn keeps_apart(&self, sources: &BTreeMap<Source, SourceSql>) -> bool {
        let StageStorage::Rows(RowStage {
            columns,
            key: Some(_),
            ..
        }) = &self.storage
        else {
            return false;
        };
        let mut scanned = Vec::new();
        self.input.scans(&mut scanned);
        let mut changed = scanned.iter().filter_map(|(source, scanned)| {
            let source = sources.get(source)?;
            source.changes.as_ref()?;
            Some((source.is_consolidated, scanned))
        });
        changed.all(|(is_consolidated, scanned)| {
            is_consolidated && scanned.iter().all(|(id, _)| columns.contains(id))
        })
    }

    /// Estimated number of changes that it reads; 0 where that is not known.
    pub fn expected(&self, sources: &BTreeMap<Source, SourceSql>) -> u64 {
        let read = self.input.sources().into_iter();
        let changed = read.filter_map(|source| sources.get(&source));
        changed
            .filter(|source| source.changes.is_some())
            .map(|source| source.expected)
            .sum()
    }

    /// The statement that makes the table equal to its query, whatever it contains.
    pub fn rebuild(
        &self,
        types: &Types,
        sources: &BTreeMap<Source, SourceSql>,
        sink: Option<&str>,
    ) -> Statement {
        let sources = &*self.with_itself(sources);
        let mut generator = Generator::new(sources);
        let now = generator.rows(&self.input);
        match &self.storage {
            StageStorage::Rows(rows) => rows.rebuild(types, &union(&now, &rows.columns), sink),
            StageStorage::Groups(groups) => groups.rebuild(types, &now, sink),
            StageStorage::Partitions(partitions) => partitions.rebuild(types, &now, sink),
            StageStorage::Top(top) => top.rebuild(types, &now, sink),
            StageStorage::Recursion(recursion) => {
                recursion.rebuild(types, (&self.input, sources), sink)
            }
        }
    }
}

/// SELECTs whose column types are those of a stage: the first for rows and arguments of sums, the
/// second for aggregates.
pub(crate) fn probes(
    stage: &Stage,
    sources: &BTreeMap<Source, SourceSql>,
) -> (String, Option<String>) {
    let blocks = Generator::new(sources).rows(&stage.input);
    match &stage.contents {
        StageContents::Rows { columns }
        | StageContents::Top { columns, .. }
        | StageContents::Recursion { columns, .. } => (plain(&blocks, columns), None),
        StageContents::Partitions {
            by,
            windows,
            filter,
            columns,
        } => {
            let read = read(by, windows, filter.as_ref(), columns);
            (computed(&blocks, &read, windows, ""), None)
        }
        StageContents::Groups { keys, aggregates } => {
            let of_rows: Vec<String> = blocks
                .iter()
                .map(|block| {
                    let names = block.names();
                    let keys = keys.iter().map(|(id, key)| (*id, key));
                    let added = aggregates.iter().filter(|one| one.adds());
                    let arguments =
                        added.filter_map(|one| Some((one.column, one.argument.as_ref()?)));
                    let list: Vec<String> = keys
                        .chain(arguments)
                        .map(|(id, expression)| {
                            format!("{} AS {}", expression.sql(names), stage_column(id))
                        })
                        .collect();
                    block.select(&list)
                })
                .collect();
            let grouped = blocks.first().map(|block| {
                let names = block.names();
                let list: Vec<String> = aggregates
                    .iter()
                    .map(|one| format!("{} AS {}", one.call.sql(names), stage_column(one.column)))
                    .collect();
                block.select(&list)
            });
            (of_rows.join(" UNION ALL "), grouped)
        }
    }
}

/// A SELECT that reveals the types of a node's columns.
pub fn probe(node: &Node, columns: &[ColumnId], sources: &BTreeMap<Source, SourceSql>) -> String {
    plain(&Generator::new(sources).rows(node), columns)
}

fn plain(blocks: &[Block], columns: &[ColumnId]) -> String {
    let selects = blocks.iter().map(|block| {
        let list: Vec<String> = columns
            .iter()
            .map(|id| format!("{} AS {}", block.names()[id], stage_column(*id)))
            .collect();
        block.select(&list)
    });
    selects.collect::<Vec<_>>().join(" UNION ALL ")
}

/// Compiles a stage, with the types of [`probes`].
pub fn compile(
    name: &str,
    stage: Stage,
    key: Option<Vec<ColumnId>>,
    arguments: &Types,
    scales_of: &Scales,
    types: &Types,
) -> CompiledStage {
    let kept = match stage.contents {
        StageContents::Rows { columns } => {
            StageStorage::Rows(RowStage::new(name, &columns, key, types))
        }
        StageContents::Partitions {
            by,
            windows,
            filter,
            columns,
        } => StageStorage::Partitions(WindowStage::new(
            name, key, by, windows, filter, &columns, types,
        )),
        StageContents::Top {
            order,
            rows,
            columns,
        } => StageStorage::Top(TopKStage::new(name, key, order, rows, &columns, types)),
        StageContents::Recursion { columns, is_all } => StageStorage::Recursion(
            RecursionStage::new(name, &stage.input, &columns, is_all, types),
        ),
        StageContents::Groups { keys, aggregates } => {
            let aggregates = aggregates
                .into_iter()
                .map(|aggregate| {
                    let argument = arguments
                        .get(&aggregate.column)
                        .map(|found| found.sql.as_str());
                    let scales = aggregate
                        .argument
                        .as_ref()
                        .and_then(|one| of_expression(one, scales_of));
                    let found = &types[&aggregate.column];
                    let how = carried(&aggregate, found, argument, scales.as_ref());
                    (aggregate, how)
                })
                .collect();
            StageStorage::Groups(ReduceStage::new(name, keys, aggregates, types))
        }
    };
    CompiledStage {
        input: stage.input,
        storage: kept,
    }
}

/// Replaces keys whose type has no equality by `any_value` aggregates: they depend on the other
/// keys, so all rows of a group have the same value.
pub(crate) fn without_equality(keeps: &mut StageContents, types: &Types) {
    let StageContents::Groups { keys, aggregates } = keeps else {
        return;
    };
    keys.retain(|(column, key)| {
        let found = copied(key, types);
        let has_equality = found.is_none_or(|found| found.equality.is_some());
        if !has_equality {
            aggregates.push(Aggregate::asked(*column, key.argument_of("any_value")));
        }
        has_equality
    });
}

/// Collects columns that may be null although they are declared NOT NULL: those of the nullable
/// side of an outer join.
pub(crate) fn nullable(node: &Node, found: &mut BTreeSet<ColumnId>) {
    for input in node.inputs() {
        nullable(input, found);
    }
    if let Node::Join {
        kind, left, right, ..
    } = node
    {
        if matches!(kind, JoinKind::Left | JoinKind::Full) {
            found.extend(right.columns());
        }
        if *kind == JoinKind::Full {
            found.extend(left.columns());
        }
    }
}

/// The type of an expression that only copies a column. It may have more properties than the server
/// reports.
pub fn copied(expression: &Expression, types: &Types) -> Option<ColumnType> {
    types.get(&expression.as_column()?).cloned()
}
