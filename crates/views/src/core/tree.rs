//! Plan of a view: operators over sources, and the stages that store their results.
//!
//! A view is a chain of *stages*. Each stores rows or groups in a table of its own, computed from
//! the rows of sources and of earlier stages. Between the tables there are only operators that are
//! linear, or whose changes can be computed by a formula; whatever needs state is a stage.

use super::expression::{ColumnId, Expression};

/// Input of a stage's operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A user's table, by its index in the view's list of tables.
    Table(usize),
    /// An earlier stage of the same view, by its index.
    Stage(usize),
    /// The stage itself, in a recursion.
    Recursion,
}

/// Kind of a join between two inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// `l ⋈ r`: pairs of rows that match.
    Inner,
    /// `l ⟕ r`: also left rows without a match.
    Left,
    /// `l ⟗ r`: also rows of either side without a match.
    Full,
    /// `l ⋉ r`: left rows with a match, each as often as it is on the left.
    Semi,
    /// `l ▷ r`: left rows without a match.
    Anti,
}

/// A result column of a function, with name and type where the call must declare them.
pub type FunctionColumn = (ColumnId, Option<(String, String)>);

/// A comparison of a row's value with the clock.
#[derive(Clone, Debug)]
pub struct TemporalPredicate {
    /// The side of the comparison that is computed from the row.
    pub value: Expression,
    /// The side that is computed from the current time.
    pub clock: Expression,
}

/// A relational operator with its inputs.
#[derive(Clone, Debug)]
pub enum Node {
    /// One row without columns: a query without FROM.
    Unit,
    /// `scan(source)`: the rows of a table or stage.
    Scan {
        /// The table or stage that is read.
        source: Source,
        /// The columns that are used, by their names in the source.
        columns: Vec<(ColumnId, String)>,
    },
    /// `σ_condition(input)`: rows for which the condition is true.
    Filter {
        /// The operator that is filtered.
        input: Box<Node>,
        /// A boolean expression over the input's columns.
        condition: Expression,
    },
    /// `σ_condition(input)` with a condition that depends on the clock (a temporal filter).
    TemporalFilter {
        /// The operator that is filtered.
        input: Box<Node>,
        /// Column of the condition that stands for the current time, and is not a column of the
        /// input.
        clock: ColumnId,
        /// A boolean expression over the input's columns and `clock`.
        condition: Expression,
        /// The comparisons with the clock in the condition.
        predicates: Vec<TemporalPredicate>,
    },
    /// `π(input)`: adds computed columns. The input's columns remain, under their own ids.
    Project {
        /// The operator whose rows are extended.
        input: Box<Node>,
        /// Ids and expressions of the added columns.
        columns: Vec<(ColumnId, Expression)>,
    },
    /// Joins each row with the rows that a set-returning function computes from it.
    FlatMap {
        /// The operator whose rows are passed to the function.
        input: Box<Node>,
        /// The function call as an item of FROM.
        call: Expression,
        /// Result columns, with names and types where the call must declare them.
        columns: Vec<FunctionColumn>,
        /// Join condition of a left join: a row for which no result row satisfies it is kept once,
        /// with nulls. None: an inner join.
        outer_condition: Option<Expression>,
    },
    /// `left ⋈_condition right`, or another kind of join.
    Join {
        /// Which rows the join returns.
        kind: JoinKind,
        /// The left input of the join.
        left: Box<Node>,
        /// The right input of the join.
        right: Box<Node>,
        /// The condition on which two rows match.
        condition: Expression,
    },
    /// The rows of all inputs.
    UnionAll {
        /// The inputs, each with its columns in the order of the result columns.
        inputs: Vec<(Node, Vec<ColumnId>)>,
        /// The columns of the result.
        columns: Vec<ColumnId>,
    },
}

impl Node {
    /// The columns that the operators above can use.
    pub fn columns(&self) -> Vec<ColumnId> {
        match self {
            Self::Unit => Vec::new(),
            Self::Scan { columns, .. } => columns.iter().map(|(id, _)| *id).collect(),
            Self::Filter { input, .. } | Self::TemporalFilter { input, .. } => input.columns(),
            Self::Project { input, columns } => {
                let mut all = input.columns();
                all.extend(columns.iter().map(|(id, _)| *id));
                all
            }
            Self::FlatMap { input, columns, .. } => {
                let mut all = input.columns();
                all.extend(columns.iter().map(|(id, _)| *id));
                all
            }
            Self::Join { kind: JoinKind::Semi | JoinKind::Anti, left, .. } => left.columns(),
            Self::Join { left, right, .. } => {
                let mut all_columns = left.columns();
                all_columns.extend(right.columns());
                all_columns
            }
            Self::UnionAll { columns, .. } => columns.clone(),
        }
    }

    /// The columns of this operator and of all below it.
    pub(crate) fn all_columns(&self) -> Vec<ColumnId> {
        let below = self.inputs().into_iter().flat_map(Self::all_columns);
        below.chain(self.columns()).collect()
    }

