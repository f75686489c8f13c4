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
    pub(super) fn aggregate(&mut self, aggregator: Aggregator) -> Parsed<ExprNode> {
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
        let parameter = if aggregator.has_parameter() {
            arguments.next()
        } else {
            None
        };
        let inner = arguments.next().expect("the arguments were counted");
        let constant = inner.constant && parameter.as_ref().is_none_or(|node| node.constant);
        let aggregate = Aggregate {
            aggregator,
            parameter,
            inner,
            grouping: grouping.unwrap_or_else(|| Grouping::new(true, Vec::new())),
        };
        Ok(ExprNode {
            part: ExprKind::Aggregate(Box::new(aggregate)),
            position,
            constant,
        })
    }

    fn aggregate_grouping(&mut self) -> Parsed<Option<Grouping>> {
        let only = match self.peek().shape {
            TokenKind::Keyword(Keyword::By) => true,
            TokenKind::Keyword(Keyword::Without) => false,
            _ => return Ok(None),
        };
        self.next();
        Ok(Some(Grouping::new(only, self.grouping_labels()?)))
    }

    pub(super) fn call(&mut self) -> Parsed<ExprNode> {
        let name = self.next();
        let arguments = self.arguments()?;
        // The keywords among the names may be in capitals.
        let found = match name.shape {
            TokenKind::Name => functions::lookup(name.text),
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
        Ok(ExprNode {
            part: ExprKind::Call(Box::new(call)),
            position: self.since(name.position.start),
            constant,
        })
    }

    fn arguments(&mut self) -> Parsed<Vec<ExprNode>> {
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
}
