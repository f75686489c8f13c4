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
    rests: Vec<f64>,
    /// How many numbers there were.
    counts: Vec<f64>,
    /// Where the sum would have been infinite, so that the value is a mean. Empty as long as there
    /// is no such step.
    means: Vec<bool>,
    /// Empty as long as there are no histograms.
    histograms: Vec<GroupHistograms>,
}

/// The histograms of a group at one step.
#[derive(Clone, Default)]
struct GroupHistograms {
    total: Option<Box<Total>>,
    /// Some have listed bounds and others have not: there is no sum.
    failed: bool,
    said: ResetConflict,
}

struct Groups<'a> {
    aggregator: Aggregator,
    position: Position,
    steps: usize,
    keys: Keys<'a>,
    groups: Vec<AggregateGroup>,
}

pub(super) fn folded(
    env: &EvalContext<'_>,
    aggregate: &Aggregate,
    grid: Grid,
) -> Result<Vec<LabeledRow>, QueryError> {
    let new = || Groups {
        aggregator: aggregate.aggregator,
        position: aggregate.inner.bare().position,
        steps: grid.count,
        keys: Keys::new(&aggregate.grouping),
        groups: Vec::new(),
    };
    let mut notes = Annotations::default();
    let mut parts = env.stream(&aggregate.inner, grid, new)?.into_iter();
    let Some(mut all) = parts.next() else {
        return Ok(Vec::new());
    };
    for part in parts {
        all.merge(part, &mut notes);
    }
    let series = all.finish(&mut notes);
    env.note(notes);
    Ok(series)
}

impl Consumer for Groups<'_> {
    fn take(&mut self, env: &EvalContext<'_>, incoming: SeriesRow<'_>) -> Result<(), QueryError> {
        let at = self.keys.group_of(incoming.labels);
        if at == self.groups.len() {
            let labels = self.keys.labels_of(incoming.labels);
            let group = AggregateGroup::new(labels, self.aggregator, self.steps);
            env.charge_bytes(group.size_bytes())?;
            self.groups.push(group);
        }
        let group = &mut self.groups[at];
        group.drop_name |= incoming.drop_name;
        group.numbers(self.aggregator, &incoming.row.values);
        for (step, histogram) in incoming.row.histograms.iter().enumerate() {
            if let Some(histogram) = histogram {
                let place = GroupIndex {
                    metric: incoming.labels.metric(),
                    position: self.position,
                };
                let grown =
                    group.histogram(self.aggregator, step, histogram, &place, incoming.notes);
                env.charge_bytes(grown as u64)?;
            }
        }
        Ok(())
    }
}

impl Groups<'_> {
    /// Takes over what another thread has folded.
    fn merge(&mut self, other: Self, notes: &mut Annotations) {
        for group in other.groups {
            let at = self.keys.group_of(&group.labels);
            match self.groups.get_mut(at) {
                Some(mine) => mine.merge(group, self.aggregator, self.position, notes),
                None => self.groups.push(group),
            }
        }
    }

    fn finish(self, notes: &mut Annotations) -> Vec<LabeledRow> {
        let (aggregator, position) = (self.aggregator, self.position);
        let series = self.groups.into_iter().map(|group| {
            let (labels, drop_name) = (group.labels.clone(), group.drop_name);
            LabeledRow {
                labels,
                drop_name,
                row: group.finish(aggregator, position, notes),
            }
        });
        series.filter(|series| !series.row.is_empty()).collect()
    }
}

/// What annotations about histograms need.
struct GroupIndex<'a> {
    metric: &'a str,
    position: Position,
}

impl AggregateGroup {
    fn new(labels: Labels, aggregator: Aggregator, steps: usize) -> Self {
        let (first, has_rests) = match aggregator {
            Aggregator::Sum | Aggregator::Avg => (KahanSum::EMPTY.sum, true),
            Aggregator::Stddev | Aggregator::Stdvar => (0.0, true),
            _ => (f64::NAN, false),
        };
        Self {
            labels,
            drop_name: false,
            values: vec![first; steps],
            rests: vec![0.0; if has_rests { steps } else { 0 }],
            counts: vec![0.0; steps],
            means: Vec::new(),
            histograms: Vec::new(),
        }
    }

    fn size_bytes(&self) -> u64 {
        (8 * (self.values.len() + self.rests.len() + self.counts.len())) as u64
    }

    fn sum(&self, step: usize) -> KahanSum {
        KahanSum {
            sum: self.values[step],
            rest: self.rests[step],
        }
    }

    fn set_sum(&mut self, step: usize, sum: KahanSum) {
        (self.values[step], self.rests[step]) = (sum.sum, sum.rest);
    }

