//! Parses expressions: operators by precedence, the rest by descent. What is reported is the first
//! thing that is wrong, worded and placed as Prometheus does.

use egret_metrics_model::matcher::Compiler;

use super::lex::{Keyword, QueryToken, TokenKind, split, unquote};
use super::{
    Binary, ExprKind, ExprNode, Grouping, MatchCardinality, Operator, Position, Selector, check,
    print,
};
use crate::error::QueryError;
use crate::number;

/// Nodes above each other. Evaluation is recursive.
const DEPTH_MAX: usize = 250;

/// Makes a tree of a query.
///
/// # Errors
/// [`QueryError::Parse`] when it is not PromQL, or larger than can be evaluated.
pub(crate) fn parse(query: &str) -> Result<ExprNode, QueryError> {
    let mut compiler = Compiler::default();
    let mut parser = QueryParser::new(query, &mut compiler);
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
pub(crate) fn parse_selector(text: &str, compiler: &mut Compiler) -> Result<Selector, QueryError> {
    let mut parser = QueryParser::new(text, compiler);
    let parsed = parser.vector_selector().and_then(|node| {
        parser.expect_end()?;
        match node.part {
            ExprKind::Selector(selector) => Ok(*selector),
            _ => unreachable!("a selector was parsed"),
        }
    });
    parsed.map_err(|refusal| refusal.placed(text))
}

/// A syntax error and its position.
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
        let place = if query.is_empty() {
            "unknown position".to_owned()
        } else {
            format!("{line}:{column}")
        };
        QueryError::Parse {
            message: format!("{place}: parse error: {}", self.message),
        }
    }
}

pub(super) type Parsed<T> = Result<T, Refusal>;

pub(super) struct QueryParser<'a> {
    tokens: Vec<QueryToken<'a>>,
    at: usize,
    depth: usize,
    /// Within how many aggregations the parser is.
    pub(super) aggregations: usize,
    pub(super) compiler: &'a mut Compiler,
}

impl<'a> QueryParser<'a> {
    fn new(query: &'a str, compiler: &'a mut Compiler) -> Self {
        Self {
            tokens: split(query),
            at: 0,
            depth: 0,
            aggregations: 0,
            compiler,
        }
    }

