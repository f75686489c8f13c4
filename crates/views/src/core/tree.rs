//! What a view computes: operators over sources, and the stages that keep what they came to.
//!
//! A view is a chain of *stages*. Each keeps rows or groups in a table of its own, from the rows of sources and of
//! stages before it. Between the tables there are only operators that are linear, or whose changes can be said by a
//! formula; whatever has to remember something is a stage.

use super::expression::{ColumnId, Expression};

/// Where rows come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A table of the user, by its place in the list of the view's tables.
    Table(usize),
    /// A stage of the same view, by its place.
    Stage(usize),
    /// The stage that reads it, of a recursion.
    Itself,
}

/// How two inputs are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Rows that match.
    Inner,
    /// Also those on the left that match nothing.
    Left,
    /// Also those on either side that match nothing.
    Full,
    /// Only the left side: rows that match something, each as often as it is there.
    Semi,
    /// Only the left side: rows that match nothing.
    Anti,
}

/// A column that a function gives, with its name and type where the call has to say them.
pub type Given = (ColumnId, Option<(String, String)>);

/// A comparison with the clock.
#[derive(Clone, Debug)]
pub struct Moment {
    /// What is compared.
    pub value: Expression,
    /// With what, of the moment.
    pub clock: Expression,
}

/// An operator with its inputs.
#[derive(Clone, Debug)]
pub enum Node {
    /// One row without columns: a query without FROM.
    Unit,
    /// The rows of a source.
    Scan {
        /// Which.
        source: Source,
        /// Its columns that are used, by the name they have there.
        columns: Vec<(ColumnId, String)>,
    },
    /// Rows for which something is true.
    Filter {
        /// Of these rows.
        input: Box<Node>,
        /// What.
        condition: Expression,
    },
    /// Rows for which something is true that the clock is in.
    Recent {
        /// Of these rows.
        input: Box<Node>,
        /// The column of the condition that is no column of the rows: the moment at which it is asked.
        clock: ColumnId,
        /// What.
        condition: Expression,
        /// What in it compares with the clock.
        moments: Vec<Moment>,
    },
    /// Rows with other columns. Those of the input are there still, under their own ids.
    Project {
        /// Of these rows.
        input: Box<Node>,
        /// The new columns.
        columns: Vec<(ColumnId, Expression)>,
    },
    /// Rows with those that a function makes of each: a row for each of them.
    Expand {
        /// Of these rows.
        input: Box<Node>,
        /// The call, as it stands in FROM.
        call: Expression,
        /// What it gives: columns, and their names and types where the call has to say them.
        columns: Vec<Given>,
        /// Where this is true of none of what it gives, the row is there once without. None: it is not there then.
        or_nulls: Option<Expression>,
    },
    /// Rows of two inputs together.
    Join {
        /// How.
        kind: JoinKind,
        /// One.
        left: Box<Node>,
        /// The other.
        right: Box<Node>,
        /// When two rows match.
        condition: Expression,
    },
    /// The rows of all inputs.
    UnionAll {
        /// The inputs, each with those of its columns that become the columns of this, in their order.
        inputs: Vec<(Node, Vec<ColumnId>)>,
        /// The columns of this.
        columns: Vec<ColumnId>,
    },
}

impl Node {
    /// The columns that whoever is above can use.
    pub fn columns(&self) -> Vec<ColumnId> {
        match self {
            Self::Unit => Vec::new(),
            Self::Scan { columns, .. } => columns.iter().map(|(id, _)| *id).collect(),
            Self::Filter { input, .. } | Self::Recent { input, .. } => input.columns(),
            Self::Project { input, columns } => {
                let mut all = input.columns();
                all.extend(columns.iter().map(|(id, _)| *id));
                all
            }
            Self::Expand { input, columns, .. } => {
                let mut all = input.columns();
                all.extend(columns.iter().map(|(id, _)| *id));
                all
            }
            Self::Join {
                kind: JoinKind::Semi | JoinKind::Anti,
                left,
                ..
            } => left.columns(),
            Self::Join { left, right, .. } => {
                let mut all = left.columns();
                all.extend(right.columns());
                all
            }
            Self::UnionAll { columns, .. } => columns.clone(),
        }
    }

    /// All columns that it or anything below has.
    pub fn all_columns(&self) -> Vec<ColumnId> {
        let below = self.inputs().into_iter().flat_map(Self::all_columns);
        below.chain(self.columns()).collect()
    }

