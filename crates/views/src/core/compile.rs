//! Compiles a plan to tables and statements, once the types of its columns are known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::column_types::{ColumnType, Types};
use super::expression::{ColumnId, Expression, stage_column_name};
use super::lookups::StageInput;
use super::maintain::{
    AggregateMaintenance, RecursionStage, ReduceStage, RowStage, TopKStage, WindowStage,
    choose_maintenance, input_columns, select_with_windows,
};
use super::scales::{Scales, expression_scales};
use super::sql::{Block, Generator, SourceSql, union_all};
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
    TopK(TopKStage),
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
            StageStorage::TopK(top) => &top.rows.table,
            StageStorage::Recursion(recursion) => &recursion.rows.table,
        }
    }

    /// The column with the number of copies of a row, for readers of the stage; none if each row is
    /// there once.
    pub(crate) fn count_column(&self) -> Option<&'static str> {
        match &self.storage {
            StageStorage::Recursion(recursion) => recursion.count_column(),
            _ => self.table().count_column,
        }
    }

    /// The stage's input, and the keys of groups that it recomputes.
    pub(crate) fn stage_input(&self, types: &Types) -> StageInput<'_> {
        let with_keys = |recomputed_keys| StageInput { input: &self.input, recomputed_keys };
        let groups = match &self.storage {
            StageStorage::Rows(_) | StageStorage::TopK(_) | StageStorage::Recursion(_) => {
                return with_keys(Vec::new());
            }
            StageStorage::Partitions(partitions) => {
                return with_keys(partitions.keys.iter().collect());
            }
            StageStorage::Groups(groups) => groups,
        };
        // Equal key values may look different: the group is then queried for one that exists.
        let mut group_keys = groups.keys.iter();
        let mut aggregates = groups.aggregates.iter();
        let may_recompute = group_keys.any(|(id, _)| !types[id].is_exact)
            || aggregates.any(|(_, maintenance)| {
                *maintenance == AggregateMaintenance::Recomputed || maintenance.extremum().is_some()
            });
        let keys =
            groups.keys.iter().filter(|_| may_recompute).filter(|(id, _)| types[id].is_not_null);
        with_keys(keys.map(|(_, key)| key).collect())
    }

    /// The columns that later stages and readers see.
    pub(crate) fn visible_columns(&self) -> Vec<ColumnId> {
        match &self.storage {
            StageStorage::Rows(rows) => rows.columns.clone(),
            StageStorage::Groups(groups) => groups.columns(),
            StageStorage::Partitions(partitions) => partitions.rows.columns.clone(),
            StageStorage::TopK(top) => top.rows.columns.clone(),
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
        let sources = &*self.with_recursion_source(sources);
        let mut generator = Generator::new(sources);
        let changes = generator.changes(&self.input);
        if changes.is_empty() {
            return None;
        }
        let delta = Delta {
            expected: self.expected_changes(sources),
            // The server's numbers are signed.
            rows_max: rows_max.map(|rows_max| rows_max.min(i64::MAX.unsigned_abs() - 1)).filter(
                |_| {
                    self.input.can_multiply_rows()
                        || matches!(self.storage, StageStorage::Recursion(_))
                },
            ),
            is_consolidated: changes.len() == 1 && self.preserves_distinct_rows(sources),
            sink,
        };
        Some(match &self.storage {
            StageStorage::Rows(rows) => {
                rows.apply(types, &union_all(&changes, &rows.columns), &delta)
            }
            StageStorage::Groups(groups) => {
                let current_rows = generator.rows(&self.input);
                groups.apply(types, &changes, &current_rows, &delta)
            }
            StageStorage::Partitions(partitions) => {
                let now = generator.rows(&self.input);
                partitions.apply(types, &changes, &now, &delta)
            }
            StageStorage::TopK(top) => {
                let now = generator.rows(&self.input);
                top.apply(types, &changes, &now, &delta)
            }
            StageStorage::Recursion(recursion) => {
                recursion.apply(types, &self.input, sources, &changes, &delta)
            }
        })
    }

    /// The sources, with the stage itself where it is recursive.
    fn with_recursion_source<'a>(
        &self,
        sources: &'a BTreeMap<Source, SourceSql>,
    ) -> Cow<'a, BTreeMap<Source, SourceSql>> {
        let StageStorage::Recursion(recursion) = &self.storage else {
            return Cow::Borrowed(sources);
        };
        Cow::Owned(recursion.with_recursion_source(
            sources,
            &self.table().name,
            self.count_column(),
        ))
    }

    /// Whether distinct rows of a changed source stay distinct in the stage: then consolidated
    /// changes of the source are consolidated in the stage too. Rows of other sources differ by
    /// their keys, which are stored.
    fn preserves_distinct_rows(&self, sources: &BTreeMap<Source, SourceSql>) -> bool {
        let StageStorage::Rows(RowStage { columns, key: Some(_), .. }) = &self.storage else {
            return false;
        };
        let mut scanned = Vec::new();
        self.input.collect_scans(&mut scanned);
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
    pub(crate) fn expected_changes(&self, sources: &BTreeMap<Source, SourceSql>) -> u64 {
        let read_sources = self.input.sources().into_iter();
        let changed = read_sources.filter_map(|source| sources.get(&source));
        changed
            .filter(|source| source.changes.is_some())
            .map(|source| source.expected_changes)
            .sum()
    }

    /// The statement that makes the table equal to its query, whatever it contains.
    pub fn rebuild(
        &self,
        types: &Types,
        sources: &BTreeMap<Source, SourceSql>,
        sink: Option<&str>,
    ) -> Statement {
        let sources = &*self.with_recursion_source(sources);
        let mut generator = Generator::new(sources);
        let current_rows = generator.rows(&self.input);
        match &self.storage {
            StageStorage::Rows(rows) => {
                rows.rebuild(types, &union_all(&current_rows, &rows.columns), sink)
            }
            StageStorage::Groups(groups) => groups.rebuild(types, &current_rows, sink),
            StageStorage::Partitions(partitions) => partitions.rebuild(types, &current_rows, sink),
            StageStorage::TopK(top) => top.rebuild(types, &current_rows, sink),
            StageStorage::Recursion(recursion) => {
                recursion.rebuild(types, (&self.input, sources), sink)
            }
        }
    }
}