    /// Whether all expressions use only columns of their own inputs, and none of an outer query.
    pub fn is_closed(&self) -> bool {
        let uses_only = |expression: &Expression, columns: &[ColumnId]| {
            let mut used = expression.columns().into_iter();
            used.all(|id| columns.contains(&id))
        };
        match self {
            Self::Unit | Self::Scan { .. } => true,
            Self::Filter { input, condition } => {
                input.is_closed() && uses_only(condition, &input.columns())
            }
            Self::TemporalFilter { input, clock, condition, .. } => {
                let below = [input.columns(), vec![*clock]].concat();
                input.is_closed() && uses_only(condition, &below)
            }
            Self::Project { input, columns } => {
                let below = input.columns();
                let mut columns = columns.iter();
                input.is_closed() && columns.all(|(_, expression)| uses_only(expression, &below))
            }
            Self::FlatMap { input, call, outer_condition: or_nulls, .. } => {
                let mut row_conditions = or_nulls.iter();
                input.is_closed()
                    && uses_only(call, &input.columns())
                    && row_conditions.all(|condition| uses_only(condition, &self.columns()))
            }
            Self::Join { left, right, condition, .. } => {
                let below = [left.columns(), right.columns()].concat();
                left.is_closed() && right.is_closed() && uses_only(condition, &below)
            }
            Self::UnionAll { inputs, .. } => inputs.iter().all(|(input, _)| input.is_closed()),
        }
    }

    /// Whether it only renames columns of one source.
    pub(crate) fn is_column_mapping(&self) -> bool {
        match self {
            Self::Scan { .. } => true,
            Self::Project { input, columns } => {
                let mut columns = columns.iter();
                input.is_column_mapping()
                    && columns.all(|(_, expression)| expression.as_column().is_some())
            }
            Self::Unit
            | Self::Filter { .. }
            | Self::TemporalFilter { .. }
            | Self::FlatMap { .. }
            | Self::Join { .. }
            | Self::UnionAll { .. } => false,
        }
    }

    /// The direct inputs, in order.
    pub(crate) fn inputs(&self) -> Vec<&Self> {
        match self {
            Self::Unit | Self::Scan { .. } => Vec::new(),
            Self::Filter { input, .. }
            | Self::TemporalFilter { input, .. }
            | Self::Project { input, .. }
            | Self::FlatMap { input, .. } => vec![input],
            Self::Join { left, right, .. } => vec![left, right],
            Self::UnionAll { inputs, .. } => inputs.iter().map(|(input, _)| input).collect(),
        }
    }

    /// The direct inputs, in order, mutable.
    pub(crate) fn inputs_mut(&mut self) -> Vec<&mut Self> {
        match self {
            Self::Unit | Self::Scan { .. } => Vec::new(),
            Self::Filter { input, .. }
            | Self::TemporalFilter { input, .. }
            | Self::Project { input, .. }
            | Self::FlatMap { input, .. } => vec![input],
            Self::Join { left, right, .. } => vec![left, right],
            Self::UnionAll { inputs, .. } => inputs.iter_mut().map(|(input, _)| input).collect(),
        }
    }

    /// Whether the result depends on the clock.
    pub fn has_clock(&self) -> bool {
        matches!(self, Self::TemporalFilter { .. })
            || self.inputs().into_iter().any(Self::has_clock)
    }

    /// Whether one row of a source may become several rows.
    pub(crate) fn can_multiply_rows(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::FlatMap { .. })
            || self.inputs().into_iter().any(Self::can_multiply_rows)
    }

    /// Collects each scan below, with its source and the columns that it reads.
    pub(crate) fn collect_scans<'a>(&'a self, all: &mut Vec<(Source, &'a [(ColumnId, String)])>) {
        if let Self::Scan { source, columns } = self {
            all.push((*source, columns));
        }
        self.inputs().into_iter().for_each(|input| input.collect_scans(all));
    }

    /// The source of each scan below, with repetitions.
    pub fn sources(&self) -> Vec<Source> {
        let mut scans = Vec::new();
        self.collect_scans(&mut scans);
        scans.into_iter().map(|(source, _)| source).collect()
    }
}

/// An aggregate of a group, with what is known of its call.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// Column that has the result.
    pub column: ColumnId,
    /// The whole call over the rows of a group, in SQL.
    pub call: Expression,
    /// The function's name, where it is one of PostgreSQL's own and the call has neither DISTINCT
    /// nor ORDER BY.
    pub function: Option<String>,
    /// Its only argument; none for `count(*)` and for functions with several.
    pub argument: Option<Expression>,
    /// The condition of FILTER, if there is one.
    pub filter: Option<Expression>,
    /// Result over no rows, where it is known.
    pub empty_value: Option<&'static str>,
}

