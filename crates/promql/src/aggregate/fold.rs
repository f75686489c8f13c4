//! Sums, means, extremes, counts and variances, folded row after row.

use egret_metrics_model::{Labels, is_stale};

use super::super::annotations::{self, Annotations};
use super::super::error::QueryError;
use super::super::eval::{Consumer, EvalContext, SeriesRow};
use super::super::histogram::{
    FloatHistogram, HistogramConflicts, Incompatible, ResetConflict, Total,
};
use super::super::kahan::{KahanSum, Mean};
use super::super::keys::Keys;
use super::super::row::{Grid, LabeledRow, Point, Row};
use super::super::syntax::{Aggregate, Aggregator, Position};

/// Running aggregate of a group, one for every step.
struct AggregateGroup {
    labels: Labels,
    drop_name: bool,
    /// Sums, means, extremes, or sums of squared differences.
    values: Vec<f64>,
    /// What rounding took from them; of a variance, the mean. Empty where an aggregation has no use
    /// for it.
    compensations: Vec<f64>,
    /// How many numbers there were.
    counts: Vec<f64>,
    /// Where the sum would have been infinite, so that the value is a mean. Empty as long as there
    /// is no such step.
    holds_mean: Vec<bool>,
    /// Empty as long as there are no histograms.
    histograms: Vec<GroupHistograms>,
}

/// The histograms of a group at one step.
#[derive(Clone, Default)]
struct GroupHistograms {
    total: Option<Box<Total>>,
    /// Some have listed bounds and others have not: there is no sum.
    has_mixed_schemas: bool,
    reset_conflict: ResetConflict,
}

struct Groups<'a> {
    aggregator: Aggregator,
    position: Position,
    steps: usize,
    keys: Keys<'a>,
    groups: Vec<AggregateGroup>,
}

pub(super) fn fold_rows(
    env: &EvalContext<'_>,
    aggregate: &Aggregate,
    grid: Grid,
) -> Result<Vec<LabeledRow>, QueryError> {
    let new_groups = || Groups {
        aggregator: aggregate.aggregator,
        position: aggregate.inner.without_parens().position,
        steps: grid.count,
        keys: Keys::new(&aggregate.grouping),
        groups: Vec::new(),
    };
    let mut notes = Annotations::default();
    let mut parts = env.stream_rows(&aggregate.inner, grid, new_groups)?.into_iter();
    let Some(mut groups) = parts.next() else {
        return Ok(Vec::new());
    };
    for part in parts {
        groups.merge(part, &mut notes);
    }
    let series = groups.finish(&mut notes);
    env.add_annotations(notes);
    Ok(series)
}

impl Consumer for Groups<'_> {
    fn consume(
        &mut self,
        env: &EvalContext<'_>,
        incoming: SeriesRow<'_>,
    ) -> Result<(), QueryError> {
        let index = self.keys.group_index(incoming.labels);
        if index == self.groups.len() {
            let labels = self.keys.group_labels(incoming.labels);
            let group = AggregateGroup::new(labels, self.aggregator, self.steps);
            env.charge_bytes(group.size_bytes())?;
            self.groups.push(group);
        }
        let group = &mut self.groups[index];
        group.drop_name |= incoming.drop_name;
        group.add_row(self.aggregator, &incoming.row.values);
        for (step, histogram) in incoming.row.histograms.iter().enumerate() {
            if let Some(histogram) = histogram {
                let context =
                    AnnotationContext { metric: incoming.labels.metric(), position: self.position };
                let grown_bytes =
                    group.add_histogram(self.aggregator, step, histogram, &context, incoming.notes);
                env.charge_bytes(grown_bytes as u64)?;
            }
        }
        Ok(())
    }
}

impl Groups<'_> {
    /// Takes over what another thread has folded.
    fn merge(&mut self, other: Self, notes: &mut Annotations) {
        for group in other.groups {
            let index = self.keys.group_index(&group.labels);
            match self.groups.get_mut(index) {
                Some(own_group) => own_group.merge(group, self.aggregator, self.position, notes),
                None => self.groups.push(group),
            }
        }
    }

    fn finish(self, notes: &mut Annotations) -> Vec<LabeledRow> {
        let (aggregator, position) = (self.aggregator, self.position);
        let series = self.groups.into_iter().map(|group| {
            let (labels, drop_name) = (group.labels.clone(), group.drop_name);
            LabeledRow { labels, drop_name, row: group.finish(aggregator, position, notes) }
        });
        series.filter(|series| !series.row.is_empty()).collect()
    }
}

/// What annotations about histograms need.
struct AnnotationContext<'a> {
    metric: &'a str,
    position: Position,
}

impl AggregateGroup {
    fn new(labels: Labels, aggregator: Aggregator, steps: usize) -> Self {
        let (initial, has_compensation) = match aggregator {
            Aggregator::Sum | Aggregator::Avg => (KahanSum::EMPTY.sum, true),
            Aggregator::Stddev | Aggregator::Stdvar => (0.0, true),
            _ => (f64::NAN, false),
        };
        Self {
            labels,
            drop_name: false,
            values: vec![initial; steps],
            compensations: vec![0.0; if has_compensation { steps } else { 0 }],
            counts: vec![0.0; steps],
            holds_mean: Vec::new(),
            histograms: Vec::new(),
        }
    }

