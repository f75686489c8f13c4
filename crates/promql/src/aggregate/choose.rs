//! Aggregations that need all rows at once: some of the series themselves, counts of values,
//! quantiles.

use egret_metrics_model::{Labels, LabelsBuilder, METRIC_NAME};

use super::super::annotations::{self, Annotations};
use super::super::error::QueryError;
use super::super::eval::EvalContext;
use super::super::keys::Keys;
use super::super::number;
use super::super::range::quantile_of;
use super::super::row::{ExprValue, Grid, LabeledRow, Point, Row};
use super::super::syntax::{Aggregate, Aggregator, ExprNode};
use super::rank::Rank;

mod hash;

/// The series of each group, groups in the order of their first series.
fn groups(series: &[LabeledRow], aggregate: &Aggregate) -> Vec<(Labels, Vec<usize>)> {
    let mut keys = Keys::new(&aggregate.grouping);
    let mut groups: Vec<(Labels, Vec<usize>)> = Vec::new();
    for (at, one) in series.iter().enumerate() {
        let group = keys.group_of(&one.labels);
        if group == groups.len() {
            groups.push((keys.labels_of(&one.labels), Vec::new()));
        }
        groups[group].1.push(at);
    }
    groups
}

fn parameter(aggregate: &Aggregate) -> Result<&ExprNode, QueryError> {
    let parameter = aggregate.parameter.as_ref();
    parameter.ok_or_else(|| QueryError::execution("the aggregation has no parameter"))
}

impl EvalContext<'_> {
    /// `topk`, `bottomk`, `limitk`, `limit_ratio`: rows of which some steps are left.
    pub(super) fn chosen(
        &self,
        node: &ExprNode,
        aggregate: &Aggregate,
        grid: Grid,
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let wanted = self.wanted(aggregate, grid)?;
        let mut series = self.vector(&aggregate.inner, grid)?;
        let mut ignored = false;
        let mut in_order = aggregate.inner.is_sorted();
        let first_step = loop {
            let kept = self.keep(aggregate, &wanted, &mut series, in_order, &mut ignored)?;
            if let Some(first_step) = kept {
                break first_step;
            }
            // Which of equals stays depends on their order, which must not depend on how series are
            // stored.
            series.sort_by(|a, b| a.labels.cmp(&b.labels));
            in_order = true;
        };
        if ignored {
            let mut notes = Annotations::default();
            let name = aggregate.aggregator.name();
            notes.info(
                node.position,
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

    /// Takes out of the rows what is not chosen, and says which series are at the first step;
    /// nothing when some of equals have to go and the series are in no order. What was taken out
    /// until then would have been in any order.
    fn keep(
        &self,
        aggregate: &Aggregate,
        wanted: &[f64],
        series: &mut [LabeledRow],
        in_order: bool,
        ignored: &mut bool,
    ) -> Result<Option<Vec<usize>>, QueryError> {
        let mut first_step = Vec::new();
        let mut choice = Choice::default();
        for (_, members) in groups(series, aggregate) {
            self.check_stop()?;
            for (step, count) in wanted.iter().enumerate() {
                *ignored |= choice.make(aggregate.aggregator, series, &members, step, *count);
                if choice.is_tied && !in_order {
                    return Ok(None);
                }
                for at in &choice.dropped {
                    series[*at].row.set(step, None);
                }
                if wanted.len() == 1 {
                    if let Some(rank) = Rank::of(aggregate.aggregator) {
                        rank.sort(&mut choice.kept);
                    }
                    first_step.extend(choice.kept.iter().map(|(_, at)| *at));
                }
            }
        }
        Ok(Some(first_step))
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
    ) -> Result<Vec<LabeledRow>, QueryError> {
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
            let mut notes = Annotations::default();
            let text = annotations::histogram_ignored_in_aggregation("quantile");
            notes.info(aggregate.inner.bare().position, text);
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
                result.push(LabeledRow {
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
    ) -> Result<Vec<LabeledRow>, QueryError> {
        let ExprValue::Text(name) = self.eval(parameter(aggregate)?, grid)? else {
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
        let mut keys = Keys::new(&grouping);
        let mut result: Vec<LabeledRow> = Vec::new();
        for one in self.vector(&aggregate.inner, grid)? {
            self.check_stop()?;
            for step in 0..grid.count {
                let value = match one.row.get(step) {
                    Some(Point::Float(value)) => number::plain(value),
                    Some(Point::Histogram(histogram)) => histogram.to_string(),
                    None => continue,
                };
                let mut labels = LabelsBuilder::from_labels(&one.labels);
                let labels = labels.set(&name, &value).build();
                let at = keys.group_of(&labels);
                if at == result.len() {
                    let labels = keys.labels_of(&labels);
                    let row = Row::absent(grid.count);
                    self.charge_bytes(row.size_bytes())?;
                    result.push(LabeledRow {
                        labels,
                        drop_name: false,
                        row,
                    });
                }
                let group = &mut result[at];
                group.drop_name |= one.drop_name && name != METRIC_NAME;
                let before = group.row.float(step).unwrap_or(0.0);
                group.row.values[step] = before + 1.0;
            }
        }
        Ok(result)
    }
}

/// Which series of a group stay at a step. Used again for each step.
#[derive(Default)]
struct Choice {
    kept: Vec<(f64, usize)>,
    dropped: Vec<usize>,
    /// Whether another order of the series would have kept others.
    is_tied: bool,
}

impl Choice {
    /// Chooses; true when histograms had to be left out.
    fn make(
        &mut self,
        aggregator: Aggregator,
        series: &[LabeledRow],
        members: &[usize],
        step: usize,
        wanted: f64,
    ) -> bool {
        self.kept.clear();
        self.dropped.clear();
        self.is_tied = false;
        let mut ignored = false;
        let rank = Rank::of(aggregator);
        for at in members.iter().copied() {
            let row = &series[at].row;
            match row.float(step) {
                Some(value) => self.kept.push((value, at)),
                None if row.histogram(step).is_none() => {}
                None if rank.is_some() => {
                    ignored = true;
                    self.dropped.push(at);
                }
                None => self.kept.push((f64::NAN, at)),
            }
        }
        if aggregator == Aggregator::LimitRatio {
            self.keep_if(|at| {
                let place = hash::label_hash(&series[at].labels) as f64 / u64::MAX as f64;
                if wanted >= 0.0 {
                    place < wanted
                } else {
                    place >= 1.0 + wanted
                }
            });
            return ignored;
        }
        let count = usize::try_from(wanted as i64).unwrap_or(0);
        if count >= self.kept.len() {
            return ignored && count > 0;
        }
        self.is_tied = match rank {
            Some(rank) => rank.choose(&mut self.kept, count),
            None => true,
        };
        let dropped = self.kept.drain(count..).map(|(_, at)| at);
        self.dropped.extend(dropped);
        ignored && count > 0
    }

    fn keep_if(&mut self, keeps: impl Fn(usize) -> bool) {
        let dropped = &mut self.dropped;
        self.kept.retain(|(_, at)| {
            let stays = keeps(*at);
            if !stays {
                dropped.push(*at);
            }
            stays
        });
    }
}