/// SELECTs whose column types are those of a stage: the first for rows and arguments of sums, the
/// second for aggregates.
pub(crate) fn type_probes(
    stage: &Stage,
    sources: &BTreeMap<Source, SourceSql>,
) -> (String, Option<String>) {
    let blocks = Generator::new(sources).rows(&stage.input);
    match &stage.contents {
        StageContents::Rows { columns }
        | StageContents::TopK { columns, .. }
        | StageContents::Recursion { columns, .. } => (select_columns(&blocks, columns), None),
        StageContents::Partitions { partition_columns: by, windows, filter, columns } => {
            let input_columns = input_columns(by, windows, filter.as_ref(), columns);
            (select_with_windows(&blocks, &input_columns, windows, ""), None)
        }
        StageContents::Groups { keys, aggregates } => {
            let row_probes: Vec<String> = blocks
                .iter()
                .map(|block| {
                    let names = block.names();
                    let keys = keys.iter().map(|(id, key)| (*id, key));
                    let added = aggregates.iter().filter(|aggregate| aggregate.is_sum_or_average());
                    let arguments =
                        added.filter_map(|one| Some((one.column, one.argument.as_ref()?)));
                    let list: Vec<String> = keys
                        .chain(arguments)
                        .map(|(id, expression)| {
                            format!("{} AS {}", expression.to_sql(names), stage_column_name(id))
                        })
                        .collect();
                    block.select(&list)
                })
                .collect();
            let group_probe = blocks.first().map(|block| {
                let names = block.names();
                let list: Vec<String> = aggregates
                    .iter()
                    .map(|one| {
                        format!("{} AS {}", one.call.to_sql(names), stage_column_name(one.column))
                    })
                    .collect();
                block.select(&list)
            });
            (row_probes.join(" UNION ALL "), group_probe)
        }
    }
}

