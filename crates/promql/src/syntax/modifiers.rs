//! Parses what stands behind an expression: ranges, which time is meant, and the lengths of time in
//! both.

use super::duration::{Duration, DurationExpr, TIME_MAX, to_millis};
use super::lex::{Keyword, TokenKind};
use super::parse::{Parsed, QueryParser, Refusal};
use super::{
    AtModifier, ExprKind, ExprNode, Operator, Position, RangeModifier, Subquery, TimeModifiers,
};
use crate::number;

const NO_SELECTOR: &str = "modifier must be preceded by an instant vector selector or range vector selector or a subquery";

impl QueryParser<'_> {
    /// What stands behind an expression: ranges, and which time is meant.
    pub(super) fn parse_modifiers(&mut self, mut node: ExprNode) -> Parsed<ExprNode> {
        loop {
            let token = self.peek();
            node = match &token.kind {
                TokenKind::Punctuation if token.text == "[" => {
                    self.with_depth(|parser| parser.parse_range(node))?
                }
                TokenKind::Keyword(Keyword::Offset) => self.parse_offset(node)?,
                TokenKind::Keyword(Keyword::Anchored | Keyword::Smoothed) => {
                    self.parse_extension(node)?
                }
                TokenKind::At => self.parse_at(node)?,
                _ => return Ok(node),
            };
        }
    }

    /// Parses a range or subquery, such as `[5m]` or `[1h:5m]`.
    fn parse_range(&mut self, node: ExprNode) -> Parsed<ExprNode> {
        let start = node.position.start;
        let bracket = self.next_token().position;
        let range = self.parse_bracketed(
            "subquery or range selector",
            "number, duration, step(), or range()",
        )?;
        if self.consume_punctuation("]") {
            return self.build_range(node, range, bracket);
        }
        if !self.consume_punctuation(":") {
            return Err(self.unexpected_in("subquery or range", "\":\" or \"]\""));
        }
        let mut step = None;
        if !self.consume_punctuation("]") {
            let expected = "number, duration, step(), range(), or \"]\"";
            step = Some(self.parse_bracketed("subquery selector", expected)?);
            if !self.consume_punctuation("]") {
                return Err(self.unexpected_in("subquery selector", "\"]\""));
            }
        }
        let subquery =
            Subquery { inner: node, range, step, time_modifiers: TimeModifiers::default() };
        Ok(ExprNode {
            kind: ExprKind::Subquery(Box::new(subquery)),
            position: self.position_from(start),
            is_constant: false,
        })
    }

    fn build_range(
        &mut self,
        node: ExprNode,
        range: DurationExpr,
        bracket: Position,
    ) -> Parsed<ExprNode> {
        let position = self.position_from(node.position.start);
        let new_error = |message: &str| Err(Refusal::new(bracket, message));
        match node.kind {
            ExprKind::Selector(selector) => {
                let offset = &selector.time_modifiers.offset;
                if offset.ms != 0 || offset.expression.is_some() {
                    return new_error("no offset modifiers allowed before range");
                }
                if selector.time_modifiers.at.is_some() {
                    return new_error("no @ modifiers allowed before range");
                }
                Ok(ExprNode {
                    kind: ExprKind::Range(selector, range),
                    position,
                    is_constant: false,
                })
            }
            _ => new_error("ranges only allowed for vector selectors"),
        }
    }

    /// A length of time within brackets.
    fn parse_bracketed(&mut self, context: &str, expected: &str) -> Parsed<DurationExpr> {
        let start = self.peek().position;
        let sum = self.parse_duration(0).map_err(|refusal| {
            if refusal.message.is_empty() { self.unexpected_in(context, expected) } else { refusal }
        })?;
        if let Duration::Literal { seconds, .. } = sum {
            if seconds <= 0.0 {
                return Err(Refusal::new(start, "duration must be greater than 0"));
            }
            if to_millis(seconds) == TIME_MAX || seconds.is_nan() {
                return Err(Refusal::new(start, "duration out of range"));
            }
        }
        Ok(DurationExpr::from_duration(sum))
    }

    /// A sum of lengths of time. Where there is none the refusal is empty: the caller knows what
    /// could stand there.
    fn parse_duration(&mut self, precedence: u8) -> Parsed<Duration> {
        self.with_depth(|parser| {
            let mut left = parser.parse_duration_operand()?;
            loop {
                let TokenKind::Operator(operator) = parser.peek().kind else {
                    return Ok(left);
                };
                let binding = operator.precedence();
                if binding < precedence || binding < 4 || operator == Operator::Atan2 {
                    return Ok(left);
                }
                parser.next_token();
                let right = parser.parse_duration(operator.right_precedence())?;
                left = Duration::Binary(operator, Box::new(left), Box::new(right));
            }
        })
    }

    fn parse_duration_operand(&mut self) -> Parsed<Duration> {
        let sign = match self.peek().kind {
            TokenKind::Operator(sign @ (Operator::Add | Operator::Sub)) => sign,
            _ => return self.parse_duration_primary(),
        };
        self.next_token();
        let inner = self.parse_duration(Operator::Pow.precedence())?;
        Ok(apply_sign(sign, inner))
    }

    /// A length of time without operators.
    fn parse_duration_primary(&mut self) -> Parsed<Duration> {
        let token = self.peek().clone();
        match token.kind {
            TokenKind::Number | TokenKind::Duration => {
                let seconds = self.parse_number()?;
                if seconds.is_nan() || to_millis(seconds).abs() == TIME_MAX {
                    return Err(Refusal::new(token.position, "duration out of range"));
                }
                let has_unit = token.kind == TokenKind::Duration;
                Ok(Duration::Literal { seconds, has_unit })
            }
            TokenKind::Keyword(word @ (Keyword::Step | Keyword::Range)) => {
                self.next_token();
                self.expect_punctuation("(")?;
                self.expect_punctuation(")")?;
                Ok(match word {
                    Keyword::Step => Duration::Step,
                    _ => Duration::Range,
                })
            }
            TokenKind::Keyword(which @ (Keyword::MinOf | Keyword::MaxOf)) => {
                self.next_token();
                self.expect_punctuation("(")?;
                let left = Box::new(self.parse_duration(0)?);
                self.expect_punctuation(",")?;
                let right = Box::new(self.parse_duration(0)?);
                self.expect_punctuation(")")?;
                Ok(match which {
                    Keyword::MinOf => Duration::Min(left, right),
                    _ => Duration::Max(left, right),
                })
            }
            TokenKind::Punctuation if token.text == "(" => {
                self.next_token();
                let inner = self.parse_duration(0)?;
                self.expect_punctuation(")")?;
                Ok(match inner {
                    wrapped @ Duration::Paren(_) => wrapped,
                    inner => Duration::Paren(Box::new(inner)),
                })
            }
            _ => Err(Refusal::new(token.position, "")),
        }
    }

    /// The length of an offset. Operators after it belong to the expression; but where it begins
    /// with a parenthesis, those of arithmetic go on with it, as they do in Prometheus.
    fn parse_offset_length(&mut self) -> Parsed<DurationExpr> {
        if self.is_punctuation("(") {
            return self
                .parse_offset_part(|parser| parser.parse_duration(0))
                .map(DurationExpr::from_duration);
        }
        let sign = match self.peek().kind {
            TokenKind::Operator(sign @ (Operator::Add | Operator::Sub)) => {
                self.next_token();
                Some(sign)
            }
            _ => None,
        };
        let length = self.parse_offset_part(|parser| match parser.peek().kind {
            TokenKind::Operator(Operator::Add | Operator::Sub) => parser.parse_duration_operand(),
            _ => parser.parse_duration_primary(),
        })?;
        Ok(DurationExpr::from_duration(match sign {
            Some(sign) => apply_sign(sign, length),
            None => length,
        }))
    }

    /// A part of an offset, with what could stand there if it is missing.
    fn parse_offset_part(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Parsed<Duration>,
    ) -> Parsed<Duration> {
        parse(self).map_err(|refusal| {
            if refusal.message.is_empty() {
                self.unexpected_in("offset", "number, duration, step(), or range()")
            } else {
                refusal
            }
        })
    }

    fn parse_offset(&mut self, mut node: ExprNode) -> Parsed<ExprNode> {
        self.next_token();
        let length = self.parse_offset_length()?;
        let position = node.position;
        let Some(modifiers) = time_modifiers_mut(&mut node) else {
            return Err(Refusal::new(position, format!("offset {NO_SELECTOR}")));
        };
        if modifiers.offset.ms != 0 || modifiers.offset.expression.is_some() {
            let message = "offset may not be set multiple times";
            return Err(Refusal::new(position, message));
        }
        modifiers.offset = length;
        node.position = self.position_from(position.start);
        Ok(node)
    }

    fn parse_at(&mut self, mut node: ExprNode) -> Parsed<ExprNode> {
        self.next_token();
        let position = node.position;
        let at = match self.peek().kind {
            TokenKind::Keyword(bound @ (Keyword::Start | Keyword::End)) => {
                self.next_token();
                if !self.consume_punctuation("(") || !self.consume_punctuation(")") {
                    return Err(self.unexpected_in("@", "timestamp"));
                }
                match bound {
                    Keyword::Start => AtModifier::Start,
                    _ => AtModifier::End,
                }
            }
            _ => {
                let expected = |parser: &Self| parser.unexpected_in("@", "timestamp");
                let seconds =
                    self.parse_signed_number().map_err(|refusal| match self.peek().kind {
                        TokenKind::Number | TokenKind::Duration => refusal,
                        _ => expected(self),
                    })?;
                let ms = (seconds * 1000.0).round();
                if ms.is_nan() || ms.abs() >= TIME_MAX as f64 {
                    let shown = number::format_fixed(seconds, 6);
                    let message = format!("timestamp out of bounds for @ modifier: {shown}");
                    return Err(Refusal::new(position, message));
                }
                AtModifier::Time(ms as i64)
            }
        };
        let Some(modifiers) = time_modifiers_mut(&mut node) else {
            return Err(Refusal::new(position, format!("@ {NO_SELECTOR}")));
        };
        if modifiers.at.is_some() {
            let message = "@ <timestamp> may not be set multiple times";
            return Err(Refusal::new(position, message));
        }
        modifiers.at = Some(at);
        node.is_constant = true;
        node.position = self.position_from(position.start);
        Ok(node)
    }

    fn parse_extension(&mut self, mut node: ExprNode) -> Parsed<ExprNode> {
        let keyword = self.next_token();
        let extension = match keyword.kind {
            TokenKind::Keyword(Keyword::Anchored) => RangeModifier::Anchored,
            _ => RangeModifier::Smoothed,
        };
        let word = keyword.text.to_ascii_lowercase();
        let new_error = |message: String| Err(Refusal::new(node.position, message));
        let selector = match &mut node.kind {
            ExprKind::Selector(selector) | ExprKind::Range(selector, _) => selector,
            ExprKind::Subquery(_) => {
                return new_error(format!("{word} modifier is not supported for subqueries"));
            }
            _ => return new_error(format!("{word} modifier can only follow a selector")),
        };
        if selector.range_modifier != RangeModifier::None && selector.range_modifier != extension {
            let message = "anchored and smoothed modifiers cannot be used together";
            return new_error(message.to_owned());
        }
        selector.range_modifier = extension;
        node.position = self.position_from(node.position.start);
        Ok(node)
    }
}

fn apply_sign(sign: Operator, inner: Duration) -> Duration {
    match (sign, inner) {
        (Operator::Sub, Duration::Literal { seconds, has_unit }) => {
            Duration::Literal { seconds: -seconds, has_unit }
        }
        (Operator::Sub, inner) => Duration::Negation(Box::new(inner)),
        (_, inner) => inner,
    }
}

fn time_modifiers_mut(node: &mut ExprNode) -> Option<&mut TimeModifiers> {
    match &mut node.kind {
        ExprKind::Selector(selector) | ExprKind::Range(selector, _) => {
            Some(&mut selector.time_modifiers)
        }
        ExprKind::Subquery(subquery) => Some(&mut subquery.time_modifiers),
        _ => None,
    }
}
