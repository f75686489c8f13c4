//! Stages that store the rows of WITH RECURSIVE: initial rows and all rows derived from them.
//!
//! With `B` for the initial rows and `S(r)` for the rows that one step derives from rows `r`, the
//! stage stores the least `R` with `R = B + S(R)`. A step is linear in the stage's own rows
//! (`S(r + q) = S(r) + S(q)`), so that the changes are
//!
//! ```text
//! ΔR = T + S_new(ΔR)    where T = ΔB + ΔS(R_old)
//! ```
//!
//! where `ΔS` are the changes of the step by its other tables. With UNION ALL rows are a multiset
//! with weights, and the formula is a recursive query itself. It may not terminate: rows removed in
//! one place may circulate through a cycle added in another. Then there are more rows than allowed,
//! and the stage is recomputed.
//!
//! With UNION a row exists once, and disappears with its last derivation. Rows of a cycle derive
//! each other, so the number of derivations alone does not decide whether a row exists. It is
//! stored nevertheless, as the count of each row: with it, all changes are found by following
//! derivations forward from the changed rows. In one statement
//!
//! 1. *gone* is every row that may have to be deleted: derived from a removed row, or, in the old
//!    state, from a row that is gone;
//! 2. *less* is the change in derivations from rows that are not gone: `T - S_new(gone)`;
//! 3. *back* is every row that is not stored, or is gone, and is derived from remaining rows, by
//!    its count, or in the new state from rows that are back;
//! 4. counts change by *less* and `S_new(back)`: a row whose count becomes 0 is deleted.
//!
//! If equal values may look different, the one that UNION keeps is arbitrary, and so are the rows
//! derived from it: such a stage is recomputed, and the differences are written.

use std::collections::BTreeMap;

use super::delta::Delta;
use super::key::HASH_COLUMN;
use super::rows::RowStage;
use super::statement::Statement;
use super::table::COUNT_COLUMN;
use crate::core::analyse::equalities;
use crate::core::column_types::Types;
use crate::core::expression::{ColumnId, Expression, parse_stage_column, stage_column_name};
use crate::core::sql::{Block, Generator, SourceSql, WEIGHT, union_all};
use crate::core::tree::{Node, Source};

/// Common table expression of the rows that the recursion has reached.
const REACHED: &str = "egret_reached";

/// The rows of its last step, by a name that may occur several times.
const WORKING: &str = "egret_working";

/// Types whose values always fit into an index entry.
const SHORT_TYPES: [&str; 8] = [
    "smallint",
    "integer",
    "bigint",
    "uuid",
    "date",
    "oid",
    "timestamp without time zone",
    "timestamp with time zone",
];

/// A stage of a recursive query.
#[derive(Clone, Debug)]
pub struct RecursionStage {
    /// The stored rows, with their table.
    pub rows: RowStage,
    mode: RecursionMode,
}

/// How the rows of a recursion are maintained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecursionMode {
    /// UNION ALL: a row is there as often as it is derived.
    UnionAll,
    /// UNION: a row is there once.
    Union,
    /// UNION with equal values that look different: the stage is recomputed.
    Recompute,
}

/// Operators of a recursion, and all sources including the stage itself.
type RecursionInput<'a> = (&'a Node, &'a BTreeMap<Source, SourceSql>);

impl RecursionStage {
    /// A stage with its table.
    pub fn new(
        name: &str,
        input: &Node,
        columns: &[ColumnId],
        is_all: bool,
        types: &Types,
    ) -> Self {
        let are_exact = columns.iter().all(|id| types[id].is_exact);
        let mode = match (is_all, are_exact) {
            (true, _) => RecursionMode::UnionAll,
            (false, true) => RecursionMode::Union,
            (false, false) => RecursionMode::Recompute,
        };
        let mut rows = RowStage::new(name, columns, None, types);
        rows.shows_rows_once = mode == RecursionMode::Union;
        let is_short = |id: &ColumnId| {
            let column_type = types.get(id);
            column_type.is_some_and(|found| SHORT_TYPES.contains(&found.sql.as_str()))
        };
        let lookup_column = lookup_columns(input).into_iter().find(is_short);
        rows.table.second_index = lookup_column.map(stage_column_name);
        Self { rows, mode }
    }

