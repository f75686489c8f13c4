//! Makes the tables of a view, stage by stage: the types of one are asked of the server when those before it are there.

use std::collections::{BTreeMap, BTreeSet};

use egret_postgres::tokio_postgres::Transaction;

use super::describe::{Column, Described, SourceTable, columns};
use super::load::Planned;
use super::unions::align;
use crate::core::analyse::{column_of_stage, stage_column};
use crate::core::compile::{
    Compiled, Kept, compile, copied, nullable, probe, probes, without_equality,
};
use crate::core::expression::{ColumnId, Expression, quoted};
use crate::core::maintain::{ColumnType, Statement, Types, declared, side};
use crate::core::scales::{Scales, add_scales};
use crate::core::sql::{Generator, SourceSql, WEIGHT};
use crate::core::tree::{Keeps, Node, Presentation, Source, Stage};
use crate::error::ViewsError;

/// A view whose tables are there.
#[derive(Clone, Debug)]
pub struct Built {
    /// Its stages.
    pub stages: Vec<Compiled>,
    /// The types of all columns.
    pub types: Types,
    /// What is shown of the last stage.
    pub presentation: Presentation,
    /// Every source as it is named in SQL, without changes.
    pub sources: BTreeMap<Source, SourceSql>,
    /// Whether the query is only computed as a whole.
    pub is_whole: bool,
    /// Whether what it comes to changes as time passes.
    pub has_clock: bool,
}

/// The name of the table of a stage.
pub fn stage_table(view: i64, stage: usize) -> String {
    format!("egret.view_{view}_{stage}")
}

/// The name of the table that takes what changes in the table of a stage, while a refresh goes on.
pub fn sink_table(view: i64, stage: usize) -> String {
    format!("egret.told_{view}_{stage}")
}

/// Finds the types of a plan's columns and makes the tables of its stages where they are not there.
///
/// # Errors
/// What the server says.
pub async fn build(
    transaction: &mut Transaction<'_>,
    view: i64,
    planned: Planned,
    described: &Described,
    makes_tables: bool,
) -> Result<Built, ViewsError> {
    let Planned {
        plan,
        keys,
        is_whole,
        has_clock,
    } = planned;
    let named = described.tables.iter().map(SourceTable::rows_sql);
    let query = is_whole.then(|| format!("({})", described.canonical));
    let mut sources: BTreeMap<Source, SourceSql> = BTreeMap::new();
    for (at, rows) in named.chain(query).enumerate() {
        let source = SourceSql {
            rows,
            changes: None,
            expected: 0,
            is_consolidated: false,
            count: None,
        };
        sources.insert(Source::Table(at), source);
    }
    let mut types = Types::new();
    let mut scales = Scales::new();
    let mut stages: Vec<Compiled> = Vec::new();
    for (at, (mut stage, key)) in plan.stages.into_iter().zip(keys).enumerate() {
        typed(&mut stage.input, &plan.typed, &types);
        if let Keeps::Recursion { .. } = &stage.keeps {
            let itself = itself(transaction, &stage.input, &sources).await?;
            sources.insert(Source::Itself, itself);
        }
        align(transaction, &mut stage.input, &sources).await?;
        scan_types(&stage.input, described, &mut types);
        without_equality(&mut stage.keeps, &types);
        let arguments = stage_types(transaction, &stage, &sources, &mut types).await?;
        sources.remove(&Source::Itself);
        check_compared(&stage.keeps, &plan.compared, &types)?;
        let name = stage_table(view, at);
        add_scales(&stage, &mut types, &mut scales);
        let compiled = compile(&name, stage, key, (&arguments, &scales), &types);
        if makes_tables {
            for statement in compiled.table().create() {
                transaction.batch_execute(&statement).await?;
            }
            let sink = sink(view, at, &compiled, &types);
            transaction.batch_execute(&sink).await?;
        }
        let source = SourceSql {
            rows: name,
            changes: None,
            expected: 0,
            is_consolidated: false,
            count: compiled.count(),
        };
        sources.insert(Source::Stage(at), source);
        stages.push(compiled);
    }
    Ok(Built {
        stages,
        types,
        presentation: plan.presentation,
        sources,
        is_whole,
        has_clock,
    })
}