/// A SELECT that reveals the types of a node's columns.
pub(crate) fn type_probe(
    node: &Node,
    columns: &[ColumnId],
    sources: &BTreeMap<Source, SourceSql>,
) -> String {
    select_columns(&Generator::new(sources).rows(node), columns)
}

fn select_columns(blocks: &[Block], columns: &[ColumnId]) -> String {
    let selects = blocks.iter().map(|block| {
        let list: Vec<String> = columns
            .iter()
            .map(|id| format!("{} AS {}", block.names()[id], stage_column_name(*id)))
            .collect();
        block.select(&list)
    });
    selects.collect::<Vec<_>>().join(" UNION ALL ")
}

/// Compiles a stage, with the types of [`type_probes`].
pub(crate) fn compile_stage(
    name: &str,
    stage: Stage,
    key: Option<Vec<ColumnId>>,
    arguments: &Types,
    column_scales: &Scales,
    types: &Types,
) -> CompiledStage {
    let storage = match stage.contents {
        StageContents::Rows { columns } => {
            StageStorage::Rows(RowStage::new(name, &columns, key, types))
        }
        StageContents::Partitions { partition_columns: by, windows, filter, columns } => {
            StageStorage::Partitions(WindowStage::new(
                name, key, by, windows, filter, &columns, types,
            ))
        }
        StageContents::TopK { order, rows, columns } => {
            StageStorage::TopK(TopKStage::new(name, key, order, rows, &columns, types))
        }
        StageContents::Recursion { columns, is_all } => StageStorage::Recursion(
            RecursionStage::new(name, &stage.input, &columns, is_all, types),
        ),
        StageContents::Groups { keys, aggregates } => {
            let aggregates = aggregates
                .into_iter()
                .map(|aggregate| {
                    let argument = arguments
                        .get(&aggregate.column)
                        .map(|argument_type| argument_type.sql.as_str());
                    let scales = aggregate
                        .argument
                        .as_ref()
                        .and_then(|one| expression_scales(one, column_scales));
                    let result_type = &types[&aggregate.column];
                    let maintenance =
                        choose_maintenance(&aggregate, result_type, argument, scales.as_ref());
                    (aggregate, maintenance)
                })
                .collect();
            StageStorage::Groups(ReduceStage::new(name, keys, aggregates, types))
        }
    };
    CompiledStage { input: stage.input, storage }
}

/// Replaces keys whose type has no equality by `any_value` aggregates: they depend on the other
/// keys, so all rows of a group have the same value.
pub(crate) fn replace_keys_without_equality(contents: &mut StageContents, types: &Types) {
    let StageContents::Groups { keys, aggregates } = contents else {
        return;
    };
    keys.retain(|(column, key)| {
        let column_type = copied_column_type(key, types);
        let has_equality = column_type.is_none_or(|found| found.equality.is_some());
        if !has_equality {
            aggregates.push(Aggregate::recomputed(*column, key.as_argument_of("any_value")));
        }
        has_equality
    });
}

/// Collects columns that may be null although they are declared NOT NULL: those of the nullable
/// side of an outer join.
pub(crate) fn collect_nullable(node: &Node, nullable_columns: &mut BTreeSet<ColumnId>) {
    for input in node.inputs() {
        collect_nullable(input, nullable_columns);
    }
    if let Node::Join { kind, left, right, .. } = node {
        if matches!(kind, JoinKind::Left | JoinKind::Full) {
            nullable_columns.extend(right.columns());
        }
        if *kind == JoinKind::Full {
            nullable_columns.extend(left.columns());
        }
    }
}

/// The type of an expression that only copies a column. It may have more properties than the server
/// reports.
pub(crate) fn copied_column_type(expression: &Expression, types: &Types) -> Option<ColumnType> {
    types.get(&expression.as_column()?).cloned()
}
