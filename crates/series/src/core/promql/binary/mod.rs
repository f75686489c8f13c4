//! Operators between two expressions.

mod matching;
mod operate;
mod sets;

use self::operate::{Operation, scalar_operation};
use super::annotations::Notes;
use super::error::QueryError;
use super::eval::Env;
use super::row::{Grid, Value};
use super::syntax::{Binary, Node, Operator};

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

#[cfg(test)]
mod tests;
