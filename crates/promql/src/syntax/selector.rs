//! Parses selectors, their modifiers, and lists of labels.

use egret_metrics_model::{LabelMatcher, METRIC_NAME, MatchOp, Matcher};

use super::lex::{Keyword, TokenKind};
use super::parse::{Parsed, QueryParser, Refusal};
use super::{
    ExprKind, ExprNode, Operator, Position, RangeModifier, Selector, TimeModifiers, print,
};

impl QueryParser<'_> {
    /// A metric's name, matchers in braces, or both.
    pub(super) fn vector_selector(&mut self) -> Parsed<ExprNode> {
        let start = self.peek().position.start;
        let mut name: Option<Box<str>> = None;
        if self.is_metric_name() {
            name = Some(self.next().text.into());
        } else if !self.is_mark("{") {
            return Err(self.unexpected());
        }
        let mut matchers = Vec::new();
        if self.takes_mark("{") {
            self.matchers(&mut matchers)?;
        }
        if let Some(name) = &name {
            let matcher = Matcher {
                name: METRIC_NAME.into(),
                op: MatchOp::Equal,
                value: name.clone(),
            };
            let matcher = LabelMatcher::new(matcher).expect("no regular expression is compiled");
            matchers.push(matcher);
        }
        let selector = Selector {
            name,
            matchers,
            position: self.since(start),
            reach: TimeModifiers::default(),
            extension: RangeModifier::None,
            compares_resets: false,
        };
        Ok(ExprNode {
            part: ExprKind::Selector(Box::new(selector)),
            position: self.since(start),
            constant: false,
        })
    }

    /// Many words of the language are also names of metrics.
    fn is_metric_name(&self) -> bool {
        match self.peek().shape {
            TokenKind::Name | TokenKind::Metric | TokenKind::Aggregator(_) => true,
            TokenKind::Operator(operator) => operator.is_set(),
            TokenKind::Keyword(keyword) => !matches!(
                keyword,
                Keyword::Bool
                    | Keyword::On
                    | Keyword::Ignoring
                    | Keyword::GroupLeft
                    | Keyword::GroupRight
            ),
            _ => false,
        }
    }

    /// Matchers up to the closing brace.
    fn matchers(&mut self, matchers: &mut Vec<LabelMatcher>) -> Parsed<()> {
        loop {
            if self.takes_mark("}") {
                return Ok(());
            }
            matchers.push(self.matcher()?);
            if !self.takes_mark(",") && !self.is_mark("}") {
                return Err(self.unexpected_in("label matching", "\",\" or \"}\""));
            }
        }
    }

    fn matcher(&mut self) -> Parsed<LabelMatcher> {
        let first = self.peek().clone();
        let name = match first.shape {
            TokenKind::Name => self.next().text.to_owned(),
            TokenKind::Text => self.utf8()?,
            _ => return Err(self.unexpected_in("label matching", "identifier or \"}\"")),
        };
        let op = match &self.peek().shape {
            TokenKind::Mark if self.is_mark("=") => MatchOp::Equal,
            TokenKind::Operator(Operator::NotEqual) => MatchOp::NotEqual,
            TokenKind::Matches => MatchOp::Matches,
            TokenKind::NotMatches => MatchOp::NotMatches,
            // A name alone, in quotes, is the metric's.
            _ if first.shape == TokenKind::Text => {
                let (label, op) = (METRIC_NAME.into(), MatchOp::Equal);
                let value = name.into();
                return self.compiled(
                    Matcher {
                        name: label,
                        op,
                        value,
                    },
                    first.position,
                );
            }
            _ => return Err(self.unexpected_in("label matching", "label matching operator")),
        };
        self.next();
        if self.peek().shape != TokenKind::Text {
            return Err(self.unexpected_in("label matching", "string"));
        }
        let value = self.utf8()?.into();
        let position = self.since(first.position.start);
        let name = name.into();
        self.compiled(Matcher { name, op, value }, position)
    }

    fn compiled(&mut self, matcher: Matcher, position: Position) -> Parsed<LabelMatcher> {
        let compiled = self.compiler.compile(matcher);
        compiled.map_err(|error| Refusal::new(position, error.to_string()))
    }

    /// A string literal that has to be UTF-8.
    fn utf8(&mut self) -> Parsed<String> {
        let literal = self.peek().clone();
        String::from_utf8(self.unquoted()?).map_err(|_| {
            let shown = print::quoted(literal.text);
            Refusal::new(literal.position, format!("invalid UTF-8 in string {shown}"))
        })
    }

    pub(super) fn grouping_labels(&mut self) -> Parsed<Vec<Box<str>>> {
        const CONTEXT: &str = "grouping opts";
        if !self.takes_mark("(") {
            return Err(self.unexpected_in(CONTEXT, "\"(\""));
        }
        let mut labels: Vec<Box<str>> = Vec::new();
        loop {
            if self.takes_mark(")") {
                return Ok(labels);
            }
            let token = self.peek();
            let is_label = match &token.shape {
                TokenKind::Name
                | TokenKind::Metric
                | TokenKind::Keyword(_)
                | TokenKind::Aggregator(_) => true,
                TokenKind::Operator(_) => token.text.starts_with(|c: char| c.is_ascii_alphabetic()),
                _ => false,
            };
            let label = match token.shape {
                TokenKind::Text => self.utf8()?,
                _ if is_label => self.next().text.to_owned(),
                _ => return Err(self.unexpected_in(CONTEXT, "label")),
            };
            labels.push(label.into());
            if !self.takes_mark(",") && !self.is_mark(")") {
                return Err(self.unexpected_in(CONTEXT, "\",\" or \")\""));
            }
        }
    }
}