    /// Takes the numbers of a row. Each aggregation has a loop of its own, without a branch where
    /// there need be none.
    fn numbers(&mut self, aggregator: Aggregator, row: &[f64]) {
        for (count, value) in self.counts.iter_mut().zip(row) {
            *count += f64::from(u8::from(!is_stale(*value)));
        }
        let values = self.values.iter_mut();
        match aggregator {
            Aggregator::Sum => {
                let sums = values.zip(&mut self.rests).zip(row);
                for ((sum, rest), value) in sums {
                    let next = KahanSum {
                        sum: *sum,
                        rest: *rest,
                    };
                    let next = next.plus(*value);
                    let is_absent = is_stale(*value);
                    *sum = if is_absent { *sum } else { next.sum };
                    *rest = if is_absent { *rest } else { next.rest };
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
            Aggregator::Avg => self.averages(row),
            Aggregator::Stddev | Aggregator::Stdvar => {
                let cells = values.zip(&mut self.rests).zip(&self.counts).zip(row);
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

    fn averages(&mut self, row: &[f64]) {
        for (step, value) in row.iter().enumerate() {
            if is_stale(*value) {
                continue;
            }
            let next = self.sum(step).plus(*value);
            let before = self.counts[step] - 1.0;
            let is_mean = self.means.get(step).is_some_and(|is_mean| *is_mean);
            if before == 0.0 || next.sum.is_finite() && !is_mean {
                self.set_sum(step, next);
                continue;
            }
            let mut mean = self.mean(step, before);
            mean.add(*value);
            self.set_mean(step, mean);
        }
    }

    fn mean(&self, step: usize, count: f64) -> Mean {
        let mean = self.sum(step);
        match self.means.get(step) {
            Some(true) => Mean { mean, count },
            _ => Mean::after(mean, count),
        }
    }

    fn set_mean(&mut self, step: usize, mean: Mean) {
        self.set_sum(step, mean.mean);
        self.means.resize(self.values.len(), false);
        self.means[step] = true;
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
            let mine = self.histograms_at(step);
            mine.said.merge(histograms.said);
            mine.failed |= histograms.failed;
            let metric = "";
            let place = GroupIndex { metric, position };
            match &mut mine.total {
                None => mine.total = Some(total),
                Some(mine_total) => {
                    let joined = mine_total.join(*total, aggregator == Aggregator::Avg);
                    mine.failed |= is_incompatible(joined, &place, notes);
                }
            }
        }
    }

    fn merge_step(&mut self, step: usize, other: &Self, aggregator: Aggregator) {
        let (mine, theirs) = (self.counts[step], other.counts[step]);
        if theirs == 0.0 {
            return;
        }
        let all = mine + theirs;
        let value = other.values[step];
        match aggregator {
            _ if mine == 0.0 => {
                self.values[step] = value;
                if let Some(rest) = other.rests.get(step) {
                    self.rests[step] = *rest;
                }
                if other.means.get(step) == Some(&true) {
                    self.means.resize(self.values.len(), false);
                    self.means[step] = true;
                }
            }
            Aggregator::Sum => self.set_sum(step, self.sum(step).join(other.sum(step))),
            Aggregator::Avg => {
                let joined = self.sum(step).join(other.sum(step));
                let has_mean = |group: &Self| group.means.get(step) == Some(&true);
                if joined.sum.is_finite() && !has_mean(self) && !has_mean(other) {
                    self.set_sum(step, joined);
                } else {
                    let weigh = |mean: Mean| KahanSum {
                        sum: mean.mean.sum * (mean.count / all),
                        rest: mean.mean.rest * (mean.count / all),
                    };
                    let (left, right) = (self.mean(step, mine), other.mean(step, theirs));
                    let mean = weigh(left).join(weigh(right));
                    self.set_mean(step, Mean { mean, count: all });
                }
            }
            Aggregator::Min if value < self.values[step] || self.values[step].is_nan() => {
                self.values[step] = value;
            }
            Aggregator::Max if value > self.values[step] || self.values[step].is_nan() => {
                self.values[step] = value;
            }
            Aggregator::Stddev | Aggregator::Stdvar => {
                let delta = other.rests[step] - self.rests[step];
                self.values[step] += value + delta * delta * mine * theirs / all;
                self.rests[step] += delta * theirs / all;
            }
            _ => {}
        }
        self.counts[step] = all;
    }

    fn histograms_at(&mut self, step: usize) -> &mut GroupHistograms {
        let steps = self.values.len();
        self.histograms.resize_with(steps, GroupHistograms::default);
        &mut self.histograms[step]
    }

    /// Takes a histogram of a row, and returns by how many bytes that made the group larger,
    /// roughly.
    fn histogram(
        &mut self,
        aggregator: Aggregator,
        step: usize,
        histogram: &FloatHistogram,
        place: &GroupIndex<'_>,
        notes: &mut Annotations,
    ) -> usize {
        match aggregator {
            Aggregator::Count | Aggregator::Group => self.counts[step] += 1.0,
            Aggregator::Sum | Aggregator::Avg => {
                let mine = self.histograms_at(step);
                mine.said.take(histogram.counter_reset);
                let Some(total) = &mut mine.total else {
                    let total = mine.total.insert(Box::new(Total::of(histogram)));
                    return total.size_bytes();
                };
                let before = total.size_bytes();
                let added = match aggregator {
                    Aggregator::Avg => total.average(histogram),
                    _ => total.add(histogram),
                };
                let grown = total.size_bytes().saturating_sub(before);
                mine.failed |= is_incompatible(added, place, notes);
                return grown;
            }
            _ => {
                let text = annotations::histogram_ignored_in_aggregation(aggregator.name());
                notes.info(place.position, text);
            }
        }
        0
    }

    fn number(&self, aggregator: Aggregator, step: usize) -> f64 {
        let (value, count) = (self.values[step], self.counts[step]);
        match aggregator {
            Aggregator::Sum => self.sum(step).value(),
            Aggregator::Avg if self.means.get(step) == Some(&true) => self.sum(step).value(),
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
                row.values[step] = self.number(aggregator, step);
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
            if histograms.failed {
                continue;
            }
            if histograms.said.contradict() {
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
    added: Result<HistogramConflicts, Incompatible>,
    place: &GroupIndex<'_>,
    notes: &mut Annotations,
) -> bool {
    match added {
        Ok(reconciled) => {
            if reconciled.bounds {
                let text = annotations::bounds_reconciled("aggregation");
                notes.info(place.position, text);
            }
        }
        Err(Incompatible) => {
            notes.warn(place.position, annotations::mixed_schemas(place.metric));
        }
    }
    added.is_err()
}