    /// Whether nothing in it is about columns of what is around it.
    pub fn is_closed(&self) -> bool {
        let are_own = |expression: &Expression, columns: &[ColumnId]| {
            let mut used = expression.columns().into_iter();
            used.all(|id| columns.contains(&id))
        };
        match self {
            Self::Unit | Self::Scan { .. } => true,
            Self::Filter { input, condition } => {
                input.is_closed() && are_own(condition, &input.columns())
            }
            Self::Recent {
                input,
                clock,
                condition,
                ..
            } => {
                let below = [input.columns(), vec![*clock]].concat();
                input.is_closed() && are_own(condition, &below)
            }
            Self::Project { input, columns } => {
                let below = input.columns();
                let mut columns = columns.iter();
                input.is_closed() && columns.all(|(_, expression)| are_own(expression, &below))
            }
            Self::Expand {
                input,
                call,
                or_nulls,
                ..
            } => {
                let mut of_row = or_nulls.iter();
                input.is_closed()
                    && are_own(call, &input.columns())
                    && of_row.all(|condition| are_own(condition, &self.columns()))
            }
            Self::Join {
                left,
                right,
                condition,
                ..
            } => {
                let below = [left.columns(), right.columns()].concat();
                left.is_closed() && right.is_closed() && are_own(condition, &below)
            }
            Self::UnionAll { inputs, .. } => inputs.iter().all(|(input, _)| input.is_closed()),
        }
    }

    /// Whether it is nothing but columns of one source.
    pub fn is_plain(&self) -> bool {
        match self {
            Self::Scan { .. } => true,
            Self::Project { input, columns } => {
                let mut columns = columns.iter();
                input.is_plain() && columns.all(|(_, expression)| expression.as_column().is_some())
            }
            Self::Unit
            | Self::Filter { .. }
            | Self::Recent { .. }
            | Self::Expand { .. }
            | Self::Join { .. }
            | Self::UnionAll { .. } => false,
        }
    }

    /// What it reads, in order.
    pub fn inputs(&self) -> Vec<&Self> {
        match self {
            Self::Unit | Self::Scan { .. } => Vec::new(),
            Self::Filter { input, .. }
            | Self::Recent { input, .. }
            | Self::Project { input, .. }
            | Self::Expand { input, .. } => vec![input],
            Self::Join { left, right, .. } => vec![left, right],
            Self::UnionAll { inputs, .. } => inputs.iter().map(|(input, _)| input).collect(),
        }
    }

    /// The same, to be changed.
    pub fn inputs_mut(&mut self) -> Vec<&mut Self> {
        match self {
            Self::Unit | Self::Scan { .. } => Vec::new(),
            Self::Filter { input, .. }
            | Self::Recent { input, .. }
            | Self::Project { input, .. }
            | Self::Expand { input, .. } => vec![input],
            Self::Join { left, right, .. } => vec![left, right],
            Self::UnionAll { inputs, .. } => inputs.iter_mut().map(|(input, _)| input).collect(),
        }
    }

    /// Whether it changes as time passes.
    pub fn has_clock(&self) -> bool {
        matches!(self, Self::Recent { .. }) || self.inputs().into_iter().any(Self::has_clock)
    }

    /// Whether a row of it may come to several.
    pub fn has_join(&self) -> bool {
        matches!(self, Self::Join { .. } | Self::Expand { .. })
            || self.inputs().into_iter().any(Self::has_join)
    }

    /// The sources that it reads, each as often as it does, with the columns that it reads of them.
    pub fn scans<'a>(&'a self, all: &mut Vec<(Source, &'a [(ColumnId, String)])>) {
        if let Self::Scan { source, columns } = self {
            all.push((*source, columns));
        }
        self.inputs().into_iter().for_each(|input| input.scans(all));
    }

    /// The sources that it reads, each as often as it does.
    pub fn sources(&self) -> Vec<Source> {
        let mut all = Vec::new();
        self.scans(&mut all);
        all.into_iter().map(|(source, _)| source).collect()
    }
}

/// An aggregate of a stage.
#[derive(Clone, Debug)]
pub struct Aggregate {
    /// What it comes to.
    pub column: ColumnId,
    /// The whole call, as it would be asked of the rows of a group.
    pub call: Expression,
    /// The function's name, where it is one of PostgreSQL's own and the call has neither DISTINCT nor ORDER BY.
    pub function: Option<String>,
    /// Its only argument; none of `count(*)` and of functions with several.
    pub argument: Option<Expression>,
    /// The rows that count, where not all do.
    pub filter: Option<Expression>,
    /// What it comes to of no rows, if that is known.
    pub of_none: Option<&'static str>,
}

