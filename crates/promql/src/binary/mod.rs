//! Operators between two expressions.

mod matching;
mod operate;
mod sets;

use self::operate::{Operation, scalar_operation};
use super::annotations::Annotations;
use super::error::QueryError;
use super::eval::EvalContext;
use super::row::{ExprValue, Grid};
use super::syntax::{Binary, ExprNode, Operator};

impl EvalContext<'_> {
    pub(crate) fn binary(
        &self,
        node: &ExprNode,
        binary: &Binary,
        grid: Grid,
    ) -> Result<ExprValue, QueryError> {
        let left = self.eval(&binary.left, grid)?;
        let right = self.eval(&binary.right, grid)?;
        let mut notes = Annotations::default();
        let operation = Operation {
            operator: binary.operator,
            returns_bool: binary.returns_bool,
            position: node.position,
        };
        let value = match (left, right) {
            (ExprValue::Scalar(left), ExprValue::Scalar(right)) => {
                let pairs = left.into_iter().zip(right);
                ExprValue::Scalar(
                    pairs.map(|(l, r)| scalar_operation(binary.operator, l, r)).collect(),
                )
            }
            (ExprValue::Vector(series), ExprValue::Scalar(scalars)) => {
                ExprValue::Vector(operation.apply_scalar(series, &scalars, false, &mut notes))
            }
            (ExprValue::Scalar(scalars), ExprValue::Vector(series)) => {
                ExprValue::Vector(operation.apply_scalar(series, &scalars, true, &mut notes))
            }
            (ExprValue::Vector(left), ExprValue::Vector(right)) => {
                ExprValue::Vector(match binary.operator {
                    Operator::And => sets::and(left, &right, &binary.matching, grid, true),
                    Operator::Unless => sets::and(left, &right, &binary.matching, grid, false),
                    Operator::Or => sets::or(left, right, &binary.matching, grid),
                    _ => matching::match_vectors(
                        self, binary, operation, &left, &right, grid, &mut notes,
                    )?,
                })
            }
            _ => return Err(QueryError::execution("a string cannot be computed with")),
        };
        self.add_annotations(notes);
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
