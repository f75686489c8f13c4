//! Walks the tokens of a query along the tree that `promql-parser` made of it.

use std::time::{Duration, SystemTime};

use promql_parser::label as foreign_label;
use promql_parser::parser as foreign;

use super::tokens::{Shape, Token, split, unquote};
use super::{
    Aggregate, Aggregator, At, Binary, Call, Cardinality, Grouping, Node, Operator, Part, Position,
    Reach, Selector, Subquery,
};
use crate::core::promql::error::QueryError;
use crate::core::promql::source::LabelMatcher;
use crate::model::{METRIC_NAME, MatchOp, Matcher};

/// Nodes above each other. Evaluation is recursive.
const DEPTH_MAX: usize = 250;

/// Times and durations are cut here, in milliseconds, so that sums of a few of them can be represented.
const TIME_MAX: i64 = i64::MAX / 16;

/// Functions whose result depends on the time of the step even where their arguments do not.
const TIME_DEPENDENT: [&str; 12] = [
    "days_in_month",
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "hour",
    "minute",
    "month",
    "year",
    "predict_linear",
    "time",
    "timestamp",
    "info",
];

/// Makes a tree of a query.
///
/// # Errors
/// [`QueryError::Parse`] when it is not PromQL, or larger than can be evaluated.
pub(crate) fn parse(query: &str) -> Result<Node, QueryError> {
    let tokens = split(query)?;
    if tokens.is_empty() {
        return Err(refuse("no expression found in input"));
    }
    let tree = foreign::parse(query).map_err(|message| refuse(&message))?;
    let mut walk = Walk {
        tokens: &tokens,
        at: 0,
        depth: 0,
    };
    let node = walk.node(&tree)?;
    match walk.peek() {
        None => Ok(node),
        Some(token) => Err(refuse(&format!("unexpected {:?}", token.text))),
    }
}

/// A query as people lay it out: long ones over several lines.
///
/// # Errors
/// As of [`parse`].
pub(crate) fn formatted(query: &str) -> Result<String, QueryError> {
    parse(query)?;
    let tree = foreign::parse(query).map_err(|message| refuse(&message))?;
    Ok(tree.prettify())
}

fn refuse(message: &str) -> QueryError {
    let message = format!("parse error: {message}");
    QueryError::Parse { message }
}

struct Walk<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    depth: usize,
}

