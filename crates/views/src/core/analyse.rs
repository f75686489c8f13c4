//! From a query, as the server prints it with all names resolved, to what a view computes.

mod aggregates;
mod children;
mod clock;
mod combine;
mod comparisons;
mod constants;
mod dependent;
mod equalities;
mod expressions;
mod from;
mod given;
mod grouping_sets;
mod lateral;
mod limit;
mod nature;
mod recursion;
mod said;
mod scalars;
mod scope;
mod select;
mod subqueries;
mod values;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use pg_query::NodeEnum;
use pg_query::protobuf::SelectStmt;

use self::comparisons::refuse_bare_equality;
pub use self::equalities::{Side, equal_part, equalities};
pub use self::expressions::{parse_expression, text};
use self::given::Given;
pub use self::said::unordered;
use self::select::{Cte, Rows};
use super::expression::{ColumnId, Expression};
use super::refusal::Refusal;
use super::tree::{Aggregate, Keeps, Node, Plan, Presentation, Source, Stage};

/// What the catalogue says of what a query names.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Tables and views, by schema and name.
    pub relations: BTreeMap<(String, String), Relation>,
    /// Names of functions in it that are aggregates; with their schema where that is not `pg_catalog`.
    pub aggregates: BTreeSet<(Option<String>, String)>,
    /// Those of functions that give several values, each of one column.
    pub sets: BTreeSet<(Option<String>, String)>,
    /// Those that give several rows of several columns.
    pub row_sets: BTreeSet<(Option<String>, String)>,
    /// Whether a column has a collation of its own: then it is not known here what is equal.
    pub has_collations: bool,
    /// Whether values of a column are equal by an operator that is not the system's.
    pub has_own_equality: bool,
}

/// A table or view that a query names.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its columns, in their order.
    pub columns: Vec<String>,
    /// The expressions that some of them stand for: they are not stored.
    pub computed: BTreeMap<String, String>,
    /// Those that are never null.
    pub not_null: BTreeSet<String>,
    /// Those whose values are the same where they are equal.
    pub exact: BTreeSet<String>,
    /// Where its rows come from.
    pub kind: RelationKind,
}

/// Where the rows of a relation come from.
#[derive(Clone, Debug)]
pub enum RelationKind {
    /// It is a table: its place in the list of the view's tables.
    Table(usize),
    /// It is a view with this definition, as the server prints it.
    View(String),
}

/// The construct of a refusal of what is no SQL.
pub const MALFORMED: &str = "this text";

/// A query that is one SELECT.
///
/// # Errors
/// [`Refusal`] for anything else; the parser's message.
pub fn parse(sql: &str) -> Result<SelectStmt, Refusal> {
    let parsed = pg_query::parse(sql, pg_query::ParserOptions::default())
        .map_err(|error| Refusal::of_every_mode(MALFORMED, None, error.to_string()))?;
    let mut statements = parsed.protobuf.stmts.into_iter();
    let (first, second) = (statements.next(), statements.next());
    if second.is_some() {
        let advice = "give exactly one query";
        return Err(Refusal::of_every_mode("a second statement", None, advice));
    }
    match first.and_then(|raw| raw.stmt).and_then(|node| node.node) {
        Some(NodeEnum::SelectStmt(select)) => Ok(*select),
        _ => {
            let advice = "give a SELECT";
            let construct = "a statement that is no query";
            Err(Refusal::of_every_mode(construct, None, advice))
        }
    }
}

/// The tables and views that a query names, as `name` or `schema.name`; none where it is no SQL.
pub fn tables_named(sql: &str) -> Vec<String> {
    pg_query::parse(sql, pg_query::ParserOptions::default())
        .map(|parsed| parsed.tables())
        .unwrap_or_default()
}

/// What a view computes whose query is `sql`, with all columns of what it reads.
///
/// # Errors
/// [`Refusal`]: what of it is not covered.
pub fn analyse(sql: &str, facts: &Facts) -> Result<Plan, Refusal> {
    if sql.contains("egret$") {
        let advice = "use other names: these stand for something else here";
        return Err(Refusal::new("a name that begins with `egret$`", -1, advice));
    }
    let query = parse(sql)?;
    refuse_bare_equality(sql, facts)?;
    let mut analysis = Analysis {
        facts,
        next_column: 0,
        stages: Vec::new(),
        depth: 0,
        nulls: Vec::new(),
        typed: Vec::new(),
        compared: Vec::new(),
        ctes: Vec::new(),
        given: None,
        of_each: None,
        nested: 0,
    };
    let rows = analysis.select(&query, &Default::default())?;
    Ok(analysis.finish(rows))
}

