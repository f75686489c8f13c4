//! Aggregations that need all rows at once: some of the series themselves, counts of values, quantiles.

use std::cmp::Ordering;
use std::collections::HashMap;

use super::super::annotations::{self, Notes};
use super::super::error::QueryError;
use super::super::eval::Env;
use super::super::number;
use super::super::range::quantile_of;
use super::super::row::{Grid, Point, Row, Series, Value};
use super::super::syntax::{Aggregate, Aggregator, Node};
use super::group_of;
use crate::model::{Labels, LabelsBuilder};

mod hash;

/// The series of each group, groups in the order of their first series.
fn groups(series: &[Series], aggregate: &Aggregate) -> Vec<(Labels, Vec<usize>)> {
    let mut by_labels: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<(Labels, Vec<usize>)> = Vec::new();
    for (at, one) in series.iter().enumerate() {
        let key = group_of(&one.labels, &aggregate.grouping);
        let group = *by_labels.entry(key.clone()).or_insert_with(|| {
            groups.push((key, Vec::new()));
            groups.len() - 1
        });
        groups[group].1.push(at);
    }
    groups
}

fn parameter(aggregate: &Aggregate) -> Result<&Node, QueryError> {
    let parameter = aggregate.parameter.as_ref();
    parameter.ok_or_else(|| QueryError::execution("the aggregation has no parameter"))
}