impl<'a> Walk<'a> {
    fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Result<Token<'a>, QueryError> {
        let token = self
            .peek()
            .ok_or_else(|| refuse("unexpected end of input"))?;
        self.at += 1;
        Ok(token)
    }

    fn is_next(&self, text: &str) -> bool {
        let next = self.peek();
        next.is_some_and(|token| {
            token.shape != Shape::Text && token.text.eq_ignore_ascii_case(text)
        })
    }

    /// Takes the token if it is this one.
    fn takes(&mut self, text: &str) -> bool {
        let found = self.is_next(text);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, text: &str) -> Result<(), QueryError> {
        if self.takes(text) {
            return Ok(());
        }
        let got = self.peek().map_or("end of input", |token| token.text);
        Err(refuse(&format!("unexpected {got:?}, expected {text:?}")))
    }

    /// Goes behind the end of a group that begins here, if one does.
    fn skip_group(&mut self, open: &str, close: &str) {
        if self.takes(open) {
            while self.peek().is_some() && !self.takes(close) {
                self.at += 1;
            }
        }
    }

    fn end(&self) -> usize {
        self.tokens[self.at.saturating_sub(1)].position.end
    }

    fn node(&mut self, tree: &foreign::Expr) -> Result<Node, QueryError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(refuse(&format!(
                "a query has at most {DEPTH_MAX} expressions within each other"
            )));
        }
        // A unary plus is not in the tree, and the sign of a number is in its value.
        let is_number = matches!(tree, foreign::Expr::NumberLiteral(_));
        let start = self.peek().map_or(0, |token| token.position.start);
        while self.takes("+") || is_number && self.takes("-") {}
        let (part, constant) = self.part(tree)?;
        self.depth -= 1;
        let from = match &part {
            Part::Binary(binary) => binary.left.position.start,
            _ => start,
        };
        let position = Position {
            start: from,
            end: self.end(),
        };
        Ok(Node {
            part,
            position,
            constant,
        })
    }

    fn part(&mut self, tree: &foreign::Expr) -> Result<(Part, bool), QueryError> {
        match tree {
            foreign::Expr::NumberLiteral(number) => {
                self.next()?;
                Ok((Part::Number(number.val), true))
            }
            foreign::Expr::StringLiteral(_) => {
                let literal = self.next()?.text;
                let text = unquote(literal);
                let text = text.ok_or_else(|| refuse(&format!("invalid string {literal}")))?;
                Ok((Part::Text(text), true))
            }
            foreign::Expr::Paren(paren) => {
                self.expect("(")?;
                let inner = self.node(&paren.expr)?;
                self.expect(")")?;
                let constant = inner.constant;
                Ok((Part::Paren(Box::new(inner)), constant))
            }
            foreign::Expr::Unary(unary) => {
                self.expect("-")?;
                let inner = self.node(&unary.expr)?;
                let constant = inner.constant;
                Ok((Part::Negation(Box::new(inner)), constant))
            }
            foreign::Expr::Binary(binary) => self.binary(binary),
            foreign::Expr::Aggregate(aggregate) => self.aggregate(aggregate),
            foreign::Expr::Call(call) => self.call(call),
            foreign::Expr::VectorSelector(selector) => {
                let selector = self.selector(selector)?;
                let constant = selector.reach.at.is_some();
                Ok((Part::Selector(Box::new(selector)), constant))
            }
            foreign::Expr::MatrixSelector(matrix) => {
                let selector = self.selector(&matrix.vs)?;
                let constant = selector.reach.at.is_some();
                let range_ms = positive(matrix.range)?;
                Ok((Part::Range(Box::new(selector), range_ms), constant))
            }
            foreign::Expr::Subquery(subquery) => self.subquery(subquery),
            foreign::Expr::Extension(_) => Err(refuse("an extension of the parser")),
        }
    }

    fn binary(&mut self, tree: &foreign::BinaryExpr) -> Result<(Part, bool), QueryError> {
        let left = self.node(&tree.lhs)?;
        let name = self.next()?.text.to_ascii_lowercase();
        let mut names = Operator::NAMES.iter();
        let operator = names.find(|(other, _)| **other == *name);
        let operator = operator
            .ok_or_else(|| refuse(&format!("unexpected {name:?}")))?
            .1;
        self.takes("bool");
        if self.takes("on") || self.takes("ignoring") {
            self.skip_group("(", ")");
        }
        if self.takes("group_left") || self.takes("group_right") {
            self.skip_group("(", ")");
        }
        while self.is_next("fill") || self.is_next("fill_left") || self.is_next("fill_right") {
            if self
                .tokens
                .get(self.at + 1)
                .is_none_or(|token| token.text != "(")
            {
                break;
            }
            self.at += 1;
            self.skip_group("(", ")");
        }
        let right = self.node(&tree.rhs)?;
        let modifier = tree.modifier.clone().unwrap_or_default();
        let (cardinality, include) = match &modifier.card {
            foreign::VectorMatchCardinality::ManyToOne(labels) => {
                (Cardinality::ManyToOne, names_of(labels))
            }
            foreign::VectorMatchCardinality::OneToMany(labels) => {
                (Cardinality::OneToMany, names_of(labels))
            }
            _ => (Cardinality::OneToOne, Vec::new()),
        };
        let constant = left.constant && right.constant;
        let binary = Binary {
            operator,
            left,
            right,
            returns_bool: modifier.return_bool,
            matching: grouping(modifier.matching.as_ref()),
            cardinality,
            include,
            fill: (modifier.fill_values.lhs, modifier.fill_values.rhs),
        };
        Ok((Part::Binary(Box::new(binary)), constant))
    }

    fn aggregate(&mut self, tree: &foreign::AggregateExpr) -> Result<(Part, bool), QueryError> {
        let name = self.next()?.text.to_ascii_lowercase();
        let mut names = Aggregator::NAMES.iter();
        let aggregator = names.find(|(other, _)| **other == *name);
        let aggregator = aggregator
            .ok_or_else(|| refuse(&format!("unexpected {name:?}")))?
            .1;
        if self.takes("by") || self.takes("without") {
            self.skip_group("(", ")");
        }
        self.expect("(")?;
        let parameter = match &tree.param {
            Some(parameter) => {
                let node = self.node(parameter)?;
                self.expect(",")?;
                Some(node)
            }
            None => None,
        };
        let inner = self.node(&tree.expr)?;
        self.expect(")")?;
        if self.takes("by") || self.takes("without") {
            self.skip_group("(", ")");
        }
        let grouping = match &tree.modifier {
            None => Grouping {
                only: true,
                labels: Vec::new(),
            },
            modifier => grouping(modifier.as_ref()),
        };
        let constant = inner.constant && parameter.as_ref().is_none_or(|node| node.constant);
        let aggregate = Aggregate {
            aggregator,
            parameter,
            inner,
            grouping,
        };
        Ok((Part::Aggregate(Box::new(aggregate)), constant))
    }

    fn call(&mut self, tree: &foreign::Call) -> Result<(Part, bool), QueryError> {
        self.next()?;
        self.expect("(")?;
        let mut arguments = Vec::new();
        for (at, argument) in tree.args.args.iter().enumerate() {
            if at > 0 {
                self.expect(",")?;
            }
            arguments.push(self.node(argument)?);
        }
        self.expect(")")?;
        let function = tree.func.name;
        let constant =
            !TIME_DEPENDENT.contains(&function) && arguments.iter().all(|node| node.constant);
        let call = Call {
            function,
            arguments,
        };
        Ok((Part::Call(Box::new(call)), constant))
    }

    fn subquery(&mut self, tree: &foreign::SubqueryExpr) -> Result<(Part, bool), QueryError> {
        let inner = self.node(&tree.expr)?;
        self.skip_group("[", "]");
        self.skip_modifiers();
        let reach = reach(tree.offset.as_ref(), tree.at.as_ref())?;
        let constant = reach.at.is_some();
        let subquery = Subquery {
            inner,
            range_ms: positive(tree.range)?,
            step_ms: tree.step.map(positive).transpose()?,
            reach,
        };
        Ok((Part::Subquery(Box::new(subquery)), constant))
    }

    fn selector(&mut self, tree: &foreign::VectorSelector) -> Result<Selector, QueryError> {
        if tree.name.is_some() {
            self.next()?;
        }
        self.skip_group("{", "}");
        self.skip_group("[", "]");
        self.skip_modifiers();
        let mut matchers = Vec::new();
        if let Some(name) = &tree.name {
            let (name, op, value) = (METRIC_NAME.into(), MatchOp::Equal, name.as_str().into());
            matchers.push(LabelMatcher::new(Matcher { name, op, value })?);
        }
        for matcher in &tree.matchers.matchers {
            let op = match matcher.op {
                foreign_label::MatchOp::Equal => MatchOp::Equal,
                foreign_label::MatchOp::NotEqual => MatchOp::NotEqual,
                foreign_label::MatchOp::Re(_) => MatchOp::Matches,
                foreign_label::MatchOp::NotRe(_) => MatchOp::NotMatches,
            };
            let (name, value) = (matcher.name.as_str().into(), matcher.value.as_str().into());
            matchers.push(LabelMatcher::new(Matcher { name, op, value })?);
        }
        let reach = reach(tree.offset.as_ref(), tree.at.as_ref())?;
        Ok(Selector { matchers, reach })
    }

    /// Goes behind `offset …` and `@ …`, in any order.
    fn skip_modifiers(&mut self) {
        while self.is_next("offset") || self.is_next("@") {
            self.at += 1;
            while self.takes("-") || self.takes("+") {}
            self.at += 1;
            self.skip_group("(", ")");
        }
    }
}