    fn size_bytes(&self) -> u64 {
        (8 * (self.values.len() + self.compensations.len() + self.counts.len())) as u64
    }

    fn sum(&self, step: usize) -> KahanSum {
        KahanSum { sum: self.values[step], compensation: self.compensations[step] }
    }

    fn set_sum(&mut self, step: usize, sum: KahanSum) {
        (self.values[step], self.compensations[step]) = (sum.sum, sum.compensation);
    }

    /// Takes the numbers of a row. Each aggregation has a loop of its own, without a branch where
    /// there need be none.
    fn add_row(&mut self, aggregator: Aggregator, row: &[f64]) {
        for (count, value) in self.counts.iter_mut().zip(row) {
            *count += f64::from(u8::from(!is_stale(*value)));
        }
        let values = self.values.iter_mut();
        match aggregator {
            Aggregator::Sum => {
                let sums = values.zip(&mut self.compensations).zip(row);
                for ((sum, rest), value) in sums {
                    let next = KahanSum { sum: *sum, compensation: *rest };
                    let next = next.plus(*value);
                    let is_absent = is_stale(*value);
                    *sum = if is_absent { *sum } else { next.sum };
                    *rest = if is_absent { *rest } else { next.compensation };
                }
            }
            Aggregator::Min => {
                for (best, value) in values.zip(row) {
                    let is_better = !is_stale(*value) && (*value < *best || best.is_nan());
                    *best = if is_better { *value } else { *best };
                }
            }
            Aggregator::Max => {
                for (best, value) in values.zip(row) {
                    let is_better = !is_stale(*value) && (*value > *best || best.is_nan());
                    *best = if is_better { *value } else { *best };
                }
            }
            Aggregator::Avg => self.add_to_means(row),
            Aggregator::Stddev | Aggregator::Stdvar => {
                let cells = values.zip(&mut self.compensations).zip(&self.counts).zip(row);
                for (((squares, mean), count), value) in cells {
                    if is_stale(*value) {
                        continue;
                    }
                    if *count == 1.0 {
                        *mean = *value;
                        *squares = if value.is_finite() { 0.0 } else { f64::NAN };
                        continue;
                    }
                    let delta = value - *mean;
                    *mean += delta / count;
                    *squares += delta * (value - *mean);
                }
            }
            _ => {}
        }
    }

    fn add_to_means(&mut self, row: &[f64]) {
        for (step, value) in row.iter().enumerate() {
            if is_stale(*value) {
                continue;
            }
            let next = self.sum(step).plus(*value);
            let count_before = self.counts[step] - 1.0;
            let is_mean = self.holds_mean.get(step).is_some_and(|is_mean| *is_mean);
            if count_before == 0.0 || next.sum.is_finite() && !is_mean {
                self.set_sum(step, next);
                continue;
            }
            let mut mean = self.mean_at(step, count_before);
            mean.add(*value);
            self.set_mean(step, mean);
        }
    }

    fn mean_at(&self, step: usize, count: f64) -> Mean {
        let mean = self.sum(step);
        match self.holds_mean.get(step) {
            Some(true) => Mean { mean, count },
            _ => Mean::from_sum(mean, count),
        }
    }

    fn set_mean(&mut self, step: usize, mean: Mean) {
        self.set_sum(step, mean.mean);
        self.holds_mean.resize(self.values.len(), false);
        self.holds_mean[step] = true;
    }

    fn merge(
        &mut self,
        other: Self,
        aggregator: Aggregator,
        position: Position,
        notes: &mut Annotations,
    ) {
        self.drop_name |= other.drop_name;
        for step in 0..self.values.len() {
            self.merge_step(step, &other, aggregator);
        }
        for (step, histograms) in other.histograms.into_iter().enumerate() {
            let Some(total) = histograms.total else {
                continue;
            };
            let own = self.histograms_at(step);
            own.reset_conflict.merge(histograms.reset_conflict);
            own.has_mixed_schemas |= histograms.has_mixed_schemas;
            let metric = "";
            let context = AnnotationContext { metric, position };
            match &mut own.total {
                None => own.total = Some(total),
                Some(mine_total) => {
                    let result = mine_total.merge(*total, aggregator == Aggregator::Avg);
                    own.has_mixed_schemas |= is_incompatible(result, &context, notes);
                }
            }
        }
    }

