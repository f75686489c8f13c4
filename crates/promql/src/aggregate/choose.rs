//! Aggregations that need all rows at once: some of the series themselves, counts of values,
//! quantiles.

use egret_metrics_model::{Labels, LabelsBuilder, METRIC_NAME};

use super::super::annotations::{self, Annotations};
use super::super::error::QueryError;
use super::super::eval::EvalContext;
use super::super::keys::Keys;
use super::super::number;
use super::super::range::compute_quantile;
use super::super::row::{ExprValue, Grid, LabeledRow, Point, Row};
use super::super::syntax::{Aggregate, Aggregator, ExprNode};
use super::rank::Rank;

mod hash;

/// The series of each group, groups in the order of their first series.
fn group_series(series: &[LabeledRow], aggregate: &Aggregate) -> Vec<(Labels, Vec<usize>)> {
    let mut keys = Keys::new(&aggregate.grouping);
    let mut groups: Vec<(Labels, Vec<usize>)> = Vec::new();
    for (index, series_row) in series.iter().enumerate() {
        let group = keys.group_index(&series_row.labels);
        if group == groups.len() {
            groups.push((keys.group_labels(&series_row.labels), Vec::new()));
        }
        groups[group].1.push(index);
    }
    groups
}

fn parameter(aggregate: &Aggregate) -> Result<&ExprNode, QueryError> {
    let parameter = aggregate.parameter.as_ref();
    parameter.ok_or_else(|| QueryError::execution("the aggregation has no parameter"))
}

impl EvalContext<'_> {
    /// `topk`, `bottomk`, `limitk`, `limit_ratio`: rows of which some steps are left.
    pub(super) fn select_rows(
        &self,
        node: &ExprNode,
        aggregate: &Aggregate,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let limits = self.selection_limits(aggregate, grid)?;
        let mut series = self.eval_vector(&aggregate.inner, grid)?;
        let mut has_ignored_histograms = false;
        let mut is_ordered = aggregate.inner.is_sorted();
        let first_step_order = loop {
            let result = self.drop_unselected(
                aggregate,
                &limits,
                &mut series,
                is_ordered,
                &mut has_ignored_histograms,
            )?;
            if let Some(first_step) = result {
                break first_step;
            }
            // Which of equals stays depends on their order, which must not depend on how series are
            // stored.
            series.sort_by(|a, b| a.labels.cmp(&b.labels));
            is_ordered = true;
        };
        if has_ignored_histograms {
            let mut notes = Annotations::default();
            let name = aggregate.aggregator.name();
            notes.info(node.position, annotations::histogram_ignored_in_aggregation(name));
            self.add_annotations(notes);
        }
        if grid.count == 1 {
            // An instant query shows the ranks in their order.
            return Ok(first_step_order.into_iter().map(|index| series[index].clone()).collect());
        }
        series.retain(|series_row| !series_row.row.is_empty());
        Ok(series)
    }

    /// Takes out of the rows what is not chosen, and says which series are at the first step;
    /// nothing when some of equals have to go and the series are in no order. What was taken out
    /// until then would have been in any order.
    fn drop_unselected(
        &self,
        aggregate: &Aggregate,
        limits: &[f64],
        series: &mut [LabeledRow],
        is_ordered: bool,
        has_ignored_histograms: &mut bool,
    ) -> Result<Option<Vec<usize>>, QueryError> {
        let mut first_step = Vec::new();
        let mut choice = Choice::default();
        for (_, members) in group_series(series, aggregate) {
            self.check_stop()?;
            for (step, count) in limits.iter().enumerate() {
                *has_ignored_histograms |=
                    choice.select(aggregate.aggregator, series, &members, step, *count);
                if choice.is_tied && !is_ordered {
                    return Ok(None);
                }
                for index in &choice.dropped {
                    series[*index].row.set(step, None);
                }
                if limits.len() == 1 {
                    if let Some(rank) = Rank::from_aggregator(aggregate.aggregator) {
                        rank.sort(&mut choice.selected);
                    }
                    first_step.extend(choice.selected.iter().map(|(_, at)| *at));
                }
            }
        }
        Ok(Some(first_step))
    }

    /// How many at each step, or which share.
    fn selection_limits(&self, aggregate: &Aggregate, grid: Grid) -> Result<Vec<f64>, QueryError> {
        let node = parameter(aggregate)?;
        let mut values = self.eval_scalar(node, grid)?;
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
                return Err(QueryError::execution(format!("Scalar value {got} overflows int64")));
            }
        }
        Ok(values)
    }

    pub(super) fn aggregate_quantiles(
        &self,
        aggregate: &Aggregate,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let node = parameter(aggregate)?;
        let shares = self.eval_scalar(node, grid)?;
        if let Some(invalid) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            self.warn(node, annotations::invalid_quantile(*invalid));
        }
        let series = self.eval_vector(&aggregate.inner, grid)?;
        if series.iter().any(|series_row| series_row.row.histograms.iter().any(Option::is_some)) {
            let mut notes = Annotations::default();
            let text = annotations::histogram_ignored_in_aggregation("quantile");
            notes.info(aggregate.inner.without_parens().position, text);
            self.add_annotations(notes);
        }
        let mut result = Vec::new();
        let mut values = Vec::new();
        for (labels, members) in group_series(&series, aggregate) {
            self.check_stop()?;
            let mut row = Row::absent(grid.count);
            for (step, share) in shares.iter().enumerate() {
                values.clear();
                values.extend(members.iter().filter_map(|at| series[*at].row.float(step)));
                if !values.is_empty() {
                    row.values[step] = compute_quantile(*share, &mut values);
                }
            }
            if !row.is_empty() {
                let drop_name = members.iter().any(|at| series[*at].drop_name);
                result.push(LabeledRow { labels, drop_name, row });
            }
        }
        Ok(result)
    }

    pub(super) fn count_values(
        &self,
        aggregate: &Aggregate,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let ExprValue::Text(name) = self.eval(parameter(aggregate)?, grid)? else {
            return Err(QueryError::execution("count_values wants the name of a label"));
        };
        let name = match String::from_utf8(name) {
            Ok(name) if !name.is_empty() => name,
            Ok(name) => {
                return Err(QueryError::execution(format!("invalid label name {name:?}")));
            }
            Err(error) => {
                let shown = error.as_bytes().escape_ascii();
                return Err(QueryError::execution(format!("invalid label name \"{shown}\"")));
            }
        };
        let mut grouping = aggregate.grouping.clone();
        if grouping.is_inclusive && !grouping.labels.iter().any(|label| **label == *name) {
            grouping.labels.push(name.as_str().into());
            grouping.labels.sort();
        }
        let mut keys = Keys::new(&grouping);
        let mut result: Vec<LabeledRow> = Vec::new();
        for series_row in self.eval_vector(&aggregate.inner, grid)? {
            self.check_stop()?;
            for step in 0..grid.count {
                let value = match series_row.row.get(step) {
                    Some(Point::Float(value)) => number::plain(value),
                    Some(Point::Histogram(histogram)) => histogram.to_string(),
                    None => continue,
                };
                let mut labels = LabelsBuilder::from_labels(&series_row.labels);
                let labels = labels.set(&name, &value).build();
                let index = keys.group_index(&labels);
                if index == result.len() {
                    let labels = keys.group_labels(&labels);
                    let row = Row::absent(grid.count);
                    self.charge_bytes(row.size_bytes())?;
                    result.push(LabeledRow { labels, drop_name: false, row });
                }
                let group = &mut result[index];
                group.drop_name |= series_row.drop_name && name != METRIC_NAME;
                let count_before = group.row.float(step).unwrap_or(0.0);
                group.row.values[step] = count_before + 1.0;
            }
        }
        Ok(result)
    }
}