impl Env<'_> {
    /// `topk`, `bottomk`, `limitk`, `limit_ratio`: rows of which some steps are left.
    pub(super) fn chosen(
        &self,
        aggregate: &Aggregate,
        grid: Grid,
    ) -> Result<Vec<Series>, QueryError> {
        let wanted = self.wanted(aggregate, grid)?;
        let mut series = self.vector(&aggregate.inner, grid)?;
        let mut first_step = Vec::new();
        let mut ignored = false;
        for (_, members) in groups(&series, aggregate) {
            self.check_stop()?;
            for (step, wanted) in wanted.iter().enumerate() {
                let present = members
                    .iter()
                    .copied()
                    .filter(|at| series[*at].row.has(step));
                let present: Vec<usize> = present.collect();
                let kept = keep(
                    aggregate.aggregator,
                    &series,
                    step,
                    present.clone(),
                    *wanted,
                    &mut ignored,
                );
                let mut sorted = kept.clone();
                sorted.sort_unstable();
                for at in present
                    .iter()
                    .filter(|at| sorted.binary_search(at).is_err())
                {
                    series[*at].row.set(step, None);
                }
                if step == 0 {
                    first_step.extend(kept);
                }
            }
        }
        if ignored {
            let mut notes = Notes::default();
            let name = aggregate.aggregator.name();
            notes.info(
                aggregate.inner.position,
                annotations::histogram_ignored_in_aggregation(name),
            );
            self.note(notes);
        }
        if grid.count == 1 {
            // An instant query shows the ranks in their order.
            return Ok(first_step
                .into_iter()
                .map(|at| series[at].clone())
                .collect());
        }
        series.retain(|one| !one.row.is_empty());
        Ok(series)
    }

    /// How many at each step, or which share.
    fn wanted(&self, aggregate: &Aggregate, grid: Grid) -> Result<Vec<f64>, QueryError> {
        let node = parameter(aggregate)?;
        let mut values = self.scalar(node, grid)?;
        let is_ratio = aggregate.aggregator == Aggregator::LimitRatio;
        for value in &mut values {
            if value.is_nan() {
                let what = if is_ratio { "Ratio" } else { "Parameter" };
                return Err(QueryError::execution(format!("{what} value is NaN")));
            }
            if is_ratio && !(-1.0..=1.0).contains(value) {
                let capped = value.clamp(-1.0, 1.0);
                let (got, to) = (number::short(*value), number::short(capped));
                self.warn(
                    node,
                    format!("ratio value should be between -1 and 1, got {got}, capping to {to}"),
                );
                *value = capped;
            }
            if !is_ratio && (*value >= i64::MAX as f64 || *value <= i64::MIN as f64) {
                let got = number::plain(*value);
                return Err(QueryError::execution(format!(
                    "Scalar value {got} overflows int64"
                )));
            }
        }
        Ok(values)
    }

    pub(super) fn quantiles(
        &self,
        aggregate: &Aggregate,
        grid: Grid,
    ) -> Result<Vec<Series>, QueryError> {
        let node = parameter(aggregate)?;
        let shares = self.scalar(node, grid)?;
        if let Some(invalid) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            self.warn(node, annotations::invalid_quantile(*invalid));
        }
        let series = self.vector(&aggregate.inner, grid)?;
        if series
            .iter()
            .any(|one| one.row.histograms.iter().any(Option::is_some))
        {
            let mut notes = Notes::default();
            let text = annotations::histogram_ignored_in_aggregation("quantile");
            notes.info(aggregate.inner.position, text);
            self.note(notes);
        }
        let mut result = Vec::new();
        let mut values = Vec::new();
        for (labels, members) in groups(&series, aggregate) {
            self.check_stop()?;
            let mut row = Row::absent(grid.count);
            for (step, share) in shares.iter().enumerate() {
                values.clear();
                values.extend(members.iter().filter_map(|at| series[*at].row.float(step)));
                if !values.is_empty() {
                    row.values[step] = quantile_of(*share, &mut values);
                }
            }
            if !row.is_empty() {
                let drop_name = members.iter().any(|at| series[*at].drop_name);
                result.push(Series {
                    labels,
                    drop_name,
                    row,
                });
            }
        }
        Ok(result)
    }

    pub(super) fn counted_values(
        &self,
        aggregate: &Aggregate,
        grid: Grid,
    ) -> Result<Vec<Series>, QueryError> {
        let Value::Text(name) = self.eval(parameter(aggregate)?, grid)? else {
            return Err(QueryError::execution(
                "count_values wants the name of a label",
            ));
        };
        let name = match String::from_utf8(name) {
            Ok(name) if !name.is_empty() => name,
            Ok(name) => {
                return Err(QueryError::execution(format!(
                    "invalid label name {name:?}"
                )));
            }
            Err(error) => {
                let shown = error.as_bytes().escape_ascii();
                return Err(QueryError::execution(format!(
                    "invalid label name \"{shown}\""
                )));
            }
        };
        let mut grouping = aggregate.grouping.clone();
        if grouping.only && !grouping.labels.iter().any(|label| **label == *name) {
            grouping.labels.push(name.as_str().into());
            grouping.labels.sort();
        }
        let mut counts: HashMap<Labels, usize> = HashMap::new();
        let mut result: Vec<Series> = Vec::new();
        for one in self.vector(&aggregate.inner, grid)? {
            self.check_stop()?;
            for step in 0..grid.count {
                let value = match one.row.get(step) {
                    Some(Point::Float(value)) => number::plain(value),
                    Some(Point::Histogram(histogram)) => histogram.to_string(),
                    None => continue,
                };
                let mut labels = LabelsBuilder::from_labels(&one.labels);
                let labels = group_of(&labels.set(&name, &value).build(), &grouping);
                let at = *counts.entry(labels.clone()).or_insert(result.len());
                if at == result.len() {
                    let row = Row::absent(grid.count);
                    self.charge_bytes(row.size_bytes())?;
                    result.push(Series {
                        labels,
                        drop_name: false,
                        row,
                    });
                }
                let group = &mut result[at];
                group.drop_name |= one.drop_name;
                let before = group.row.float(step).unwrap_or(0.0);
                group.row.values[step] = before + 1.0;
            }
        }
        Ok(result)
    }
}

/// Which of the series that have a sample at this step stay, best first.
fn keep(
    aggregator: Aggregator,
    series: &[Series],
    step: usize,
    mut present: Vec<usize>,
    wanted: f64,
    ignored: &mut bool,
) -> Vec<usize> {
    if aggregator == Aggregator::LimitRatio {
        present.retain(|at| {
            let place = hash::label_hash(&series[*at].labels) as f64 / u64::MAX as f64;
            match wanted >= 0.0 {
                true => place < wanted,
                false => place >= 1.0 + wanted,
            }
        });
        return present;
    }
    let count = wanted as i64;
    if count < 1 {
        return Vec::new();
    }
    if aggregator != Aggregator::LimitK {
        *ignored |= present
            .iter()
            .any(|at| series[*at].row.histogram(step).is_some());
        present.retain(|at| series[*at].row.float(step).is_some());
        let value = |at: &usize| series[*at].row.values[step];
        present.sort_by(|a, b| {
            let (a, b) = (value(a), value(b));
            let order = a.partial_cmp(&b).unwrap_or(Ordering::Equal);
            let order = if aggregator == Aggregator::TopK {
                order.reverse()
            } else {
                order
            };
            a.is_nan().cmp(&b.is_nan()).then(order)
        });
    }
    present.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    present
}
