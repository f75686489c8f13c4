//! Parses expressions: operators by precedence, the rest by descent. What is reported is the first thing that is
//! wrong, worded and placed as Prometheus does.

use super::duration::{Duration, Length, millis};
use super::lex::{Keyword, Shape, Token, split, unquote};
use super::{
    Aggregate, Aggregator, Binary, Call, Cardinality, Grouping, Node, Operator, Part, Position,
    Reach, Selector, Subquery, check, functions, print,
};
use crate::core::promql::error::QueryError;
use crate::core::promql::number;

/// Nodes above each other. Evaluation is recursive.
const DEPTH_MAX: usize = 250;

/// Functions whose result depends on the time of the step even where their arguments do not.
const TIME_DEPENDENT: [&str; 12] = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "hour",
    "info",
    "minute",
    "month",
    "predict_linear",
    "time",
    "timestamp",
    "year",
];

/// Makes a tree of a query.
///
/// # Errors
/// [`QueryError::Parse`] when it is not PromQL, or larger than can be evaluated.
pub(crate) fn parse(query: &str) -> Result<Node, QueryError> {
    let mut parser = Parser::new(query);
    let parsed = parser.whole_expression().and_then(|mut node| {
        check::check(&node)?;
        node.mark_comparing(false);
        Ok(node)
    });
    parsed.map_err(|refusal| refusal.placed(query))
}

/// Reads a series selector without modifiers, as `match[]` has it.
///
/// # Errors
/// [`QueryError::Parse`] when it is none.
pub(crate) fn parse_selector(text: &str) -> Result<Selector, QueryError> {
    let mut parser = Parser::new(text);
    let parsed = parser.vector_selector().and_then(|node| {
        parser.expect_end()?;
        match node.part {
            Part::Selector(selector) => Ok(*selector),
            _ => unreachable!("a selector was parsed"),
        }
    });
    parsed.map_err(|refusal| refusal.placed(text))
}

/// What is wrong, and where.
#[derive(Debug)]
pub(super) struct Refusal {
    pub position: Position,
    pub message: String,
}

impl Refusal {
    pub(super) fn new(position: Position, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { position, message }
    }

    fn placed(self, query: &str) -> QueryError {
        let (line, column) = self.position.line_and_column(query);
        let place = match query.is_empty() {
            true => "unknown position".to_owned(),
            false => format!("{line}:{column}"),
        };
        QueryError::Parse {
            message: format!("{place}: parse error: {}", self.message),
        }
    }
}

pub(super) type Parsed<T> = Result<T, Refusal>;

pub(super) struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
    /// Within how many aggregations the parser is.
    aggregations: usize,
}

impl<'a> Parser<'a> {
    fn new(query: &'a str) -> Self {
        Self {
            tokens: split(query),
            at: 0,
            depth: 0,
            aggregations: 0,
        }
    }

