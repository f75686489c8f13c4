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
use super::key::HASH;
use super::rows::RowStage;
use super::statement::Statement;
use super::table::COUNT;
use crate::core::analyse::equalities;
use crate::core::column_types::Types;
use crate::core::expression::{ColumnId, Expression, column_of_stage, stage_column};
use crate::core::sql::{Block, Generator, SourceSql, WEIGHT, union};
use crate::core::tree::{Node, Source};

/// Common table expression of the rows that the recursion has reached.
const REACHED: &str = "egret_reached";

/// The rows of its last step, by a name that may occur several times.
const WORKING: &str = "egret_working";

/// Types whose values always fit into an index entry.
const SHORT: [&str; 8] = [
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
    how: RecursionMode,
}

/// How the rows of a recursion are maintained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecursionMode {
    /// UNION ALL: a row is there as often as it is derived.
    Each,
    /// UNION: a row is there once.
    Once,
    /// UNION with equal values that look different: the stage is recomputed.
    Anew,
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
        let how = match (is_all, are_exact) {
            (true, _) => RecursionMode::Each,
            (false, true) => RecursionMode::Once,
            (false, false) => RecursionMode::Anew,
        };
        let mut rows = RowStage::new(name, columns, None, types);
        rows.is_once = how == RecursionMode::Once;
        let is_short = |id: &ColumnId| {
            let found = types.get(id);
            found.is_some_and(|found| SHORT.contains(&found.sql.as_str()))
        };
        let looked_up = looked_up(input).into_iter().find(is_short);
        rows.table.also_indexed = looked_up.map(stage_column);
        Self { rows, how }
    }

    /// The column with the number of copies of a row; none if each row is there once.
    pub fn count(&self) -> Option<&'static str> {
        (self.how == RecursionMode::Each).then_some(COUNT)
    }

    /// Whether the stage is recomputed after each change.
    pub(crate) fn is_anew(&self) -> bool {
        self.how == RecursionMode::Anew
    }

    /// Description of the maintenance, for explanations.
    pub fn keeps(&self) -> &'static str {
        match self.how {
            RecursionMode::Each => {
                "rows of a recursion, each distinct one stored once with a count: updated \
                 incrementally"
            }
            RecursionMode::Once => {
                "rows of a recursion, each with the number of its derivations: updated \
                 incrementally"
            }
            RecursionMode::Anew => {
                "rows of a recursion, recomputed on each change: equal values may look different"
            }
        }
    }

    /// The sources, with the stage itself read from an item of FROM, and a column of it as the
    /// weight.
    pub fn reading(
        &self,
        sources: &BTreeMap<Source, SourceSql>,
        rows: &str,
        count: Option<&'static str>,
    ) -> BTreeMap<Source, SourceSql> {
        let mut sources = sources.clone();
        let itself = SourceSql {
            rows: rows.to_owned(),
            changes: None,
            expected: 0,
            is_consolidated: false,
            count,
        };
        sources.insert(Source::Itself, itself);
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
        let differing = Delta {
            is_consolidated: false,
            // The number of derived changes is not known.
            expected: 0,
            ..*delta
        };
        let turned = union(changes, &self.rows.columns);
        match self.how {
            RecursionMode::Each => {
                let from = self.multiplied(types, (input, sources), &turned);
                self.rows.apply(types, &from, &differing)
            }
            RecursionMode::Once => self.counted(types, (input, sources), &turned, &differing),
            RecursionMode::Anew => self.rebuild(types, (input, sources), delta.sink),
        }
    }

    /// Rows with weights, and all rows derived from them.
    fn multiplied(
        &self,
        types: &Types,
        (input, sources): RecursionInput<'_>,
        first: &str,
    ) -> String {
        let sources = self.reading(sources, WORKING, Some(WEIGHT));
        let step = self.union(&Generator::new(&sources).rows(&side(input, 1)));
        let list = format!("{}, d.{WEIGHT}::bigint AS {WEIGHT}", self.typed(types));
        format!(
            "SELECT {}, {WEIGHT} FROM (WITH RECURSIVE {REACHED} AS (SELECT {list} FROM ({first}) AS d UNION ALL \
             SELECT {list} FROM (WITH {WORKING} AS (SELECT * FROM {REACHED}) {step}) AS d) SELECT * FROM {REACHED}) AS egret_multiplied",
            self.rows.list(""),
        )
    }

    /// Rows and all rows derived from them, each once. Only rows `d` that satisfy `condition` are
    /// included.
    fn closed(
        &self,
        types: &Types,
        (input, sources): RecursionInput<'_>,
        first: &str,
        condition: &str,
    ) -> String {
        let sources = self.reading(sources, WORKING, None);
        let step = self.union(&Generator::new(&sources).rows(&side(input, 1)));
        let typed = self.typed(types);
        format!(
            "WITH RECURSIVE {REACHED} AS (SELECT {typed} FROM ({first}) AS d{condition} UNION \
             SELECT {typed} FROM (WITH {WORKING} AS (SELECT * FROM {REACHED}) {step}) AS d{condition}) SELECT * FROM {REACHED}"
        )
    }

    /// Maintains the counts of a UNION, as the module describes.
    fn counted(
        &self,
        types: &Types,
        read: RecursionInput<'_>,
        turned: &str,
        delta: &Delta<'_>,
    ) -> Statement {
        let (input, sources) = read;
        let (list, table) = (self.rows.list(""), &self.rows.table.name);
        let of_gone = self.step_of(read, "egret_gone");
        let of_back = self.step_of(read, "egret_back");
        let kept = format!(
            "s.{HASH} = {} AND {}",
            self.rows.hash(types, "d."),
            self.rows.same(types)
        );
        let before = self.reading(sources, WORKING, None);
        let before = self.union(&Generator::new(&before).rows_before(&side(input, 1)));
        let found = format!(
            "SELECT {}, s.{COUNT}, s.ctid AS egret_place",
            self.rows.list("s.")
        );
        let seeds = format!(
            "SELECT {list} FROM (SELECT {list}, {WEIGHT} FROM egret_less UNION ALL SELECT {list}, {COUNT} FROM egret_gone) AS egret_all \
             GROUP BY {list} HAVING sum({WEIGHT}) > 0"
        );
        let is_not_left = format!(
            " WHERE NOT EXISTS (SELECT FROM {table} AS s WHERE {kept} AND s.ctid NOT IN (SELECT egret_place FROM egret_gone))"
        );
        let back = format!("({})", self.closed(types, read, &seeds, &is_not_left));
        let over = |name: &str| {
            let most = delta.rows_max?;
            Some(format!("(SELECT count(*) FROM {name}) > {most}"))
        };
        let is_over = over("egret_turned")
            .zip(over("egret_back"))
            .map(|(turned, back)| format!("({turned} OR {back})"));
        let within: String = is_over
            .iter()
            .map(|is_over| format!(" WHERE NOT {is_over}"))
            .collect();
        let with = [
            format!("egret_turned AS MATERIALIZED {}", delta.limited(turned)),
            format!(
                "egret_gone AS MATERIALIZED (WITH RECURSIVE {REACHED} AS ( \
                 {found} FROM (SELECT DISTINCT {list} FROM egret_turned WHERE {WEIGHT} < 0) AS d JOIN {table} AS s ON {kept} UNION \
                 {found} FROM (WITH {WORKING} AS (SELECT * FROM {REACHED}) {before}) AS d JOIN {table} AS s ON {kept}) \
                 SELECT * FROM {REACHED})"
            ),
            format!(
                "egret_less AS MATERIALIZED (SELECT {list}, {WEIGHT} FROM egret_turned \
                 UNION ALL SELECT {list}, -{WEIGHT} FROM ({of_gone}) AS d)"
            ),
            format!("egret_back AS MATERIALIZED {}", delta.limited(&back)),
        ];
        let from = format!(
            "SELECT * FROM (SELECT {list}, {WEIGHT} FROM egret_less UNION ALL SELECT {list}, {WEIGHT} FROM ({of_back}) AS d) AS egret_more{within}"
        );
        let mut statement = self.rows.apply(types, &from, delta);
        statement.with.splice(0..0, with);
        let both = statement.is_over.take().zip(is_over);
        statement.is_over = both.map(|(first, second)| format!("{second} OR {first}"));
        statement
    }

    /// The rows that one step derives from those of an item of FROM, each taken once.
    fn step_of(&self, (input, sources): RecursionInput<'_>, rows: &str) -> String {
        let sources = self.reading(sources, rows, None);
        self.union(&Generator::new(&sources).rows(&side(input, 1)))
    }

    fn union(&self, blocks: &[Block]) -> String {
        union(blocks, &self.rows.columns)
    }

    /// The columns of a row `d`, cast to their types: both parts of a recursive query must have the
    /// same types.
    fn typed(&self, types: &Types) -> String {
        let columns = self.rows.columns.iter().map(|id| {
            let (name, found) = (stage_column(*id), &types[id]);
            let collation: String = found
                .collation
                .iter()
                .map(|name| format!(" COLLATE {name}"))
                .collect();
            format!("CAST(d.{name} AS {}){collation} AS {name}", found.sql)
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
        let first = self.union(&Generator::new(sources).rows(&side(input, 0)));
        let read = (input, sources);
        let list = self.rows.list("");
        match self.how {
            RecursionMode::Each => {
                let now = self.multiplied(types, read, &first);
                self.rows.rebuild(types, &now, sink)
            }
            RecursionMode::Once => {
                let every = self.closed(types, read, &first, "");
                let of_every = self.step_of(read, "egret_closed");
                let now = format!(
                    "SELECT {list}, {WEIGHT} FROM ({first}) AS d UNION ALL SELECT {list}, {WEIGHT} FROM ({of_every}) AS d"
                );
                let mut statement = self.rows.rebuild(types, &now, sink);
                let every = format!("egret_closed AS MATERIALIZED ({every})");
                statement.with.insert(0, every);
                statement
            }
            RecursionMode::Anew => {
                let every = self.closed(types, read, &first, "");
                let now =
                    format!("SELECT {list}, 1::bigint AS {WEIGHT} FROM ({every}) AS egret_closed");
                self.rows.rebuild(types, &now, sink)
            }
        }
    }
}

/// The columns of a recursion that its step equates with columns of other tables: changes of those
/// tables are joined with the stage by these.
fn looked_up(input: &Node) -> Vec<ColumnId> {
    let mut scans = Vec::new();
    input.scans(&mut scans);
    let itself = scans.iter().filter(|(source, _)| *source == Source::Itself);
    let columns: Vec<&(ColumnId, String)> = itself.flat_map(|(_, columns)| *columns).collect();
    let mut conditions = Vec::new();
    conditions_of(input, &mut conditions);
    let sides = conditions
        .into_iter()
        .flat_map(equalities)
        .flat_map(|(left, right)| [left, right]);
    let compared = sides.filter(|side| !side.is_text).filter_map(|side| {
        let (_, name) = columns.iter().find(|(id, _)| Some(*id) == side.column)?;
        column_of_stage(name)
    });
    compared.collect()
}

fn conditions_of<'a>(node: &'a Node, all: &mut Vec<&'a Expression>) {
    if let Node::Filter { condition, .. } | Node::Join { condition, .. } = node {
        all.push(condition);
    }
    for input in node.inputs() {
        conditions_of(input, all);
    }
}

/// One input of a recursion: the initial rows (0), or those derived from the stage itself (1).
pub fn side(input: &Node, at: usize) -> Node {
    match input {
        Node::UnionAll { inputs, columns } => Node::UnionAll {
            inputs: inputs.get(at).cloned().into_iter().collect(),
            columns: columns.clone(),
        },
        other => other.clone(),
    }
}