/// Which series of a group stay at a step. Used again for each step.
#[derive(Default)]
struct Choice {
    selected: Vec<(f64, usize)>,
    dropped: Vec<usize>,
    /// Whether another order of the series would have kept others.
    is_tied: bool,
}

impl Choice {
    /// Chooses; true when histograms had to be left out.
    fn select(
        &mut self,
        aggregator: Aggregator,
        series: &[LabeledRow],
        members: &[usize],
        step: usize,
        limit: f64,
    ) -> bool {
        self.selected.clear();
        self.dropped.clear();
        self.is_tied = false;
        let mut has_ignored_histograms = false;
        let rank = Rank::from_aggregator(aggregator);
        for index in members.iter().copied() {
            let row = &series[index].row;
            match row.float(step) {
                Some(value) => self.selected.push((value, index)),
                None if row.histogram(step).is_none() => {}
                None if rank.is_some() => {
                    has_ignored_histograms = true;
                    self.dropped.push(index);
                }
                None => self.selected.push((f64::NAN, index)),
            }
        }
        if aggregator == Aggregator::LimitRatio {
            self.retain_selected(|at| {
                let fraction = hash::label_hash(&series[at].labels) as f64 / u64::MAX as f64;
                if limit >= 0.0 { fraction < limit } else { fraction >= 1.0 + limit }
            });
            return has_ignored_histograms;
        }
        let count = usize::try_from(limit as i64).unwrap_or(0);
        if count >= self.selected.len() {
            return has_ignored_histograms && count > 0;
        }
        self.is_tied = match rank {
            Some(rank) => rank.partition_best(&mut self.selected, count),
            None => true,
        };
        let dropped = self.selected.drain(count..).map(|(_, at)| at);
        self.dropped.extend(dropped);
        has_ignored_histograms && count > 0
    }

    fn retain_selected(&mut self, is_selected: impl Fn(usize) -> bool) {
        let dropped = &mut self.dropped;
        self.selected.retain(|(_, index)| {
            let is_kept = is_selected(*index);
            if !is_kept {
                dropped.push(*index);
            }
            is_kept
        });
    }
}
