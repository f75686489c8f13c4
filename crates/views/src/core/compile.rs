//! From a plan to tables and statements, once the types of its columns are known.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::analyse::stage_column;
use super::expression::{ColumnId, Expression};
use super::lookups::Reads;
use super::maintain::{
    Carried, ColumnType, Delta, Groups, Partitions, Recursion, Rows, Statement, Table, Top, Types,
    carried, computed, read,
};
use super::scales::{Scales, of_expression};
use super::sql::{Block, Generator, SourceSql, union};
use super::tree::{Aggregate, JoinKind, Keeps, Node, Source, Stage};

/// A stage with its table.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// Where its rows come from.
    pub input: Node,
    /// What is kept.
    pub kept: Kept,
}

/// What a stage keeps.
#[derive(Clone, Debug)]
pub enum Kept {
    /// Rows.
    Rows(Rows),
    /// Groups.
    Groups(Groups),
    /// Rows of partitions.
    Partitions(Partitions),
    /// The first rows.
    Top(Top),
    /// All that comes of some rows.
    Recursion(Recursion),
}

impl Compiled {
    /// Its table.
    pub fn table(&self) -> &Table {
        match &self.kept {
            Kept::Rows(rows) => &rows.table,
            Kept::Groups(groups) => &groups.table,
            Kept::Partitions(partitions) => &partitions.rows.table,
            Kept::Top(top) => &top.rows.table,
            Kept::Recursion(recursion) => &recursion.rows.table,
        }
    }

    /// The column of its table that says how often a row is there for whoever reads it, if that is not once.
    pub fn count(&self) -> Option<&'static str> {
        match &self.kept {
            Kept::Recursion(recursion) => recursion.count(),
            _ => self.table().count,
        }
    }

    /// What it reads, and the keys of groups that are asked again.
    pub fn reads(&self, types: &Types) -> Reads<'_> {
        let of = |asked| Reads {
            input: &self.input,
            asked,
        };
        let groups = match &self.kept {
            Kept::Rows(_) | Kept::Top(_) | Kept::Recursion(_) => return of(Vec::new()),
            Kept::Partitions(partitions) => return of(partitions.keys.iter().collect()),
            Kept::Groups(groups) => groups,
        };
        // Where values of a key are equal and look different, one that is there is asked for.
        let mut shown = groups.keys.iter();
        let mut aggregates = groups.aggregates.iter();
        let asks = shown.any(|(id, _)| !types[id].is_exact)
            || aggregates.any(|(_, carried)| *carried == Carried::Asked || carried.end().is_some());
        let keys = groups.keys.iter().filter(|_| asks);
        let keys = keys.filter(|(id, _)| types[id].is_not_null);
        of(keys.map(|(_, key)| key).collect())
    }

    /// The columns that later stages and readers see, by their names.
    pub fn seen(&self) -> Vec<ColumnId> {
        match &self.kept {
            Kept::Rows(rows) => rows.columns.clone(),
            Kept::Groups(groups) => groups.columns(),
            Kept::Partitions(partitions) => partitions.rows.columns.clone(),
            Kept::Top(top) => top.rows.columns.clone(),
            Kept::Recursion(recursion) => recursion.rows.columns.clone(),
        }
    }

    /// The statement that applies what changed in `sources`; none where nothing did. What changed is told to `sink`, and where it is more
    /// than so many rows in a join before those that take each other away are brought together, nothing is to be applied.
    pub fn apply(
        &self,
        types: &Types,
        sources: &BTreeMap<Source, SourceSql>,
        (sink, rows_max): (Option<&str>, Option<u64>),
    ) -> Option<Statement> {
        let sources = &*self.with_itself(sources);
        let mut generator = Generator::new(sources);
        let changes = generator.changes(&self.input);
        if changes.is_empty() {
            return None;
        }
        let delta = Delta {
            expected: self.expected(sources),
            // The server counts with the sign.
            rows_max: rows_max
                .map(|rows_max| rows_max.min(i64::MAX.unsigned_abs() - 1))
                .filter(|_| self.input.has_join() || matches!(self.kept, Kept::Recursion(_))),
            is_consolidated: changes.len() == 1 && self.keeps_apart(sources),
            sink,
        };
        Some(match &self.kept {
            Kept::Rows(rows) => rows.apply(types, &union(&changes, &rows.columns), &delta),
            Kept::Groups(groups) => {
                let now = generator.rows(&self.input);
                groups.apply(types, &changes, &now, &delta)
            }
            Kept::Partitions(partitions) => {
                let now = generator.rows(&self.input);
                partitions.apply(types, (&changes, &now), &delta)
            }
            Kept::Top(top) => {
                let now = generator.rows(&self.input);
                top.apply(types, (&changes, &now), &delta)
            }
            Kept::Recursion(recursion) => {
                recursion.apply(types, (&self.input, sources, &changes), &delta)
            }
        })
    }

    /// The sources with what is kept, where the stage reads that.
    fn with_itself<'a>(
        &self,
        sources: &'a BTreeMap<Source, SourceSql>,
    ) -> Cow<'a, BTreeMap<Source, SourceSql>> {
        let Kept::Recursion(recursion) = &self.kept else {
            return Cow::Borrowed(sources);
        };
        Cow::Owned(recursion.reading(sources, &self.table().name, self.count()))
    }

    /// Whether rows that differ in a source that changed differ in what is kept: then what is there once in its changes is there once in
    /// those of the stage. Rows of other sources differ by their keys, which are kept.
    fn keeps_apart(&self, sources: &BTreeMap<Source, SourceSql>) -> bool {
        let Kept::Rows(Rows {
            columns,
            key: Some(_),
            ..
        }) = &self.kept
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

    /// About how many changes it reads; 0 where that is not known.
    pub fn expected(&self, sources: &BTreeMap<Source, SourceSql>) -> u64 {
        let read = self.input.sources().into_iter();
        let changed = read.filter_map(|source| sources.get(&source));
        changed
            .filter(|source| source.changes.is_some())
            .map(|source| source.expected)
            .sum()
    }

    /// The statement that makes the table what the query says, whatever it was.
    pub fn rebuild(
        &self,
        types: &Types,
        sources: &BTreeMap<Source, SourceSql>,
        sink: Option<&str>,
    ) -> Statement {
        let sources = &*self.with_itself(sources);
        let mut generator = Generator::new(sources);
        let now = generator.rows(&self.input);
        match &self.kept {
            Kept::Rows(rows) => rows.rebuild(types, &union(&now, &rows.columns), sink),
            Kept::Groups(groups) => groups.rebuild(types, &now, sink),
            Kept::Partitions(partitions) => partitions.rebuild(types, &now, sink),
            Kept::Top(top) => top.rebuild(types, &now, sink),
            Kept::Recursion(recursion) => recursion.rebuild(types, (&self.input, sources), sink),
        }
    }
}