/// What a recursion reads of itself while the types of its columns are not known: none, of those that it begins with.
async fn itself(
    transaction: &mut Transaction<'_>,
    input: &Node,
    sources: &BTreeMap<Source, SourceSql>,
) -> Result<SourceSql, ViewsError> {
    let mut first = side(input, 0);
    align(transaction, &mut first, sources).await?;
    let kept = input.columns();
    let found = columns(transaction, &probe(&first, &kept, sources)).await?;
    let nulls = found.iter().zip(&kept).map(|(column, id)| {
        let collation = column.collation.iter();
        let collation: String = collation.map(|one| format!(" COLLATE {one}")).collect();
        format!(
            "NULL::{}{collation} AS {}",
            column.sql_type,
            stage_column(*id)
        )
    });
    let nulls: Vec<String> = nulls.collect();
    Ok(SourceSql {
        rows: format!("(SELECT {})", nulls.join(", ")),
        changes: None,
        expected: 0,
        is_consolidated: false,
        count: None,
    })
}

/// Gives columns that are null the types that they are to have.
fn typed(node: &mut Node, like: &[(ColumnId, ColumnId)], types: &Types) {
    if let Node::Project { columns, .. } = node {
        for (id, expression) in columns {
            let of = like.iter().find(|(null, _)| null == id);
            if let Some(found) = of.and_then(|(_, like)| types.get(like)) {
                *expression = Expression::constant("NULL").cast(&found.sql);
            }
        }
    }
    for input in node.inputs_mut() {
        typed(input, like, types);
    }
}

/// Refuses groups that are looked up by what has no equality, or one that depends on a collation.
fn check_compared(
    keeps: &Keeps,
    compared: &[(ColumnId, bool)],
    types: &Types,
) -> Result<(), ViewsError> {
    let columns = keeps.columns();
    let mut compared = compared.iter().filter(|(id, _)| columns.contains(id));
    match compared.all(|(id, is_hashed)| {
        let found = types.get(id);
        found.is_some_and(|one| one.equality.is_some() && (one.has_hash || !is_hashed))
    }) {
        true => Ok(()),
        false => Err(ViewsError::Unsupported {
            what: "a subquery that is compared with the rows around it by a type without an order or a hash".to_owned(),
            advice: "write it as a join".to_owned(),
        }),
    }
}

/// Makes the table that takes what changes in a stage. It is empty but for the time of a refresh.
fn sink(view: i64, stage: usize, compiled: &Compiled, types: &Types) -> String {
    let columns = compiled.seen().into_iter();
    let list: String = columns
        .map(|id| format!("{} {}, ", stage_column(id), declared(types, id)))
        .collect();
    let name = sink_table(view, stage);
    format!("CREATE UNLOGGED TABLE {name} ({list}{WEIGHT} bigint)")
}

/// The types of the columns that a node scans.
fn scan_types(node: &Node, described: &Described, types: &mut Types) {
    let mut scans = Vec::new();
    node.scans(&mut scans);
    for (source, columns) in scans {
        let Source::Table(at) = source else {
            for (id, name) in columns {
                let kept = column_of_stage(name).filter(|kept| kept != id);
                if let Some(found) = kept.and_then(|kept| types.get(&kept)).cloned() {
                    types.insert(*id, found);
                }
            }
            continue;
        };
        let table = described.tables.get(at);
        let known = table.map_or(&described.columns, |table| &table.columns);
        for (id, name) in columns {
            let found = known.iter().find(|column| column.name == *name);
            if let Some(column) = found {
                types.insert(*id, type_of(column));
            }
        }
    }
}