impl Aggregate {
    /// How many rows there are, or of which something is so.
    pub fn rows(column: ColumnId, filter: Option<Expression>) -> Self {
        let call = match &filter {
            None => Expression::constant("count(*)"),
            Some(filter) => filter.within("count(*) FILTER (WHERE ", ")"),
        };
        Self {
            column,
            call,
            function: Some("count".to_owned()),
            argument: None,
            filter,
            of_none: Some("0"),
        }
    }

    /// How many values are not null.
    pub fn values(column: ColumnId, of: &Expression) -> Self {
        Self {
            call: of.argument_of("count"),
            argument: Some(of.clone()),
            ..Self::rows(column, None)
        }
    }

    /// What is asked of the rows of a group by a call.
    pub fn asked(column: ColumnId, call: Expression) -> Self {
        Self {
            column,
            call,
            function: None,
            argument: None,
            filter: None,
            of_none: Some("NULL"),
        }
    }

    /// Whether it adds up its argument, whose type matters then.
    pub fn adds(&self) -> bool {
        matches!(self.function.as_deref(), Some("sum" | "avg"))
    }
}

/// What a stage keeps.
#[derive(Clone, Debug)]
pub enum Keeps {
    /// These columns of every row.
    Rows {
        /// Which columns.
        columns: Vec<ColumnId>,
    },
    /// A row for each group; exactly one where there are no keys.
    Groups {
        /// What rows of a group have in common.
        keys: Vec<(ColumnId, Expression)>,
        /// What is said of a group.
        aggregates: Vec<Aggregate>,
    },
    /// Columns of rows, with window functions over the partition that each is in.
    Partitions {
        /// What rows of a partition have in common: columns that are kept.
        by: Vec<ColumnId>,
        /// The calls of window functions, and what they come to. Each looks at rows of one partition, or of a part of it.
        windows: Vec<(ColumnId, Expression)>,
        /// The rows that are kept, where not all are.
        filter: Option<Expression>,
        /// What is kept of them.
        columns: Vec<ColumnId>,
    },
    /// The first rows of an order, and some more: so that there are enough while some of them go.
    Top {
        /// What they are sorted by, with the direction as it is written.
        order: Vec<(ColumnId, String)>,
        /// So many there are at least, if there are so many.
        rows: u64,
        /// What is kept of them; those of `order` among it.
        columns: Vec<ColumnId>,
    },
    /// All rows that come of some, and of what comes of these. What is read are the rows of two inputs: those that it begins with, and those
    /// that come of [`Source::Itself`].
    Recursion {
        /// What is kept of them: all that they have.
        columns: Vec<ColumnId>,
        /// Whether a row is there as often as it comes of others, and not once.
        is_all: bool,
    },
}

impl Keeps {
    /// What others can read of the stage.
    pub fn columns(&self) -> Vec<ColumnId> {
        match self {
            Self::Rows { columns }
            | Self::Partitions { columns, .. }
            | Self::Top { columns, .. }
            | Self::Recursion { columns, .. } => columns.clone(),
            Self::Groups { keys, aggregates } => {
                let keys = keys.iter().map(|(id, _)| *id);
                keys.chain(aggregates.iter().map(|one| one.column))
                    .collect()
            }
        }
    }

    /// The columns of rows that are kept, where there may be more of them; none of groups.
    pub fn rows_mut(&mut self) -> Option<&mut Vec<ColumnId>> {
        match self {
            Self::Rows { columns }
            | Self::Partitions { columns, .. }
            | Self::Top { columns, .. } => Some(columns),
            Self::Groups { .. } | Self::Recursion { .. } => None,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Where its rows come from.
    pub input: Node,
    /// What of them is kept.
    pub keeps: Keeps,
}

/// What a view is to the reader: the rows of its last stage, or some of them, with the columns that the user has named.
#[derive(Clone, Debug)]
pub struct Presentation {
    /// Filters and projections over a scan of the last stage.
    pub node: Node,
    /// Names and columns in their order.
    pub columns: Vec<(String, ColumnId)>,
    /// What the rows are sorted by when they are read, with the direction as it is written.
    pub order: Vec<(ColumnId, String)>,
}

/// A view.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Each reads only those before it.
    pub stages: Vec<Stage>,
    /// What is shown of the last.
    pub presentation: Presentation,
    /// Columns that are null and have the type of another, which an earlier stage keeps.
    pub typed: Vec<(ColumnId, ColumnId)>,
    /// Keys of groups by which these are looked up: their types have to have an equality, and a hash where this is said.
    pub compared: Vec<(ColumnId, bool)>,
}
