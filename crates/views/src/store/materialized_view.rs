//! A view with the tables of its stages, and the statements that maintain these.

use std::collections::{BTreeMap, BTreeSet};

use crate::core::column_types::Types;
use crate::core::compile::{CompiledStage, StageStorage};
use crate::core::expression::{ColumnId, quote_identifier, stage_column_name};
use crate::core::maintain::statement::Statement;
use crate::core::sql::{Generator, SourceSql, WEIGHT};
use crate::core::tree::{Presentation, Source};
use crate::error::ViewsError;

/// A view with the tables of its stages.
#[derive(Clone, Debug)]
pub struct MaterializedView {
    pub stages: Vec<CompiledStage>,
    /// Types of all columns of the plan.
    pub types: Types,
    /// How the rows of the last stage are presented.
    pub presentation: Presentation,
    /// The SQL of each source, without changes.
    pub sources: BTreeMap<Source, SourceSql>,
    /// Whether the query can only be recomputed as a whole.
    pub is_full_only: bool,
    /// Whether the query depends on the clock.
    pub has_clock: bool,
}

/// The maintenance statement of one stage.
pub(crate) struct StageStatement {
    /// Index of the stage in the view.
    pub stage: usize,
    pub statement: Statement,
    /// Table that receives its changes, if a later stage or another view reads them.
    pub sink: Option<String>,
}

/// Name of the table of a stage.
pub(crate) fn stage_table(view: i64, stage: usize) -> String {
    format!("egret.view_{view}_{stage}")
}

/// Name of the table that receives the changes of a stage during a refresh.
pub(crate) fn sink_table(view: i64, stage: usize) -> String {
    format!("egret.told_{view}_{stage}")
}

impl MaterializedView {
    /// The statements that apply the changes in `sources`, stage by stage. `has_readers`: other
    /// views or followers need the changes of the view. No join may yield more than `rows_max`
    /// rows.
    pub(crate) fn apply_changes(
        &self,
        view: i64,
        mut sources: BTreeMap<Source, SourceSql>,
        has_readers: bool,
        rows_max: Option<u64>,
    ) -> Vec<StageStatement> {
        let mut stage_statements = Vec::new();
        for (stage_index, stage) in self.stages.iter().enumerate() {
            let is_last = stage_index + 1 == self.stages.len();
            let mut later = self.stages.iter().skip(stage_index + 1);
            let is_read =
                later.any(|later| later.input.sources().contains(&Source::Stage(stage_index)));
            let sink = (is_read || is_last && has_readers).then(|| sink_table(view, stage_index));
            let Some(statement) = stage.apply(&self.types, &sources, sink.as_deref(), rows_max)
            else {
                continue;
            };
            let expected_changes = stage.expected_changes(&sources);
            if let Some(source) = sources.get_mut(&Source::Stage(stage_index)) {
                source.changes.clone_from(&sink);
                source.expected_changes = expected_changes;
            }
            stage_statements.push(StageStatement { stage: stage_index, statement, sink });
        }
        stage_statements
    }

    /// Whether it reads all rows of groups in which only some have changed.
    pub(crate) fn reads_whole_groups(&self) -> bool {
        self.stages.iter().any(|stage| match &stage.storage {
            StageStorage::Rows(_) => false,
            StageStorage::Groups(groups) => groups.may_recompute(),
            StageStorage::Partitions(_) | StageStorage::TopK(_) | StageStorage::Recursion(_) => {
                true
            }
        })
    }

    /// Whether a stage is a recursion.
    pub(crate) fn has_recursion(&self) -> bool {
        let mut stages = self.stages.iter();
        stages.any(|stage| matches!(stage.storage, StageStorage::Recursion(_)))
    }

    /// Whether a stage consolidates the changes of a source before anything is computed from them.
    /// If not, they are consolidated first: an expression may fail for a row that was inserted and
    /// deleted since.
    pub(crate) fn consolidates_changes_of(&self, source: Source) -> bool {
        let stages = self.stages.iter();
        let mut reading = stages.filter(|stage| stage.input.sources().contains(&source));
        match (reading.next(), reading.next()) {
            (Some(stage), None) => {
                let are_plain = match &stage.storage {
                    StageStorage::Rows(_) => true,
                    StageStorage::Groups(groups) => groups.has_plain_terms(),
                    StageStorage::Partitions(_)
                    | StageStorage::TopK(_)
                    | StageStorage::Recursion(_) => false,
                };
                are_plain && stage.input.is_column_mapping()
            }
            _ => false,
        }
    }