/// A plan for a query of which nothing is known but its columns: all of its rows are kept. `table` is the place at which
/// it stands among the tables that it reads, as one more.
pub fn whole(table: usize, columns: impl Iterator<Item = String>) -> Plan {
    let columns: Vec<(ColumnId, String)> = (1..).map(ColumnId).zip(columns).collect();
    let ids: Vec<ColumnId> = columns.iter().map(|(id, _)| *id).collect();
    let kept = ids.iter().map(|id| (*id, stage_column(*id)));
    Plan {
        presentation: Presentation {
            node: Node::Scan {
                source: Source::Stage(0),
                columns: kept.collect(),
            },
            columns: columns
                .iter()
                .map(|(id, name)| (name.clone(), *id))
                .collect(),
            order: Vec::new(),
        },
        stages: vec![Stage {
            input: Node::Scan {
                source: Source::Table(table),
                columns,
            },
            keeps: Keeps::Rows { columns: ids },
        }],
        typed: Vec::new(),
        compared: Vec::new(),
    }
}

/// How deep views and subqueries may be nested.
const DEPTH_MAX: usize = 64;

struct Analysis<'a> {
    facts: &'a Facts,
    next_column: u32,
    stages: Vec<Stage>,
    depth: usize,
    /// The columns that are null in the grouping set that was made last, and the keys of others that they stand for.
    nulls: Vec<(ColumnId, Expression)>,
    /// See [`Plan`].
    typed: Vec<(ColumnId, ColumnId)>,
    /// See [`Plan`].
    compared: Vec<(ColumnId, bool)>,
    /// The queries of WITH that have been looked at, with what they come to.
    ctes: Vec<(Rc<Cte>, Rows)>,
    /// The values that the query which is looked at next is computed for.
    given: Option<Given>,
    /// The values for each of which there is a group, also where there are no rows, in what is grouped next.
    of_each: Option<Given>,
    /// How many queries are computed by values that the one is in which is looked at.
    nested: usize,
}

impl Analysis<'_> {
    fn new_column(&mut self) -> ColumnId {
        self.next_column += 1;
        ColumnId(self.next_column)
    }

    /// Adds a stage, and returns what reads it.
    fn stage(&mut self, mut stage: Stage) -> Node {
        if let Keeps::Groups { keys, aggregates } = &mut stage.keeps
            && keys.is_empty()
            && aggregates.is_empty()
        {
            // Of the one group without keys something is kept, so that it is there.
            aggregates.push(Aggregate::rows(self.new_column(), None));
        }
        let columns = stage.keeps.columns();
        self.stages.push(stage);
        Node::Scan {
            source: Source::Stage(self.stages.len() - 1),
            columns: columns
                .into_iter()
                .map(|id| (id, stage_column(id)))
                .collect(),
        }
    }

    fn finish(mut self, rows: Rows) -> Plan {
        let shown = rows.columns.iter().map(|(_, id)| *id);
        let order = rows.order.iter().map(|(id, _)| *id);
        let columns: Vec<ColumnId> = shown.chain(order).collect();
        let last = self.stages.len().checked_sub(1);
        let node = match last.filter(|last| shows(&rows.node, Source::Stage(*last))) {
            Some(_) => rows.node,
            None => {
                let keeps = Keeps::Rows {
                    columns: distinct(&columns),
                };
                let input = rows.node;
                self.stage(Stage { input, keeps })
            }
        };
        Plan {
            typed: self.typed,
            compared: self.compared,
            stages: self.stages,
            presentation: Presentation {
                node,
                columns: rows.columns,
                order: rows.order,
            },
        }
    }
}

/// What a column is called in the table of a stage.
pub fn stage_column(column: ColumnId) -> String {
    format!("c{}", column.0)
}

/// The column that is called so in the table of a stage.
pub fn column_of_stage(name: &str) -> Option<ColumnId> {
    let digits = name.strip_prefix('c')?;
    digits.parse().ok().map(ColumnId)
}

fn distinct(columns: &[ColumnId]) -> Vec<ColumnId> {
    let mut seen = BTreeSet::new();
    let columns = columns.iter().copied();
    columns.filter(|column| seen.insert(*column)).collect()
}

