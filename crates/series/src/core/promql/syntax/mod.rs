//! The text of a query as a tree that knows where each part stood.
//!
//! The grammar and its type rules are `promql-parser`'s. Its tree has no positions, which annotations need, so the
//! tokens are walked along the tree once more and both become a tree of our own. The layer also refuses what the
//! parser would stumble over, and takes from the tokens what it reads differently from Prometheus: string
//! literals that are no UTF-8, `or` between matchers, durations too long to represent.

mod parse;
mod tokens;

pub(crate) use parse::{formatted, parse};
pub(crate) use tokens::unquote as unquote_literal;

use super::source::LabelMatcher;
use crate::model::TimeMs;

/// Where a part of a query stands: bytes from its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub start: usize,
    pub end: usize,
}

impl Position {
    /// Line and column of the start, both from 1.
    pub(crate) fn line_and_column(self, query: &str) -> (usize, usize) {
        let before = query.get(..self.start).unwrap_or(query);
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1) + 1;
        (line, column)
    }
}

/// What an expression yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Scalar,
    Text,
    Vector,
    Matrix,
}

/// An expression.
#[derive(Debug)]
pub(crate) struct Node {
    pub part: Part,
    pub position: Position,
    /// Whether it is the same at every step, but for the time it is said to be at.
    pub constant: bool,
}

#[derive(Debug)]
pub(crate) enum Part {
    Number(f64),
    Text(Vec<u8>),
    Paren(Box<Node>),
    Negation(Box<Node>),
    Binary(Box<Binary>),
    Aggregate(Box<Aggregate>),
    Call(Box<Call>),
    Selector(Box<Selector>),
    Range(Box<Selector>, i64),
    Subquery(Box<Subquery>),
}

/// Which time a selector looks at instead of that of the step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reach {
    pub offset_ms: i64,
    pub at: Option<At>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Time(TimeMs),
    Start,
    End,
}

#[derive(Debug)]
pub(crate) struct Selector {
    pub matchers: Vec<LabelMatcher>,
    pub reach: Reach,
}

#[derive(Debug)]
pub(crate) struct Subquery {
    pub inner: Node,
    pub range_ms: i64,
    pub step_ms: Option<i64>,
    pub reach: Reach,
}

#[derive(Debug)]
pub(crate) struct Call {
    pub function: &'static str,
    pub arguments: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aggregator {
    Sum,
    Avg,
    Count,
    Min,
    Max,
    Group,
    Stddev,
    Stdvar,
    TopK,
    BottomK,
    LimitK,
    LimitRatio,
    CountValues,
    Quantile,
}

impl Aggregator {
    pub(crate) const NAMES: [(&'static str, Self); 14] = [
        ("sum", Self::Sum),
        ("avg", Self::Avg),
        ("count", Self::Count),
        ("min", Self::Min),
        ("max", Self::Max),
        ("group", Self::Group),
        ("stddev", Self::Stddev),
        ("stdvar", Self::Stdvar),
        ("topk", Self::TopK),
        ("bottomk", Self::BottomK),
        ("limitk", Self::LimitK),
        ("limit_ratio", Self::LimitRatio),
        ("count_values", Self::CountValues),
        ("quantile", Self::Quantile),
    ];

    pub(crate) fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        let found = names.find(|(_, aggregator)| *aggregator == self);
        found.expect("every aggregator has a name").0
    }
}

/// `by` or `without`, `on` or `ignoring`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grouping {
    /// `by`, `on`: these labels only. Otherwise: all but these.
    pub only: bool,
    /// Sorted.
    pub labels: Vec<Box<str>>,
}

#[derive(Debug)]
pub(crate) struct Aggregate {
    pub aggregator: Aggregator,
    pub parameter: Option<Node>,
    pub inner: Node,
    pub grouping: Grouping,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Pow,
    Atan2,
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterOrEqual,
    LessOrEqual,
    And,
    Or,
    Unless,
}

impl Operator {
    pub(crate) const NAMES: [(&'static str, Self); 16] = [
        ("+", Self::Add),
        ("-", Self::Sub),
        ("*", Self::Mul),
        ("/", Self::Div),
        ("%", Self::Mod),
        ("^", Self::Pow),
        ("atan2", Self::Atan2),
        ("==", Self::Equal),
        ("!=", Self::NotEqual),
        (">", Self::Greater),
        ("<", Self::Less),
        (">=", Self::GreaterOrEqual),
        ("<=", Self::LessOrEqual),
        ("and", Self::And),
        ("or", Self::Or),
        ("unless", Self::Unless),
    ];

    pub(crate) fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        let found = names.find(|(_, operator)| *operator == self);
        found.expect("every operator has a name").0
    }

    pub(crate) fn is_comparison(self) -> bool {
        use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        matches!(
            self,
            Equal | NotEqual | Greater | Less | GreaterOrEqual | LessOrEqual
        )
    }
}

/// How many series of one side may match one of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cardinality {
    OneToOne,
    /// `group_left`: many on the left.
    ManyToOne,
    /// `group_right`.
    OneToMany,
}

#[derive(Debug)]
pub(crate) struct Binary {
    pub operator: Operator,
    pub left: Node,
    pub right: Node,
    pub returns_bool: bool,
    pub matching: Grouping,
    pub cardinality: Cardinality,
    /// Labels that the many take from the one.
    pub include: Vec<Box<str>>,
    /// What stands for a series that is missing on the left, and on the right.
    pub fill: (Option<f64>, Option<f64>),
}

impl Node {
    /// What is in the parentheses, if there are any.
    pub(crate) fn bare(&self) -> &Self {
        match &self.part {
            Part::Paren(inner) => inner.bare(),
            _ => self,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match &self.part {
            Part::Number(_) => Kind::Scalar,
            Part::Text(_) => Kind::Text,
            Part::Paren(inner) | Part::Negation(inner) => inner.kind(),
            Part::Binary(binary) => match (binary.left.kind(), binary.right.kind()) {
                (Kind::Scalar, Kind::Scalar) => Kind::Scalar,
                _ => Kind::Vector,
            },
            Part::Aggregate(_) | Part::Selector(_) => Kind::Vector,
            Part::Range(..) | Part::Subquery(_) => Kind::Matrix,
            Part::Call(call) => match call.function {
                "scalar" | "time" | "pi" | "start" | "end" | "range" | "step" | "max_of"
                | "min_of" => Kind::Scalar,
                _ => Kind::Vector,
            },
        }
    }
}

#[cfg(test)]
mod tests;