impl Aggregate {
    /// `count(*)`, or with a condition `count(*) FILTER (WHERE …)`.
    pub fn count_rows(column: ColumnId, filter: Option<Expression>) -> Self {
        let call = match &filter {
            None => Expression::constant("count(*)"),
            Some(filter) => filter.wrap("count(*) FILTER (WHERE ", ")"),
        };
        Self {
            column,
            call,
            function: Some("count".to_owned()),
            argument: None,
            filter,
            empty_value: Some("0"),
        }
    }

    /// `count(of)`: the number of values that are not null.
    pub fn count_values(column: ColumnId, value: &Expression) -> Self {
        Self {
            call: value.as_argument_of("count"),
            argument: Some(value.clone()),
            ..Self::count_rows(column, None)
        }
    }

    /// An aggregate of which only the call is known.
    pub(crate) fn recomputed(column: ColumnId, call: Expression) -> Self {
        Self {
            column,
            call,
            function: None,
            argument: None,
            filter: None,
            empty_value: Some("NULL"),
        }
    }

    /// Whether it is a sum or an average, so that the type of its argument matters.
    pub(crate) fn is_sum_or_average(&self) -> bool {
        matches!(self.function.as_deref(), Some("sum" | "avg"))
    }
}

/// What a stage stores of its input's rows.
#[derive(Clone, Debug)]
pub enum StageContents {
    /// These columns of each row.
    Rows {
        /// The columns that are stored.
        columns: Vec<ColumnId>,
    },
    /// A row for each group; exactly one group if there are no keys.
    Groups {
        /// The GROUP BY expressions, with their columns.
        keys: Vec<(ColumnId, Expression)>,
        /// The aggregates of a group.
        aggregates: Vec<Aggregate>,
    },
    /// Columns of rows, with window functions over their partition.
    Partitions {
        /// The PARTITION BY columns, which are stored.
        partition_columns: Vec<ColumnId>,
        /// Calls of window functions with their result columns. Each call reads rows of one
        /// partition only.
        windows: Vec<(ColumnId, Expression)>,
        /// A condition on the rows that are stored, window results included.
        filter: Option<Expression>,
        /// The columns that are stored.
        columns: Vec<ColumnId>,
    },
    /// The first rows of an order, and some more, to replace those that are deleted.
    TopK {
        /// ORDER BY columns, with the direction in SQL.
        order: Vec<(ColumnId, String)>,
        /// Number of rows that must be stored, if there are as many: LIMIT plus OFFSET.
        rows: u64,
        /// The columns that are stored, those of `order` included.
        columns: Vec<ColumnId>,
    },
    /// The rows of a recursive query. The input is a union of the initial rows and of those that
    /// come from [`Source::Recursion`].
    Recursion {
        /// The columns that are stored: all of a row.
        columns: Vec<ColumnId>,
        /// Whether it is UNION ALL, which keeps duplicates, rather than UNION.
        is_all: bool,
    },
}

impl StageContents {
    /// The columns that later stages can read.
    pub fn columns(&self) -> Vec<ColumnId> {
        match self {
            Self::Rows { columns }
            | Self::Partitions { columns, .. }
            | Self::TopK { columns, .. }
            | Self::Recursion { columns, .. } => columns.clone(),
            Self::Groups { keys, aggregates } => {
                let keys = keys.iter().map(|(id, _)| *id);
                keys.chain(aggregates.iter().map(|aggregate| aggregate.column)).collect()
            }
        }
    }

    /// The columns of rows that are kept, where there may be more of them; none of groups.
    pub(crate) fn row_columns_mut(&mut self) -> Option<&mut Vec<ColumnId>> {
        match self {
            Self::Rows { columns }
            | Self::Partitions { columns, .. }
            | Self::TopK { columns, .. } => Some(columns),
            Self::Groups { .. } | Self::Recursion { .. } => None,
        }
    }
}

/// A part of a view whose rows are stored in a table.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The operator whose rows are stored.
    pub input: Node,
    /// What of the input's rows is stored.
    pub contents: StageContents,
}

/// How readers see a view: the rows of its last stage, or some of them, with the columns that the
/// user has named.
#[derive(Clone, Debug)]
pub struct Presentation {
    /// Filters and projections over a scan of the last stage.
    pub node: Node,
    /// Names and columns in their order.
    pub columns: Vec<(String, ColumnId)>,
    /// What the rows are sorted by when they are read, with the direction as it is written.
    pub order: Vec<(ColumnId, String)>,
}

/// The stages of a view, and how its rows are presented.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Each reads only those before it.
    pub stages: Vec<Stage>,
    /// How the rows of the last stage are presented.
    pub presentation: Presentation,
    /// Columns that are null and have the type of another, which an earlier stage keeps.
    pub typed_like: Vec<(ColumnId, ColumnId)>,
    /// Group keys by which groups are looked up. Their types must have an equality operator, and a
    /// hash if the flag is set.
    pub lookup_keys: Vec<(ColumnId, bool)>,
}