/// Whether a node only filters and projects what it reads from a source.
fn shows(node: &Node, source: Source) -> bool {
    match node {
        Node::Scan { source: read, .. } => *read == source,
        Node::Filter { input, .. } | Node::Project { input, .. } => shows(input, source),
        // What is read has been computed: it does not change by itself.
        Node::Unit
        | Node::Recent { .. }
        | Node::Expand { .. }
        | Node::Join { .. }
        | Node::UnionAll { .. } => false,
    }
}

/// Leaves columns out that nobody uses. Those of `keys` tell rows of the stages apart.
pub fn prune(plan: &mut Plan, keys: &[Option<Vec<ColumnId>>]) {
    let shown = plan.presentation.columns.iter().map(|(_, id)| *id);
    let order = plan.presentation.order.iter().map(|(id, _)| *id);
    let mut used: BTreeSet<ColumnId> = shown.chain(order).collect();
    used.extend(keys.iter().flatten().flatten());
    prune_node(&mut plan.presentation.node, &mut used);
    for stage in plan.stages.iter_mut().rev() {
        match &mut stage.keeps {
            Keeps::Rows { columns } => retain(columns, &mut used),
            // What comes of a row may depend on any column, and so may how often it is there.
            Keeps::Recursion { columns, .. } => used.extend(columns.iter()),
            Keeps::Top { order, columns, .. } => {
                used.extend(order.iter().map(|(id, _)| *id));
                retain(columns, &mut used);
            }
            Keeps::Partitions {
                by,
                windows,
                filter,
                columns,
            } => {
                used.extend(by.iter());
                retain(columns, &mut used);
                used.extend(filter.iter().flat_map(Expression::columns));
                windows.retain(|(id, _)| used.contains(id));
                used.extend(windows.iter().flat_map(|(_, call)| call.columns()));
            }
            Keeps::Groups { keys, aggregates } => {
                let first = aggregates.first().filter(|_| keys.is_empty());
                used.extend(first.map(|one| one.column));
                aggregates.retain(|aggregate| used.contains(&aggregate.column));
                used.extend(keys.iter().flat_map(|(_, key)| key.columns()));
                used.extend(aggregates.iter().flat_map(|one| one.call.columns()));
            }
        }
        prune_node(&mut stage.input, &mut used);
    }
}

/// Leaves out what is not used. Of rows that are only counted one column is kept.
fn retain(columns: &mut Vec<ColumnId>, used: &mut BTreeSet<ColumnId>) {
    if columns.iter().all(|id| !used.contains(id)) {
        used.extend(columns.first());
    }
    columns.retain(|id| used.contains(id));
}

fn prune_node(node: &mut Node, used: &mut BTreeSet<ColumnId>) {
    match node {
        Node::Unit => {}
        Node::Scan { source, columns } => {
            columns.retain(|(id, _)| used.contains(id));
            if !matches!(source, Source::Table(_)) {
                used.extend(columns.iter().filter_map(|(_, name)| column_of_stage(name)));
            }
        }
        Node::Filter { input, condition }
        | Node::Recent {
            input, condition, ..
        } => {
            used.extend(condition.columns());
            prune_node(input, used);
        }
        Node::Project { input, columns } => {
            columns.retain(|(id, _)| used.contains(id));
            used.extend(columns.iter().flat_map(|(_, column)| column.columns()));
            prune_node(input, used);
        }
        Node::Expand {
            input,
            call,
            or_nulls,
            ..
        } => {
            let used_here = or_nulls.iter().chain(Some(&*call));
            used.extend(used_here.flat_map(Expression::columns));
            prune_node(input, used);
        }
        Node::Join {
            left,
            right,
            condition,
            ..
        } => {
            used.extend(condition.columns());
            prune_node(left, used);
            prune_node(right, used);
        }
        Node::UnionAll { inputs, columns } => {
            let kept: Vec<bool> = columns.iter().map(|id| used.contains(id)).collect();
            let keep = |all: &mut Vec<ColumnId>| {
                let mut kept = kept.iter();
                all.retain(|_| *kept.next().expect("as many columns in every input"));
            };
            keep(columns);
            for (input, mapped) in inputs {
                keep(mapped);
                used.extend(mapped.iter().copied());
                prune_node(input, used);
            }
        }
    }
}

#[cfg(test)]
mod tests;
