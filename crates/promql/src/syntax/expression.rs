//! The tree of a query: its nodes, their types and their places in the text.

use egret_metrics_model::{LabelMatcher, TimeMs};

use super::duration::{DurationExpr, QuerySpan};
use super::functions::FunctionSignature;
use crate::error::QueryError;

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

/// Type of an expression's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueType {
    Scalar,
    Text,
    Vector,
    Matrix,
}

#[derive(Clone, Debug)]
pub(crate) struct ExprNode {
    pub kind: ExprKind,
    pub position: Position,
    /// Whether it is the same at every step, but for the time it is said to be at.
    pub is_constant: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum ExprKind {
    /// A number, and whether it was written as a duration.
    Number(f64, bool),
    Text(Vec<u8>),
    Paren(Box<ExprNode>),
    /// A sign before what is no number, and whether it is a minus.
    Sign(Box<ExprNode>, bool),
    Binary(Box<Binary>),
    Aggregate(Box<Aggregate>),
    Call(Box<Call>),
    Selector(Box<Selector>),
    Range(Box<Selector>, DurationExpr),
    Subquery(Box<Subquery>),
}

/// Which time a selector looks at instead of that of the step.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeModifiers {
    pub offset: DurationExpr,
    pub at: Option<AtModifier>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtModifier {
    Time(TimeMs),
    Start,
    End,
}

/// Whether samples beyond a window's bounds count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RangeModifier {
    #[default]
    None,
    /// The newest sample before the window stands for its beginning.
    Anchored,
    /// Values at both bounds are interpolated.
    Smoothed,
}

