//! Parses selectors, their modifiers, and lists of labels.

use egret_metrics_model::{LabelMatcher, METRIC_NAME, MatchOp, Matcher};

use super::lex::{Keyword, TokenKind};
use super::parse::{Parsed, QueryParser, Refusal};
use super::{
    ExprKind, ExprNode, Operator, Position, RangeModifier, Selector, TimeModifiers, print,
};

impl QueryParser<'_> {
    /// A metric's name, matchers in braces, or both.
    pub(super) fn parse_vector_selector(&mut self) -> Parsed<ExprNode> {
        let start = self.peek().position.start;
        let mut name: Option<Box<str>> = None;
        if self.is_metric_name() {
            name = Some(self.next_token().text.into());
        } else if !self.is_punctuation("{") {
            return Err(self.unexpected());
        }
        let mut matchers = Vec::new();
        if self.consume_punctuation("{") {
            self.parse_matchers(&mut matchers)?;
        }
        if let Some(name) = &name {
            let matcher =
                Matcher { name: METRIC_NAME.into(), op: MatchOp::Equal, value: name.clone() };
            let matcher = LabelMatcher::new(matcher).expect("no regular expression is compiled");
            matchers.push(matcher);
        }
        let selector = Selector {
            name,
            matchers,
            position: self.position_from(start),
            time_modifiers: TimeModifiers::default(),
            range_modifier: RangeModifier::None,
            detects_resets: false,
        };
        Ok(ExprNode {
            kind: ExprKind::Selector(Box::new(selector)),
            position: self.position_from(start),
            is_constant: false,
        })
    }

    /// Many words of the language are also names of metrics.
    fn is_metric_name(&self) -> bool {
        match self.peek().kind {
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
    fn parse_matchers(&mut self, matchers: &mut Vec<LabelMatcher>) -> Parsed<()> {
        loop {
            if self.consume_punctuation("}") {
                return Ok(());
            }
            matchers.push(self.parse_matcher()?);
            if !self.consume_punctuation(",") && !self.is_punctuation("}") {
                return Err(self.unexpected_in("label matching", "\",\" or \"}\""));
            }
        }
    }

    fn parse_matcher(&mut self) -> Parsed<LabelMatcher> {
        let first = self.peek().clone();
        let name = match first.kind {
            TokenKind::Name => self.next_token().text.to_owned(),
            TokenKind::Text => self.parse_utf8_string()?,
            _ => return Err(self.unexpected_in("label matching", "identifier or \"}\"")),
        };
        let op = match &self.peek().kind {
            TokenKind::Punctuation if self.is_punctuation("=") => MatchOp::Equal,
            TokenKind::Operator(Operator::NotEqual) => MatchOp::NotEqual,
            TokenKind::Matches => MatchOp::Matches,
            TokenKind::NotMatches => MatchOp::NotMatches,
            // A name alone, in quotes, is the metric's.
            _ if first.kind == TokenKind::Text => {
                let (label, op) = (METRIC_NAME.into(), MatchOp::Equal);
                let value = name.into();
                return self.compile_matcher(Matcher { name: label, op, value }, first.position);
            }
            _ => return Err(self.unexpected_in("label matching", "label matching operator")),
        };
        self.next_token();
        if self.peek().kind != TokenKind::Text {
            return Err(self.unexpected_in("label matching", "string"));
        }
        let value = self.parse_utf8_string()?.into();
        let position = self.position_from(first.position.start);
        let name = name.into();
        self.compile_matcher(Matcher { name, op, value }, position)
    }

    fn compile_matcher(&mut self, matcher: Matcher, position: Position) -> Parsed<LabelMatcher> {
        let result = self.compiler.compile(matcher);
        result.map_err(|error| Refusal::new(position, error.to_string()))
    }

    /// A string literal that has to be UTF-8.
    fn parse_utf8_string(&mut self) -> Parsed<String> {
        let literal = self.peek().clone();
        String::from_utf8(self.parse_string()?).map_err(|_| {
            let shown = print::quote(literal.text);
            Refusal::new(literal.position, format!("invalid UTF-8 in string {shown}"))
        })
    }

    pub(super) fn parse_grouping_labels(&mut self) -> Parsed<Vec<Box<str>>> {
        const CONTEXT: &str = "grouping opts";
        if !self.consume_punctuation("(") {
            return Err(self.unexpected_in(CONTEXT, "\"(\""));
        }
        let mut labels: Vec<Box<str>> = Vec::new();
        loop {
            if self.consume_punctuation(")") {
                return Ok(labels);
            }
            let token = self.peek();
            let is_label = match &token.kind {
                TokenKind::Name
                | TokenKind::Metric
                | TokenKind::Keyword(_)
                | TokenKind::Aggregator(_) => true,
                TokenKind::Operator(_) => token.text.starts_with(|c: char| c.is_ascii_alphabetic()),
                _ => false,
            };
            let label = match token.kind {
                TokenKind::Text => self.parse_utf8_string()?,
                _ if is_label => self.next_token().text.to_owned(),
                _ => return Err(self.unexpected_in(CONTEXT, "label")),
            };
            labels.push(label.into());
            if !self.consume_punctuation(",") && !self.is_punctuation(")") {
                return Err(self.unexpected_in(CONTEXT, "\",\" or \")\""));
            }
        }
    }
}