    pub(super) fn peek(&self) -> &QueryToken<'a> {
        &self.tokens[self.at]
    }

    fn peek_after(&self) -> &QueryToken<'a> {
        &self.tokens[(self.at + 1).min(self.tokens.len() - 1)]
    }

    /// Takes the next token; the last one, which is none, stays.
    pub(super) fn next(&mut self) -> QueryToken<'a> {
        let token = self.tokens[self.at].clone();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn is_mark(&self, mark: &str) -> bool {
        let token = self.peek();
        token.shape == TokenKind::Mark && token.text == mark
    }

    pub(super) fn takes_mark(&mut self, mark: &str) -> bool {
        let found = self.is_mark(mark);
        if found {
            self.next();
        }
        found
    }

    fn takes_keyword(&mut self, keyword: Keyword) -> bool {
        let found = self.peek().shape == TokenKind::Keyword(keyword);
        if found {
            self.next();
        }
        found
    }

    /// End of the previous token.
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
        if let TokenKind::Wrong(message) = &token.shape {
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

    pub(super) fn expect_mark(&mut self, mark: &str) -> Parsed<()> {
        if self.takes_mark(mark) {
            Ok(())
        } else {
            Err(self.unexpected())
        }
    }

    fn expect_end(&self) -> Parsed<()> {
        match self.peek().shape {
            TokenKind::End => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    fn whole_expression(&mut self) -> Parsed<ExprNode> {
        if self.peek().shape == TokenKind::End {
            let message = "no expression found in input";
            return Err(Refusal::new(Position::default(), message));
        }
        let node = self.expression(0)?;
        self.expect_end()?;
        Ok(node)
    }

    /// One more level of recursion, here and in the evaluation.
    pub(super) fn deeper<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
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
    pub(super) fn expression(&mut self, precedence: u8) -> Parsed<ExprNode> {
        self.deeper(|parser| {
            let mut left = parser.operand()?;
            let mut chained = 0;
            while let TokenKind::Operator(operator) = parser.peek().shape {
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

    fn binary(&mut self, operator: Operator, left: ExprNode) -> Parsed<ExprNode> {
        let operator_position = self.next().position;
        let precedence = operator.right_precedence();
        let returns_bool = self.takes_keyword(Keyword::Bool);
        let mut matching = Grouping::default();
        let mut cardinality = MatchCardinality::OneToOne;
        let mut include = Vec::new();
        if let TokenKind::Keyword(only @ (Keyword::On | Keyword::Ignoring)) = self.peek().shape {
            self.next();
            matching = Grouping::new(only == Keyword::On, self.grouping_labels()?);
            if let TokenKind::Keyword(group @ (Keyword::GroupLeft | Keyword::GroupRight)) =
                self.peek().shape
            {
                self.next();
                cardinality = match group {
                    Keyword::GroupLeft => MatchCardinality::ManyToOne,
                    _ => MatchCardinality::OneToMany,
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
        Ok(ExprNode {
            part: ExprKind::Binary(Box::new(binary)),
            position,
            constant,
        })
    }

    fn fill(&mut self) -> Parsed<(Option<f64>, Option<f64>)> {
        let mut fill = (None, None);
        while let TokenKind::Keyword(
            side @ (Keyword::Fill | Keyword::FillLeft | Keyword::FillRight),
        ) = self.peek().shape
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
    fn operand(&mut self) -> Parsed<ExprNode> {
        let TokenKind::Operator(sign @ (Operator::Add | Operator::Sub)) = self.peek().shape else {
            let primary = self.primary()?;
            return self.modified(primary);
        };
        let start = self.next().position.start;
        let is_minus = sign == Operator::Sub;
        // A power binds tighter than a sign.
        let mut inner = self.expression(Operator::Pow.precedence())?;
        if let ExprKind::Number(value, _) = &mut inner.part {
            *value = if is_minus { -*value } else { *value };
            inner.position.start = start;
            return Ok(inner);
        }
        let constant = inner.constant;
        let position = Position {
            start,
            end: inner.position.end,
        };
        Ok(ExprNode {
            part: ExprKind::Sign(Box::new(inner), is_minus),
            position,
            constant,
        })
    }

    fn primary(&mut self) -> Parsed<ExprNode> {
        let token = self.peek().clone();
        let start = token.position.start;
        let is_called = {
            let after = self.peek_after();
            after.shape == TokenKind::Mark && after.text == "("
        };
        match token.shape {
            TokenKind::Number | TokenKind::Duration => {
                let value = self.number()?;
                let part = ExprKind::Number(value, token.shape == TokenKind::Duration);
                Ok(self.leaf(part, start))
            }
            TokenKind::Text => {
                let text = self.unquoted()?;
                Ok(self.leaf(ExprKind::Text(text), start))
            }
            TokenKind::Mark if token.text == "(" => {
                self.next();
                let inner = self.expression(0)?;
                self.expect_mark(")")?;
                let constant = inner.constant;
                Ok(ExprNode {
                    part: ExprKind::Paren(Box::new(inner)),
                    position: self.since(start),
                    constant,
                })
            }
            TokenKind::Aggregator(aggregator) => {
                let has_modifier = matches!(
                    self.peek_after().shape,
                    TokenKind::Keyword(Keyword::By | Keyword::Without)
                );
                if is_called || has_modifier {
                    self.aggregate(aggregator)
                } else {
                    self.vector_selector()
                }
            }
            TokenKind::Name if is_called => self.call(),
            TokenKind::Keyword(word) if is_called && word.names_function() => self.call(),
            _ => self.vector_selector(),
        }
    }

    fn leaf(&self, part: ExprKind, start: usize) -> ExprNode {
        ExprNode {
            part,
            position: self.since(start),
            constant: true,
        }
    }

    pub(super) fn number(&mut self) -> Parsed<f64> {
        let token = self.next();
        let value = match token.shape {
            TokenKind::Duration => number::duration_ms(token.text).map(|ms| ms as f64 / 1000.0),
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
        if let TokenKind::Operator(operator @ (Operator::Add | Operator::Sub)) = self.peek().shape {
            self.next();
            sign = if operator == Operator::Sub { -1.0 } else { 1.0 };
        }
        match self.peek().shape {
            TokenKind::Number | TokenKind::Duration => Ok(sign * self.number()?),
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
}
