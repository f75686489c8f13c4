//! Parses selectors, their modifiers, and lists of labels.

use super::lex::{Keyword, Shape};
use super::parse::{Parsed, Parser, Refusal};
use super::{At, Extension, Node, Operator, Part, Position, Reach, Selector, print};
use crate::core::promql::matcher::LabelMatcher;
use crate::core::promql::number;
use crate::model::{METRIC_NAME, MatchOp, Matcher};

const NO_SELECTOR: &str = "modifier must be preceded by an instant vector selector or range vector selector or a subquery";

impl Parser<'_> {
    /// A metric's name, matchers in braces, or both.
    pub(super) fn vector_selector(&mut self) -> Parsed<Node> {
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
            reach: Reach::default(),
            extension: Extension::None,
            compares_resets: false,
        };
        Ok(Node {
            part: Part::Selector(Box::new(selector)),
            position: self.since(start),
            constant: false,
        })
    }

    /// Many words of the language are also names of metrics.
    fn is_metric_name(&self) -> bool {
        match self.peek().shape {
            Shape::Name | Shape::Metric | Shape::Aggregator(_) => true,
            Shape::Operator(operator) => operator.is_set(),
            Shape::Keyword(keyword) => !matches!(
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
            Shape::Name => self.next().text.to_owned(),
            Shape::Text => self.utf8()?,
            _ => return Err(self.unexpected_in("label matching", "identifier or \"}\"")),
        };
        let op = match &self.peek().shape {
            Shape::Mark if self.is_mark("=") => MatchOp::Equal,
            Shape::Operator(Operator::NotEqual) => MatchOp::NotEqual,
            Shape::Matches => MatchOp::Matches,
            Shape::NotMatches => MatchOp::NotMatches,
            // A name alone, in quotes, is the metric's.
            _ if first.shape == Shape::Text => {
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
        if self.peek().shape != Shape::Text {
            return Err(self.unexpected_in("label matching", "string"));
        }
        let value = self.utf8()?.into();
        let position = self.since(first.position.start);
        let name = name.into();
        self.compiled(Matcher { name, op, value }, position)
    }

    fn compiled(&self, matcher: Matcher, position: Position) -> Parsed<LabelMatcher> {
        LabelMatcher::new(matcher).map_err(|error| Refusal::new(position, error.to_string()))
    }

    /// A string literal that has to be UTF-8.
    fn utf8(&mut self) -> Parsed<String> {
        let literal = self.peek().clone();
        String::from_utf8(self.unquoted()?).map_err(|_| {
            let shown = print::quoted(literal.text);
            Refusal::new(literal.position, format!("invalid UTF-8 in string {shown}"))
        })
    }

    /// Labels in parentheses.
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
                Shape::Name | Shape::Keyword(_) | Shape::Aggregator(_) => true,
                Shape::Operator(_) => token.text.starts_with(|c: char| c.is_ascii_alphabetic()),
                _ => false,
            };
            let label = match token.shape {
                Shape::Text => self.utf8()?,
                _ if is_label => self.next().text.to_owned(),
                _ => return Err(self.unexpected_in(CONTEXT, "label")),
            };
            labels.push(label.into());
            if !self.takes_mark(",") && !self.is_mark(")") {
                return Err(self.unexpected_in(CONTEXT, "\",\" or \")\""));
            }
        }
    }

    pub(super) fn offset(&mut self, mut node: Node) -> Parsed<Node> {
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

    pub(super) fn at_time(&mut self, mut node: Node) -> Parsed<Node> {
        self.next();
        let position = node.position;
        let at = match self.peek().shape {
            Shape::Keyword(bound @ (Keyword::Start | Keyword::End)) => {
                self.next();
                if !self.takes_mark("(") || !self.takes_mark(")") {
                    return Err(self.unexpected_in("@", "timestamp"));
                }
                match bound {
                    Keyword::Start => At::Start,
                    _ => At::End,
                }
            }
            _ => {
                let expected = |parser: &Self| parser.unexpected_in("@", "timestamp");
                let seconds = self.signed_number();
                let seconds = seconds.map_err(|refusal| match self.peek().shape {
                    Shape::Number | Shape::Duration => refusal,
                    _ => expected(self),
                })?;
                let ms = (seconds * 1000.0).round();
                if ms.is_nan() || ms.abs() >= super::duration::TIME_MAX as f64 {
                    let shown = number::fixed(seconds, 6);
                    let message = format!("timestamp out of bounds for @ modifier: {shown}");
                    return Err(Refusal::new(position, message));
                }
                At::Time(ms as i64)
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

    pub(super) fn extended(&mut self, mut node: Node) -> Parsed<Node> {
        let keyword = self.next();
        let extension = match keyword.shape {
            Shape::Keyword(Keyword::Anchored) => Extension::Anchored,
            _ => Extension::Smoothed,
        };
        let word = keyword.text.to_ascii_lowercase();
        let refuse = |message: String| Err(Refusal::new(node.position, message));
        let selector = match &mut node.part {
            Part::Selector(selector) | Part::Range(selector, _) => selector,
            Part::Subquery(_) => {
                return refuse(format!("{word} modifier is not supported for subqueries"));
            }
            _ => return refuse(format!("{word} modifier not implemented")),
        };
        if selector.extension != Extension::None && selector.extension != extension {
            let message = "anchored and smoothed modifiers cannot be used together";
            return refuse(message.to_owned());
        }
        selector.extension = extension;
        node.position = self.since(node.position.start);
        Ok(node)
    }
}

fn reach(node: &mut Node) -> Option<&mut Reach> {
    match &mut node.part {
        Part::Selector(selector) | Part::Range(selector, _) => Some(&mut selector.reach),
        Part::Subquery(subquery) => Some(&mut subquery.reach),
        _ => None,
    }
}
