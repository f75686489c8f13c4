//! Queries as trees: each is printed as PromQL for the server, and worked out from the fleet by
//! `evaluate.rs`.

use std::fmt::{self, Display, Formatter, Write};

/// A query or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Number(f64),
    /// The last sample of each series that it picks.
    Select(Selector),
    /// A function of the samples in a window before each moment; some have a parameter.
    Over(WindowFunction, Option<f64>, ExprWindow),
    Aggregate(Aggregate, Option<f64>, Grouping, Box<Expr>),
    Binary(ExprOperator, Matching, Box<Expr>, Box<Expr>),
    HistogramQuantile(f64, Box<Expr>),
    Timestamp(Selector),
    Absent(Selector),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Selector {
    pub(super) metric: &'static str,
    pub(super) matchers: Vec<Matcher>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Matcher {
    Equal(&'static str, String),
    NotEqual(&'static str, String),
    /// A regular expression of these alternatives.
    OneOf(&'static str, Vec<String>),
}

/// Samples of so long before each moment, or what a query was worth at steps of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExprWindow {
    Samples { selector: Selector, range_ms: i64, offset_ms: i64 },
    Subquery { inner: Box<Expr>, range_ms: i64, step_ms: i64 },
}

/// A function of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowFunction {
    Rate,
    Increase,
    Delta,
    Irate,
    Idelta,
    Deriv,
    Resets,
    Changes,
    Avg,
    Min,
    Max,
    Sum,
    Count,
    Last,
    Stddev,
    Quantile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Aggregate {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Stddev,
    Quantile,
    Topk,
    Bottomk,
}

/// By which labels values are put together.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Grouping {
    By(Vec<&'static str>),
    Without(Vec<&'static str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExprOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Greater,
    Less,
    Equal,
    Unless,
}

/// Which value on the right belongs to one on the left.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Matching {
    /// The one with the same labels; or one side is a number.
    SameLabels,
    On(Vec<&'static str>),
    Ignoring(Vec<&'static str>),
    /// Many on the left belong to one on the right.
    OnGroupLeft(Vec<&'static str>),
}

impl Selector {
    pub(super) fn new(metric: &'static str) -> Self {
        Self { metric, matchers: Vec::new() }
    }

    pub(super) fn with_label(mut self, label: &'static str, value: impl Into<String>) -> Self {
        self.matchers.push(Matcher::Equal(label, value.into()));
        self
    }

    pub(super) fn with_label_not(mut self, label: &'static str, value: impl Into<String>) -> Self {
        self.matchers.push(Matcher::NotEqual(label, value.into()));
        self
    }

    pub(super) fn with_label_in(mut self, label: &'static str, values: Vec<String>) -> Self {
        self.matchers.push(Matcher::OneOf(label, values));
        self
    }

    /// A function of its samples in a window of so many minutes.
    pub(super) fn over_minutes(self, over: WindowFunction, minutes: i64) -> Expr {
        self.over_minutes_with(over, None, minutes)
    }

    pub(super) fn over_minutes_with(
        self,
        function: WindowFunction,
        parameter: Option<f64>,
        minutes: i64,
    ) -> Expr {
        let window =
            ExprWindow::Samples { selector: self, range_ms: minutes * MINUTE_MS, offset_ms: 0 };
        Expr::Over(function, parameter, window)
    }

    /// The same of a window that ended so many minutes earlier.
    pub(super) fn over_minutes_offset(
        self,
        over: WindowFunction,
        minutes: i64,
        offset_minutes: i64,
    ) -> Expr {
        let window = ExprWindow::Samples {
            selector: self,
            range_ms: minutes * MINUTE_MS,
            offset_ms: offset_minutes * MINUTE_MS,
        };
        Expr::Over(over, None, window)
    }

    pub(super) fn latest(self) -> Expr {
        Expr::Select(self)
    }
}

pub(super) const MINUTE_MS: i64 = 60_000;

impl Expr {
    pub(super) fn aggregate_by(self, aggregate: Aggregate, labels: &[&'static str]) -> Self {
        Self::Aggregate(aggregate, None, Grouping::By(labels.to_vec()), Box::new(self))
    }

    pub(super) fn aggregate_without(self, aggregate: Aggregate, labels: &[&'static str]) -> Self {
        let grouping = Grouping::Without(labels.to_vec());
        Self::Aggregate(aggregate, None, grouping, Box::new(self))
    }

    pub(super) fn sum_by(self, labels: &[&'static str]) -> Self {
        self.aggregate_by(Aggregate::Sum, labels)
    }

    /// An aggregation with a parameter.
    pub(super) fn aggregate_with_parameter(
        self,
        aggregate: Aggregate,
        parameter: f64,
        labels: &[&'static str],
    ) -> Self {
        let grouping = Grouping::By(labels.to_vec());
        Self::Aggregate(aggregate, Some(parameter), grouping, Box::new(self))
    }

    pub(super) fn histogram_quantile(self, quantile: f64) -> Self {
        Self::HistogramQuantile(quantile, Box::new(self))
    }

    pub(super) fn compare_with(self, operator: ExprOperator, number: f64) -> Self {
        let number = Box::new(Self::Number(number));
        Self::Binary(operator, Matching::SameLabels, Box::new(self), number)
    }

    pub(super) fn binary(self, operator: ExprOperator, matching: Matching, right: Self) -> Self {
        Self::Binary(operator, matching, Box::new(self), Box::new(right))
    }

    /// A function of what it was worth at each minute of a window.
    pub(super) fn over_minute_steps(self, function: WindowFunction, minutes: i64) -> Self {
        let window = ExprWindow::Subquery {
            inner: Box::new(self),
            range_ms: minutes * MINUTE_MS,
            step_ms: MINUTE_MS,
        };
        Self::Over(function, None, window)
    }

    /// From how long before a moment it needs samples.
    pub(super) fn lookback_ms(&self) -> i64 {
        match self {
            Self::Number(_) => 0,
            Self::Select(_) | Self::Timestamp(_) | Self::Absent(_) => LOOK_BACK_MS,
            Self::Over(_, _, ExprWindow::Samples { range_ms, offset_ms, .. }) => {
                range_ms + offset_ms
            }
            // Its first step may be before the window's begin by less than a step.
            Self::Over(_, _, ExprWindow::Subquery { inner, range_ms, step_ms }) => {
                range_ms + step_ms + inner.lookback_ms()
            }
            Self::Aggregate(_, _, _, of) | Self::HistogramQuantile(_, of) => of.lookback_ms(),
            Self::Binary(_, _, left, right) => left.lookback_ms().max(right.lookback_ms()),
        }
    }

    /// Whether how many values there are depends on what they are.
    pub(super) fn can_filter(&self) -> bool {
        match self {
            Self::Number(_) | Self::Select(_) | Self::Timestamp(_) | Self::Absent(_) => false,
            Self::Over(_, _, ExprWindow::Samples { .. }) => false,
            Self::Over(_, _, ExprWindow::Subquery { inner, .. }) => inner.can_filter(),
            Self::Aggregate(aggregate, _, _, of) => {
                matches!(aggregate, Aggregate::Topk | Aggregate::Bottomk) || of.can_filter()
            }
            Self::HistogramQuantile(_, of) => of.can_filter(),
            Self::Binary(operator, _, left, right) => {
                operator.is_comparison()
                    || *operator == ExprOperator::Unless
                    || left.can_filter()
                    || right.can_filter()
            }
        }
    }
}

/// A series whose last sample is older than this has no value any more.
pub(super) const LOOK_BACK_MS: i64 = 5 * MINUTE_MS;

impl ExprOperator {
    pub(super) fn is_comparison(self) -> bool {
        matches!(self, Self::Greater | Self::Less | Self::Equal)
    }
}

impl Display for Expr {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(out, "{number}"),
            Self::Select(selector) => selector.fmt(out),
            Self::Over(function, None, window) => write!(out, "{function}({window})"),
            Self::Over(over, Some(parameter), window) => {
                write!(out, "{over}({parameter}, {window})")
            }
            Self::Aggregate(aggregate, parameter, grouping, inner) => {
                write!(out, "{aggregate} {grouping} (")?;
                if let Some(parameter) = parameter {
                    write!(out, "{parameter}, ")?;
                }
                write!(out, "{inner})")
            }
            Self::Binary(operator, matching, left, right) => {
                write!(out, "({left} {operator}{matching} {right})")
            }
            Self::HistogramQuantile(quantile, of) => {
                write!(out, "histogram_quantile({quantile}, {of})")
            }
            Self::Timestamp(selector) => write!(out, "timestamp({selector})"),
            Self::Absent(selector) => write!(out, "absent({selector})"),
        }
    }
}

impl Display for Selector {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}{{", self.metric)?;
        for (number, matcher) in self.matchers.iter().enumerate() {
            if number > 0 {
                out.write_char(',')?;
            }
            match matcher {
                Matcher::Equal(label, value) => write!(out, "{label}=\"{value}\"")?,
                Matcher::NotEqual(label, value) => write!(out, "{label}!=\"{value}\"")?,
                Matcher::OneOf(label, values) => {
                    write!(out, "{label}=~\"{}\"", values.join("|"))?;
                }
            }
        }
        out.write_char('}')
    }
}

impl Display for ExprWindow {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let minutes = |ms: &i64| ms / MINUTE_MS;
        match self {
            Self::Samples { selector, range_ms, offset_ms } => {
                write!(out, "{selector}[{}m]", minutes(range_ms))?;
                match offset_ms {
                    0 => Ok(()),
                    offset => write!(out, " offset {}m", minutes(offset)),
                }
            }
            Self::Subquery { inner, range_ms, step_ms } => {
                write!(out, "({inner})[{}m:{}m]", minutes(range_ms), minutes(step_ms))
            }
        }
    }
}

impl Display for WindowFunction {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Rate => "rate",
            Self::Increase => "increase",
            Self::Delta => "delta",
            Self::Irate => "irate",
            Self::Idelta => "idelta",
            Self::Deriv => "deriv",
            Self::Resets => "resets",
            Self::Changes => "changes",
            Self::Avg => "avg_over_time",
            Self::Min => "min_over_time",
            Self::Max => "max_over_time",
            Self::Sum => "sum_over_time",
            Self::Count => "count_over_time",
            Self::Last => "last_over_time",
            Self::Stddev => "stddev_over_time",
            Self::Quantile => "quantile_over_time",
        })
    }
}

impl Display for Aggregate {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Count => "count",
            Self::Stddev => "stddev",
            Self::Quantile => "quantile",
            Self::Topk => "topk",
            Self::Bottomk => "bottomk",
        })
    }
}

impl Display for Grouping {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::By(labels) => write!(out, "by ({})", labels.join(", ")),
            Self::Without(labels) => write!(out, "without ({})", labels.join(", ")),
        }
    }
}

impl Display for ExprOperator {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Greater => ">",
            Self::Less => "<",
            Self::Equal => "==",
            Self::Unless => "unless",
        })
    }
}

impl Display for Matching {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameLabels => Ok(()),
            Self::On(labels) => write!(out, " on ({})", labels.join(", ")),
            Self::Ignoring(labels) => write!(out, " ignoring ({})", labels.join(", ")),
            Self::OnGroupLeft(labels) => {
                write!(out, " on ({}) group_left ()", labels.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests;