    /// The column with the number of copies of a row; none if each row is there once.
    pub(crate) fn count_column(&self) -> Option<&'static str> {
        (self.mode == RecursionMode::UnionAll).then_some(COUNT_COLUMN)
    }

    /// Whether the stage is recomputed after each change.
    pub(crate) fn is_recomputed(&self) -> bool {
        self.mode == RecursionMode::Recompute
    }

    /// Description of the maintenance, for explanations.
    pub(crate) fn describe_maintenance(&self) -> &'static str {
        match self.mode {
            RecursionMode::UnionAll => {
                "rows of a recursion, each distinct one stored once with a count: updated \
                 incrementally"
            }
            RecursionMode::Union => {
                "rows of a recursion, each with the number of its derivations: updated \
                 incrementally"
            }
            RecursionMode::Recompute => {
                "rows of a recursion, recomputed on each change: equal values may look different"
            }
        }
    }

    /// The sources, with the stage itself read from an item of FROM, and a column of it as the
    /// weight.
    pub(crate) fn with_recursion_source(
        &self,
        sources: &BTreeMap<Source, SourceSql>,
        rows: &str,
        count: Option<&'static str>,
    ) -> BTreeMap<Source, SourceSql> {
        let mut sources = sources.clone();
        let recursion = SourceSql {
            rows: rows.to_owned(),
            changes: None,
            expected_changes: 0,
            is_consolidated: false,
            count_column: count,
        };
        sources.insert(Source::Recursion, recursion);
        sources
    }

    /// Maintains the table. `changes` are those of the input.
    pub fn apply(
        &self,
        types: &Types,
        input: &Node,
        sources: &BTreeMap<Source, SourceSql>,
        changes: &[Block],
        delta: &Delta<'_>,
    ) -> Statement {
        let row_delta = Delta {
            is_consolidated: false,
            // The number of derived changes is not known.
            expected: 0,
            ..*delta
        };
        let input_changes = union_all(changes, &self.rows.columns);
        match self.mode {
            RecursionMode::UnionAll => {
                let from = self.select_weighted_closure(types, (input, sources), &input_changes);
                self.rows.apply(types, &from, &row_delta)
            }
            RecursionMode::Union => {
                self.apply_counted(types, (input, sources), &input_changes, &row_delta)
            }
            RecursionMode::Recompute => self.rebuild(types, (input, sources), delta.sink),
        }
    }

    /// Rows with weights, and all rows derived from them.
    fn select_weighted_closure(
        &self,
        types: &Types,
        (input, sources): RecursionInput<'_>,
        initial_rows: &str,
    ) -> String {
        let sources = self.with_recursion_source(sources, WORKING, Some(WEIGHT));
        let step = self.union_blocks(&Generator::new(&sources).rows(&recursion_side(input, 1)));
        let list = format!("{}, d.{WEIGHT}::bigint AS {WEIGHT}", self.typed_columns(types));
        format!(
            "SELECT {}, {WEIGHT} FROM (WITH RECURSIVE {REACHED} AS (SELECT {list} FROM ({initial_rows}) AS d UNION ALL \
             SELECT {list} FROM (WITH {WORKING} AS (SELECT * FROM {REACHED}) {step}) AS d) SELECT * FROM {REACHED}) AS egret_multiplied",
            self.rows.column_list(""),
        )
    }

    /// Rows and all rows derived from them, each once. Only rows `d` that satisfy `condition` are
    /// included.
    fn select_closure(
        &self,
        types: &Types,
        (input, sources): RecursionInput<'_>,
        initial_rows: &str,
        condition: &str,
    ) -> String {
        let sources = self.with_recursion_source(sources, WORKING, None);
        let step = self.union_blocks(&Generator::new(&sources).rows(&recursion_side(input, 1)));
        let typed = self.typed_columns(types);
        format!(
            "WITH RECURSIVE {REACHED} AS (SELECT {typed} FROM ({initial_rows}) AS d{condition} UNION \
             SELECT {typed} FROM (WITH {WORKING} AS (SELECT * FROM {REACHED}) {step}) AS d{condition}) SELECT * FROM {REACHED}"
        )
    }

    /// Maintains the counts of a UNION, as the module describes.
    fn apply_counted(
        &self,
        types: &Types,
        recursion_input: RecursionInput<'_>,
        input_changes: &str,
        delta: &Delta<'_>,
    ) -> Statement {
        let (input, sources) = recursion_input;
        let (list, table) = (self.rows.column_list(""), &self.rows.table.name);
        let derived_from_gone = self.select_step(recursion_input, "egret_gone");
        let derived_from_back = self.select_step(recursion_input, "egret_back");
        let same_row = format!(
            "s.{HASH_COLUMN} = {} AND {}",
            self.rows.hash_sql(types, "d."),
            self.rows.same_row_condition(types)
        );
        let old_sources = self.with_recursion_source(sources, WORKING, None);
        let old_step =
            self.union_blocks(&Generator::new(&old_sources).rows_before(&recursion_side(input, 1)));
        let stored_row = format!(
            "SELECT {}, s.{COUNT_COLUMN}, s.ctid AS egret_place",
            self.rows.column_list("s.")
        );
        let seeds = format!(
            "SELECT {list} FROM (SELECT {list}, {WEIGHT} FROM egret_less UNION ALL SELECT {list}, {COUNT_COLUMN} FROM egret_gone) AS egret_all \
             GROUP BY {list} HAVING sum({WEIGHT}) > 0"
        );
        let not_left_condition = format!(
            " WHERE NOT EXISTS (SELECT FROM {table} AS s WHERE {same_row} AND s.ctid NOT IN (SELECT egret_place FROM egret_gone))"
        );
        let back = format!(
            "({})",
            self.select_closure(types, recursion_input, &seeds, &not_left_condition)
        );
        let exceeds_limit = |name: &str| {
            let rows_max = delta.rows_max?;
            Some(format!("(SELECT count(*) FROM {name}) > {rows_max}"))
        };
        let too_many_condition = exceeds_limit("egret_turned")
            .zip(exceeds_limit("egret_back"))
            .map(|(turned, back)| format!("({turned} OR {back})"));
        let limit_condition: String =
            too_many_condition.iter().map(|is_over| format!(" WHERE NOT {is_over}")).collect();
        let ctes = [
            format!("egret_turned AS MATERIALIZED {}", delta.limit_rows(input_changes)),
            format!(
                "egret_gone AS MATERIALIZED (WITH RECURSIVE {REACHED} AS ( \
                 {stored_row} FROM (SELECT DISTINCT {list} FROM egret_turned WHERE {WEIGHT} < 0) AS d JOIN {table} AS s ON {same_row} UNION \
                 {stored_row} FROM (WITH {WORKING} AS (SELECT * FROM {REACHED}) {old_step}) AS d JOIN {table} AS s ON {same_row}) \
                 SELECT * FROM {REACHED})"
            ),
            format!(
                "egret_less AS MATERIALIZED (SELECT {list}, {WEIGHT} FROM egret_turned \
                 UNION ALL SELECT {list}, -{WEIGHT} FROM ({derived_from_gone}) AS d)"
            ),
            format!("egret_back AS MATERIALIZED {}", delta.limit_rows(&back)),
        ];
        let from = format!(
            "SELECT * FROM (SELECT {list}, {WEIGHT} FROM egret_less UNION ALL SELECT {list}, {WEIGHT} FROM ({derived_from_back}) AS d) AS egret_more{limit_condition}"
        );
        let mut statement = self.rows.apply(types, &from, delta);
        statement.ctes.splice(0..0, ctes);
        let conditions = statement.too_many_condition.take().zip(too_many_condition);
        statement.too_many_condition =
            conditions.map(|(first, second)| format!("{second} OR {first}"));
        statement
    }

    /// The rows that one step derives from those of an item of FROM, each taken once.
    fn select_step(&self, (input, sources): RecursionInput<'_>, rows: &str) -> String {
        let sources = self.with_recursion_source(sources, rows, None);
        self.union_blocks(&Generator::new(&sources).rows(&recursion_side(input, 1)))
    }

    fn union_blocks(&self, blocks: &[Block]) -> String {
        union_all(blocks, &self.rows.columns)
    }

    /// The columns of a row `d`, cast to their types: both parts of a recursive query must have the
    /// same types.
    fn typed_columns(&self, types: &Types) -> String {
        let columns = self.rows.columns.iter().map(|id| {
            let (name, column_type) = (stage_column_name(*id), &types[id]);
            let collation: String =
                column_type.collation.iter().map(|name| format!(" COLLATE {name}")).collect();
            format!("CAST(d.{name} AS {}){collation} AS {name}", column_type.sql)
        });
        columns.collect::<Vec<_>>().join(", ")
    }

    /// Makes the table equal to its input, whatever it contains.
    pub fn rebuild(
        &self,
        types: &Types,
        (input, sources): RecursionInput<'_>,
        sink: Option<&str>,
    ) -> Statement {
        let initial_rows =
            self.union_blocks(&Generator::new(sources).rows(&recursion_side(input, 0)));
        let recursion_input = (input, sources);
        let list = self.rows.column_list("");
        match self.mode {
            RecursionMode::UnionAll => {
                let new_rows = self.select_weighted_closure(types, recursion_input, &initial_rows);
                self.rows.rebuild(types, &new_rows, sink)
            }
            RecursionMode::Union => {
                let closure = self.select_closure(types, recursion_input, &initial_rows, "");
                let derived = self.select_step(recursion_input, "egret_closed");
                let now = format!(
                    "SELECT {list}, {WEIGHT} FROM ({initial_rows}) AS d UNION ALL SELECT {list}, {WEIGHT} FROM ({derived}) AS d"
                );
                let mut statement = self.rows.rebuild(types, &now, sink);
                let closure_cte = format!("egret_closed AS MATERIALIZED ({closure})");
                statement.ctes.insert(0, closure_cte);
                statement
            }
            RecursionMode::Recompute => {
                let every = self.select_closure(types, recursion_input, &initial_rows, "");
                let now =
                    format!("SELECT {list}, 1::bigint AS {WEIGHT} FROM ({every}) AS egret_closed");
                self.rows.rebuild(types, &now, sink)
            }
        }
    }
}

