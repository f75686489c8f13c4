//! Parses what stands behind an expression: ranges, which time is meant, and the lengths of time in
//! both.

use super::duration::{Duration, DurationExpr, TIME_MAX, millis};
use super::lex::{Keyword, TokenKind};
use super::parse::{Parsed, QueryParser, Refusal};
use super::{
    AtModifier, ExprKind, ExprNode, Operator, Position, RangeModifier, Subquery, TimeModifiers,
};
use crate::number;

const NO_SELECTOR: &str = "modifier must be preceded by an instant vector selector or range vector selector or a subquery";

impl QueryParser<'_> {
    /// What stands behind an expression: ranges, and which time is meant.
    pub(super) fn modified(&mut self, mut node: ExprNode) -> Parsed<ExprNode> {
        loop {
            let token = self.peek();
            node = match &token.shape {
                TokenKind::Mark if token.text == "[" => self.deeper(|parser| parser.range(node))?,
                TokenKind::Keyword(Keyword::Offset) => self.offset(node)?,
                TokenKind::Keyword(Keyword::Anchored | Keyword::Smoothed) => self.extended(node)?,
                TokenKind::At => self.at_time(node)?,
                _ => return Ok(node),
            };
        }
    }

    /// Parses a range or subquery, such as `[5m]` or `[1h:5m]`.
    fn range(&mut self, node: ExprNode) -> Parsed<ExprNode> {
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
            return Err(self.unexpected_in("subquery or range", "\":\" or \"]\""));
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
            reach: TimeModifiers::default(),
        };
        Ok(ExprNode {
            part: ExprKind::Subquery(Box::new(subquery)),
            position: self.since(start),
            constant: false,
        })
    }

    fn matrix(
        &mut self,
        node: ExprNode,
        range: DurationExpr,
        bracket: Position,
    ) -> Parsed<ExprNode> {
        let position = self.since(node.position.start);
        let refuse = |message: &str| Err(Refusal::new(bracket, message));
        match node.part {
            ExprKind::Selector(selector) => {
                let offset = &selector.reach.offset;
                if offset.ms != 0 || offset.sum.is_some() {
                    return refuse("no offset modifiers allowed before range");
                }
                if selector.reach.at.is_some() {
                    return refuse("no @ modifiers allowed before range");
                }
                Ok(ExprNode {
                    part: ExprKind::Range(selector, range),
                    position,
                    constant: false,
                })
            }
            _ => refuse("ranges only allowed for vector selectors"),
        }
    }

    /// A length of time within brackets.
    fn bracketed(&mut self, context: &str, expected: &str) -> Parsed<DurationExpr> {
        let start = self.peek().position;
        let sum = self.duration(0).map_err(|refusal| {
            if refusal.message.is_empty() {
                self.unexpected_in(context, expected)
            } else {
                refusal
            }
        })?;
        if let Duration::Literal { seconds, .. } = sum {
            if seconds <= 0.0 {
                return Err(Refusal::new(start, "duration must be greater than 0"));
            }
            if millis(seconds) == TIME_MAX || seconds.is_nan() {
                return Err(Refusal::new(start, "duration out of range"));
            }
        }
        Ok(DurationExpr::of(sum))
    }

    /// A sum of lengths of time. Where there is none the refusal is empty: the caller knows what
    /// could stand there.
    fn duration(&mut self, precedence: u8) -> Parsed<Duration> {
        self.deeper(|parser| {
            let mut left = parser.duration_operand()?;
            loop {
                let TokenKind::Operator(operator) = parser.peek().shape else {
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
            TokenKind::Operator(sign @ (Operator::Add | Operator::Sub)) => sign,
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
            TokenKind::Number | TokenKind::Duration => {
                let seconds = self.number()?;
                if seconds.is_nan() || millis(seconds).abs() == TIME_MAX {
                    return Err(Refusal::new(token.position, "duration out of range"));
                }
                let has_unit = token.shape == TokenKind::Duration;
                Ok(Duration::Literal { seconds, has_unit })
            }
            TokenKind::Keyword(word @ (Keyword::Step | Keyword::Range)) => {
                self.next();
                self.expect_mark("(")?;
                self.expect_mark(")")?;
                Ok(match word {
                    Keyword::Step => Duration::Step,
                    _ => Duration::Range,
                })
            }
            TokenKind::Keyword(which @ (Keyword::MinOf | Keyword::MaxOf)) => {
                self.next();
                self.expect_mark("(")?;
                let left = Box::new(self.duration(0)?);
                self.expect_mark(",")?;
                let right = Box::new(self.duration(0)?);
                self.expect_mark(")")?;
                Ok(match which {
                    Keyword::MinOf => Duration::Least(left, right),
                    _ => Duration::Most(left, right),
                })
            }
            TokenKind::Mark if token.text == "(" => {
                self.next();
                let inner = self.duration(0)?;
                self.expect_mark(")")?;
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
    fn offset_length(&mut self) -> Parsed<DurationExpr> {
        if self.is_mark("(") {
            return self
                .offset_part(|parser| parser.duration(0))
                .map(DurationExpr::of);
        }
        let sign = match self.peek().shape {
            TokenKind::Operator(sign @ (Operator::Add | Operator::Sub)) => {
                self.next();
                Some(sign)
            }
            _ => None,
        };
        let length = self.offset_part(|parser| match parser.peek().shape {
            TokenKind::Operator(Operator::Add | Operator::Sub) => parser.duration_operand(),
            _ => parser.duration_primary(),
        })?;
        Ok(DurationExpr::of(match sign {
            Some(sign) => signed_duration(sign, length),
            None => length,
        }))
    }

    /// A part of an offset, with what could stand there if it is missing.
    fn offset_part(
        &mut self,
        part: impl FnOnce(&mut Self) -> Parsed<Duration>,
    ) -> Parsed<Duration> {
        part(self).map_err(|refusal| {
            if refusal.message.is_empty() {
                self.unexpected_in("offset", "number, duration, step(), or range()")
            } else {
                refusal
            }
        })
    }

    fn offset(&mut self, mut node: ExprNode) -> Parsed<ExprNode> {
        self.next();
        let length = self.offset_length()?;
        let position = node.position;
        let Some(reach) = reach(&mut node) else {
            return Err(Refusal::new(position, format!("offset {NO_SELECTOR}")));
        };
        if reach.offset.ms != 0 || reach.offset.sum.is_some() {
            let message = "offset may not be set multiple times";
            return Err(Refusal::new(position, message));
        }
        reach.offset = length;
        node.position = self.since(position.start);
        Ok(node)
    }

    fn at_time(&mut self, mut node: ExprNode) -> Parsed<ExprNode> {
        self.next();
        let position = node.position;
        let at = match self.peek().shape {
            TokenKind::Keyword(bound @ (Keyword::Start | Keyword::End)) => {
                self.next();
                if !self.takes_mark("(") || !self.takes_mark(")") {
                    return Err(self.unexpected_in("@", "timestamp"));
                }
                match bound {
                    Keyword::Start => AtModifier::Start,
                    _ => AtModifier::End,
                }
            }
            _ => {
                let expected = |parser: &Self| parser.unexpected_in("@", "timestamp");
                let seconds = self
                    .signed_number()
                    .map_err(|refusal| match self.peek().shape {
                        TokenKind::Number | TokenKind::Duration => refusal,
                        _ => expected(self),
                    })?;
                let ms = (seconds * 1000.0).round();
                if ms.is_nan() || ms.abs() >= TIME_MAX as f64 {
                    let shown = number::fixed(seconds, 6);
                    let message = format!("timestamp out of bounds for @ modifier: {shown}");
                    return Err(Refusal::new(position, message));
                }
                AtModifier::Time(ms as i64)
            }
        };
        let Some(reach) = reach(&mut node) else {
            return Err(Refusal::new(position, format!("@ {NO_SELECTOR}")));
        };
        if reach.at.is_some() {
            let message = "@ <timestamp> may not be set multiple times";
            return Err(Refusal::new(position, message));
        }
        reach.at = Some(at);
        node.constant = true;
        node.position = self.since(position.start);
        Ok(node)
    }

    fn extended(&mut self, mut node: ExprNode) -> Parsed<ExprNode> {
        let keyword = self.next();
        let extension = match keyword.shape {
            TokenKind::Keyword(Keyword::Anchored) => RangeModifier::Anchored,
            _ => RangeModifier::Smoothed,
        };
        let word = keyword.text.to_ascii_lowercase();
        let refuse = |message: String| Err(Refusal::new(node.position, message));
        let selector = match &mut node.part {
            ExprKind::Selector(selector) | ExprKind::Range(selector, _) => selector,
            ExprKind::Subquery(_) => {
                return refuse(format!("{word} modifier is not supported for subqueries"));
            }
            _ => return refuse(format!("{word} modifier can only follow a selector")),
        };
        if selector.extension != RangeModifier::None && selector.extension != extension {
            let message = "anchored and smoothed modifiers cannot be used together";
            return refuse(message.to_owned());
        }
        selector.extension = extension;
        node.position = self.since(node.position.start);
        Ok(node)
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

fn reach(node: &mut ExprNode) -> Option<&mut TimeModifiers> {
    match &mut node.part {
        ExprKind::Selector(selector) | ExprKind::Range(selector, _) => Some(&mut selector.reach),
        ExprKind::Subquery(subquery) => Some(&mut subquery.reach),
        _ => None,
    }
}