    /// The SELECT of the PostgreSQL view that users read.
    pub(crate) fn user_query(&self) -> String {
        let mut generator = Generator::new(&self.sources);
        let mut blocks = generator.rows(&self.presentation.node);
        let block = blocks.remove(0);
        let columns = self.presentation.columns.iter();
        let list: Vec<String> = columns
            .map(|(name, id)| format!("{} AS {}", block.names()[id], quote_identifier(name)))
            .collect();
        let names = block.names().clone();
        let mut sql =
            if block.is_weighted() { block.select_repeated(&list) } else { block.select(&list) };
        let order: Vec<String> = self
            .presentation
            .order
            .iter()
            .map(|(id, direction)| format!("{}{direction}", names[id]))
            .collect();
        if !order.is_empty() {
            sql.push_str(" ORDER BY ");
            sql.push_str(&order.join(", "));
        }
        sql
    }

    /// Whether the types of all columns that users see have an equality.
    pub(crate) fn has_equality(&self) -> bool {
        let mut user_columns = self.presentation.columns.iter();
        // A column that is computed when it is read has no type here.
        user_columns.all(|(_, id)| {
            self.types.get(id).is_some_and(|column_type| column_type.equality.is_some())
        })
    }

    /// The tables of its stages, as text.
    pub(crate) fn storage_definition(&self) -> String {
        let tables = self.stages.iter().flat_map(|stage| stage.table().create_statements());
        tables.collect::<Vec<_>>().join(";\n")
    }

    /// The columns of a source that the stages read, by name.
    pub(crate) fn read_columns(&self, source: Source) -> BTreeSet<String> {
        let mut scans = Vec::new();
        for stage in &self.stages {
            stage.input.collect_scans(&mut scans);
        }
        let source_scans = scans.into_iter().filter(|(read, _)| *read == source);
        let columns = source_scans.flat_map(|(_, columns)| columns);
        columns.map(|(_, name)| name.clone()).collect()
    }

    /// The statement that creates an index on the last stage, by the column names that users see.
    ///
    /// # Errors
    /// [`ViewsError::Invalid`] for a column that does not exist, or is computed when it is read.
    pub(crate) fn create_index_sql(&self, columns: &[String]) -> Result<String, ViewsError> {
        let stored: BTreeSet<ColumnId> = match self.stages.last() {
            Some(last) => last.visible_columns().into_iter().collect(),
            None => BTreeSet::new(),
        };
        let refuse = |reason: String| Err(ViewsError::Invalid { what: "index", reason });
        let mut names = Vec::new();
        for column in columns {
            let mut user_columns = self.presentation.columns.iter();
            let Some((_, id)) = user_columns.find(|(name, _)| name == column) else {
                return refuse(format!("the view has no column `{column}`"));
            };
            if !stored.contains(id) {
                return refuse(format!(
                    "column `{column}` is not stored, but computed when it is read"
                ));
            }
            names.push(stage_column_name(*id));
        }
        let Some((_, table)) = self.last_stage() else {
            return refuse("this view stores no rows".to_owned());
        };
        Ok(format!("CREATE INDEX ON {table} ({})", names.join(", ")))
    }

    /// The last stage with its table.
    fn last_stage(&self) -> Option<(usize, &str)> {
        let (stage_index, last) = self.stages.iter().enumerate().next_back()?;
        Some((stage_index, &last.table().name))
    }

    /// The changes of a view as users see them, computed from those of its last stage: a subquery.
    pub(crate) fn user_changes_sql(&self, sink: &str) -> String {
        let last = Source::Stage(self.stages.len().saturating_sub(1));
        let mut sources = self.sources.clone();
        if let Some(source) = sources.get_mut(&last) {
            source.changes = Some(sink.to_owned());
        }
        let blocks = Generator::new(&sources).changes(&self.presentation.node);
        let selects = blocks.iter().map(|block| {
            let columns = self.presentation.columns.iter();
            let mut list: Vec<String> = columns
                .map(|(name, id)| format!("{} AS {}", block.names()[id], quote_identifier(name)))
                .collect();
            list.push(format!("{} AS {WEIGHT}", block.weight()));
            block.select(&list)
        });
        format!("({})", selects.collect::<Vec<_>>().join(" UNION ALL "))
    }
}
