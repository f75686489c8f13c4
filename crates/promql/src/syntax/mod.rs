//! The text of a query as a tree that knows where each part stood, and the tree as text again.

mod calls;
mod check;
mod duration;
mod expression;
mod functions;
mod json;
mod lex;
mod modifiers;
mod parse;
mod print;
mod selector;

pub(crate) use duration::{DurationExpr, QuerySpan, TIME_MAX};
pub(crate) use expression::{
    Aggregate, Aggregator, AtModifier, Binary, Call, ExprKind, ExprNode, Grouping,
    MatchCardinality, Operator, Position, RangeModifier, Selector, Subquery, TimeModifiers,
    ValueType,
};
pub(crate) use json::to_json;
pub(crate) use lex::unquote as unquote_literal;
pub(crate) use parse::{parse, parse_selector};
pub(crate) use print::format_pretty;

#[cfg(test)]
mod tests;