/// The columns of a recursion that its step equates with columns of other tables: changes of those
/// tables are joined with the stage by these.
fn lookup_columns(input: &Node) -> Vec<ColumnId> {
    let mut scans = Vec::new();
    input.collect_scans(&mut scans);
    let recursion_scans = scans.iter().filter(|(source, _)| *source == Source::Recursion);
    let columns: Vec<&(ColumnId, String)> =
        recursion_scans.flat_map(|(_, columns)| *columns).collect();
    let mut conditions = Vec::new();
    collect_conditions(input, &mut conditions);
    let sides = conditions.into_iter().flat_map(equalities).flat_map(|(left, right)| [left, right]);
    let lookup_columns = sides.filter(|side| !side.is_text).filter_map(|side| {
        let (_, name) = columns.iter().find(|(id, _)| Some(*id) == side.column)?;
        parse_stage_column(name)
    });
    lookup_columns.collect()
}

fn collect_conditions<'a>(node: &'a Node, conditions: &mut Vec<&'a Expression>) {
    if let Node::Filter { condition, .. } | Node::Join { condition, .. } = node {
        conditions.push(condition);
    }
    for input in node.inputs() {
        collect_conditions(input, conditions);
    }
}

/// One input of a recursion: the initial rows (0), or those derived from the stage itself (1).
pub(crate) fn recursion_side(input: &Node, index: usize) -> Node {
    match input {
        Node::UnionAll { inputs, columns } => Node::UnionAll {
            inputs: inputs.get(index).cloned().into_iter().collect(),
            columns: columns.clone(),
        },
        other => other.clone(),
    }
}