    pub(super) fn peek(&self) -> &Token<'a> {
        &self.tokens[self.at]
    }

    fn peek_after(&self) -> &Token<'a> {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)]
    }

    /// Takes the next token; the last one, which is none, stays.
    pub(super) fn next(&mut self) -> Token<'a> {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn is_mark(&self, mark: &str) -> bool {
        let token = self.peek();
        token.shape == Shape::Mark && token.text == mark
    }

    pub(super) fn takes_mark(&mut self, mark: &str) -> bool {
        let found = self.is_mark(mark);
        if found {
            self.next();
        }
        found
    }

    fn takes_keyword(&mut self, keyword: Keyword) -> bool {
        let found = self.peek().shape == Shape::Keyword(keyword);
        if found {
            self.next();
        }
        found
    }

    /// Where the token before ended.
    fn end(&self) -> usize {
        self.tokens[self.at.saturating_sub(1)].position.end
    }

    pub(super) fn since(&self, start: usize) -> Position {
        Position {
            start,
            end: self.end(),
        }
    }

    /// The next token is not what can stand there: in what, and what could.
    pub(super) fn unexpected_in(&self, context: &str, expected: &str) -> Refusal {
        let token = self.peek();
        if let Shape::Wrong(message) = &token.shape {
            return Refusal::new(token.position, message);
        }
        let mut message = format!("unexpected {}", token.described());
        if !context.is_empty() {
            message = format!("{message} in {context}");
        }
        if !expected.is_empty() {
            message = format!("{message}, expected {expected}");
        }
        Refusal::new(token.position, message)
    }

    pub(super) fn unexpected(&self) -> Refusal {
        let context = if self.aggregations > 0 {
            "aggregation"
        } else {
            ""
        };
        self.unexpected_in(context, "")
    }

    fn expect_mark(&mut self, mark: &str) -> Parsed<()> {
        match self.takes_mark(mark) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    fn expect_end(&self) -> Parsed<()> {
        match self.peek().shape {
            Shape::End => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    fn whole_expression(&mut self) -> Parsed<Node> {
        if self.peek().shape == Shape::End {
            let message = "no expression found in input";
            return Err(Refusal::new(Position::default(), message));
        }
        let node = self.expression(0)?;
        self.expect_end()?;
        Ok(node)
    }

    /// One more level of recursion, here and in the evaluation.
    fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let message = format!("a query has at most {DEPTH_MAX} expressions within each other");
            return Err(Refusal::new(self.peek().position, message));
        }
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    /// An expression whose operators bind at least so tightly.
    fn expression(&mut self, precedence: u8) -> Parsed<Node> {
        self.deeper(|parser| {
            let mut left = parser.operand()?;
            let mut chained = 0;
            loop {
                let Shape::Operator(operator) = parser.peek().shape else {
                    break;
                };
                let binds = operator.precedence();
                if binds < precedence {
                    break;
                }
                // Each makes the tree deeper on its left.
                chained += 1;
                parser.depth += 1;
                if parser.depth > DEPTH_MAX {
                    let message =
                        format!("a query has at most {DEPTH_MAX} expressions within each other");
                    return Err(Refusal::new(parser.peek().position, message));
                }
                left = parser.binary(operator, left)?;
            }
            parser.depth -= chained;
            Ok(left)
        })
    }

    fn binary(&mut self, operator: Operator, left: Node) -> Parsed<Node> {
        let operator_position = self.next().position;
        let precedence = operator.right_precedence();
        let returns_bool = self.takes_keyword(Keyword::Bool);
        let mut matching = Grouping::default();
        let mut cardinality = Cardinality::OneToOne;
        let mut include = Vec::new();
        if let Shape::Keyword(only @ (Keyword::On | Keyword::Ignoring)) = self.peek().shape {
            self.next();
            matching = Grouping::new(only == Keyword::On, self.grouping_labels()?);
            if let Shape::Keyword(group @ (Keyword::GroupLeft | Keyword::GroupRight)) =
                self.peek().shape
            {
                self.next();
                cardinality = match group {
                    Keyword::GroupLeft => Cardinality::ManyToOne,
                    _ => Cardinality::OneToMany,
                };
                if self.is_mark("(") {
                    include = self.grouping_labels()?;
                }
            }
        }
        let fill = self.fill()?;
        let right = self.expression(precedence)?;
        let position = Position {
            start: left.position.start,
            end: right.position.end,
        };
        let constant = left.constant && right.constant;
        let binary = Binary {
            operator,
            operator_position,
            left,
            right,
            returns_bool,
            matching,
            cardinality,
            include,
            fill,
        };
        Ok(Node {
            part: Part::Binary(Box::new(binary)),
            position,
            constant,
        })
    }

    fn fill(&mut self) -> Parsed<(Option<f64>, Option<f64>)> {
        let mut fill = (None, None);
        while let Shape::Keyword(side @ (Keyword::Fill | Keyword::FillLeft | Keyword::FillRight)) =
            self.peek().shape
        {
            self.next();
            self.expect_mark("(")?;
            let value = Some(self.signed_number()?);
            self.expect_mark(")")?;
            if side != Keyword::FillRight {
                fill.0 = value;
            }
            if side != Keyword::FillLeft {
                fill.1 = value;
            }
        }
        Ok(fill)
    }

    /// A sign and what it applies to, or an expression with what stands behind it.
    fn operand(&mut self) -> Parsed<Node> {
        let Shape::Operator(sign @ (Operator::Add | Operator::Sub)) = self.peek().shape else {
            let primary = self.primary()?;
            return self.modified(primary);
        };
        let start = self.next().position.start;
        let is_minus = sign == Operator::Sub;
        // A power binds tighter than a sign.
        let mut inner = self.expression(Operator::Pow.precedence())?;
        if let Part::Number(value, _) = &mut inner.part {
            *value = if is_minus { -*value } else { *value };
            inner.position.start = start;
            return Ok(inner);
        }
        let constant = inner.constant;
        let position = Position {
            start,
            end: inner.position.end,
        };
        Ok(Node {
            part: Part::Sign(Box::new(inner), is_minus),
            position,
            constant,
        })
    }

    fn primary(&mut self) -> Parsed<Node> {
        let token = self.peek().clone();
        let start = token.position.start;
        let is_called = {
            let after = self.peek_after();
            after.shape == Shape::Mark && after.text == "("
        };
        match token.shape {
            Shape::Number | Shape::Duration => {
                let value = self.number()?;
                let part = Part::Number(value, token.shape == Shape::Duration);
                Ok(self.leaf(part, start))
            }
            Shape::Text => {
                let text = self.unquoted()?;
                Ok(self.leaf(Part::Text(text), start))
            }
            Shape::Mark if token.text == "(" => {
                self.next();
                let inner = self.expression(0)?;
                self.expect_mark(")")?;
                let constant = inner.constant;
                Ok(Node {
                    part: Part::Paren(Box::new(inner)),
                    position: self.since(start),
                    constant,
                })
            }
            Shape::Aggregator(aggregator) => {
                let has_modifier = matches!(
                    self.peek_after().shape,
                    Shape::Keyword(Keyword::By | Keyword::Without)
                );
                match is_called || has_modifier {
                    true => self.aggregate(aggregator),
                    false => self.vector_selector(),
                }
            }
            Shape::Name if is_called => self.call(),
            Shape::Keyword(Keyword::Start | Keyword::End | Keyword::Step | Keyword::Range)
                if is_called =>
            {
                self.call()
            }
            _ => self.vector_selector(),
        }
    }

    fn leaf(&self, part: Part, start: usize) -> Node {
        Node {
            part,
            position: self.since(start),
            constant: true,
        }
    }

    fn number(&mut self) -> Parsed<f64> {
        let token = self.next();
        let value = match token.shape {
            Shape::Duration => number::duration_ms(token.text).map(|ms| ms as f64 / 1000.0),
            _ => number::parse_literal(token.text),
        };
        value.ok_or_else(|| {
            let shown = print::quoted(token.text);
            Refusal::new(
                token.position,
                format!("not a valid duration string: {shown}"),
            )
        })
    }

    pub(super) fn signed_number(&mut self) -> Parsed<f64> {
        let mut sign = 1.0;
        if let Shape::Operator(operator @ (Operator::Add | Operator::Sub)) = self.peek().shape {
            self.next();
            sign = if operator == Operator::Sub { -1.0 } else { 1.0 };
        }
        match self.peek().shape {
            Shape::Number | Shape::Duration => Ok(sign * self.number()?),
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn unquoted(&mut self) -> Parsed<Vec<u8>> {
        let token = self.next();
        unquote(token.text).ok_or_else(|| {
            let shown = print::quoted(token.text);
            let message = format!("error unquoting string {shown}: invalid syntax");
            Refusal::new(token.position, message)
        })
    }

    fn aggregate(&mut self, aggregator: Aggregator) -> Parsed<Node> {
        let start = self.next().position.start;
        self.aggregations += 1;
        let mut grouping = self.aggregate_grouping()?;
        if !self.is_mark("(") {
            return Err(self.unexpected());
        }
        let mut arguments = self.arguments()?.into_iter();
        if grouping.is_none() {
            grouping = self.aggregate_grouping()?;
        }
        self.aggregations -= 1;
        let position = self.since(start);
        let refuse = |message: String| Err(Refusal::new(position, message));
        let wanted = if aggregator.has_parameter() { 2 } else { 1 };
        if arguments.len() == 0 {
            return refuse("no arguments for aggregate expression provided".to_owned());
        }
        if arguments.len() != wanted {
            let got = arguments.len();
            return refuse(format!(
                "wrong number of arguments for aggregate expression provided, expected {wanted}, got {got}"
            ));
        }
        let parameter = match aggregator.has_parameter() {
            true => arguments.next(),
            false => None,
        };
        let inner = arguments.next().expect("the arguments were counted");
        let constant = inner.constant && parameter.as_ref().is_none_or(|node| node.constant);
        let aggregate = Aggregate {
            aggregator,
            parameter,
            inner,
            grouping: grouping.unwrap_or_else(|| Grouping::new(true, Vec::new())),
        };
        Ok(Node {
            part: Part::Aggregate(Box::new(aggregate)),
            position,
            constant,
        })
    }

    fn aggregate_grouping(&mut self) -> Parsed<Option<Grouping>> {
        let only = match self.peek().shape {
            Shape::Keyword(Keyword::By) => true,
            Shape::Keyword(Keyword::Without) => false,
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(Grouping::new(only, self.grouping_labels()?)))
    }

    fn call(&mut self) -> Parsed<Node> {
        let name = self.next();
        let arguments = self.arguments()?;
        // The keywords among the names may be in capitals.
        let found = match name.shape {
            Shape::Name => functions::lookup(name.text),
            _ => functions::lookup(&name.text.to_ascii_lowercase()),
        };
        let function = found.ok_or_else(|| {
            let shown = print::quoted(name.text);
            Refusal::new(name.position, format!("unknown function with name {shown}"))
        })?;
        let constant =
            !TIME_DEPENDENT.contains(&function.name) && arguments.iter().all(|node| node.constant);
        let call = Call {
            function,
            arguments,
        };
        Ok(Node {
            part: Part::Call(Box::new(call)),
            position: self.since(name.position.start),
            constant,
        })
    }

    fn arguments(&mut self) -> Parsed<Vec<Node>> {
        self.expect_mark("(")?;
        let mut arguments = Vec::new();
        if self.takes_mark(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.expression(0)?);
            if self.takes_mark(")") {
                return Ok(arguments);
            }
            let comma = self.peek().position;
            self.expect_mark(",")?;
            if self.is_mark(")") {
                let message = "trailing commas not allowed in function call args";
                return Err(Refusal::new(comma, message));
            }
        }
    }

    /// What stands behind an expression: ranges, and which time is meant.
    fn modified(&mut self, mut node: Node) -> Parsed<Node> {
        loop {
            let token = self.peek();
            node = match &token.shape {
                Shape::Mark if token.text == "[" => self.deeper(|parser| parser.range(node))?,
                Shape::Keyword(Keyword::Offset) => self.offset(node)?,
                Shape::Keyword(Keyword::Anchored | Keyword::Smoothed) => self.extended(node)?,
                Shape::At => self.at_time(node)?,
                _ => return Ok(node),
            };
        }
    }

    /// `[5m]`, `[1h:5m]`.
    fn range(&mut self, node: Node) -> Parsed<Node> {
        let start = node.position.start;
        let bracket = self.next().position;
        let range = self.bracketed(
            "subquery or range selector",
            "number, duration, step(), or range()",
        )?;
        if self.takes_mark("]") {
            return self.matrix(node, range, bracket);
        }
        if !self.takes_mark(":") {
            return Err(self.unexpected_in("subquery or range selector", "\":\" or \"]\""));
        }
        let mut step = None;
        if !self.takes_mark("]") {
            let expected = "number, duration, step(), range(), or \"]\"";
            step = Some(self.bracketed("subquery selector", expected)?);
            if !self.takes_mark("]") {
                return Err(self.unexpected_in("subquery selector", "\"]\""));
            }
        }
        let subquery = Subquery {
            inner: node,
            range,
            step,
            reach: Reach::default(),
        };
        Ok(Node {
            part: Part::Subquery(Box::new(subquery)),
            position: self.since(start),
            constant: false,
        })
    }

    fn matrix(&mut self, node: Node, range: Length, bracket: Position) -> Parsed<Node> {
        let position = self.since(node.position.start);
        let refuse = |message: &str| Err(Refusal::new(bracket, message));
        match node.part {
            Part::Selector(selector) => {
                let offset = &selector.reach.offset;
                if offset.ms != 0 || offset.sum.is_some() {
                    return refuse("no offset modifiers allowed before range");
                }
                if selector.reach.at.is_some() {
                    return refuse("no @ modifiers allowed before range");
                }
                Ok(Node {
                    part: Part::Range(selector, range),
                    position,
                    constant: false,
                })
            }
            _ => refuse("ranges only allowed for vector selectors"),
        }
    }

    /// A length of time within brackets.
    fn bracketed(&mut self, context: &str, expected: &str) -> Parsed<Length> {
        let start = self.peek().position;
        let sum = self
            .duration(0)
            .map_err(|refusal| match refusal.message.is_empty() {
                true => self.unexpected_in(context, expected),
                false => refusal,
            })?;
        if let Duration::Literal { seconds, .. } = sum {
            if seconds <= 0.0 {
                return Err(Refusal::new(start, "duration must be greater than 0"));
            }
            if millis(seconds) == super::duration::TIME_MAX || seconds.is_nan() {
                return Err(Refusal::new(start, "duration out of range"));
            }
        }
        Ok(Length::of(sum))
    }

    /// A sum of lengths of time. Where there is none the refusal is empty: the caller knows what could stand there.
    fn duration(&mut self, precedence: u8) -> Parsed<Duration> {
        self.deeper(|parser| {
            let mut left = parser.duration_operand()?;
            loop {
                let Shape::Operator(operator) = parser.peek().shape else {
                    return Ok(left);
                };
                let binds = operator.precedence();
                if binds < precedence || binds < 4 || operator == Operator::Atan2 {
                    return Ok(left);
                }
                parser.next();
                let right = parser.duration(operator.right_precedence())?;
                left = Duration::Binary(operator, Box::new(left), Box::new(right));
            }
        })
    }

    fn duration_operand(&mut self) -> Parsed<Duration> {
        let sign = match self.peek().shape {
            Shape::Operator(sign @ (Operator::Add | Operator::Sub)) => sign,
            _ => return self.duration_primary(),
        };
        self.next();
        let inner = self.duration(Operator::Pow.precedence())?;
        Ok(signed_duration(sign, inner))
    }

    /// A length of time without operators.
    fn duration_primary(&mut self) -> Parsed<Duration> {
        let token = self.peek().clone();
        match token.shape {
            Shape::Number | Shape::Duration => Ok(Duration::Literal {
                seconds: self.number()?,
                has_unit: token.shape == Shape::Duration,
            }),
            Shape::Keyword(word @ (Keyword::Step | Keyword::Range)) => {
                self.next();
                self.expect_mark("(")?;
                self.expect_mark(")")?;
                Ok(match word {
                    Keyword::Step => Duration::Step,
                    _ => Duration::Range,
                })
            }
            Shape::Aggregator(which @ (Aggregator::Min | Aggregator::Max)) => {
                self.next();
                self.expect_mark("(")?;
                let left = Box::new(self.duration(0)?);
                self.expect_mark(",")?;
                let right = Box::new(self.duration(0)?);
                self.expect_mark(")")?;
                Ok(match which {
                    Aggregator::Min => Duration::Least(left, right),
                    _ => Duration::Most(left, right),
                })
            }
            Shape::Mark if token.text == "(" => {
                self.next();
                let inner = self.duration(0)?;
                self.expect_mark(")")?;
                Ok(Duration::Paren(Box::new(inner)))
            }
            _ => Err(Refusal::new(token.position, "")),
        }
    }

    /// The length of an offset: operators after it belong to the expression, unless there are parentheses.
    pub(super) fn offset_length(&mut self) -> Parsed<Length> {
        let sign = match self.peek().shape {
            Shape::Operator(sign @ (Operator::Add | Operator::Sub)) => {
                self.next();
                Some(sign)
            }
            _ => None,
        };
        let start = self.peek().position;
        let length = self.duration_primary();
        let length = length.map_err(|refusal| match refusal.message.is_empty() {
            true => self.unexpected_in("offset", "number, duration, step(), or range()"),
            false => refusal,
        })?;
        if let Duration::Literal { seconds, .. } = length
            && (seconds.is_nan() || millis(seconds).abs() == super::duration::TIME_MAX)
        {
            return Err(Refusal::new(start, "duration out of range"));
        }
        Ok(Length::of(match sign {
            Some(sign) => signed_duration(sign, length),
            None => length,
        }))
    }
}

fn signed_duration(sign: Operator, inner: Duration) -> Duration {
    match (sign, inner) {
        (Operator::Sub, Duration::Literal { seconds, has_unit }) => Duration::Literal {
            seconds: -seconds,
            has_unit,
        },
        (Operator::Sub, inner) => Duration::Negation(Box::new(inner)),
        (_, inner) => inner,
    }
}