fn names_of(labels: &foreign_label::Labels) -> Vec<Box<str>> {
    let mut names: Vec<Box<str>> = labels
        .labels
        .iter()
        .map(|name| name.as_str().into())
        .collect();
    names.sort();
    names.dedup();
    names
}

fn grouping(modifier: Option<&foreign::LabelModifier>) -> Grouping {
    match modifier {
        Some(foreign::LabelModifier::Include(labels)) => Grouping {
            only: true,
            labels: names_of(labels),
        },
        Some(foreign::LabelModifier::Exclude(labels)) => Grouping {
            only: false,
            labels: names_of(labels),
        },
        None => Grouping::default(),
    }
}

fn millis(duration: Duration) -> i64 {
    // Rounded up from half, as a number of seconds may carry a rest.
    i64::try_from((duration.as_nanos() + 500_000) / 1_000_000)
        .unwrap_or(TIME_MAX)
        .min(TIME_MAX)
}

fn reach(
    offset: Option<&foreign::Offset>,
    at: Option<&foreign::AtModifier>,
) -> Result<Reach, QueryError> {
    let offset_ms = match offset {
        Some(foreign::Offset::Pos(duration)) => millis(*duration),
        Some(foreign::Offset::Neg(duration)) => -millis(*duration),
        None => 0,
    };
    let at = at.map(|at| match at {
        foreign::AtModifier::Start => At::Start,
        foreign::AtModifier::End => At::End,
        foreign::AtModifier::At(time) => {
            At::Time(match time.duration_since(SystemTime::UNIX_EPOCH) {
                Ok(after) => millis(after),
                Err(before) => -millis(before.duration()),
            })
        }
    });
    match at {
        Some(At::Time(time)) if time.abs() >= TIME_MAX => {
            Err(refuse("timestamp out of bounds for @ modifier"))
        }
        at => Ok(Reach { offset_ms, at }),
    }
}

/// How long a window is; the parser lets zero pass where it is written without a unit.
fn positive(duration: Duration) -> Result<i64, QueryError> {
    match millis(duration) {
        0 => Err(refuse("duration must be greater than 0")),
        length => Ok(length),
    }
}
