//! Parses expressions: operators by precedence, the rest by descent. What is reported is the first
//! thing that is wrong, worded and placed as Prometheus does.

use egret_metrics_model::matcher::Compiler;

use super::lex::{Keyword, QueryToken, TokenKind, tokenize, unquote};
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
    let parsed = parser.parse_whole().and_then(|mut node| {
        check::check(&node)?;
        node.mark_reset_detection(false);
        Ok(node)
    });
    parsed.map_err(|refusal| refusal.into_query_error(query))
}

/// Reads a series selector without modifiers, as `match[]` has it.
///
/// # Errors
/// [`QueryError::Parse`] when it is none.
pub(crate) fn parse_selector(text: &str, compiler: &mut Compiler) -> Result<Selector, QueryError> {
    let mut parser = QueryParser::new(text, compiler);
    let parsed = parser.parse_vector_selector().and_then(|node| {
        parser.expect_end()?;
        match node.kind {
            ExprKind::Selector(selector) => Ok(*selector),
            _ => unreachable!("a selector was parsed"),
        }
    });
    parsed.map_err(|refusal| refusal.into_query_error(text))
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

    fn into_query_error(self, query: &str) -> QueryError {
        let (line, column) = self.position.line_and_column(query);
        let place = if query.is_empty() {
            "unknown position".to_owned()
        } else {
            format!("{line}:{column}")
        };
        QueryError::Parse { message: format!("{place}: parse error: {}", self.message) }
    }
}

pub(super) type Parsed<T> = Result<T, Refusal>;

pub(super) struct QueryParser<'a> {
    tokens: Vec<QueryToken<'a>>,
    position: usize,
    depth: usize,
    /// Within how many aggregations the parser is.
    pub(super) aggregations: usize,
    pub(super) compiler: &'a mut Compiler,
}

impl<'a> QueryParser<'a> {
    fn new(query: &'a str, compiler: &'a mut Compiler) -> Self {
        Self { tokens: tokenize(query), position: 0, depth: 0, aggregations: 0, compiler }
    }

