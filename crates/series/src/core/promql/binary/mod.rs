//! Operators between two expressions.

mod matching;
mod operate;
mod sets;

use std::collections::HashMap;

use self::operate::{Operation, scalar_operation};
use super::annotations::Notes;
use super::error::QueryError;
use super::eval::Env;
use super::row::{Grid, Series, Value, is_metadata};
use super::syntax::{Binary, Grouping, Node, Operator};
use crate::model::Labels;

impl Env<'_> {
    pub(crate) fn binary(
        &self,
        node: &Node,
        binary: &Binary,
        grid: Grid,
    ) -> Result<Value, QueryError> {
        let left = self.eval(&binary.left, grid)?;
        let right = self.eval(&binary.right, grid)?;
        let mut notes = Notes::default();
        let operation = Operation {
            operator: binary.operator,
            returns_bool: binary.returns_bool,
            position: node.position,
        };
        let value = match (left, right) {
            (Value::Scalar(left), Value::Scalar(right)) => {
                let pairs = left.into_iter().zip(right);
                Value::Scalar(
                    pairs
                        .map(|(l, r)| scalar_operation(binary.operator, l, r))
                        .collect(),
                )
            }
            (Value::Vector(series), Value::Scalar(scalars)) => {
                Value::Vector(operation.with_scalar(series, &scalars, false, &mut notes))
            }
            (Value::Scalar(scalars), Value::Vector(series)) => {
                Value::Vector(operation.with_scalar(series, &scalars, true, &mut notes))
            }
            (Value::Vector(left), Value::Vector(right)) => Value::Vector(match binary.operator {
                Operator::And => sets::and(left, &right, &binary.matching, grid, true),
                Operator::Unless => sets::and(left, &right, &binary.matching, grid, false),
                Operator::Or => sets::or(left, right, &binary.matching, grid),
                _ => matching::matched(self, binary, operation, (&left, &right), grid, &mut notes)?,
            }),
            _ => return Err(QueryError::execution("a string cannot be computed with")),
        };
        self.note(notes);
        Ok(value)
    }
}

/// The labels that two series must have in common to match.
fn signature(labels: &Labels, matching: &Grouping) -> Labels {
    Labels::from_sorted(labels.iter().filter(|(name, _)| match matching.only {
        true => matching.lists(name),
        false => !is_metadata(name) && !matching.lists(name),
    }))
}

/// Series by signature.
fn by_signature(series: &[Series], matching: &Grouping) -> HashMap<Labels, Vec<usize>> {
    let mut groups: HashMap<Labels, Vec<usize>> = HashMap::new();
    for (at, one) in series.iter().enumerate() {
        groups
            .entry(signature(&one.labels, matching))
            .or_default()
            .push(at);
    }
    groups
}

#[cfg(test)]
mod tests;