impl RangeModifier {
    /// As it is written; nothing where there is none.
    pub(crate) fn keyword(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Anchored => "anchored",
            Self::Smoothed => "smoothed",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Selector {
    /// The metric's name, where it stands before the braces; it is among the matchers, too.
    pub name: Option<Box<str>>,
    pub matchers: Vec<LabelMatcher>,
    /// Position of the selector without its modifiers.
    pub position: Position,
    pub time_modifiers: TimeModifiers,
    pub range_modifier: RangeModifier,
    /// Only counts and sums of histograms are asked for: that counts began anew is then found out
    /// by comparing with the sample before, as Prometheus does where it does not decode buckets.
    pub detects_resets: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Subquery {
    pub inner: ExprNode,
    pub range: DurationExpr,
    pub step: Option<DurationExpr>,
    pub time_modifiers: TimeModifiers,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub function: &'static FunctionSignature,
    pub arguments: Vec<ExprNode>,
}

impl Call {
    pub(crate) fn name(&self) -> &'static str {
        self.function.name
    }
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
    const NAMES: [(&'static str, Self); 14] = [
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
        let entry = names.find(|(_, aggregator)| *aggregator == self);
        entry.expect("every aggregator has a name").0
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        let mut names = Self::NAMES.iter();
        names.find(|(other, _)| *other == name).map(|found| found.1)
    }

    pub(super) fn has_parameter(self) -> bool {
        use Aggregator::{BottomK, CountValues, LimitK, LimitRatio, Quantile, TopK};
        matches!(self, TopK | BottomK | LimitK | LimitRatio | CountValues | Quantile)
    }
}

/// `by` or `without`, `on` or `ignoring`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grouping {
    /// `by`, `on`: these labels only. Otherwise: all but these.
    pub is_inclusive: bool,
    /// Labels as written in the query.
    pub written: Vec<Box<str>>,
    /// The same labels, sorted for look-ups.
    pub labels: Vec<Box<str>>,
}

impl Grouping {
    pub(crate) fn new(only: bool, written: Vec<Box<str>>) -> Self {
        let mut labels = written.clone();
        labels.sort();
        labels.dedup();
        Self { is_inclusive: only, written, labels }
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        let result = self.labels.binary_search_by(|listed| (**listed).cmp(name));
        result.is_ok()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Aggregate {
    pub aggregator: Aggregator,
    pub parameter: Option<ExprNode>,
    pub inner: ExprNode,
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
    /// `</`: what a histogram has below a value.
    TrimUpper,
    /// `>/`: what it has above.
    TrimLower,
    And,
    Or,
    Unless,
}

impl Operator {
    const NAMES: [(&'static str, Self); 18] = [
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
        ("</", Self::TrimUpper),
        (">/", Self::TrimLower),
        ("and", Self::And),
        ("or", Self::Or),
        ("unless", Self::Unless),
    ];

    pub(crate) fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        let entry = names.find(|(_, operator)| *operator == self);
        entry.expect("every operator has a name").0
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        let mut names = Self::NAMES.iter();
        names.find(|(other, _)| *other == name).map(|found| found.1)
    }

    /// What binds tighter is higher.
    pub(super) fn precedence(self) -> u8 {
        match self {
            Self::Or => 1,
            Self::And | Self::Unless => 2,
            Self::Add | Self::Sub => 4,
            Self::Mul | Self::Div | Self::Mod | Self::Atan2 => 5,
            Self::Pow => 6,
            _ => 3,
        }
    }

    /// How tightly operators to its right must bind to belong to its right side: powers associate
    /// to the right.
    pub(super) fn right_precedence(self) -> u8 {
        match self {
            Self::Pow => self.precedence(),
            _ => self.precedence() + 1,
        }
    }

    pub(crate) fn is_comparison(self) -> bool {
        self.precedence() == 3 && !self.is_trim()
    }

    pub(crate) fn is_trim(self) -> bool {
        matches!(self, Self::TrimUpper | Self::TrimLower)
    }

    pub(super) fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }
}

/// How many series of one side may match one of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchCardinality {
    OneToOne,
    /// `group_left`: many on the left.
    ManyToOne,
    /// `group_right`: many on the right.
    OneToMany,
}

#[derive(Clone, Debug)]
pub(crate) struct Binary {
    pub operator: Operator,
    pub operator_position: Position,
    pub left: ExprNode,
    pub right: ExprNode,
    pub returns_bool: bool,
    pub matching: Grouping,
    pub cardinality: MatchCardinality,
    /// Labels that the many take from the one.
    pub include: Vec<Box<str>>,
    /// What stands for a series that is missing on the left, and on the right.
    pub fill: (Option<f64>, Option<f64>),
}

impl ExprNode {
    /// What is in the parentheses, if there are any.
    pub(crate) fn without_parens(&self) -> &Self {
        match &self.kind {
            ExprKind::Paren(inner) => inner.without_parens(),
            _ => self,
        }
    }

    /// Whether its series have an order of their own, which a function has given them.
    pub(crate) fn is_sorted(&self) -> bool {
        matches!(&self.without_parens().kind, ExprKind::Call(call) if call.name().starts_with("sort"))
    }

    /// Whether its series are shown by their ranks.
    pub(crate) fn is_ranked(&self) -> bool {
        use Aggregator::{BottomK, TopK};
        match &self.without_parens().kind {
            ExprKind::Aggregate(aggregate) => matches!(aggregate.aggregator, TopK | BottomK),
            _ => false,
        }
    }

    pub(crate) fn value_type(&self) -> ValueType {
        match &self.kind {
            ExprKind::Number(..) => ValueType::Scalar,
            ExprKind::Text(_) => ValueType::Text,
            ExprKind::Paren(inner) | ExprKind::Sign(inner, _) => inner.value_type(),
            ExprKind::Binary(binary) => match (binary.left.value_type(), binary.right.value_type())
            {
                (ValueType::Scalar, ValueType::Scalar) => ValueType::Scalar,
                _ => ValueType::Vector,
            },
            ExprKind::Aggregate(_) | ExprKind::Selector(_) => ValueType::Vector,
            ExprKind::Range(..) | ExprKind::Subquery(_) => ValueType::Matrix,
            ExprKind::Call(call) => call.function.return_type,
        }
    }

    /// Calls a closure for each expression within this one.
    fn for_each_child(
        &mut self,
        visit: &mut dyn FnMut(&mut Self) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        match &mut self.kind {
            ExprKind::Number(..)
            | ExprKind::Text(_)
            | ExprKind::Selector(_)
            | ExprKind::Range(..) => Ok(()),
            ExprKind::Paren(inner) | ExprKind::Sign(inner, _) => visit(inner),
            ExprKind::Binary(binary) => {
                visit(&mut binary.left)?;
                visit(&mut binary.right)
            }
            ExprKind::Aggregate(aggregate) => {
                aggregate.parameter.iter_mut().try_for_each(&mut *visit)?;
                visit(&mut aggregate.inner)
            }
            ExprKind::Call(call) => call.arguments.iter_mut().try_for_each(visit),
            ExprKind::Subquery(subquery) => visit(&mut subquery.inner),
        }
    }

    /// Whether it has lengths of time that are yet to be computed.
    pub(crate) fn has_duration_exprs(&self) -> bool {
        let is_sum = |length: &DurationExpr| length.expression.is_some();
        match &self.kind {
            ExprKind::Number(..) | ExprKind::Text(_) => false,
            ExprKind::Paren(inner) | ExprKind::Sign(inner, _) => inner.has_duration_exprs(),
            ExprKind::Binary(binary) => {
                binary.left.has_duration_exprs() || binary.right.has_duration_exprs()
            }
            ExprKind::Aggregate(aggregate) => {
                let parameter = aggregate.parameter.as_ref();
                parameter.is_some_and(Self::has_duration_exprs)
                    || aggregate.inner.has_duration_exprs()
            }
            ExprKind::Call(call) => call.arguments.iter().any(Self::has_duration_exprs),
            ExprKind::Selector(selector) => is_sum(&selector.time_modifiers.offset),
            ExprKind::Range(selector, range) => {
                is_sum(range) || is_sum(&selector.time_modifiers.offset)
            }
            ExprKind::Subquery(subquery) => {
                let own = [&subquery.range, &subquery.time_modifiers.offset];
                let mut lengths = own.into_iter().chain(&subquery.step);
                lengths.any(is_sum) || subquery.inner.has_duration_exprs()
            }
        }
    }

    /// Computes the lengths of time that depend on the query's step and range.
    ///
    /// # Errors
    /// When one is of no use.
    pub(crate) fn resolve_durations(&mut self, span: QuerySpan) -> Result<(), QueryError> {
        match &mut self.kind {
            ExprKind::Selector(selector) => selector.time_modifiers.offset.resolve(span, true)?,
            ExprKind::Range(selector, range) => {
                selector.time_modifiers.offset.resolve(span, true)?;
                range.resolve(span, false)?;
            }
            ExprKind::Subquery(subquery) => {
                subquery.time_modifiers.offset.resolve(span, true)?;
                subquery.range.resolve(span, false)?;
                if let Some(step) = &mut subquery.step {
                    step.resolve(span, false)?;
                }
            }
            _ => {}
        }
        self.for_each_child(&mut |child| child.resolve_durations(span))
    }

    /// Marks the selectors of which only counts and sums of histograms are asked for.
    pub(super) fn mark_reset_detection(&mut self, needs_only_counts: bool) {
        let asked = match &mut self.kind {
            ExprKind::Selector(selector) | ExprKind::Range(selector, _) => {
                selector.detects_resets = needs_only_counts;
                return;
            }
            // Their sides may be asked for more than the whole is.
            ExprKind::Binary(_) | ExprKind::Subquery(_) => false,
            ExprKind::Call(call) => match call.name() {
                "histogram_count" | "histogram_sum" | "histogram_avg" => true,
                "histogram_quantile" | "histogram_quantiles" | "histogram_fraction" => false,
                _ => needs_only_counts,
            },
            _ => needs_only_counts,
        };
        let result = self.for_each_child(&mut |child| {
            child.mark_reset_detection(asked);
            Ok(())
        });
        result.expect("marking does not fail");
    }
}