    pub(super) fn peek(&self) -> &QueryToken<'a> {
        &self.tokens[self.position]
    }

    fn peek_after(&self) -> &QueryToken<'a> {
        &self.tokens[(self.position + 1).min(self.tokens.len() - 1)]
    }

    /// Takes the next token; the last one, which is none, stays.
    pub(super) fn next_token(&mut self) -> QueryToken<'a> {
        let token = self.tokens[self.position].clone();
        self.position = (self.position + 1).min(self.tokens.len() - 1);
        token
    }

    pub(super) fn is_punctuation(&self, mark: &str) -> bool {
        let token = self.peek();
        token.kind == TokenKind::Punctuation && token.text == mark
    }

    pub(super) fn consume_punctuation(&mut self, mark: &str) -> bool {
        let is_found = self.is_punctuation(mark);
        if is_found {
            self.next_token();
        }
        is_found
    }

    fn consume_keyword(&mut self, keyword: Keyword) -> bool {
        let is_found = self.peek().kind == TokenKind::Keyword(keyword);
        if is_found {
            self.next_token();
        }
        is_found
    }

    /// End of the previous token.
    fn previous_end(&self) -> usize {
        self.tokens[self.position.saturating_sub(1)].position.end
    }

    pub(super) fn position_from(&self, start: usize) -> Position {
        Position { start, end: self.previous_end() }
    }

    /// The next token is not what can stand there: in what, and what could.
    pub(super) fn unexpected_in(&self, context: &str, expected: &str) -> Refusal {
        let token = self.peek();
        if let TokenKind::Invalid(message) = &token.kind {
            return Refusal::new(token.position, message);
        }
        let mut message = format!("unexpected {}", token.description());
        if !context.is_empty() {
            message = format!("{message} in {context}");
        }
        if !expected.is_empty() {
            message = format!("{message}, expected {expected}");
        }
        Refusal::new(token.position, message)
    }

    pub(super) fn unexpected(&self) -> Refusal {
        let context = if self.aggregations > 0 { "aggregation" } else { "" };
        self.unexpected_in(context, "")
    }

    pub(super) fn expect_punctuation(&mut self, mark: &str) -> Parsed<()> {
        if self.consume_punctuation(mark) { Ok(()) } else { Err(self.unexpected()) }
    }

    fn expect_end(&self) -> Parsed<()> {
        match self.peek().kind {
            TokenKind::End => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    fn parse_whole(&mut self) -> Parsed<ExprNode> {
        if self.peek().kind == TokenKind::End {
            let message = "no expression found in input";
            return Err(Refusal::new(Position::default(), message));
        }
        let node = self.parse_expression(0)?;
        self.expect_end()?;
        Ok(node)
    }

    /// One more level of recursion, here and in the evaluation.
    pub(super) fn with_depth<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<T> {
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
    pub(super) fn parse_expression(&mut self, precedence: u8) -> Parsed<ExprNode> {
        self.with_depth(|parser| {
            let mut left = parser.parse_operand()?;
            let mut chained = 0;
            while let TokenKind::Operator(operator) = parser.peek().kind {
                let binding = operator.precedence();
                if binding < precedence {
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
                left = parser.parse_binary(operator, left)?;
            }
            parser.depth -= chained;
            Ok(left)
        })
    }

    fn parse_binary(&mut self, operator: Operator, left: ExprNode) -> Parsed<ExprNode> {
        let operator_position = self.next_token().position;
        let precedence = operator.right_precedence();
        let returns_bool = self.consume_keyword(Keyword::Bool);
        let mut matching = Grouping::default();
        let mut cardinality = MatchCardinality::OneToOne;
        let mut include = Vec::new();
        if let TokenKind::Keyword(only @ (Keyword::On | Keyword::Ignoring)) = self.peek().kind {
            self.next_token();
            matching = Grouping::new(only == Keyword::On, self.parse_grouping_labels()?);
            if let TokenKind::Keyword(group @ (Keyword::GroupLeft | Keyword::GroupRight)) =
                self.peek().kind
            {
                self.next_token();
                cardinality = match group {
                    Keyword::GroupLeft => MatchCardinality::ManyToOne,
                    _ => MatchCardinality::OneToMany,
                };
                if self.is_punctuation("(") {
                    include = self.parse_grouping_labels()?;
                }
            }
        }
        let fill = self.parse_fill()?;
        let right = self.parse_expression(precedence)?;
        let position = Position { start: left.position.start, end: right.position.end };
        let constant = left.is_constant && right.is_constant;
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
        Ok(ExprNode { kind: ExprKind::Binary(Box::new(binary)), position, is_constant: constant })
    }

    fn parse_fill(&mut self) -> Parsed<(Option<f64>, Option<f64>)> {
        let mut fill = (None, None);
        while let TokenKind::Keyword(
            side @ (Keyword::Fill | Keyword::FillLeft | Keyword::FillRight),
        ) = self.peek().kind
        {
            self.next_token();
            self.expect_punctuation("(")?;
            let value = Some(self.parse_signed_number()?);
            self.expect_punctuation(")")?;
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
    fn parse_operand(&mut self) -> Parsed<ExprNode> {
        let TokenKind::Operator(sign @ (Operator::Add | Operator::Sub)) = self.peek().kind else {
            let primary = self.parse_primary()?;
            return self.parse_modifiers(primary);
        };
        let start = self.next_token().position.start;
        let is_minus = sign == Operator::Sub;
        // A power binds tighter than a sign.
        let mut inner = self.parse_expression(Operator::Pow.precedence())?;
        if let ExprKind::Number(value, _) = &mut inner.kind {
            *value = if is_minus { -*value } else { *value };
            inner.position.start = start;
            return Ok(inner);
        }
        let constant = inner.is_constant;
        let position = Position { start, end: inner.position.end };
        Ok(ExprNode {
            kind: ExprKind::Sign(Box::new(inner), is_minus),
            position,
            is_constant: constant,
        })
    }

    fn parse_primary(&mut self) -> Parsed<ExprNode> {
        let token = self.peek().clone();
        let start = token.position.start;
        let is_called = {
            let following = self.peek_after();
            following.kind == TokenKind::Punctuation && following.text == "("
        };
        match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                let value = self.parse_number()?;
                let kind = ExprKind::Number(value, token.kind == TokenKind::Duration);
                Ok(self.constant_node(kind, start))
            }
            TokenKind::Text => {
                let text = self.parse_string()?;
                Ok(self.constant_node(ExprKind::Text(text), start))
            }
            TokenKind::Punctuation if token.text == "(" => {
                self.next_token();
                let inner = self.parse_expression(0)?;
                self.expect_punctuation(")")?;
                let constant = inner.is_constant;
                Ok(ExprNode {
                    kind: ExprKind::Paren(Box::new(inner)),
                    position: self.position_from(start),
                    is_constant: constant,
                })
            }
            TokenKind::Aggregator(aggregator) => {
                let has_modifier = matches!(
                    self.peek_after().kind,
                    TokenKind::Keyword(Keyword::By | Keyword::Without)
                );
                if is_called || has_modifier {
                    self.parse_aggregate(aggregator)
                } else {
                    self.parse_vector_selector()
                }
            }
            TokenKind::Name if is_called => self.parse_call(),
            TokenKind::Keyword(word) if is_called && word.is_function_name() => self.parse_call(),
            _ => self.parse_vector_selector(),
        }
    }

    fn constant_node(&self, kind: ExprKind, start: usize) -> ExprNode {
        ExprNode { kind, position: self.position_from(start), is_constant: true }
    }

    pub(super) fn parse_number(&mut self) -> Parsed<f64> {
        let token = self.next_token();
        let value = match token.kind {
            TokenKind::Duration => {
                number::parse_duration_ms(token.text).map(|ms| ms as f64 / 1000.0)
            }
            _ => number::parse_literal(token.text),
        };
        value.ok_or_else(|| {
            let shown = print::quote(token.text);
            Refusal::new(token.position, format!("not a valid duration string: {shown}"))
        })
    }

    pub(super) fn parse_signed_number(&mut self) -> Parsed<f64> {
        let mut sign = 1.0;
        if let TokenKind::Operator(operator @ (Operator::Add | Operator::Sub)) = self.peek().kind {
            self.next_token();
            sign = if operator == Operator::Sub { -1.0 } else { 1.0 };
        }
        match self.peek().kind {
            TokenKind::Number | TokenKind::Duration => Ok(sign * self.parse_number()?),
            _ => Err(self.unexpected()),
        }
    }

    pub(super) fn parse_string(&mut self) -> Parsed<Vec<u8>> {
        let token = self.next_token();
        unquote(token.text).ok_or_else(|| {
            let shown = print::quote(token.text);
            let message = format!("error unquoting string {shown}: invalid syntax");
            Refusal::new(token.position, message)
        })
    }
}