/// The SELECTs that tell the types of what a stage keeps: the first of rows, with what is added up, the second of groups.
pub fn probes(stage: &Stage, sources: &BTreeMap<Source, SourceSql>) -> (String, Option<String>) {
    let blocks = Generator::new(sources).rows(&stage.input);
    match &stage.keeps {
        Keeps::Rows { columns } | Keeps::Top { columns, .. } | Keeps::Recursion { columns, .. } => {
            (plain(&blocks, columns), None)
        }
        Keeps::Partitions {
            by,
            windows,
            filter,
            columns,
        } => {
            let read = read(by, windows, filter.as_ref(), columns);
            (computed(&blocks, &read, windows, ""), None)
        }
        Keeps::Groups { keys, aggregates } => {
            let of_rows = blocks.iter().map(|block| {
                let names = block.names();
                let keys = keys.iter().map(|(id, key)| (*id, key));
                let added = aggregates.iter().filter(|one| one.adds());
                let arguments = added.filter_map(|one| Some((one.column, one.argument.as_ref()?)));
                let list: Vec<String> = keys
                    .chain(arguments)
                    .map(|(id, expression)| {
                        format!("{} AS {}", expression.sql(names), stage_column(id))
                    })
                    .collect();
                block.select(&list)
            });
            let of_rows: Vec<String> = of_rows.collect();
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

/// The SELECT that tells the types of columns of a node.
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

/// What a stage keeps, with the types of [`probes`].
pub fn compile(
    name: &str,
    stage: Stage,
    key: Option<Vec<ColumnId>>,
    (arguments, scales_of): (&Types, &Scales),
    types: &Types,
) -> Compiled {
    let kept = match stage.keeps {
        Keeps::Rows { columns } => Kept::Rows(Rows::new(name, &columns, key, types)),
        Keeps::Partitions {
            by,
            windows,
            filter,
            columns,
        } => {
            let of = (&columns[..], types);
            Kept::Partitions(Partitions::new((name, key), by, windows, filter, of))
        }
        Keeps::Top {
            order,
            rows,
            columns,
        } => Kept::Top(Top::new((name, key), (order, rows), (&columns, types))),
        Keeps::Recursion { columns, is_all } => Kept::Recursion(Recursion::new(
            name,
            (&stage.input, &columns),
            is_all,
            types,
        )),
        Keeps::Groups { keys, aggregates } => {
            let aggregates = aggregates
                .into_iter()
                .map(|aggregate| {
                    let argument = arguments.get(&aggregate.column);
                    let argument = argument.map(|found| found.sql.as_str());
                    let scales = aggregate.argument.as_ref();
                    let scales = scales.and_then(|one| of_expression(one, scales_of));
                    let found = &types[&aggregate.column];
                    let how = carried(&aggregate, (found, argument), scales.as_ref());
                    (aggregate, how)
                })
                .collect();
            Kept::Groups(Groups::new(name, keys, aggregates, types))
        }
    };
    Compiled {
        input: stage.input,
        kept,
    }
}

/// Of a group asks for columns that depend on what it is grouped by and that cannot be grouped by themselves: they are the
/// same in all of its rows.
pub fn without_equality(keeps: &mut Keeps, types: &Types) {
    let Keeps::Groups { keys, aggregates } = keeps else {
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

/// The columns that may be null although they are declared not to be: those of a side of an outer join.
pub fn nullable(node: &Node, found: &mut BTreeSet<ColumnId>) {
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

/// The type of a column that is nothing but another column, which may tell more than the server does.
pub fn copied(expression: &Expression, types: &Types) -> Option<ColumnType> {
    types.get(&expression.as_column()?).cloned()
}