    fn merge_step(&mut self, step: usize, other: &Self, aggregator: Aggregator) {
        let (own_count, other_count) = (self.counts[step], other.counts[step]);
        if other_count == 0.0 {
            return;
        }
        let total_count = own_count + other_count;
        let value = other.values[step];
        match aggregator {
            _ if own_count == 0.0 => {
                self.values[step] = value;
                if let Some(rest) = other.compensations.get(step) {
                    self.compensations[step] = *rest;
                }
                if other.holds_mean.get(step) == Some(&true) {
                    self.holds_mean.resize(self.values.len(), false);
                    self.holds_mean[step] = true;
                }
            }
            Aggregator::Sum => self.set_sum(step, self.sum(step).merge(other.sum(step))),
            Aggregator::Avg => {
                let joined = self.sum(step).merge(other.sum(step));
                let has_mean = |group: &Self| group.holds_mean.get(step) == Some(&true);
                if joined.sum.is_finite() && !has_mean(self) && !has_mean(other) {
                    self.set_sum(step, joined);
                } else {
                    let weigh = |mean: Mean| KahanSum {
                        sum: mean.mean.sum * (mean.count / total_count),
                        compensation: mean.mean.compensation * (mean.count / total_count),
                    };
                    let (left, right) =
                        (self.mean_at(step, own_count), other.mean_at(step, other_count));
                    let mean = weigh(left).merge(weigh(right));
                    self.set_mean(step, Mean { mean, count: total_count });
                }
            }
            Aggregator::Min if value < self.values[step] || self.values[step].is_nan() => {
                self.values[step] = value;
            }
            Aggregator::Max if value > self.values[step] || self.values[step].is_nan() => {
                self.values[step] = value;
            }
            Aggregator::Stddev | Aggregator::Stdvar => {
                let delta = other.compensations[step] - self.compensations[step];
                self.values[step] += value + delta * delta * own_count * other_count / total_count;
                self.compensations[step] += delta * other_count / total_count;
            }
            _ => {}
        }
        self.counts[step] = total_count;
    }

    fn histograms_at(&mut self, step: usize) -> &mut GroupHistograms {
        let steps = self.values.len();
        self.histograms.resize_with(steps, GroupHistograms::default);
        &mut self.histograms[step]
    }

    /// Takes a histogram of a row, and returns by how many bytes that made the group larger,
    /// roughly.
    fn add_histogram(
        &mut self,
        aggregator: Aggregator,
        step: usize,
        histogram: &FloatHistogram,
        context: &AnnotationContext<'_>,
        notes: &mut Annotations,
    ) -> usize {
        match aggregator {
            Aggregator::Count | Aggregator::Group => self.counts[step] += 1.0,
            Aggregator::Sum | Aggregator::Avg => {
                let own = self.histograms_at(step);
                own.reset_conflict.add(histogram.counter_reset);
                let Some(total) = &mut own.total else {
                    let total = own.total.insert(Box::new(Total::from_histogram(histogram)));
                    return total.size_bytes();
                };
                let bytes_before = total.size_bytes();
                let result = match aggregator {
                    Aggregator::Avg => total.add_to_mean(histogram),
                    _ => total.add(histogram),
                };
                let grown_bytes = total.size_bytes().saturating_sub(bytes_before);
                own.has_mixed_schemas |= is_incompatible(result, context, notes);
                return grown_bytes;
            }
            _ => {
                let text = annotations::histogram_ignored_in_aggregation(aggregator.name());
                notes.info(context.position, text);
            }
        }
        0
    }

    fn final_value(&self, aggregator: Aggregator, step: usize) -> f64 {
        let (value, count) = (self.values[step], self.counts[step]);
        match aggregator {
            Aggregator::Sum => self.sum(step).value(),
            Aggregator::Avg if self.holds_mean.get(step) == Some(&true) => self.sum(step).value(),
            Aggregator::Avg => self.sum(step).mean(count),
            Aggregator::Count => count,
            Aggregator::Group => 1.0,
            Aggregator::Stdvar => value / count,
            Aggregator::Stddev => (value / count).sqrt(),
            _ => value,
        }
    }

    fn finish(
        mut self,
        aggregator: Aggregator,
        position: Position,
        notes: &mut Annotations,
    ) -> Row {
        let mut row = Row::absent(self.values.len());
        for step in 0..self.values.len() {
            if self.counts[step] > 0.0 {
                row.values[step] = self.final_value(aggregator, step);
            }
        }
        let histograms = std::mem::take(&mut self.histograms);
        for (step, histograms) in histograms.into_iter().enumerate() {
            let Some(total) = histograms.total else {
                continue;
            };
            if self.counts[step] > 0.0 {
                notes.warn(position, annotations::mixed_in_aggregation());
                row.set(step, None);
                continue;
            }
            if histograms.has_mixed_schemas {
                continue;
            }
            if histograms.reset_conflict.is_contradictory() {
                notes.warn(position, annotations::reset_collision("aggregation"));
            }
            let histogram = match aggregator {
                Aggregator::Avg => total.mean(),
                _ => total.sum(),
            };
            row.set(step, Some(Point::Histogram(histogram.into())));
        }
        row
    }
}

/// Whether there is no sum of two histograms, which is said; as is, when their bounds had to be
/// reconciled.
fn is_incompatible(
    result: Result<HistogramConflicts, Incompatible>,
    context: &AnnotationContext<'_>,
    notes: &mut Annotations,
) -> bool {
    match result {
        Ok(conflicts) => {
            if conflicts.bounds {
                let text = annotations::bounds_reconciled("aggregation");
                notes.info(context.position, text);
            }
        }
        Err(Incompatible) => {
            notes.warn(context.position, annotations::mixed_schemas(context.metric));
        }
    }
    result.is_err()
}