/// Adds the types of what a stage keeps; returns those of the arguments of its aggregates, by their columns.
async fn stage_types(
    transaction: &mut Transaction<'_>,
    stage: &Stage,
    sources: &BTreeMap<Source, SourceSql>,
    types: &mut Types,
) -> Result<Types, ViewsError> {
    let mut may_be_null = BTreeSet::new();
    nullable(&stage.input, &mut may_be_null);
    for id in &may_be_null {
        if let Some(found) = types.get_mut(id) {
            found.is_not_null = false;
        }
    }
    let (of_rows, of_groups) = probes(stage, sources);
    let mut found = probed(transaction, &of_rows).await?;
    match &stage.keeps {
        Keeps::Rows { .. }
        | Keeps::Partitions { .. }
        | Keeps::Top { .. }
        | Keeps::Recursion { .. } => {
            for (id, found) in found {
                types.entry(id).or_insert(found);
            }
            Ok(Types::new())
        }
        Keeps::Groups { keys, aggregates } => {
            for (id, key) in keys {
                let of_column = copied(key, types);
                if let Some(found) = of_column.or_else(|| found.remove(id)) {
                    types.insert(*id, found);
                }
            }
            let calls = of_groups.unwrap_or_default();
            let mut results = match aggregates.is_empty() {
                true => Types::new(),
                false => probed(transaction, &calls).await?,
            };
            for aggregate in aggregates {
                if let Some(found) = results.remove(&aggregate.column) {
                    types.insert(aggregate.column, found);
                }
            }
            Ok(found)
        }
    }
}

async fn probed(transaction: &mut Transaction<'_>, sql: &str) -> Result<Types, ViewsError> {
    let columns = columns(transaction, sql).await?;
    let typed = columns
        .iter()
        .filter_map(|column| Some((column_of_stage(&column.name)?, type_of(column))));
    Ok(typed.collect())
}

fn type_of(column: &Column) -> ColumnType {
    ColumnType {
        sql: column.sql_type.clone(),
        collation: column.collation.clone(),
        equality: column.equality.clone(),
        has_hash: column.has_hash,
        is_exact: column.is_exact,
        is_not_null: column.is_not_null,
    }
}

/// The statement of one stage.
pub struct Step {
    /// Which stage.
    pub stage: usize,
    /// The statement.
    pub statement: Statement,
    /// The table that takes what changes in it, where a later stage or another view reads that.
    pub sink: Option<String>,
}

impl Built {
    /// The statements that apply what changed in `sources`, stage by stage. Where others are told what changed in the view,
    /// it `is_told`. No join may come to more than `rows_max`.
    pub fn applying(
        &self,
        view: i64,
        mut sources: BTreeMap<Source, SourceSql>,
        is_told: bool,
        rows_max: Option<u64>,
    ) -> Vec<Step> {
        let mut all = Vec::new();
        for (at, stage) in self.stages.iter().enumerate() {
            let is_last = at + 1 == self.stages.len();
            let mut later = self.stages.iter().skip(at + 1);
            let is_read = later.any(|later| later.input.sources().contains(&Source::Stage(at)));
            let sink = (is_read || is_last && is_told).then(|| sink_table(view, at));
            let Some(statement) = stage.apply(&self.types, &sources, (sink.as_deref(), rows_max))
            else {
                continue;
            };
            let expected = stage.expected(&sources);
            if let Some(source) = sources.get_mut(&Source::Stage(at)) {
                source.changes.clone_from(&sink);
                source.expected = expected;
            }
            all.push(Step {
                stage: at,
                statement,
                sink,
            });
        }
        all
    }

    /// Whether something is asked of all rows of groups of which some have changed.
    pub fn asks(&self) -> bool {
        self.stages.iter().any(|stage| match &stage.kept {
            Kept::Rows(_) => false,
            Kept::Groups(groups) => groups.asks(),
            Kept::Partitions(_) | Kept::Top(_) | Kept::Recursion(_) => true,
        })
    }

    /// Whether there is a recursion in it.
    pub fn recurs(&self) -> bool {
        let mut stages = self.stages.iter();
        stages.any(|stage| matches!(stage.kept, Kept::Recursion(_)))
    }

