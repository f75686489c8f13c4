//! Parses aggregations and calls of functions.

use super::lex::{Keyword, TokenKind};
use super::parse::{Parsed, QueryParser, Refusal};
use super::{Aggregate, Aggregator, Call, ExprKind, ExprNode, Grouping, functions, print};

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

impl QueryParser<'_> {
    pub(super) fn parse_aggregate(&mut self, aggregator: Aggregator) -> Parsed<ExprNode> {
        let start = self.next_token().position.start;
        self.aggregations += 1;
        let mut grouping = self.parse_aggregate_grouping()?;
        if !self.is_punctuation("(") {
            return Err(self.unexpected());
        }
        let mut arguments = self.parse_arguments()?.into_iter();
        if grouping.is_none() {
            grouping = self.parse_aggregate_grouping()?;
        }
        self.aggregations -= 1;
        let position = self.position_from(start);
        let new_error = |message: String| Err(Refusal::new(position, message));
        let expected_count = if aggregator.has_parameter() { 2 } else { 1 };
        if arguments.len() == 0 {
            return new_error("no arguments for aggregate expression provided".to_owned());
        }
        if arguments.len() != expected_count {
            let got = arguments.len();
            return new_error(format!(
                "wrong number of arguments for aggregate expression provided, expected {expected_count}, got {got}"
            ));
        }
        let parameter = if aggregator.has_parameter() { arguments.next() } else { None };
        let inner = arguments.next().expect("the arguments were counted");
        let constant = inner.is_constant && parameter.as_ref().is_none_or(|node| node.is_constant);
        let aggregate = Aggregate {
            aggregator,
            parameter,
            inner,
            grouping: grouping.unwrap_or_else(|| Grouping::new(true, Vec::new())),
        };
        Ok(ExprNode {
            kind: ExprKind::Aggregate(Box::new(aggregate)),
            position,
            is_constant: constant,
        })
    }

    fn parse_aggregate_grouping(&mut self) -> Parsed<Option<Grouping>> {
        let only = match self.peek().kind {
            TokenKind::Keyword(Keyword::By) => true,
            TokenKind::Keyword(Keyword::Without) => false,
            _ => return Ok(None),
        };
        self.next_token();
        Ok(Some(Grouping::new(only, self.parse_grouping_labels()?)))
    }

    pub(super) fn parse_call(&mut self) -> Parsed<ExprNode> {
        let name = self.next_token();
        let arguments = self.parse_arguments()?;
        // The keywords among the names may be in capitals.
        let found = match name.kind {
            TokenKind::Name => functions::lookup(name.text),
            _ => functions::lookup(&name.text.to_ascii_lowercase()),
        };
        let function = found.ok_or_else(|| {
            let shown = print::quote(name.text);
            Refusal::new(name.position, format!("unknown function with name {shown}"))
        })?;
        let constant = !TIME_DEPENDENT.contains(&function.name)
            && arguments.iter().all(|node| node.is_constant);
        let call = Call { function, arguments };
        Ok(ExprNode {
            kind: ExprKind::Call(Box::new(call)),
            position: self.position_from(name.position.start),
            is_constant: constant,
        })
    }

    fn parse_arguments(&mut self) -> Parsed<Vec<ExprNode>> {
        self.expect_punctuation("(")?;
        let mut arguments = Vec::new();
        if self.consume_punctuation(")") {
            return Ok(arguments);
        }
        loop {
            arguments.push(self.parse_expression(0)?);
            if self.consume_punctuation(")") {
                return Ok(arguments);
            }
            let comma = self.peek().position;
            self.expect_punctuation(",")?;
            if self.is_punctuation(")") {
                let message = "trailing commas not allowed in function call args";
                return Err(Refusal::new(comma, message));
            }
        }
    }
}
