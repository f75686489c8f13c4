//! Aggregations. Those that need no more of a row than to have seen it fold rows into groups as they come.

mod choose;
mod fold;

use super::error::QueryError;
use super::eval::Env;
use super::row::{Grid, Series, is_metadata};
use super::syntax::{Aggregate, Aggregator, Grouping};
use crate::model::Labels;

impl Env<'_> {
    pub(crate) fn aggregate(
        &self,
        aggregate: &Aggregate,
        grid: Grid,
    ) -> Result<Vec<Series>, QueryError> {
        use Aggregator::{BottomK, CountValues, LimitK, LimitRatio, Quantile, TopK};
        match aggregate.aggregator {
            TopK | BottomK | LimitK | LimitRatio => self.chosen(aggregate, grid),
            CountValues => self.counted_values(aggregate, grid),
            Quantile => self.quantiles(aggregate, grid),
            _ => fold::folded(self, aggregate, grid),
        }
    }
}

/// The labels by which series are put together.
pub(crate) fn group_of(labels: &Labels, grouping: &Grouping) -> Labels {
    Labels::from_sorted(labels.iter().filter(|(name, _)| match grouping.only {
        true => grouping.lists(name),
        false => !is_metadata(name) && !grouping.lists(name),
    }))
}

#[cfg(test)]
mod tests;