    /// Whether nothing is computed of the changes of a source before a stage brings together those that take each other away:
    /// then that need not be done first. An expression may fail for a row that has come and gone.
    pub fn is_plain(&self, source: Source) -> bool {
        let stages = self.stages.iter();
        let mut reading = stages.filter(|stage| stage.input.sources().contains(&source));
        match (reading.next(), reading.next()) {
            (Some(stage), None) => {
                let are_plain = match &stage.kept {
                    Kept::Rows(_) => true,
                    Kept::Groups(groups) => groups.are_plain(),
                    Kept::Partitions(_) | Kept::Top(_) | Kept::Recursion(_) => false,
                };
                are_plain && stage.input.is_plain()
            }
            _ => false,
        }
    }

    /// The SELECT of the view that users read.
    pub fn shown(&self) -> String {
        let mut generator = Generator::new(&self.sources);
        let mut blocks = generator.rows(&self.presentation.node);
        let block = blocks.remove(0);
        let columns = self.presentation.columns.iter();
        let list: Vec<String> = columns
            .map(|(name, id)| format!("{} AS {}", block.names()[id], quoted(name)))
            .collect();
        let names = block.names().clone();
        let mut sql = match block.is_weighted() {
            true => block.select_each(&list),
            false => block.select(&list),
        };
        let order = self.presentation.order.iter();
        let order: Vec<String> = order
            .map(|(id, how)| format!("{}{how}", names[id]))
            .collect();
        if !order.is_empty() {
            sql.push_str(" ORDER BY ");
            sql.push_str(&order.join(", "));
        }
        sql
    }

    /// Whether all columns that users see have values of which it can be said that they are equal.
    pub fn has_equality(&self) -> bool {
        let mut shown = self.presentation.columns.iter();
        // One that is computed when it is read has no type here.
        shown.all(|(_, id)| {
            self.types
                .get(id)
                .is_some_and(|found| found.equality.is_some())
        })
    }

    /// The tables of its stages, as text.
    pub fn shape(&self) -> String {
        let tables = self.stages.iter().flat_map(|stage| stage.table().create());
        tables.collect::<Vec<_>>().join(";\n")
    }

    /// The columns of a source that the stages read, by name.
    pub fn columns_of(&self, source: Source) -> BTreeSet<String> {
        let mut scans = Vec::new();
        for stage in &self.stages {
            stage.input.scans(&mut scans);
        }
        let of_source = scans.into_iter().filter(|(read, _)| *read == source);
        let columns = of_source.flat_map(|(_, columns)| columns);
        columns.map(|(_, name)| name.clone()).collect()
    }

    /// Makes an index on the storage of the last stage, of columns that users know by these names.
    ///
    /// # Errors
    /// [`ViewsError::Invalid`] for a column that is not there, or is computed from what is kept.
    pub fn index(&self, columns: &[String]) -> Result<String, ViewsError> {
        let stored: BTreeSet<ColumnId> = match self.stages.last() {
            Some(last) => last.seen().into_iter().collect(),
            None => BTreeSet::new(),
        };
        let refuse = |reason: String| {
            Err(ViewsError::Invalid {
                what: "index",
                reason,
            })
        };
        let mut names = Vec::new();
        for column in columns {
            let mut shown = self.presentation.columns.iter();
            let Some((_, id)) = shown.find(|(name, _)| name == column) else {
                return refuse(format!("the view has no column `{column}`"));
            };
            if !stored.contains(id) {
                return refuse(format!(
                    "column `{column}` is computed from what is kept when it is read"
                ));
            }
            names.push(stage_column(*id));
        }
        let Some((_, table)) = self.storage() else {
            return refuse("nothing is kept of this view".to_owned());
        };
        Ok(format!("CREATE INDEX ON {table} ({})", names.join(", ")))
    }

    /// The last stage with its table.
    fn storage(&self) -> Option<(usize, &str)> {
        let (at, last) = self.stages.iter().enumerate().next_back()?;
        Some((at, &last.table().name))
    }
}
