//! Aggregations. Those that need no more of a row than to have seen it fold rows into groups as
//! they come.

mod choose;
mod fold;
mod rank;

use super::error::QueryError;
use super::eval::EvalContext;
use super::row::{Grid, LabeledRow};
use super::syntax::{Aggregate, Aggregator, ExprNode};

impl EvalContext<'_> {
    pub(crate) fn aggregate(
        &self,
        node: &ExprNode,
        aggregate: &Aggregate,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        use Aggregator::{BottomK, CountValues, LimitK, LimitRatio, Quantile, TopK};
        match aggregate.aggregator {
            TopK | BottomK | LimitK | LimitRatio => self.select_rows(node, aggregate, grid),
            CountValues => self.count_values(aggregate, grid),
            Quantile => self.aggregate_quantiles(aggregate, grid),
            _ => fold::fold_rows(self, aggregate, grid),
        }
    }
}

#[cfg(test)]
mod tests;
